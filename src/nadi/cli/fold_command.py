"""``nadi fold``: a job as few ranks and repeats, which answers for all."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from nadi.cli.shared_options import AsJson, Overwrite, SystemName, output_console
from nadi.errors import UsageError

__all__ = ["HELP", "command"]

HELP = """Fold a job: alike ranks become one, and layers, micro-batches and steps are stored once.

The job is a Chakra .et file per rank, a recording, or a folder of nadi record-fake, as
for nadi simulate. The folded job is a file that nadi simulate takes like the job
itself: its answers are those of the whole job, with a bound where alike ranks took
different times. nadi unfold writes all ranks again.

With --to-ranks OUT is a folder instead: a job of so many ranks and a system whose links
let its collectives take the times of the whole job, for another simulator or a small
testbed.

[bold]Examples[/]

  nadi fold TRACES -o small.nadi
  nadi simulate small.nadi --system dgx-h100
  nadi fold TRACES --system dgx-h100 --to-ranks 8 -o eight
  nadi simulate eight --system eight/system.toml
"""


def command(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A folder of files such as workload.0.et, the "
                            "prefix of their names, a folder of recordings, or a folded job.",
                            show_default=False),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", show_default=False,
                          help="Write the folded job to this file (.nadi); with --to-ranks, the "
                          "small job and its system to this folder."),
    ] = "",
    system: SystemName = "",
    to_ranks: Annotated[
        int, typer.Option("--to-ranks", metavar="N", min=0, show_default=False,
                          help="Scale down to so many ranks, as the job runs on --system."),
    ] = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Fold a job, and print its classes of ranks, its repeats and what varies."""
    from nadi.cli.progress_bar import show_progress

    with show_progress(announce=False, use="fold") as progress:
        progress("starting")
        from nadi.load.folded_files import check_folded_output, write_folded
        from nadi.load.simulation_jobs import read_job
        from nadi.pipeline.folded_jobs import fold
        from nadi.report.fold_report import (
            describe_fold,
            describe_scaled,
            print_fold,
            print_scaled,
        )
        from nadi.report.text_layout import print_issues, to_json

        if to_ranks and not system:
            raise UsageError("--to-ranks", "times of communication depend on a system",
                             "give --system, too")  # fmt: skip
        machine = None
        if system:
            from nadi.load.system_library import read_system_file

            machine = read_system_file(system)
        if output and not to_ranks:
            check_folded_output(output, job, overwrite=overwrite)
        found = read_job(job, progress)
        size = len(found) if isinstance(found, list) else len(found.traces)
        folded = fold(found, machine.fit(size) if machine else None, progress)
        described = describe_fold(folded)
        scaled = None
        if machine and to_ranks:
            from nadi.pipeline.scaled_down_jobs import scale_down, write_scaled

            progress("scaling down")
            small = scale_down(folded, machine.fit(size), to_ranks)
            scaled = describe_scaled(small)
            if output:
                write_scaled(small, output, overwrite=overwrite)
        elif output:
            progress(f"writing {output}")
            described["file_bytes"] = write_folded(folded, output)
    if as_json:
        sys.stdout.write(to_json({**described, "scaled_down": scaled}).decode())
        return
    console = output_console()
    print_fold(described, console)
    if scaled:
        print_scaled(scaled, console)
    print_issues(folded.issues.iter_rows(named=True), console)
