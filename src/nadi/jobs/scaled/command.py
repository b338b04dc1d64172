"""``nadi scale``: a job of few ranks as one of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nadi.errors import UsageError
from nadi.jobs.job_output import Wishes
from nadi.results.terminal.options import (
    AsJson,
    JobArgument,
    JobOutput,
    Overwrite,
    SystemName,
    output_console,
)

if TYPE_CHECKING:
    from nadi.jobs.scaled_classes import ScaledJob, Wanted

HELP = """Scale a job up: more replicas, other TP, PP and CP degrees.

The job is what nadi simulate takes: a Chakra .et file per rank, a recording, or a folded
job. --dp copies its ranks, and groups that reduce gradients grow; a job of one
replica gets gradient reductions, which are guessed. --tp splits or merges operations by
their shapes, --pp distributes layers over other stages, and --cp gives ranks other parts
of the sequences. They need jobs that state layers, micro-batches and shapes, as nadi
generate llm writes them; --tp and --pp also take recordings with host traces, whose
operators and tensors show the layers and what ranks exchange.
Each rank keeps its number of micro-batches. Prints what was copied, resized, guessed and
made, and with --system the step with its interval.

[bold]Examples[/]

  nadi scale TRACES --dp 512 -o large.nadi
  nadi scale RECORDING --tp 4 --pp 2 --micro-batches 8
  nadi simulate large.nadi --system dgx-h100
"""


def _axis(name: str, what: str) -> Any:
    return typer.Option(name, metavar="N", min=1, show_default="as many as the job has", help=what)


def command(
    job: JobArgument,
    dp: Annotated[int | None, _axis("--dp", "Data parallel replicas.")] = None,
    tp: Annotated[int | None, _axis("--tp", "Tensor parallel ranks.")] = None,
    pp: Annotated[int | None, _axis("--pp", "Pipeline stages.")] = None,
    cp: Annotated[int | None, _axis("--cp", "Context parallel ranks.")] = None,
    micro_batches: Annotated[
        int | None, _axis("--micro-batches", "Micro-batches of a step, where stages change.")
    ] = None,
    system: SystemName = "",
    output: JobOutput = "",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Scale the job, and print what it consists of."""
    from nadi.jobs.scaled_classes import Wanted

    wanted = Wanted(dp or 0, tp or 0, pp or 0, micro_batches or 0, cp or 0)
    if not any((dp, tp, pp, cp)):
        raise UsageError("nadi scale", "no other number of ranks is asked for",
                         "give --dp, --tp, --pp or --cp")  # fmt: skip
    wishes = Wishes(system, output, overwrite)
    scaled, described = _scaled(job, wanted, wishes)
    from nadi.jobs.scaled.scale import SCALE
    from nadi.results.text import print_issues

    SCALE.tell(described, as_json=as_json)
    if as_json:
        return
    console = output_console()
    print_issues(scaled.job.issues.iter_rows(named=True), console)
    if output:
        console.print(wishes.told(scaled.after.ranks), markup=False)


def _scaled(job: str, wanted: Wanted, wishes: Wishes) -> tuple[ScaledJob, dict[str, Any]]:
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="scale") as progress:
        progress("starting")
        from nadi.jobs.scaled.scale import SCALE, scale, scaled_step
        from nadi.recordings.folded.files import check_folded_output
        from nadi.recordings.jobs import read_job
        from nadi.systems.library import read_system_file
        from nadi.trace.trace import Job

        if wishes.folds:
            check_folded_output(wishes.output, job, overwrite=wishes.overwrite)
        described = read_system_file(wishes.system) if wishes.system else None
        given = read_job(job, progress)
        ranks = given.traces if isinstance(given, Job) else given
        machine = described.fit(len(ranks)) if described else None
        scaled = scale(given, **wanted._asdict(), system=machine, progress=progress)
        step = None
        if wishes.system:
            progress("simulating")
            step = scaled_step(scaled, wishes.system)
        wishes.write(scaled.job, progress)
    return scaled, SCALE.data((scaled, step))
