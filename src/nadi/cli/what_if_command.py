"""``nadi what-if``: the same step with something changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nadi.cli.progress_bar import show_progress
from nadi.cli.shared_options import AsJson, ForceFile, Step, output_console
from nadi.errors import UsageError

__all__ = ["HELP", "command"]

HELP = """Say how long a step would take after changes, and what would bound it then.

Each change is tried alone, then all of them together. Without a change it says what
there is to gain at most: without communication, launch overhead, gaps, imbalance.

  scale SELECT FACTOR         multiply the time of operations
  set SELECT TIME             let each take a time, such as 10us
  remove SELECT               leave out, with what lies in it and what it launches
  fuse SELECT                 one kernel of neighbours on a stream
  cuda-graph SELECT           launch all device work of each range by one call
  move SELECT to STREAM       put device work on another stream
  add SELECT -> SELECT        let the right wait for the left
  cut KIND SELECT             no longer wait: launch, stream, sync, thread, arrival
  no-overhead [SELECT]        launch device work at no cost
  no-gaps                     no time of threads between operations
  network BANDWIDTH [LATENCY] price communication anew: 400GB/s 5us

SELECT is a regular expression for names, conditions, or both: kind=kernel (host,
device, communication, memcpy, ...), rank=0,1, stream=7, thread=123, in=REGEX for
what lies in a matching operation, annotation or module.

[bold]Examples[/]

  nadi what-if TRACES
  nadi what-if TRACES 'scale gemm kind=kernel 0.5' 'network 400GB/s'
  nadi what-if TRACES 'scale rank=3 {}' --sweep 0.8,0.9,1
  nadi what-if TRACES 'remove nccl' --redraw after.pftrace
"""


def command(
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB", help="A folder with a pair per rank, or a device trace.",
            show_default=False,
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CHANGE]...", help="Changes as above.", show_default=False),
    ] = None,
    step: Step = "all",
    sweep: Annotated[
        str,
        typer.Option(
            "--sweep", metavar="VALUES",
            help="Values to put in the place of {} in all changes, one after the other: 0.5,1,2 "
            "or 0.5:2:0.25 (from, to, step).",
            show_default=False,
        ),
    ] = "",
    redraw: Annotated[
        str,
        typer.Option(
            "--redraw", metavar="FILE",
            help="Write what it looks like before and after all changes, side by side with both "
            "critical paths, for ui.perfetto.dev: .json, .json.gz or .pftrace.",
            show_default=False,
        ),
    ] = "",
    force: ForceFile = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Answer what-if questions."""
    if redraw and sweep:
        raise UsageError(
            "--redraw", "draws one answer, and --sweep asks for several",
            "write a value in the place of {}",
        )  # fmt: skip
    with show_progress(announce=False) as progress:
        progress("starting")
        from nadi.pipeline.recorded_jobs import ask
        from nadi.report.schedule_timeline import check_timeline, redraw as redraw_timeline
        from nadi.report.text_layout import print_written, to_json
        from nadi.report.what_if_report import describe_answers, print_answers

        if redraw:
            check_timeline(redraw, job, force=force)
        answers = ask(job, changes=changes or [], step=step, sweep_over=sweep, progress=progress)
        left_out = None
        if redraw:
            progress(f"writing {redraw}")
            left_out = redraw_timeline(answers.whole, redraw)
    if as_json:
        sys.stdout.write(to_json(describe_answers(answers)).decode())
        return
    console = output_console()
    print_answers(answers, console)
    if left_out is not None:
        print_written(redraw, left_out, console)
