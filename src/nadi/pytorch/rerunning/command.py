"""``nadi rerun``: the operators of a recording, run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nadi.results.terminal.options import AsJson, Overwrite

if TYPE_CHECKING:
    from nadi.pytorch.rerunning.replay import ReplayedJob

HELP = """Run the operators of a recording again, on random data.

Every operator is called in its recorded order, with the recorded shapes, strides, types,
views and shared memory, and collectives among one process per rank (--comm gloo). Prints
the time of a step and what could not be replayed. -o records the replay, and compares
each operator with the original. --script writes a program that needs PyTorch only and
shows nothing of the model. Needs PyTorch in the same environment. docs/replay.md has more.

Recordings of others are safe to replay: only operators are called that work on tensors
alone and stay in their memory. Others are named and skipped, unless --allow names them.

[bold]Examples[/]

  nadi rerun TRACES                              time the steps of a recording
  nadi rerun TRACES --comm gloo -o AGAIN         all ranks, recorded again
  nadi rerun TRACES --operator aten::mm          only these calls
  nadi rerun TRACES --script step.py             a program to send to a vendor
  nadi run AGAIN                                  analyse the replay
"""


def command(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACES...", show_default=False,
                       help="A folder with a pair of traces per rank, or files."),
    ],
    device: Annotated[
        str, typer.Option("--device", metavar="cpu|cuda", help="Where the tensors are.")
    ] = "cpu",
    comm: Annotated[
        str, typer.Option("--comm", metavar="none|gloo|nccl",
                          help="What collectives and messages go over; none leaves them out."),
    ] = "none",
    operator: Annotated[
        str, typer.Option("--operator", metavar="NAME", show_default=False,
                          help="Replay only the calls of one operator, such as aten::mm."),
    ] = "",
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="OPERATOR", show_default=False,
                     help="Call this operator, too, such as my_library::attention."),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", help="How often the steps are timed.")
    ] = 5,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FOLDER", show_default=False,
                     help="Record the replay to this folder, and compare it."),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option("--script", metavar="FILE", show_default=False,
                     help="Write the replay of the first rank as a Python program."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Replay, and print how long it took."""
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="replay") as progress:
        from nadi.pytorch.rerunning.replay import replay
        from nadi.pytorch.rerunning.replay_run import OperatorChoice
        from nadi.pytorch.rerunning.result import check_script

        if script is not None:
            check_script(script, traces, overwrite=overwrite)
        done = replay(
            *traces, device=device, comm=comm,
            operators=OperatorChoice(operator, tuple(allow or ())), output=output,
            repeats=repeats, overwrite=overwrite, progress=progress,
        )  # fmt: skip
    _show(done, output, script, as_json=as_json)


def _show(done: ReplayedJob, output: Path | None, script: Path | None, *, as_json: bool) -> None:
    from nadi.pytorch.rerunning.result import REPLAY, write_script

    if script is not None:
        write_script(script, done)
    REPLAY.tell(REPLAY.data(done), output, script, as_json=as_json)
