"""Simulate a job: read its traces and those of custom collectives, and run the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nadi.errors import checked
from nadi.recordings.folded.folded_job import FoldedJob
from nadi.recordings.jobs import given_job, read_ranks
from nadi.simulation.accounts.contended_time import contended_times
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.simulation import Simulation
from nadi.simulation.time_bound import TimeBound
from nadi.systems.library import load_system
from nadi.systems.system import System
from nadi.trace.trace import Job, Trace

if TYPE_CHECKING:
    from nadi.systems.prices.learned_prices import LearnedPrices

__all__ = ["bound_answer", "simulate"]

_ENDS: tuple[Literal["low"], Literal["high"]] = ("low", "high")


@checked
def simulate(
    job: Job | Sequence[Trace] | Path | str,
    system: System | Path | str,
    prices: LearnedPrices | None = None,
) -> Simulation:
    """Predict when each node of a job runs on a system.

    Computations without a time are priced by the system's device
    (:func:`nadi.systems.price_job`); ``priced`` of the result counts them. Of a folded job
    (:func:`nadi.fold`) ``bound`` states between what times the whole job takes.

    Parameters
    ----------
    job
        A trace per rank, in order of rank; a linked job; or the paths that
        :func:`nadi.recordings.read_job` accepts.
    system
        The system to simulate, or a name or a file of one as :func:`nadi.load_system` takes it.
    prices
        Prices learned from a recording (:func:`nadi.systems.learn_prices`), which take
        precedence over those of the device.

    Raises
    ------
    InputError, UsageError
        If the job does not fit the system, or cannot be simulated.
    PairError
        If the simulation deadlocks; the message names the waiting ranks.
    """
    job = given_job(job)
    if not isinstance(system, System):
        system = load_system(system, len(job.traces if isinstance(job, Job) else job))
    done = _simulated(job, system, prices)
    if not isinstance(job, FoldedJob):
        return done
    return replace(done, bound=_bound(job, system, prices, done, _makespan))


def _simulated(
    job: Job | Sequence[Trace], system: System, prices: LearnedPrices | None
) -> Simulation:
    custom = {prefix: read_ranks(prefix) for prefix in system.collectives.custom_traces}
    # others do without the code of pricing
    if system.compute.device is None or system.compat:
        return simulate_job(job, system, custom)
    from nadi.systems.prices.priced_traces import price_job

    job, priced = price_job(job, system, prices)
    return replace(simulate_job(job, system, custom), priced=priced)


@checked
def bound_answer(
    job: FoldedJob, system: System, answer: Callable[[Simulation], int]
) -> tuple[int, TimeBound]:
    """Return an answer that a simulation of a folded job gives, and between what it is.

    Parameters
    ----------
    answer
        A time in ns that is no shorter if operations take longer, such as the makespan after a
        change: ``lambda done: nadi.what_if(simulated_graph(done), "scale gemm 0.5").step_ns``.

    Returns
    -------
    answer
        With typical times.
    bound
        Of the whole job, with the times of all its ranks.

    Raises
    ------
    InputError, UsageError
        As :func:`simulate`.
    """
    done = _simulated(job, system, None)
    return answer(done), _bound(job, system, None, done, answer)


def _makespan(done: Simulation) -> int:
    return done.makespan


def _bound(
    job: FoldedJob, system: System, prices: LearnedPrices | None, done: Simulation,
    answer: Callable[[Simulation], int],
) -> TimeBound:  # fmt: skip
    """Return the answers for the least and largest times, and for other orders of messages."""
    if not job.times_vary:
        return TimeBound(answer(done), answer(done))
    low, high = (_simulated(job.at(which), system, prices) for which in _ENDS)
    contended = max(int(contended_times(one).max(initial=0)) for one in (low, done, high))
    ends = sorted([answer(low), answer(done), answer(high)])
    return TimeBound(max(ends[0] - contended, 0), ends[-1] + contended, contended)
