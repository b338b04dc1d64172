"""``nadi synthesize``: a job from a learned model."""

from __future__ import annotations

from typing import Annotated

import typer

from nadi.results.terminal.options import Overwrite, output_console

HELP = """Make a job from a model that nadi learn wrote.

The job has ranks, layers and steps as one of the learned jobs, or as many as you say.
Communication has all of its members and no deadlock, so that nadi simulate runs it. Equal
seeds give equal files. A width (--hidden) that was not learned needs a model of jobs of
two widths or more.

[bold]Examples[/]

  nadi synthesize model.nadimodel -o JOB
  nadi synthesize model.nadimodel -o JOB --ranks 64 --layers 48 --steps 10 --seed 7
  nadi simulate JOB --system dgx-h100
"""


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model.", show_default=False),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FOLDER", show_default=False,
                          help="Write a Chakra trace per rank and comm_group.json here."),
    ],
    ranks: Annotated[
        int, typer.Option("--ranks", metavar="N", min=0, help="Ranks; 0 for as many as learned."),
    ] = 0,
    layers: Annotated[
        int, typer.Option("--layers", metavar="N", min=0,
                          help="Layers of the whole model; 0 for as many as learned."),
    ] = 0,
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=0, help="Steps; 0 for as many as learned."),
    ] = 0,
    hidden: Annotated[
        int, typer.Option("--hidden", metavar="N", min=0,
                          help="Width of the model, its hidden size; 0 for as learned."),
    ] = 0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Another seed, another job."),
    ] = 0,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="X", min=0,
                            help="1: operations follow each other as often as learned; below 1 "
                            "usual ones more often, above 1 rare ones."),
    ] = 1.0,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Make a job, write it, and print its size."""
    from pathlib import Path

    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="synthesize") as progress:
        from nadi.models.job_files import check_place, write_job
        from nadi.sharing.synthesis.learned_jobs import synthesize
        from nadi.units import format_counted

        progress(f"reading {model}")
        job = synthesize(
            model, ranks=ranks, layers=layers, steps=steps, hidden=hidden, seed=seed,
            temperature=temperature,
        )  # fmt: skip
        check_place(Path(output), "trace", len(job.traces), overwrite=overwrite)
        progress(f"writing {output}")
        files = write_job(job, output, overwrite=overwrite)
    made = format_counted(len(files.traces), "rank")
    nodes = format_counted(files.nodes, "operation")
    output_console().print(f"{made}, {nodes} -> {output}", markup=False)
