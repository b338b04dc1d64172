"""``nadi record-fake``: a program as ranks of a job, without devices."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import AsJson, Overwrite, output_console

__all__ = ["HELP", "command"]

HELP = """Record a PyTorch program as a job of any size, without a GPU.

The program runs unchanged, as one rank after the other, on tensors that have shapes and
no memory: operators, sharding and collectives are those of the true job. Ranks that do
the same are found and recorded once. Times are not recorded: nadi simulate prices
operations by their shapes. Needs PyTorch 2.6 or newer in the same environment; its CPU
build suffices. docs/record-fake.md has more.

[bold]Examples[/]

  nadi record-fake --world 1024 -o JOB -- python train.py --layers 2
  nadi record-fake --world 4096 --rank 0,8 -o JOB -- python -m package.train
  nadi simulate JOB --system dgx-h100
"""


def command(
    program: Annotated[
        list[str],
        typer.Argument(metavar="-- PROGRAM...", show_default=False,
                       help="A script, or -m and a module, with arguments; python may be before."),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FOLDER", show_default=False,
                          help="Where the traces are written, and ranks.json."),
    ],
    world: Annotated[
        int, typer.Option("--world", metavar="N", help="Number of ranks of the job.")
    ] = 8,
    rank: Annotated[
        str, typer.Option("--rank", metavar="all|0,5",
                          help="The ranks to record, or all: one of those that do the same."),
    ] = "all",
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", help="Number of steps to record.")
    ] = 1,
    warmup: Annotated[
        int, typer.Option("--warmup", metavar="N", help="Number of steps before them.")
    ] = 1,
    device: Annotated[
        str, typer.Option("--device", metavar="NAME",
                          help="Name of the GPU that the program finds."),
    ] = "H100",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Record the program, and print what each kind of rank does."""
    from nadi.pytorch.fake.fake_job import FakeOptions, record_fake_job
    from nadi.pytorch.fake.result import describe_fake_job, print_fake_job
    from nadi.results.terminal.progress import show_progress
    from nadi.results.text import to_json

    with show_progress(announce=False, use="record-fake") as progress:
        done = record_fake_job(
            program, output, FakeOptions(world, _ranks(rank), steps, warmup, device),
            overwrite=overwrite, progress=progress,
        )  # fmt: skip
    if as_json:
        sys.stdout.write(to_json(describe_fake_job(done)).decode())
        return
    print_fake_job(done, output_console())


def _ranks(text: str) -> list[int] | None:
    if text == "all":
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            Parameter("rank", text), "it must be all, or ranks", "write it such as 0,5"
        ) from None
