"""What commands do with a job that they make: simulate it, and write its traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nadi.recordings.folded.folded_job import FoldedJob
    from nadi.simulation.simulation import Simulation
    from nadi.trace.trace import Job


class Wishes(NamedTuple):
    """What a user asks for: a system to simulate on, and a place for traces; "" for none.

    A folder, or a file that ends in .nadi: the job folded.
    """

    system: str
    output: str
    overwrite: bool

    @property
    def folds(self) -> bool:
        """Whether the job is written as one folded file."""
        return self.output.endswith(".nadi")

    def told(self, ranks: int) -> str:
        """Say what was written."""
        what = "ranks, folded" if self.folds else "traces and comm_group.json"
        return f"{ranks} {what} in {self.output}"

    def write(self, job: Job | FoldedJob, progress: Callable[[str], None]) -> None:
        """Write a job if that is asked for."""
        from nadi.jobs.folded.fold import fold
        from nadi.models.job_files import write_job
        from nadi.recordings.folded.files import write_folded
        from nadi.recordings.folded.folded_job import FoldedJob

        if self.output:
            progress(f"writing {self.output}")
        if self.folds:
            write_folded(job if isinstance(job, FoldedJob) else fold(job), self.output)
        elif self.output:
            write_job(job, self.output, overwrite=self.overwrite)


def make_job(make: Callable[[], Job], ranks: int, wishes: Wishes) -> tuple[Job, Simulation | None]:
    """Make a job, simulate it and write it, with progress on the error stream.

    What is asked for is looked up first, so that nothing is made in vain.
    """
    from nadi.models.job_files import check_place
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="generate") as progress:
        progress("generating")
        machine = None
        if wishes.system:
            from nadi.systems.library import read_system_file

            machine = read_system_file(wishes.system).fit(ranks)
        if wishes.folds:
            from nadi.recordings.folded.files import check_folded_output

            check_folded_output(wishes.output, None, overwrite=wishes.overwrite)
        elif wishes.output:
            check_place(Path(wishes.output), "trace", ranks, overwrite=wishes.overwrite)
        job = make()
        done = None
        if machine is not None:
            from nadi.simulation.runs.simulate import simulate

            progress("simulating")
            done = simulate(job, machine)
        wishes.write(job, progress)
    return job, done
