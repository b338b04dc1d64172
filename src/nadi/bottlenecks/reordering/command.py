"""``nadi reorder``: find operations that can start earlier."""

from __future__ import annotations

from typing import Annotated

import typer

from nadi.errors import UsageError
from nadi.results.terminal.options import AsJson, Overwrite, Step, TimeRange, output_console
from nadi.results.terminal.progress import show_progress

__all__ = ["HELP", "command"]

HELP = """Find operations that can start earlier, and what that gains.

The order of a program is one of many in which every operation finds its data. Early
communication can be hidden by more computation, so communication is tried first.
Each row of the result is a move that was replayed over all ranks: an operation, with
the operations that it depends on, moves right after another one on its thread, and
its kernels move forward on their stream. A move never breaks a data dependency and
never passes other communication, random number generation, or a value that the host
reads.

[bold]Examples[/]

  nadi reorder TRACES
  nadi reorder TRACES --step 5 --top 30
  nadi reorder TRACES --apply 3
  nadi reorder TRACES --apply all --json
"""


_Job = Annotated[
    str,
    typer.Argument(
        metavar="TRACES", help="A folder with a host and a device trace per rank.",
        show_default=False,
    ),
]  # fmt: skip
_Top = Annotated[
    int, typer.Option("--top", metavar="ROWS", min=1, help="Number of moves to print.")
]
_Apply = Annotated[
    str,
    typer.Option(
        "--apply", metavar="K|all",
        help="Apply this many moves, the best first, each on top of the previous ones.",
    ),
]  # fmt: skip
_Redraw = Annotated[
    str,
    typer.Option(
        "--redraw", metavar="FILE",
        help="Also write a timeline of the job before and after the applied moves: .json, "
        ".json.gz or .pftrace.",
        show_default=False,
    ),
]  # fmt: skip


def command(
    job: _Job,
    step: Step = "all",
    window: TimeRange = "",
    top: _Top = 10,
    apply: _Apply = "0",
    redraw: _Redraw = "",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Find operations that can start earlier."""
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
        from nadi.whatif.drawn_answers import redraw as redraw_timeline

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
