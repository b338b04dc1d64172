"""``nadi report``: the main analysis as one HTML page."""

from __future__ import annotations

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

Results that were written as JSON, such as the summary.json of nadi run -o, are
taken too; their page has no timeline.

[bold]Examples[/]

  nadi report TRACES
  nadi report TRACES --step 5 -o step5.html
  nadi report TRACES --system dgx-h100 --what-if 'scale nccl 0.5'
  nadi report results -o report.html
"""


def command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH", show_default=False,
            help="Traces as for nadi run; or a folder or JSON file of results.",
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
        from nadi.pipeline.recorded_jobs import run
        from nadi.report.page.result_pages import check_page, write_run_page, write_summary_page

        check_page(output, [Path(path) for path in paths])
        saved = read_summary(paths[0]) if len(paths) == 1 else None
        if saved is None:
            found = run(
                *paths, step=step, window=window, what_if=what_if or [], system=system,
                force=force, by="module", progress=progress,
            )  # fmt: skip
            progress(f"writing {output}")
            write_run_page(found, output)
        else:
            write_summary_page(saved, output, Path(paths[0]).name)
    output_console().print(f"wrote {output}", markup=False)
