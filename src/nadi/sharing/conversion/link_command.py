"""``nadi link``: one linked trace per rank from host and device traces."""

from pathlib import Path
from typing import Annotated

import typer

from nadi.results.terminal.options import (
    ChakraSchema,
    ExecutorName,
    ForceLink,
    Format,
    Overwrite,
    output_console,
    refuse,
)

HELP = """Link host and device traces into one trace per rank.

Ranks are linked in parallel on all cores. The ranks of a folder become rank0.et,
rank1.et, ... in the folder OUT; a single rank can be written to a file. --to or the
suffix of OUT selects the format, as for nadi convert. Device traces alone are enough.

Operations are matched by record function id, by External id, or by the order of
their names on each thread. The match rate is printed. If fewer than 95 % of the
operations have equal names, the two files are not from one run: they are refused,
unless --force is given.

With --for astra-sim, OUT gets the input of ASTRA-sim: trace.0.et, trace.1.et, ...,
in which no work is nested and no time counts twice, and comm_group.json. Give all
ranks.

[bold]Examples[/]

  nadi link host.json.gz device.json.gz -o rank0.et
  nadi link TRACES -o LINKED
  nadi link TRACES -o LINKED --to nadi
  nadi link s3://bucket/run -o LINKED --executor processes --resume
  nadi link TRACES -o SIMULATION --for astra-sim
"""


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACES",
            help="A host and a device trace, or a folder with a pair for each rank.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="OUT", help="A folder, or a file for one rank.",
                          show_default=False),
    ],
    to: Format = "",
    schema: ChakraSchema = "",
    simulator: Annotated[
        str, typer.Option("--for", metavar="SIMULATOR", help="Write the input of a simulator: "
                          "astra-sim.", show_default=False),
    ] = "",
    executor: ExecutorName = "",
    force: ForceLink = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep ranks that are linked where the command is "
                           "stopped, and link only the others when it is given again."),
    ] = False,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Link, and print the input and output of each rank and all issues."""
    if simulator:
        refuse("is for traces, which --for does not write", "leave it out", executor=executor,
               resume=resume)  # fmt: skip
        _export(paths, output, simulator, to or schema, force=force, overwrite=overwrite)
    else:
        _link(
            paths, output, to, schema, executor, force=force, resume=resume, overwrite=overwrite
        )  # fmt: skip


def _link(
    paths: list[str], output: str, to: str, schema: str, executor: str, *, force: bool,
    resume: bool, overwrite: bool,
) -> None:  # fmt: skip
    from rich.text import Text

    from nadi.results.terminal.progress import show_progress
    from nadi.results.terminal.workers import executor_named
    from nadi.results.text import print_issues
    from nadi.sharing.conversion.link_files import link_files
    from nadi.trace.issues import summed_issues
    from nadi.units import format_count, printable

    with (
        show_progress(announce=True, use="link") as progress,
        executor_named(executor) as workers,
    ):
        done = link_files(
            *paths, output=output, to=to, schema=schema, force=force, overwrite=overwrite,
            resume=resume, executor=workers, progress=progress,
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

    from nadi.errors import UsageError
    from nadi.recordings.job_of_files import load_job
    from nadi.results.terminal.progress import show_progress
    from nadi.results.text import print_issues
    from nadi.simulation.workload.astra_sim_files import write_for_astra_sim
    from nadi.trace.issues import summed_issues
    from nadi.units import format_count, printable

    if simulator != "astra-sim":
        raise UsageError(f"--for {simulator}", "unknown simulator", "use --for astra-sim")
    if refused:
        raise UsageError(
            f"--for {simulator}",
            "the simulator determines the format",
            "leave out --to and --schema",
        )
    with show_progress(announce=True, use="link") as progress:
        job = load_job(*paths, force=force, progress=progress)
        progress("writing for ASTRA-sim")
        done = write_for_astra_sim(job, output, overwrite=overwrite)
    console = output_console(wraps=False)
    # an idle rank beside a single one comes from no trace
    for trace, target, nodes in zip(job.traces, done.traces, done.nodes, strict=False):
        line = f"rank {trace.rank} -> {target} ({format_count(nodes)} nodes)"
        console.print(Text(printable(line)))
    line = f"process groups -> {done.comm_groups} ({format_count(done.num_groups)})"
    console.print(Text(printable(line)))
    issues = summed_issues([*(trace.issues for trace in job.traces), job.issues, done.issues])
    print_issues(issues.iter_rows(named=True), console)
