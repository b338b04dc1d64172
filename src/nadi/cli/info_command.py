"""``nadi info``: a summary of each trace, or whether it keeps the rules of the data model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from nadi.results.terminal.options import output_console, refuse

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

HELP = """Summarize traces by category, operation, thread and stream.

Each file is summarized on its own, so a host or a device trace alone is enough.
Times are sums of durations; a nested operation also counts in the operations that
enclose it.

With --check, each file is checked against the rules of the data model instead, which
docs/data-model.md lists. If there are device traces, they are also linked as in nadi
run, and the linked traces and the job are checked. The exit code is 1 if a rule is
violated or a trace has no operations.

[bold]Examples[/]

  nadi info device.json.gz
  nadi info TRACES
  nadi info TRACES --json | jq '.[].nodes'
  nadi info simulated.nadi                   # a result of nadi simulate -o
  nadi info TRACES --check
"""


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACES", help="Traces, or folders of traces.", show_default=False
        ),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Check the rules of the data model, and print which "
                           "are violated."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list with an object per file.")
    ] = False,
) -> None:  # fmt: skip
    """Describe or check each trace."""
    if check:
        refuse("describes traces, and --check checks them", "leave out one of the two",
               json=as_json)  # fmt: skip
        _check(paths)
        return
    from nadi.files.trace_files import read
    from nadi.recordings.discover import TraceFiles, list_files
    from nadi.recordings.rank_map import RANK_MAP
    from nadi.recordings.summary import describe, print_description
    from nadi.results.text import to_json
    from nadi.simulation.runs.result import SIMULATION
    from nadi.simulation.runs.saved import is_saved_simulation, read_simulation

    saved = [path for path in paths if is_saved_simulation(path)]
    traces = [path for path in paths if path not in saved]
    files = list_files(traces) if traces else TraceFiles()
    simulations = [read_simulation(path) for path in saved]
    data = [describe(read(file)) for file in files.traces]
    if as_json:
        sys.stdout.write(to_json([*data, *map(SIMULATION.data, simulations)]).decode())
        return
    console = output_console()
    for number, one in enumerate(data):
        if number:
            console.print()
        print_description(one, console)
    for number, (path, done) in enumerate(zip(saved, simulations, strict=True)):
        if number or data:
            console.print()
        console.print(f"{path}  (a simulated job)", style="bold", markup=False)
        SIMULATION.print(SIMULATION.data(done), console)
    for file in (one for one in files.ignored if one.name != RANK_MAP):
        console.print(_of_no_trace(file), markup=False)


def _of_no_trace(file: Path) -> str:
    """Say what a file is that has no trace: files that Nadi writes beside traces are known."""
    from nadi.models.job_files import COMM_GROUPS
    from nadi.sharing.obfuscation.obfuscate import REPORT, read_report

    if file.name == REPORT:
        return f"{file}: the report of the obfuscated job, level {read_report(file).level}"
    if file.name == COMM_GROUPS:
        return f"{file}: the process groups of the job"
    return f"skipped: {file} (not a trace)"


def _check(paths: list[str]) -> None:
    """Check each trace, and the job that they form."""
    from nadi.files.trace_files import read
    from nadi.recordings.discover import list_files
    from nadi.recordings.job_of_files import load_job, why_empty
    from nadi.trace.validate import validate_job, validate_trace
    from nadi.units import printable

    files = list_files(paths)
    traces = [read(file) for file in files.traces]
    found: list[tuple[str, pl.DataFrame]] = [
        (str(file), validate_trace(trace)) for file, trace in zip(files.traces, traces, strict=True)
    ]
    reasons = zip(map(str, files.traces), map(why_empty, traces), strict=True)
    empty = {file: why for file, why in reasons if why}
    if files.devices and not empty:
        job = load_job(*paths)
        found += [(f"rank {t.rank}, linked", validate_trace(t)) for t in job.traces]
        found.append(("job", validate_job(job)))
    for what, broken in found:
        if what in empty:
            typer.echo(printable(f"{what}: {empty[what]}"))
        elif broken.is_empty():
            typer.echo(printable(f"{what}: valid"))
        for code, _, count, detail, _ in broken.iter_rows():
            typer.echo(printable(f"{what}: {code}: {count} {detail}"))
    if empty or any(broken.height for _, broken in found):
        raise typer.Exit(1)
