"""``nadi diff``: two recordings compared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nadi.results.terminal.options import AsJson, Capture, ForceLink, Step, output_console
from nadi.results.terminal.progress import show_progress

if TYPE_CHECKING:
    from rich.console import Console

    from nadi.bottlenecks.differences.predictions import SavedPrediction
    from nadi.recordings.job_of_files import Reading

__all__ = ["HELP", "command"]

HELP = """Compare two recordings, or one with its prediction.

Operations are aligned by name and by the calls around them, ranks by number, and
steps in order. First come compiled regions and graphs that came or went, and by which factor
the machine is slower, which is taken out of the rest; then what changed on the critical path:
these changes add up to that of the step. Times are means per step.

A prediction is a simulation (nadi simulate -o FILE.nadi, or its JSON), which is compared
with the whole recording, or with --step; or an estimate (the JSON of nadi estimate),
which is compared with the mean step.

[bold]Examples[/]

  nadi diff BEFORE AFTER
  nadi diff before/device.json.gz after/device.json.gz --step 5
  nadi diff BEFORE AFTER --json | jq '.path[:3]'
  nadi diff TRACES simulated.nadi
"""


def command(
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="A folder of traces, or a device trace.",
                            show_default=False),
    ],
    after: Annotated[
        str, typer.Argument(metavar="AFTER", help="The same of the other run, or a prediction.",
                            show_default=False),
    ],
    step: Step = "all",
    top: Annotated[
        int, typer.Option("--top", metavar="ROWS", min=1, help="Print so many rows of each table.")
    ] = 10,
    capture: Capture = "",
    force: ForceLink = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compare and print."""
    with show_progress(announce=False, use="diff") as progress:
        progress("starting")
        from nadi.bottlenecks.differences.predictions import read_report_inputs
        from nadi.results.text import to_json

        reading: Reading = {"force": force, "capture": capture}
        predicted = read_report_inputs([after]).prediction
        if predicted is not None:
            described, show = _with_prediction(before, predicted, step, reading, progress)
        else:
            described, show = _with_recording(before, after, step, reading, progress)
    if as_json:
        sys.stdout.write(to_json(described()).decode())
        return
    show(output_console(), top)


_Shown = tuple[Callable[[], dict[str, Any]], Callable[["Console", int], None]]


def _with_recording(
    before: str, after: str, step: str, reading: Reading, progress: Callable[[str], None]
) -> _Shown:
    """Compare two recordings; gives what makes the JSON output, and what prints."""
    from nadi.bottlenecks.differences.compared_runs import diff
    from nadi.bottlenecks.differences.result import describe_diff, print_diff

    found = diff(before, after, step=step, progress=progress, **reading)
    return partial(describe_diff, found), partial(print_diff, found)


def _with_prediction(
    recording: str, predicted: SavedPrediction, step: str, reading: Reading,
    progress: Callable[[str], None],
) -> _Shown:  # fmt: skip
    """Compare a recording with a prediction; gives the same."""
    from nadi.bottlenecks.differences.prediction_result import (
        describe_compared_prediction,
        print_compared_prediction,
    )
    from nadi.bottlenecks.differences.predictions import compare_prediction
    from nadi.bottlenecks.steps.recorded_jobs import run

    done = run(recording, step=step, progress=progress, **reading)
    found = compare_prediction(done, predicted, whole=step == "all")
    return partial(describe_compared_prediction, found), partial(print_compared_prediction, found)
