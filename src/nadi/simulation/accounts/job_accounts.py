"""Times of several jobs on one machine, together and alone."""

from __future__ import annotations

import polars as pl

from nadi.errors import checked
from nadi.simulation.simulation import Simulation
from nadi.trace.schema import JOB_TIMES

__all__ = ["job_times"]


@checked
def job_times(simulation: Simulation) -> pl.DataFrame:
    """Compare when jobs of :func:`nadi.simulate_together` finish, together and alone.

    Returns
    -------
    polars.DataFrame
        ``schema.JOB_TIMES`` in their order. O(ranks).
    """
    jobs = simulation.jobs
    finish = [int(simulation.cycles[job.ranks].max()) for job in jobs]
    alone = [job.alone for job in jobs]
    columns = {
        "job": [job.name for job in jobs],
        "ranks": [job.ranks.tolist() for job in jobs],
        "finish": finish,
        "alone": alone,
        "slowdown": [
            there / before if before else 1.0 for there, before in zip(finish, alone, strict=True)
        ],
    }
    return JOB_TIMES.build(len(jobs), columns)
