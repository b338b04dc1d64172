"""``nadi diff``: two recordings compared."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from nadi.cli.progress_bar import show_progress
from nadi.cli.shared_options import AsJson, ForceLink, Step, output_console

__all__ = ["HELP", "command"]

HELP = """Compare two recordings: what got slower, and what of it lengthens the step.

Operations are aligned by name and by the calls around them, ranks by number, and
steps in order. First comes what changed on the critical path: these changes add up to
that of the step. Times are means per step.

[bold]Examples[/]

  nadi diff BEFORE AFTER
  nadi diff before/device.json.gz after/device.json.gz --step 5
  nadi diff BEFORE AFTER --json | jq '.path[:3]'
"""


def command(
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="A folder of traces, or a device trace.",
                            show_default=False),
    ],
    after: Annotated[
        str, typer.Argument(metavar="AFTER", help="The same of the other run.",
                            show_default=False),
    ],
    step: Step = "all",
    top: Annotated[
        int, typer.Option("--top", metavar="ROWS", min=1, help="Print so many rows of each table.")
    ] = 10,
    force: ForceLink = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compare and print."""
    with show_progress(announce=False, use="diff") as progress:
        progress("starting")
        from nadi.pipeline.recorded_diffs import diff
        from nadi.report.diff_report import describe_diff, print_diff
        from nadi.report.text_layout import to_json

        found = diff(before, after, step=step, force=force, progress=progress)
    if as_json:
        sys.stdout.write(to_json(describe_diff(found)).decode())
        return
    print_diff(found, output_console(), top)
