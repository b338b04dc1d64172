"""Simulate a job: read its traces and those of custom collectives, and run the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nadi.load.simulation_jobs import read_job, read_ranks
from nadi.model.trace import Job, Trace
from nadi.simulator.engine_driver import simulate_job
from nadi.simulator.machine.system import System
from nadi.simulator.simulation import Simulation

__all__ = ["simulate"]


def simulate(job: Job | Sequence[Trace] | Path | str, system: System) -> Simulation:
    """Predict when each node of a job runs on a system.

    Parameters
    ----------
    job
        A trace per rank, in order of rank; a linked job; or the paths that
        :func:`nadi.load.read_job` accepts.
    system
        The system to simulate.

    Raises
    ------
    InputError, UsageError
        If the job does not fit the system, or cannot be simulated.
    PairError
        If the simulation deadlocks; the message names the waiting ranks.
    """
    if isinstance(job, (str, Path)):
        job = read_job(job)
    custom = {prefix: read_ranks(prefix) for prefix in system.collectives.custom_traces}
    return simulate_job(job, system, custom)
