"""``nadi record``: a few steps of a program, or a job of any size that it would be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import Overwrite, output_console, refuse

if TYPE_CHECKING:
    from nadi.pytorch.collecting.collected_runs import Collected
    from nadi.pytorch.fake.fake_job import FakeOptions

HELP = """Run a PyTorch program unchanged, and record a few steps.

Each rank writes a Kineto trace, and an execution trace of the following steps, into a
folder that nadi run takes. A step ends at the first of these that the program has:
profiler.step(); a step of its first optimizer; a backward call; the end of an outermost
block of no_grad or inference_mode that calls a module (a server); a call of a module.
The program keeps its output and its exit code. Messages of this command go to standard
error.

With --check, nothing runs. The command reads a folder of recordings and prints what is
missing: files, ranks, steps, and what analyses need. The exit code is 1 if a part of the
job cannot be analysed.

With --fake, the program is recorded as a job of any size, without a GPU. It runs as one
rank after the other, on tensors that have shapes and no memory: operators, sharding and
collectives are those of the true job. Ranks that do the same are found and recorded once.
Times are not recorded: nadi simulate prices operations by their shapes. Needs PyTorch 2.6
or newer in the same environment; its CPU build suffices. docs/record-fake.md has more.

[bold]Examples[/]

  nadi record -- python train.py
  nadi record --steps 5 -o traces -- torchrun --nproc-per-node 8 train.py
  nadi record --locks -- python server.py && nadi waits nadi_traces
  nadi record --check nadi_traces
  nadi record --fake --world 1024 -o JOB -- python train.py --layers 2
  nadi simulate JOB --system dgx-h100
"""

_RECORDING, _FAKE = "Without --fake", "With --fake"
_Program = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- PROGRAM...", show_default=False,
                   help="The program and its arguments; a .py file runs in this Python. With "
                   "--fake a script, or -m and a module; python may be before."),
]  # fmt: skip
_Folder = Annotated[
    Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where the files go.")
]
_Steps = Annotated[
    int | None, typer.Option("--steps", metavar="N", show_default="3; with --fake 1",
                             help="How many steps are recorded."),
]  # fmt: skip
_Warmup = Annotated[
    int | None,
    typer.Option("--warmup", metavar="N", show_default="2; with --fake 1",
                 help="How many steps pass before, at least 2 without --fake; with 5 or more the "
                 "cost of recording is known although the program ends with the recording."),
]  # fmt: skip
_Stacks = Annotated[
    bool, typer.Option("--stacks", rich_help_panel=_RECORDING,
                       help="Record Python stacks and calls of modules; slow."),
]  # fmt: skip
_Memory = Annotated[
    bool, typer.Option("--memory", rich_help_panel=_RECORDING, help="Record allocations and frees.")
]
_Shapes = Annotated[
    bool, typer.Option("--shapes", rich_help_panel=_RECORDING,
                       help="Shapes of operands in the Kineto trace as well."),
]  # fmt: skip
_Sync = Annotated[
    bool, typer.Option("--sync/--no-sync", rich_help_panel=_RECORDING,
                       help="Synchronization events of the device, where PyTorch has them."),
]  # fmt: skip
_Locks = Annotated[
    bool, typer.Option("--locks", rich_help_panel=_RECORDING,
                       help="Record waits for threading.Lock, for nadi waits."),
]  # fmt: skip
_Check = Annotated[
    Path | None,
    typer.Option("--check", metavar="FOLDER", show_default=False, rich_help_panel=_RECORDING,
                 help="Say what is missing in a folder of recordings, and run nothing."),
]  # fmt: skip
_Fake = Annotated[bool, typer.Option("--fake", help="Record a job of any size, without a GPU.")]
_World = Annotated[
    int | None, typer.Option("--world", metavar="N", show_default="8", rich_help_panel=_FAKE,
                             help="Number of ranks of the job."),
]  # fmt: skip
_Rank = Annotated[
    str, typer.Option("--rank", metavar="all|0,5", show_default="all", rich_help_panel=_FAKE,
                      help="The ranks to record, or all: one of those that do the same."),
]  # fmt: skip
_Device = Annotated[
    str, typer.Option("--device", metavar="NAME", show_default="H100", rich_help_panel=_FAKE,
                      help="Name of the GPU that the program finds."),
]  # fmt: skip
_Json = Annotated[bool, typer.Option("--json", rich_help_panel=_FAKE, help="Print JSON only.")]


def command(
    program: _Program = None, folder: _Folder = Path("nadi_traces"), steps: _Steps = None,
    warmup: _Warmup = None, overwrite: Overwrite = False, stacks: _Stacks = False,
    memory: _Memory = False, shapes: _Shapes = False, sync: _Sync = True, locks: _Locks = False,
    check: _Check = None, fake: _Fake = False, world: _World = None, rank: _Rank = "",
    device: _Device = "", as_json: _Json = False,
) -> None:  # fmt: skip
    """Run and record, or check what was recorded."""
    asked = {"steps": steps, "warmup": warmup}
    counts = {name: value for name, value in asked.items() if value is not None}
    if fake:
        refuse("is for programs that run on devices", "leave it or --fake out",
               stacks=stacks, memory=memory, shapes=shapes, no_sync=not sync, locks=locks,
               check=check)  # fmt: skip
        from nadi.pytorch.fake.fake_job import FakeOptions

        wanted = FakeOptions(
            8 if world is None else world, _ranks(rank or "all"), **counts, device=device or "H100"
        )
        _record_fake(program or [], folder, wanted, overwrite=overwrite, as_json=as_json)
        return
    refuse("is for a job that is recorded without devices", ["add ", Parameter("fake")],
           world=world, rank=rank, device=device, json=as_json)  # fmt: skip
    if check is not None:
        _check(check, program)
        return
    from nadi.pytorch.collecting.collected_runs import CollectOptions, collect

    options = CollectOptions(
        **counts, stacks=stacks, memory=memory, shapes=shapes, sync=sync, locks=locks
    )
    found = collect(program or [], folder, options, overwrite=overwrite)
    _say(found)
    raise typer.Exit(found.exit_code)


def _record_fake(
    program: list[str], folder: Path, wanted: FakeOptions, *, overwrite: bool, as_json: bool
) -> None:
    """Record the program without devices, and print what each kind of rank does."""
    from nadi.pytorch.fake.fake_job import FAKE_JOB, record_fake_job
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="record") as progress:
        done = record_fake_job(program, folder, wanted, overwrite=overwrite, progress=progress)
    FAKE_JOB.tell(FAKE_JOB.data(done), as_json=as_json)


def _ranks(text: str) -> list[int] | None:
    if text == "all":
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            Parameter("rank", text), "it must be all, or ranks", "write it such as 0,5"
        ) from None


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
        from nadi.pytorch.collecting.collected_runs import check_recordings, recording_lines

        found = check_recordings(folder, progress=progress)
    for line in recording_lines(found, str(folder)):
        output_console().print(line, markup=False)
    if found.missing:
        raise typer.Exit(1)


def _say(found: Collected) -> None:
    """Print what was recorded to standard error."""
    from shlex import quote

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
        lines.append(f"analyse it: nadi run {quote(str(found.folder))}")
    else:
        lines.append("nothing was recorded")
    lines += [f"missing: {text}" for text in found.missing]
    if found.exit_code:
        lines.append(f"the program ended with exit code {found.exit_code}")
    for line in lines:
        sys.stderr.write(f"nadi record: {printable(line)}\n")
