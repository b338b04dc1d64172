"""Simulate a job: read its traces and those of custom collectives, and run the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nadi.load.simulation_jobs import read_job, read_ranks
from nadi.model.trace import Job, Trace
from nadi.simulator.engine_driver import simulate_job
from nadi.simulator.machine.system import System
from nadi.simulator.simulation import Simulation

if TYPE_CHECKING:
    from nadi.pricing.learned_prices import LearnedPrices

__all__ = ["simulate"]


def simulate(
    job: Job | Sequence[Trace] | Path | str, system: System, prices: LearnedPrices | None = None
) -> Simulation:
    """Predict when each node of a job runs on a system.

    Computations without a time are priced by the system's device
    (:func:`nadi.pricing.price_job`); ``priced`` of the result counts them.

    Parameters
    ----------
    job
        A trace per rank, in order of rank; a linked job; or the paths that
        :func:`nadi.load.read_job` accepts.
    system
        The system to simulate.
    prices
        Prices learned from a recording (:func:`nadi.pricing.learn_prices`), which take
        precedence over those of the device.

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
    # others do without the code of pricing
    if system.compute.device is None or system.compat:
        return simulate_job(job, system, custom)
    from nadi.pricing.priced_traces import price_job

    job, priced = price_job(job, system, prices)
    return replace(simulate_job(job, system, custom), priced=priced)
