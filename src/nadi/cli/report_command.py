"""``nadi report``: the main analysis as one HTML page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from nadi.cli.progress_bar import show_progress
from nadi.cli.shared_options import ForceLink, Step, TimeRange, output_console

__all__ = ["HELP", "command"]

HELP = """Write what nadi run finds as one HTML page that needs no network.

The verdict comes first, then a timeline, the critical path by kind, operation and
module, ranks and streams, stragglers, collectives, kernels, and where all of it
comes from. The page opens from disk, and asks no host for anything.

Two recordings are compared: what changed between them comes first, and the timeline
shows both.

Results that were written as JSON, such as the summary.json of nadi run -o, are
taken too; their page has no timeline.

[bold]Examples[/]

  nadi report TRACES
  nadi report TRACES --step 5 -o step5.html
  nadi report TRACES --system dgx-h100 --what-if 'scale nccl 0.5'
  nadi report results -o report.html
  nadi report BEFORE AFTER -o differences.html
"""

_ONE = "applies to one recording, and these are two"


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH", show_default=False,
            help="Traces as for nadi run; two recordings; or a folder or JSON file of results.",
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
    force: ForceLink = False,
) -> None:  # fmt: skip
    """Write the page."""
    with show_progress(announce=False, use="run") as progress:
        progress("starting")
        from nadi.load.saved_summaries import read_summary
        from nadi.load.separate_recordings import are_two_recordings
        from nadi.pipeline.recorded_jobs import run
        from nadi.report.page.result_pages import check_page, write_run_page, write_summary_page

        check_page(output, [Path(path) for path in paths])
        saved = read_summary(paths[0]) if len(paths) == 1 else None
        if saved is not None:
            write_summary_page(saved, output, Path(paths[0]).name)
        elif len(paths) == 2 and are_two_recordings(*paths):
            _refuse({"--window": window, "--what-if": what_if, "--system": system})
            _compare(paths[0], paths[1], step, output, force, progress)
        else:
            found = run(
                *paths, step=step, window=window, what_if=what_if or [], system=system,
                force=force, by="module", progress=progress,
            )  # fmt: skip
            progress(f"writing {output}")
            write_run_page(found, output, more=True)
    output_console().print(f"wrote {output}", markup=False)


def _refuse(options: dict[str, object]) -> None:
    """Refuse options that apply to one recording only."""
    from nadi.errors import UsageError

    for name, value in options.items():
        if value:
            raise UsageError(name, _ONE, "give a single recording, or leave the option out")


def _compare(
    before: str, after: str, step: str, output: Path, force: bool, progress: Callable[[str], None]
) -> None:
    """Write the page of two recordings."""
    from nadi.pipeline.recorded_jobs import run
    from nadi.report.page.result_pages import write_diff_page

    runs = [run(path, step=step, force=force, by="module", progress=progress)
            for path in (before, after)]  # fmt: skip
    progress(f"writing {output}")
    names = Path(before).name, Path(after).name
    write_diff_page(
        runs[0], runs[1], output, names if names[0] != names[1] else (before, after)
    )  # fmt: skip
