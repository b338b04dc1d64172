"""``nadi what-if``: the predicted step time after changes, or in another order."""

from pathlib import Path
from typing import Annotated

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import (
    AsJson,
    Capture,
    ExecutorName,
    Overwrite,
    ReportFile,
    Step,
    TimeRange,
    output_console,
    refuse,
)
from nadi.results.terminal.progress import show_progress

HELP = """Predict the step time after changes, and the new bottleneck.

Each change is applied alone, then all of them together. Without a change, upper
bounds are printed: the step without communication, without launch overhead, without
gaps on the host, and with balanced ranks.

  scale SELECT FACTOR         multiply the time of operations
  set SELECT TIME             give each operation a time, such as 10us
  remove SELECT               remove operations, their children and their kernels
  balance SELECT              give each rank the same amount of work
  balanced ranks              the same of all work
  fuse SELECT                 fuse kernels that follow each other on a stream
  cuda-graph SELECT           launch the kernels of each range with one call
  move SELECT to STREAM       run device work on another stream
  add SELECT -> SELECT        make the right operation wait for the left one
  cut KIND SELECT             drop a wait: launch, stream, sync, thread, arrival
  no-overhead [SELECT]        launch device work without overhead
  no-gaps                     remove the time between operations of a thread
  network BANDWIDTH [LATENCY] reprice communication: 400GB/s 5us

SELECT is a regular expression on names, conditions, or both. Conditions: kind=kernel
(host, device, communication, memcpy, ...), rank=0,1, stream=7, thread=123,
step=5 or step=decode (of a serving engine), and in=REGEX for operations inside a
matching operation or annotation, or of a module: in=Block_2 is its forward, its
backward, and the optimizer's work on its parameters.

With --reorder, the command finds operations that can start earlier, and the gain of
each. The order of a program is one of many that its data dependencies allow. More
computation can hide communication that starts earlier, so communication is tried first.
Each row of the result is a move that was replayed over all ranks: an operation moves
right after another one on its thread, with the operations that it depends on, and its
kernels move forward on their stream. A move never breaks a data dependency and never
passes other communication, random number generation, or a value that the host reads.

[bold]Examples[/]

  nadi what-if TRACES
  nadi what-if TRACES 'scale gemm kind=kernel 0.5' 'network 400GB/s'
  nadi what-if TRACES 'scale rank=3 {}' --sweep 0.8,0.9,1
  nadi what-if TRACES 'remove in=Block_2'
  nadi what-if TRACES 'scale in=Attention step=decode 0.5'
  nadi what-if TRACES 'remove nccl' --redraw after.pftrace
  nadi what-if TRACES 'remove nccl' --report after.html
  nadi what-if TRACES --reorder --step 5 --top 30
  nadi what-if TRACES --reorder --apply all --json
"""


_Job = Annotated[
    str,
    typer.Argument(
        metavar="TRACES", show_default=False,
        help="A folder with a pair of traces per rank, or a device trace; with --reorder a pair.",
    ),
]  # fmt: skip
_Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CHANGE]...", help="Changes, as listed above.", show_default=False),
]
_Sweep = Annotated[
    str,
    typer.Option(
        "--sweep", metavar="VALUES",
        help="Values that replace {} in all changes, one after the other: 0.5,1,2 or "
        "0.5:2:0.25 (from, to, step).",
        show_default=False,
    ),
]  # fmt: skip
_Redraw = Annotated[
    str,
    typer.Option(
        "--redraw", metavar="FILE",
        help="Write a timeline of the job before and after all changes or applied moves, with "
        "both critical paths, for ui.perfetto.dev: .json, .json.gz or .pftrace.",
        show_default=False,
    ),
]  # fmt: skip

_PANEL = "With --reorder"
_Reorder = Annotated[
    bool, typer.Option("--reorder", help="Find operations that can start earlier instead.")
]
_Top = Annotated[
    int | None, typer.Option("--top", metavar="ROWS", min=1, show_default="10",
                             rich_help_panel=_PANEL, help="Number of moves to print."),
]  # fmt: skip
_Apply = Annotated[
    str, typer.Option("--apply", metavar="K|all", show_default="0", rich_help_panel=_PANEL,
                      help="Apply this many moves, the best first, each on top of the previous "
                      "ones."),
]  # fmt: skip


def command(
    job: _Job, changes: _Changes = None, step: Step = "all", window: TimeRange = "",
    capture: Capture = "", executor: ExecutorName = "", sweep: _Sweep = "", redraw: _Redraw = "",
    reorder: _Reorder = False, top: _Top = None, apply: _Apply = "", report: ReportFile = None,
    overwrite: Overwrite = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Predict the step time after changes, or find what can start earlier."""
    if reorder:
        refuse("is for changes, and --reorder finds what to change", "leave out one of the two",
               change=" ".join(changes or ()), capture=capture,
               executor=executor, sweep=sweep, report=report)  # fmt: skip
        _reorder(job, step, window, (apply or "0", 10 if top is None else top), redraw,
                 overwrite=overwrite, as_json=as_json)  # fmt: skip
        return
    refuse("is for moves", ["add ", Parameter("reorder")], top=top, apply=apply)
    if redraw and sweep:
        raise UsageError(
            "--redraw", "draws one result, but --sweep computes several",
            "replace {} by a value",
        )  # fmt: skip
    with show_progress(announce=False, use="what-if") as progress:
        progress("starting")
        from nadi.bottlenecks.changes.what_if import ask
        from nadi.bottlenecks.steps.answers import ANSWERS
        from nadi.graph.timeline.schedule_timeline import check_timeline
        from nadi.results.terminal.workers import executor_named
        from nadi.results.text import print_written
        from nadi.whatif.what_if_results import redraw as redraw_timeline

        if redraw:
            check_timeline(redraw, job, overwrite=overwrite)
        if report:
            from nadi.bottlenecks.pages.result_pages import write_answers_page
            from nadi.results.page.html_page import check_page

            check_page(report, [Path(job)], overwrite=overwrite)
        with executor_named(executor) as workers:
            answers = ask(
                job, changes=changes or [], step=step, window=window, sweep_over=sweep,
                capture=capture, executor=workers, progress=progress,
            )  # fmt: skip
        left_out = None
        if redraw:
            progress(f"writing {redraw}")
            left_out = redraw_timeline(answers.whole, redraw)
        if report:
            progress(f"writing {report}")
            write_answers_page(answers, report, Path(job).name)
    ANSWERS.tell(ANSWERS.data(answers), as_json=as_json)
    if as_json:
        return
    console = output_console()
    if left_out is not None:
        print_written(redraw, left_out, console)
    if report:
        console.print(f"wrote {report}", markup=False)


def _reorder(
    job: str, step: str, window: str, wanted: tuple[str, int], redraw: str, *, overwrite: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Find operations that can start earlier: how many moves are applied, and how many printed."""
    apply, top = wanted
    if apply != "all" and not (apply.isdecimal() and len(apply) <= 9):
        raise UsageError(
            f"--apply {apply}",
            "is neither a number nor all",
            "give the number of moves to apply, or all",
        )
    if redraw and apply == "0":
        raise UsageError(
            "--redraw", "without applied moves there is nothing to draw", "add --apply K"
        )
    with show_progress(announce=False, use="reorder") as progress:
        progress("starting")
        from nadi.bottlenecks.changes.what_if import reorder_job
        from nadi.bottlenecks.reordering.result import REORDERING
        from nadi.graph.timeline.schedule_timeline import check_timeline
        from nadi.results.text import print_written
        from nadi.whatif.what_if_results import redraw as redraw_timeline

        if redraw:
            check_timeline(redraw, job, overwrite=overwrite)
        most = None if apply == "all" else int(apply)
        answer = reorder_job(job, step=step, window=window, most=most, progress=progress)
        left_out = None
        if redraw and answer.together is not None:
            progress(f"writing {redraw}")
            left_out = redraw_timeline(answer.together, redraw)
    REORDERING.tell(REORDERING.data((answer, top)), as_json=as_json)
    if as_json:
        return
    console = output_console()
    if left_out is not None:
        print_written(redraw, left_out, console)
    elif redraw:
        console.print("no move was applied, so no timeline was written")
