"""Simulate several jobs that run on one machine at the same time, and share its links.

Simulate a job: read its traces and those of custom collectives, and run the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from nadi.errors import Parameter, UsageError, check_kind, checked
from nadi.recordings.folded.folded_job import FoldedJob
from nadi.recordings.jobs import given_job, read_ranks
from nadi.simulation.accounts.times import contended_times
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.rules import rules_of
from nadi.simulation.simulation import Simulation, TimeBound
from nadi.simulation.work.recorded_work import (
    PlacedJob,
    beside_each_other,
    idle_trace,
    nodes_of_job,
    placed_traces,
)
from nadi.systems.library import load_system
from nadi.systems.prices.priced_traces import PricedWork
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.trace import Job, Trace

if TYPE_CHECKING:
    from nadi.systems.prices.learned_prices import LearnedPrices


_ENDS: tuple[Literal["low"], Literal["high"]] = ("low", "high")
_REORDERED = 0.7
"""Share of the time of overlapping communication that another order adds at most in nearly all of
the jobs that were drawn (``verification/folded.py drawn``); it makes hardly any of them shorter."""


@checked
def simulate(
    job: Job | Sequence[Trace] | Path | str,
    system: System | Path | str,
    prices: LearnedPrices | None = None,
) -> Simulation:
    """Predict when each node of a job runs on a system.

    Computations without a time are priced by the system's device
    (:func:`nadi.systems.price_job`); ``priced`` of the result counts them. Of a folded job
    (:func:`nadi.fold`) ``bound`` states between what times the whole job most likely takes.

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
        change: ``lambda done: nadi.what_if(simulated_graph(done), "scale gemm 0.5").window_ns``.

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
    # not all that overlaps changes its order at once, and waits of some are hidden by others
    overlap = max(int(contended_times(one).max(initial=0)) for one in (low, done, high))
    contended = round(_REORDERED * overlap)
    ends = sorted([answer(low), answer(done), answer(high)])
    return TimeBound(ends[0], ends[-1] + contended, contended)


_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST = 1 << 24  # ranks
_Groups = Mapping[str, Sequence[int]]


@checked
def simulate_together(
    jobs: Mapping[str, Job | Sequence[Trace]],
    system: System,
    places: Mapping[str, Sequence[int]] | None = None,
    groups: Mapping[str, _Groups] | None = None,
    prices: LearnedPrices | None = None,
) -> Simulation:
    """Predict when each node of several jobs runs that begin at once on one machine.

    Each job runs on ranks of its own; jobs share the links of the network. Each is simulated
    alone, too, in the same place with all other ranks idle.

    Parameters
    ----------
    jobs
        By name: a linked job, or a trace per rank.
    system
        It may have more ranks than all jobs together; the others are idle.
    places
        On which ranks of the system a job runs, one for each of its ranks in their order. By
        default jobs take the lowest free ranks, in their order.
    groups
        The ranks of each process group of a job, for traces that do not contain them. Those of
        the system are for all jobs.
    prices
        As for :func:`nadi.simulate`.

    Returns
    -------
    Simulation
        Of all ranks of the system; ``jobs`` says where each job ran and how long it takes alone,
        and ``job_times`` of its results compares these times.

    Raises
    ------
    InputError, UsageError, PairError
        As :func:`nadi.simulate`; also if jobs do not have ranks of their own.
    """
    check_kind("jobs", jobs, Mapping, "name each job: {'training': job}")
    check_kind("system", system, System, "load one with nadi.load_system")
    found, priced = {}, None
    for name, job in jobs.items():
        found[name], own_price = _nodes(job, system, prices)
        priced = own_price if priced is None or own_price is None else priced.plus(own_price)
    ranks = beside_each_other({name: len(own) for name, own in found.items()}, places or {})
    _check_room(ranks, system)
    placed = {
        name: placed_traces(
            own, name, ranks[name], {**system.groups, **(groups or {}).get(name, {})}
        )
        for name, own in found.items()
    }
    machine = msgspec.structs.replace(system, groups={})
    run = _runner(machine)
    alone = {name: run({name: ranks[name]}, placed).makespan for name in found}
    together = run(ranks, placed)
    done = tuple(PlacedJob(name, own, alone[name]) for name, own in ranks.items())
    return replace(together, jobs=done, priced=priced)


def _check_room(ranks: Mapping[str, Ints], system: System) -> None:
    num_ranks = system.network.num_ranks
    last = max((int(own.max()) for own in ranks.values()), default=-1)
    if last >= num_ranks:
        raise UsageError(
            "network", f"it has {num_ranks} ranks, but a job is to run on rank {last}",
            "fit the system to more ranks",
        )  # fmt: skip


def name_jobs(
    paths: Sequence[str], jobs: Sequence[Job | Sequence[Trace]]
) -> dict[str, Job | Sequence[Trace]]:
    """Name jobs by the last part of their paths, and by a number where several have the same."""
    found: dict[str, Job | Sequence[Trace]] = {}
    for path, job in zip(paths, jobs, strict=True):
        own = Path(path).name or "job"
        name, number = own, 1
        while name in found:
            number += 1
            name = f"{own} {number}"
        found[name] = job
    return found


def simulate_placed(
    jobs: Mapping[str, Job | Sequence[Trace]],
    machine_for: Callable[[int], System],
    places: Sequence[str],
    groups: Sequence[_Groups],
    prices: LearnedPrices | None = None,
) -> Simulation:
    """Simulate jobs on ranks that are written such as ``0-7,16-23``; one without as it is.

    - ``machine_for``: Gives the system for a number of ranks; of the sizes that there are, the
      smallest that has room for all jobs is taken.
    - ``places``, ``groups``: For each job in their order, or nothing.
    - Raises UsageError if there are not as many places as jobs; else as :func:`simulate_together`.
    """
    if places and len(places) != len(jobs):
        raise UsageError(
            Parameter("on", list(places)), f"lists of ranks: {len(places)}, jobs: {len(jobs)}",
            "give one for each job, in their order",
        )  # fmt: skip
    if len(jobs) == 1 and not places:
        (job,) = jobs.values()
        return simulate(job, machine_for(len(traces_of(job))), prices)
    found = {name: _ranks(text) for name, text in zip(jobs, places, strict=False)}
    num_ranks = sum(len(traces_of(job)) for job in jobs.values())
    num_ranks = max([num_ranks, *(max(ranks) + 1 for ranks in found.values())])
    own = dict(zip(jobs, groups, strict=False))
    return simulate_together(jobs, _with_room(machine_for, num_ranks), found, own, prices)


def traces_of(job: Job | Sequence[Trace]) -> Sequence[Trace]:
    """Return the traces of a job, linked or not."""
    return job.traces if isinstance(job, Job) else job


def _with_room(machine_for: Callable[[int], System], num_ranks: int) -> System:
    """Return the smallest system that has so many ranks."""
    for size in range(num_ranks, 2 * num_ranks):
        try:
            return machine_for(size)
        except UsageError:
            continue
    return machine_for(num_ranks)


def _ranks(text: str) -> list[int]:
    """Parse ranks such as ``0-7,16-23``."""
    match = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
    ends = [(int(one[1]), int(one[2] or one[1])) for one in match if one]
    if len(ends) < len(match) or any(last < first or last >= _MOST for first, last in ends):
        raise UsageError(
            Parameter("on", text), "it must be ranks", "write them such as 0-7,16-23"
        )  # fmt: skip
    return [rank for first, last in ends for rank in range(first, last + 1)]


def _nodes(
    job: Job | Sequence[Trace], system: System, prices: LearnedPrices | None
) -> tuple[list[Trace], PricedWork | None]:
    """Return what the ranks of a job do, with times, in groups of their own."""
    priced = None
    if system.compute.device is not None and not system.compat:
        from nadi.systems.prices.priced_traces import price_job

        job, priced = price_job(job, system, prices)
    if isinstance(job, Job) and job.rank_groups is not None:
        return [job.own_trace(rank) for rank in range(len(job.traces))], priced
    rules = rules_of(system)
    return list(nodes_of_job(job, rules.played, at_once=system.slots == "device")[0]), priced


def _runner(
    machine: System,
) -> Callable[[Mapping[str, Ints], Mapping[str, list[Trace]]], Simulation]:
    """Return what simulates jobs on their ranks, with all other ranks idle."""
    custom = {prefix: read_ranks(prefix) for prefix in machine.collectives.custom_traces}
    idle = idle_trace()

    def run(ranks: Mapping[str, Ints], placed: Mapping[str, list[Trace]]) -> Simulation:
        traces = [idle] * machine.network.num_ranks
        for name, own in ranks.items():
            for rank, trace in zip(own.tolist(), placed[name], strict=True):
                traces[rank] = trace
        return simulate_job(traces, machine, custom)

    return run
