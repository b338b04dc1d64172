"""``nadi info``: a summary of each trace."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from nadi.results.terminal.options import output_console

__all__ = ["HELP", "command"]

HELP = """Summarize traces by category, operation, thread and stream.

Each file is summarized on its own, so a host or a device trace alone is enough.
Times are sums of durations; a nested operation also counts in the operations that
enclose it.

[bold]Examples[/]

  nadi info device.json.gz
  nadi info TRACES
  nadi info TRACES --json | jq '.[].nodes'
  nadi info simulated.nadi                   # a result of nadi simulate -o
"""


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACES", help="Traces, or folders of traces.", show_default=False
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list with an object per file.")
    ] = False,
) -> None:  # fmt: skip
    """Describe each trace."""
    from nadi.files.trace_files import read
    from nadi.recordings.discover import TraceFiles, list_files
    from nadi.recordings.rank_map import RANK_MAP
    from nadi.recordings.summary.result import describe, print_description
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
        console.print(f"skipped: {file} (not a trace)", markup=False)
