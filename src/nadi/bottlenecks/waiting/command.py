"""``nadi waits``: who waits for whom, and what it costs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from nadi.results.terminal.options import (
    AsJson,
    Capture,
    ExecutorName,
    Overwrite,
    Step,
    TimeRange,
    output_console,
)
from nadi.results.terminal.progress import show_progress

HELP = """Find who waits for whom, and the gain without these waits.

Threads, device streams, transfers between ranks, data loaders and locks are nodes of a
wait-for graph. If A waits for B and B waits for C, the time also counts for C (wPerf's
cascaded redistribution). A chain of waits ends at a thread that waits for no other, or
at a group whose members wait only for each other. The gain of a bottleneck is a replay
in which the work that others wait for takes no time.

A recording of the system's scheduler (perf sched script, perf script, trace-cmd report,
or a Perfetto trace with ftrace events) adds waits of threads for other threads, disk and
network. Such a file can also be given alone.

[bold]Examples[/]

  nadi waits TRACES
  nadi waits TRACES --step 5 --json
  nadi waits TRACES -o waits.html
  nadi waits TRACES --switches switches.txt
  nadi waits switches.txt
"""

_Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACES", show_default=False,
        help="A folder with a pair of traces per rank, the files themselves, or one file of "
        "switches.",
    ),
]  # fmt: skip
_Switches = Annotated[
    str,
    typer.Option(
        "--switches", metavar="FILE", show_default=False,
        help="Switches of threads that the system recorded at the same time, with the clock "
        "CLOCK_REALTIME.",
    ),
]  # fmt: skip

_Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", show_default=False,
        help="Write charts: a page (.html), or that of the bottlenecks (.svg, .png).",
    ),
]  # fmt: skip


def command(
    paths: _Paths,
    step: Step = "all",
    window: TimeRange = "",
    capture: Capture = "",
    switches: _Switches = "",
    output: _Output = None,
    overwrite: Overwrite = False,
    executor: ExecutorName = "",
    as_json: AsJson = False,
) -> None:
    """Print who waits for whom."""
    with show_progress(announce=False, use="waits") as progress:
        progress("starting")
        from nadi.bottlenecks.waiting.bottlenecks import waits
        from nadi.bottlenecks.waiting.result import WAITS, wait_charts
        from nadi.files.files import check_new_file
        from nadi.results.charts.chart_files import CHART_FILES, write_charts
        from nadi.results.terminal.workers import executor_named
        from nadi.results.text import to_json

        if output is not None:
            check_new_file(output, CHART_FILES, overwrite=overwrite)
        with executor_named(executor) as workers:
            found = waits(
                *paths, step=step, window=window, switches=switches, capture=capture,
                executor=workers, progress=progress,
            )  # fmt: skip
        if output is not None:
            write_charts(output, wait_charts(found), "Who waits for whom")
    data = WAITS.data(found)
    if as_json:
        sys.stdout.write(to_json(data).decode())
        return
    WAITS.print(data, output_console())
    if output is not None:
        output_console().print(f"wrote {output}", markup=False)
