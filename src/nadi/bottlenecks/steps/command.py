"""``nadi run``: from raw traces to the bottleneck of a step."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from nadi.results.terminal.options import (
    Capture,
    ExecutorName,
    ForceLink,
    Overwrite,
    ReportFile,
    ResultsFolder,
    Step,
    TimeRange,
    output_console,
)
from nadi.results.terminal.progress import show_progress

if TYPE_CHECKING:
    from nadi.bottlenecks.steps.run import Run

HELP = """Find what bounds a step: the critical path over all ranks.

Links host and device traces, replays them, and walks the critical path. Prints first
what bounds the step and the changes that gain most, then the critical path by kind and
operation, exposed communication, and stragglers. With several ranks the path crosses
ranks at collectives.

[bold]Examples[/]

  nadi run TRACES
  nadi run host.json.gz device.json.gz --step 5
  nadi run device.json.gz --window 120ms:180ms
  nadi run TRACES --what-if 'scale nccl 0.5' --what-if 'scale aten::mm 0.8'
  nadi run TRACES --system dgx-h100
  nadi run TRACES --by module
  nadi run decode.json.gz --capture capture_traces
  nadi run TRACES -o results
  nadi run TRACES --report report.html
  nadi run TRACES --json | jq .critical_path_by_kind
"""


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACES",
            help="A folder with a host and a device trace per rank, or the files themselves; "
            "device traces alone are enough. Addresses such as s3://bucket/run work too.",
            show_default=False,
        ),
    ],
    step: Step = "all",
    window: TimeRange = "",
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="EXPR",
            help="Also predict the step time after a change, such as 'scale REGEX FACTOR', which "
            "multiplies the time of the operations whose name matches (a host operation: its "
            "time on the host, without the kernels it launches). Repeatable; each change is "
            "applied alone. nadi what-if --help lists all changes.",
            show_default=False,
        ),
    ] = None,
    system: Annotated[
        str,
        typer.Option(
            "--system",
            metavar="NAME|FILE",
            help="Also predict the step on another system: a name that nadi systems lists, or a "
            "file. Communication gets the time that it takes on that system.",
            show_default=False,
        ),
    ] = "",
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="module",
            help="Also print the time of each module: forward, backward and optimizer.",
            show_default=False,
        ),
    ] = "",
    capture: Capture = "",
    executor: ExecutorName = "",
    output: ResultsFolder = None,
    report: ReportFile = None,
    force: ForceLink = False,
    overwrite: Overwrite = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the content of summary.json only.")
    ] = False,
) -> None:  # fmt: skip
    """Run the main analysis."""
    asked = Request(step, window, what_if or [], system, force, by, capture)
    files = ResultFiles(output, report, overwrite)
    analyse(paths, asked, files, as_json=as_json, executor=executor)


class Request(NamedTuple):
    """What is asked about recordings, by the names of parameters of :func:`nadi.run`."""

    step: str = "all"
    window: str = ""
    what_if: Sequence[str] = ()
    system: str = ""
    force: bool = False
    by: str = ""
    capture: str = ""


class ResultFiles(NamedTuple):
    """The files that are written besides what is printed."""

    folder: Path | None = None
    report: Path | None = None
    overwrite: bool = False


def analyse(
    paths: Sequence[Path | str],
    asked: Request,
    files: ResultFiles,
    *,
    as_json: bool = False,
    announce: bool = False,
    executor: str = "",
) -> Run:
    """Run the main analysis, print it, and write its files.

    With ``announce`` a first compilation is announced even where no terminal listens.
    """
    output, report, overwrite = files
    with show_progress(announce=announce, use="run") as progress:
        progress("starting")
        from nadi.bottlenecks.steps.recorded_jobs import run
        from nadi.bottlenecks.steps.run_report import (
            check_results_folder,
            print_summary,
            summarize,
            write_results,
        )
        from nadi.results.terminal.workers import executor_named
        from nadi.results.text import to_json

        if output is not None:
            check_results_folder(output, overwrite=overwrite)
        if report is not None:
            from nadi.bottlenecks.pages.result_pages import write_run_page
            from nadi.results.page.html_page import check_page

            check_page(report, [Path(path) for path in paths], overwrite=overwrite)
        with executor_named(executor) as workers:
            result = run(*paths, **asked._asdict(), executor=workers, progress=progress)
        written = []
        if output is not None:
            progress("writing results")
            written = write_results(result, output)
        if report is not None:
            progress(f"writing {report}")
            write_run_page(result, report)
            written.append(report)
    if as_json:
        sys.stdout.write(to_json(summarize(result)).decode())
        return result
    console = output_console()
    print_summary(result, console)
    for path in written:
        console.print(f"wrote {path}", markup=False)
    return result
