"""``nadi diff``: two recordings compared."""

from typing import TYPE_CHECKING, Annotated

import typer

from nadi.results.terminal.options import AsJson, Capture, ExecutorName, ForceLink, Step
from nadi.results.terminal.progress import show_progress

if TYPE_CHECKING:
    from nadi.recordings.job_of_files import Reading

HELP = """Compare two recordings, or one with its prediction.

Operations are aligned by name and by the calls around them, ranks by number, and
steps in order. First come changes of compiled regions and graphs, and the factor by which the
machine is slower, which is taken out of all other changes. Then come the changes of the
critical path, which add up to the change of the step. Times are means per step.

A prediction is a simulation (nadi simulate -o FILE.nadi, or its JSON) or an estimate (the
JSON of nadi estimate). A simulation is compared with the whole recording, or with --step.
An estimate is compared with the mean step.

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
    executor: ExecutorName = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compare and print."""
    with show_progress(announce=False, use="diff") as progress:
        progress("starting")
        from nadi.bottlenecks.differences.compared_runs import diff
        from nadi.bottlenecks.differences.predictions import compare_prediction, read_report_inputs
        from nadi.bottlenecks.differences.result import COMPARED_PREDICTION, DIFF
        from nadi.bottlenecks.steps.recorded_jobs import run
        from nadi.results.terminal.workers import executor_named

        predicted = read_report_inputs([after]).prediction
        with executor_named(executor) as workers:
            reading: Reading = {"force": force, "capture": capture, "executor": workers}
            if predicted is None:
                found = diff(before, after, step=step, progress=progress, **reading)
                result, data = DIFF, DIFF.data(found)
            else:
                done = run(before, step=step, progress=progress, **reading)
                compared = compare_prediction(done, predicted, whole=step == "all")
                result, data = COMPARED_PREDICTION, COMPARED_PREDICTION.data(compared)
    result.tell(data, as_json=as_json, top=top)
