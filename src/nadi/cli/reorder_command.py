"""``nadi reorder``: what may start earlier than the program has it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nadi.cli.progress_bar import show_progress
from nadi.cli.shared_options import AsJson, ForceFile, Step, output_console
from nadi.errors import UsageError

__all__ = ["HELP", "command"]

HELP = """Say which operations may start earlier, and what the step would gain.

The order of a program is one of many in which every operation finds its data.
Communication comes first: the sooner it starts, the more of it is hidden. Each
row is a move that was simulated over all ranks: an operation, with what it needs
before it, goes right after another one on its thread, and its work on its stream.
Nothing passes what it needs the data of, what reads the memory that it overwrites,
other communication, random numbers, or a value that the host looks at.

[bold]Examples[/]

  nadi reorder TRACES
  nadi reorder TRACES --step 5 --top 30
  nadi reorder TRACES --apply 3
  nadi reorder TRACES --apply all --json
"""


def command(
    job: Annotated[
        Path,
        typer.Argument(
            metavar="JOB", help="A folder with a pair of host and device trace per rank.",
            show_default=False,
        ),
    ],
    step: Step = "all",
    top: Annotated[
        int, typer.Option("--top", metavar="K", min=1, help="How many moves to show.")
    ] = 10,
    apply: Annotated[
        str,
        typer.Option(
            "--apply", metavar="K|all",
            help="Make so many moves, the best first, each where the former are made.",
        ),
    ] = "0",
    redraw: Annotated[
        str,
        typer.Option(
            "--redraw", metavar="FILE",
            help="Also draw the job before and after the moves made: a timeline, .json or "
            ".pftrace, .gz or not.",
            show_default=False,
        ),
    ] = "",
    force: ForceFile = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Find what may start earlier."""
    if apply != "all" and not (apply.isdecimal() and len(apply) <= 9):
        raise UsageError(f"--apply {apply}", "is neither a number nor all", "give how many moves")
    if redraw and apply == "0":
        raise UsageError("--redraw", "there is no move to draw", "say with --apply how many")
    with show_progress(announce=False) as progress:
        progress("starting")
        from nadi.pipeline.recorded_jobs import reorder_job
        from nadi.report.reorder_report import describe_reordering, print_reordering
        from nadi.report.schedule_timeline import check_timeline, redraw as redraw_timeline
        from nadi.report.text_layout import print_written, to_json

        if redraw:
            check_timeline(redraw, job, force=force)
        most = None if apply == "all" else int(apply)
        answer = reorder_job(job, step=step, most=most, progress=progress)
        left_out = None
        if redraw and answer.together is not None:
            progress(f"writing {redraw}")
            left_out = redraw_timeline(answer.together, redraw)
    if as_json:
        sys.stdout.write(to_json(describe_reordering(answer, top)).decode())
        return
    console = output_console()
    print_reordering(answer, top, console)
    if left_out is not None:
        print_written(redraw, left_out, console)
    elif redraw:
        console.print("nothing was moved, and nothing drawn")
