"""``nadi link``: raw traces into linked ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nadi.cli.shared_options import ChakraSchema, ForceLink, Format, output_console

__all__ = ["HELP", "command"]

HELP = """Link the host and device traces of each rank, and write each as one trace.

Any number of ranks, side by side on all cores. A folder's ranks become rank0.et and so on
in the folder OUT; one rank may be a file. What is written, --to or the suffix of OUT
tells, as for nadi convert. Device traces alone will do.

Operations are matched by their record function ids, by External ids, or by the order of
their names on each thread; the rate is told. Where under 95 % have the same name, the two
are not of one run and refused, unless --force.

With --for astra-sim the folder OUT gets what that simulator takes: trace.0.et and so on,
in which work nests no more and no time counts twice, and comm_group.json. Give all ranks.

[bold]Examples[/]

  nadi link host.json.gz device.json.gz -o rank0.et
  nadi link TRACES -o LINKED
  nadi link TRACES -o LINKED --to nadi
  nadi link TRACES -o SIMULATION --for astra-sim
"""


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="A host and a device trace, or a folder with a pair for each rank.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="OUT", help="A folder; a file, for one rank.",
                          show_default=False),
    ],
    to: Format = "",
    schema: ChakraSchema = "",
    simulator: Annotated[
        str, typer.Option("--for", metavar="SIMULATOR", help="Write what a simulator takes; "
                          "there is astra-sim.", show_default=False),
    ] = "",
    force: ForceLink = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files that are there.")
    ] = False,
) -> None:  # fmt: skip
    """Link, and say for each rank what was read and written, and of all what was met."""
    if simulator:
        _export(paths, output, simulator, to or schema, force=force, overwrite=overwrite)
    else:
        _link(paths, output, to, schema, force=force, overwrite=overwrite)


def _link(
    paths: list[str], output: str, to: str, schema: str, *, force: bool, overwrite: bool
) -> None:
    from rich.text import Text

    from nadi.cli.progress_bar import show_progress
    from nadi.model.issues import summed_issues
    from nadi.pipeline.linking import link_files
    from nadi.report.text_layout import print_issues
    from nadi.units import format_count, printable

    with show_progress(announce=True) as progress:
        done = link_files(
            *paths, output=output, to=to, schema=schema, force=force, overwrite=overwrite,
            progress=progress,
        )  # fmt: skip
    console = output_console(wraps=False)
    for one in done.files:
        files = " + ".join(Path(source).name for source in one.sources)
        counts = f"{format_count(one.nodes)} nodes, {format_count(one.deps)} dependencies"
        line = f"rank {one.rank}: {files} -> {one.target} ({one.format}, {counts})"
        console.print(Text(printable(line)))
    if len(done.files) > 1:
        console.print(f"collectives matched across ranks: {format_count(done.num_collectives)}")
    issues = summed_issues([*(one.issues for one in done.files), done.issues])
    print_issues(issues.iter_rows(named=True), console)


def _export(
    paths: list[str], output: str, simulator: str, refused: str, *, force: bool, overwrite: bool
) -> None:
    from rich.text import Text

    from nadi.cli.progress_bar import show_progress
    from nadi.errors import UsageError
    from nadi.load.recordings import load_job
    from nadi.model.issues import summed_issues
    from nadi.report.text_layout import print_issues
    from nadi.units import format_count, printable
    from nadi.workload.astra_sim_files import write_for_astra_sim

    if simulator != "astra-sim":
        raise UsageError(f"--for {simulator}", "no such simulator is known", "there is astra-sim")
    if refused:
        raise UsageError(
            f"--for {simulator}", "a simulator takes one format only", "leave out --to and --schema"
        )
    with show_progress(announce=True) as progress:
        job = load_job(*paths, force=force, progress=progress)
        progress("writing for ASTRA-sim")
        done = write_for_astra_sim(job, output, overwrite=overwrite)
    console = output_console(wraps=False)
    for trace, target, nodes in zip(job.traces, done.traces, done.nodes, strict=True):
        line = f"rank {trace.rank} -> {target} ({format_count(nodes)} nodes)"
        console.print(Text(printable(line)))
    line = f"groups of ranks -> {done.comm_groups} ({format_count(done.num_groups)})"
    console.print(Text(printable(line)))
    issues = summed_issues([*(trace.issues for trace in job.traces), job.issues, done.issues])
    print_issues(issues.iter_rows(named=True), console)
