"""``nadi collect``: run a program, and record a few of its steps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import Overwrite, output_console

if TYPE_CHECKING:
    from nadi.pytorch.collecting.collected_runs import Collected

__all__ = ["HELP", "command"]

HELP = """Run a PyTorch program unchanged, and record a few steps.

Each rank writes a Kineto trace, and an execution trace of the steps after these, into a
folder that nadi run takes. A step ends at profiler.step() of the program, else when its
first optimizer has stepped, else after a backward call, else at the end of an outermost
block of no_grad or inference_mode that calls a module (a server), else after a call of
a module. The program keeps its output and its exit code; what this command says goes to
standard error.

With --check, nothing runs: a folder of recordings is read, and what is missing is said:
files, ranks, steps, and what analyses need. The exit code is 1 if a part of the job
cannot be analysed.

[bold]Examples[/]

  nadi collect -- python train.py
  nadi collect --steps 5 -o traces -- torchrun --nproc-per-node 8 train.py
  nadi collect --locks -- python server.py && nadi waits nadi_traces
  nadi collect --check nadi_traces
"""


def command(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- PROGRAM...", show_default=False,
                       help="The program and its arguments; a .py file runs in this Python."),
    ] = None,
    folder: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where the files go.")
    ] = Path("nadi_traces"),
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", help="How many steps are recorded.")
    ] = 3,
    warmup: Annotated[
        int, typer.Option("--warmup", metavar="N",
                          help="How many steps pass before, at least 2; with 5 or more the cost of "
                          "recording is known although the program ends with the recording."),
    ] = 2,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Record Python stacks and calls of modules; slow.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Record allocations and frees.")
    ] = False,
    shapes: Annotated[
        bool, typer.Option("--shapes", help="Shapes of operands in the Kineto trace as well.")
    ] = False,
    sync: Annotated[
        bool, typer.Option("--sync/--no-sync",
                           help="Synchronization events of the device, where PyTorch has them."),
    ] = True,
    locks: Annotated[
        bool, typer.Option("--locks", help="Record waits for threading.Lock, for nadi waits.")
    ] = False,
    overwrite: Overwrite = False,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FOLDER", show_default=False,
                     help="Say what is missing in a folder of recordings, and run nothing."),
    ] = None,
) -> None:  # fmt: skip
    """Run and record, or check what was recorded."""
    if check is not None:
        _check(check, program)
        return
    from nadi.pytorch.collecting.collected_runs import CollectOptions, collect

    options = CollectOptions(steps, warmup, stacks, memory, shapes, sync, locks)
    found = collect(program or [], folder, options, overwrite=overwrite)
    _say(found)
    raise typer.Exit(found.exit_code)


def _check(folder: Path, program: list[str] | None) -> None:
    """Print what a folder has and lacks."""
    from nadi.results.terminal.progress import show_progress

    if program:
        raise UsageError(
            Parameter("check", str(folder)), "it runs nothing, and a program is given",
            ["leave out one of the two"],
        )  # fmt: skip
    with show_progress(announce=False, use="analyze") as progress:
        progress("starting")
        from nadi.pytorch.collecting.checked_recordings import check_recordings
        from nadi.pytorch.collecting.recording_check_report import print_recording_check

        found = check_recordings(folder, progress=progress)
    print_recording_check(found, str(folder), output_console())
    if found.missing:
        raise typer.Exit(1)


def _say(found: Collected) -> None:
    """Print what was recorded to standard error."""
    from nadi.results.text import rank_ranges
    from nadi.units import format_counted, printable

    lines = []
    if found.files:
        several = len(found.ranks) > 1
        lines.append(
            f"recorded {format_counted(found.num_steps, 'step')} of rank{'s' if several else ''} "
            f"{rank_ranges(found.ranks)} in {found.folder}; steps were found by {found.steps_by}"
        )
        lines.append(
            "what recording costs is unknown: no step ran without a recorder (--warmup 5)"
            if found.overhead is None
            else f"steps that are timed took {100 * abs(found.overhead):.1f} % "
            f"{'longer' if found.overhead >= 0 else 'less'} than steps without a recorder"
        )
        lines.append(f"analyse it: nadi run {found.folder}")
    else:
        lines.append("nothing was recorded")
    lines += [f"missing: {text}" for text in found.missing]
    if found.exit_code:
        lines.append(f"the program ended with exit code {found.exit_code}")
    for line in lines:
        sys.stderr.write(f"nadi collect: {printable(line)}\n")
