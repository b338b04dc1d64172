"""``nadi fold``: a job as few ranks and repeats, which answers for all, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import (
    AsJson,
    JobArgument,
    Overwrite,
    SystemName,
    output_console,
    refuse,
)

if TYPE_CHECKING:
    from nadi.recordings.folded.folded_job import FoldedJob

HELP = """Fold a job: store what ranks and layers repeat only once.

Alike ranks become one, and layers, micro-batches and steps are stored once. Recorded
ranks are alike if at most 5 % of their operations differ; with --exact if none do.
The job is a Chakra .et file per rank, a recording, or a folder of nadi record --fake, as
for nadi simulate. The folded job is a file that nadi simulate takes like the job
itself: its answers are those of the whole job, with a bound where alike ranks took
different times.

With --to-ranks, OUT is a folder with a smaller job for another simulator or a small
testbed: a job of this number of ranks, and a system on which its collectives take the
times of the whole job.

With --undo, all ranks of a folded job are written as Chakra traces. If alike ranks took
the same times, the result is the original job. Otherwise each rank gets the typical times.
A recording becomes the nodes that nadi simulate makes of it.

[bold]Examples[/]

  nadi fold TRACES -o small.nadi
  nadi simulate small.nadi --system dgx-h100
  nadi fold TRACES --system dgx-h100 --to-ranks 8 -o eight
  nadi simulate eight --system eight/system.toml
  nadi fold small.nadi --undo -o TRACES
"""


def command(
    job: JobArgument,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="OUT", show_default=False,
                          help="Write the folded job to this file (.nadi); with --to-ranks, the "
                          "small job and its system to this folder; with --undo, the traces."),
    ] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Write all ranks of a folded job as Chakra traces.")
    ] = False,
    system: SystemName = "",
    to_ranks: Annotated[
        int, typer.Option("--to-ranks", metavar="N", min=0, show_default=False,
                          help="Scale down to so many ranks, as the job runs on --system."),
    ] = 0,
    exact: Annotated[
        bool, typer.Option("--exact", help="Fold only ranks that do exactly the same.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Fold a job, and print its classes of ranks, its repeats and what varies."""
    from nadi.results.terminal.progress import show_progress

    if undo:
        refuse("is for a job to fold, and --undo writes one again", "leave it out",
               system=system, to_ranks=to_ranks, exact=exact, json=as_json)  # fmt: skip
        _unfold(job, output, overwrite=overwrite)
        return
    if to_ranks and not system:
        raise UsageError(
            "--to-ranks", "times of communication depend on a system", "give --system, too"
        )
    wishes = _Wishes(output, system, to_ranks, exact, overwrite)
    with show_progress(announce=False, use="fold") as progress:
        progress("starting")
        folded, described, scaled = _folded(job, wishes, progress)
    from nadi.jobs.folded.result import FOLD
    from nadi.results.text import print_issues

    FOLD.tell({**described, "scaled_down": scaled}, as_json=as_json)
    if not as_json:
        print_issues(folded.issues.iter_rows(named=True), output_console())


class _Wishes(NamedTuple):
    """The options, by name."""

    output: str
    system: str
    to_ranks: int
    exact: bool
    overwrite: bool


def _folded(
    job: str, wishes: _Wishes, progress: Callable[[str], None]
) -> tuple[FoldedJob, dict[str, Any], dict[str, Any] | None]:
    """Fold the job and write what is asked for; returns it, and its descriptions."""
    from nadi.jobs.folded.fewer_ranks import scale_down, write_scaled
    from nadi.jobs.folded.fold import fold
    from nadi.jobs.folded.result import FOLD, describe_scaled
    from nadi.recordings.folded.files import check_folded_output, write_folded
    from nadi.recordings.jobs import read_job
    from nadi.systems.library import read_system_file

    output, to_ranks = wishes.output, wishes.to_ranks
    described_system = read_system_file(wishes.system) if wishes.system else None
    if output and not to_ranks:
        check_folded_output(output, job, overwrite=wishes.overwrite)
    found = read_job(job, progress)
    size = len(found) if isinstance(found, list) else len(found.traces)
    machine = described_system.fit(size) if described_system else None
    folded = fold(found, machine, progress, "exactly" if wishes.exact else "nearly")
    described = FOLD.data(folded)
    if machine and to_ranks:
        progress("scaling down")
        small = scale_down(folded, machine, to_ranks)
        if output:
            write_scaled(small, output, overwrite=wishes.overwrite)
        return folded, described, describe_scaled(small)
    if output:
        progress(f"writing {output}")
        described["file_bytes"] = write_folded(folded, output)
    return folded, described, None


def _unfold(job: str, output: str, *, overwrite: bool) -> None:
    """Write all ranks."""
    if not output:
        raise UsageError(
            "--undo", "it writes traces", ["say where: ", Parameter("output", "TRACES")]
        )
    from rich.text import Text

    from nadi.jobs.folded.fold import unfold
    from nadi.models.job_files import check_place, write_job
    from nadi.recordings.folded.files import read_folded
    from nadi.results.terminal.progress import show_progress
    from nadi.units import format_counted

    with show_progress(announce=False, use="unfold") as progress:
        progress(f"reading {job}")
        folded = read_folded(job)
        check_place(Path(output), "trace", len(folded.traces), overwrite=overwrite)
        progress(f"writing {output}")
        files = write_job(unfold(folded), output, overwrite=overwrite)
    times = "typical times, as alike ranks took different ones" if folded.times_vary else ""
    console = output_console()
    ranks = format_counted(len(files.traces), "rank")
    nodes = format_counted(files.nodes, "node")
    console.print(Text(f"{ranks}, {nodes} -> {output}{'; ' if times else ''}{times}"))
