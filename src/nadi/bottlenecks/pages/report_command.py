"""``nadi report``: the main analysis as one HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from nadi.results.terminal.options import (
    Capture,
    ExecutorName,
    ForceLink,
    Overwrite,
    Step,
    TimeRange,
    output_console,
)
from nadi.results.terminal.progress import show_progress

if TYPE_CHECKING:
    from nadi.bottlenecks.differences.predictions import ReportInputs
    from nadi.recordings.job_of_files import Reading

HELP = """Write what nadi run finds as one HTML page, with a timeline.

The verdict comes first, then a timeline, the critical path by kind, operation and
module, ranks and streams, stragglers, collectives, kernels, and the source files.
The page opens from disk, and makes no request to a server.

Two recordings are compared: what changed between them comes first, and the timeline
shows both.

A recording and a prediction of it are compared, too: a simulation (nadi simulate -o,
best as .nadi, whose timeline is drawn below the measured one) or an estimate (the JSON
of nadi estimate); or --system, or --what-if.

Results that other commands wrote as JSON, such as the summary.json of nadi run -o, have
pages of their own, or are sections of a recording's page: those of run, what-if, simulate,
estimate, search, waits, fold, similarity, memory place, memory plan and serve.

With --open the page is shown in the browser until Ctrl-C; FILE.html is a page of an earlier
run. It is served to this machine only, at an address that others cannot guess. For a
page on another machine, forward the port that is printed: ssh -L PORT:127.0.0.1:PORT HOST.

[bold]Examples[/]

  nadi report TRACES
  nadi report TRACES --step 5 -o step5.html
  nadi report TRACES --system dgx-h100 --what-if 'scale nccl 0.5'
  nadi report results -o report.html
  nadi report BEFORE AFTER -o differences.html
  nadi report TRACES simulated.nadi -o predicted.html
  nadi report TRACES fold.json estimate.json
  nadi report report.html --open
"""

_ONE = "applies to one recording, and these are two"
_OF_RECORDINGS = "step", "window", "what_if", "system"
_MOMENT = 0.2  # seconds


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACES|RESULTS", show_default=False,
            help="Traces as for nadi run; two recordings; and results of other commands: "
            "folders, or files of JSON; with --open also a page.",
        ),
    ],
    step: Step = "all",
    window: TimeRange = "",
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if", metavar="EXPR", show_default=False,
            help="Also predict the step time after a change, as for nadi run; repeatable.",
        ),
    ] = None,
    system: Annotated[
        str,
        typer.Option(
            "--system", metavar="NAME|FILE", show_default=False,
            help="Also predict the step on another system; it is drawn below the measured one.",
        ),
    ] = "",
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    capture: Capture = "",
    executor: ExecutorName = "",
    show: Annotated[
        bool, typer.Option("--open", help="Show the page in the browser, until Ctrl-C.")
    ] = False,
    force: ForceLink = False,
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Write the page, or show it."""
    reading: Reading = {"force": force, "capture": capture}
    wishes = _Wishes(step, window, tuple(what_if or ()), system, reading)
    if show and len(paths) == 1 and paths[0].endswith((".html", ".htm")):
        _refuse(wishes, _OF_RECORDINGS, "applies to a recording, and this is a page")
        _show(paths[0])
        return
    with show_progress(announce=False, use="run") as progress:
        progress("starting")
        from nadi.results.page.html_page import check_page
        from nadi.results.terminal.workers import executor_named

        check_page(output, [Path(path) for path in paths], overwrite=overwrite)
        with executor_named(executor) as workers:
            reading["executor"] = workers
            _write(paths, wishes, output, progress)
    output_console().print(f"wrote {output}", markup=False)
    if show:
        _show(str(output))


class _Wishes(NamedTuple):
    """The options about recordings, by name."""

    step: str
    window: str
    what_if: tuple[str, ...]
    system: str
    reading: Reading


def _write(
    paths: Sequence[str], wishes: _Wishes, output: Path, progress: Callable[[str], None]
) -> None:
    from nadi.bottlenecks.differences.predictions import read_report_inputs
    from nadi.recordings.job_of_files import are_two_recordings

    found = read_report_inputs(paths)
    if len(found.traces) == 2 and are_two_recordings(*found.traces):
        _compare(found, wishes, output, progress)
    elif found.traces:
        _of_recording(found, wishes, output, progress)
    else:
        _of_results(found, wishes, output, Path(paths[0]).name)


def _refuse(wishes: _Wishes, names: Sequence[str], why: str) -> None:
    """Refuse options that do not apply."""
    from nadi.errors import UsageError

    for name in names:
        if getattr(wishes, name) not in ("", (), "all"):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(option, why, "give a single recording, or leave the option out")


def _of_results(found: ReportInputs, wishes: _Wishes, output: Path, title: str) -> None:
    """Write the page of results that other commands wrote."""
    from nadi.bottlenecks.pages.result_pages import write_saved_page

    why = "applies to a recording, and these are results"
    _refuse(wishes, _OF_RECORDINGS, why)
    write_saved_page(found, output, title)


def _of_recording(
    found: ReportInputs, wishes: _Wishes, output: Path, progress: Callable[[str], None]
) -> None:
    """Write the page of one recording, with results of other commands beside it."""
    from nadi.bottlenecks.pages.result_pages import Beside, saved_results, write_run_page
    from nadi.bottlenecks.steps.recorded_jobs import run

    done = run(
        *found.traces, step=wishes.step, window=wishes.window, what_if=wishes.what_if,
        system=wishes.system, by="module", progress=progress, **wishes.reading,
    )  # fmt: skip
    progress(f"writing {output}")
    whole = wishes.step == "all" and not wishes.window
    beside = Beside(saved_results(found), found.prediction, whole, found.results)
    write_run_page(done, output, more=True, beside=beside)


def _compare(
    found: ReportInputs, wishes: _Wishes, output: Path, progress: Callable[[str], None]
) -> None:
    """Write the page of two recordings."""
    from nadi.bottlenecks.pages.result_pages import Beside, saved_results, write_diff_page
    from nadi.bottlenecks.steps.recorded_jobs import run
    from nadi.errors import UsageError

    _refuse(wishes, ("window", "what_if", "system"), _ONE)
    if found.prediction is not None:
        raise UsageError(
            found.predicted_by, "is a prediction, and two recordings are given",
            "give the recording that it predicts",
        )  # fmt: skip
    before, after = found.traces
    runs = [run(path, step=wishes.step, by="module", progress=progress, **wishes.reading)
            for path in (before, after)]  # fmt: skip
    progress(f"writing {output}")
    names = Path(before).name, Path(after).name
    if names[0] == names[1]:
        names = before, after
    write_diff_page(
        runs[0], runs[1], output, names, Beside(saved_results(found), files=found.results)
    )


def _show(page: str) -> None:
    """Serve the page, and open the browser."""
    import webbrowser
    from threading import Thread

    from nadi.files.files import locate, read_file
    from nadi.results.page.page import page_server

    server, address = page_server(bytes(read_file(locate(page)).content))
    serving = Thread(target=server.serve_forever, daemon=True)
    serving.start()
    console = output_console()
    console.print(f"{address} until Ctrl-C", markup=False)
    try:
        webbrowser.open(address)
        while serving.is_alive():  # a signal that another thread gets does not end a wait
            serving.join(_MOMENT)
    except KeyboardInterrupt:
        console.print("ended")
    finally:
        server.shutdown()
        server.server_close()
