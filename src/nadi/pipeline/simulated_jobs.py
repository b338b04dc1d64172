"""Simulate a job: read its traces and those of custom collectives, and run the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from nadi.load.simulation_jobs import read_job, read_ranks
from nadi.model.trace import Job, Trace
from nadi.simulator.engine_driver import simulate_job
from nadi.simulator.machine.memory_changes import MemoryChange
from nadi.simulator.machine.system import System
from nadi.simulator.simulation import Simulation

if TYPE_CHECKING:
    from nadi.pricing.learned_prices import LearnedPrices

__all__ = ["simulate", "with_other_memory"]


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


def with_other_memory(
    job: Job | Sequence[Trace],
    done: Simulation,
    changes: Sequence[MemoryChange],
    prices: LearnedPrices | None = None,
) -> pl.DataFrame:
    """Simulate a job again with each of some changes of its system's memory, each alone.

    Parameters
    ----------
    job, prices
        Of which ``done`` is the simulation.
    done
        Without changes.
    changes
        Of the system.

    Returns
    -------
    polars.DataFrame
        ``change`` (text), ``makespan`` and ``gain`` (ns), a row per change.

    Raises
    ------
    UsageError
        If the system does not have what a change names.
    """
    times = [simulate(job, change.apply(done.system), prices).makespan for change in changes]
    gains = [done.makespan - time for time in times]
    columns = {"change": list(map(str, changes)), "makespan": times, "gain": gains}
    return pl.DataFrame(columns, {"change": pl.String, "makespan": pl.Int64, "gain": pl.Int64})
