"""Steps of a placed job over bandwidths and capacities, in processes.

A placement depends on capacities, and not on bandwidths: each is made once. What fits into a memory
fits into a larger one, so the step of a capacity is the fastest of all that need no more.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from nadi.forks import refuse_in_fork
from nadi.memory.placement.placed_steps import (
    PlainStep,
    with_bandwidth,
    with_latency,
    with_room,
    with_sharing,
)
from nadi.memory.placement_choice import Placer, TierRoom, rooms_of
from nadi.memory.staged_moves import Staging
from nadi.memory.tier_accounts import tiered_job
from nadi.progress import tell
from nadi.results.terminal.workers import worker_processes
from nadi.simulation.engine_driver import simulate_job, simulate_with_memories
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.trace import Job, Trace

_Custom: TypeAlias = dict[str, Sequence[Trace]]  # traces of collectives
_Task: TypeAlias = tuple[list[Job | Sequence[Trace]], list[System], _Custom]
_Figures: TypeAlias = tuple[float | None, float]
_FEW = 12  # points that are not worth processes


class TierGrid(NamedTuple):
    """What is varied.

    Attributes
    ----------
    bandwidths
        Of the second tier, in bytes per ns, of all its ranks together.
    memories, capacities
        Bytes of the first tier, and of the second one; 0 for what the system has, or any.
    sharings
        How many neighboring ranks have the second tier together; 0 for what the system has.
    latencies
        Of the second tier without load, in ns; None for what the system has.
    """

    bandwidths: tuple[float, ...]
    memories: tuple[int, ...] = (0,)
    capacities: tuple[int, ...] = (0,)
    sharings: tuple[int, ...] = (0,)
    latencies: tuple[float | None, ...] = (None,)

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(len(axis) for axis in self)


def sweep_tiers(
    plain: PlainStep, placers: Sequence[Placer], system: System, grid: TierGrid,
    staging: tuple[int, int] = (0, 0), *, in_place: bool = False, executor: Executor | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Simulate placements for each point of a grid: the one with the shortest step counts.

    Ranks that have a tier together have equal shares of it: what they do at the same time is
    simulated once.

    Parameters
    ----------
    placers
        What chooses placements; more of them take longer.
    system
        With a lower tier.
    staging
        Bytes of buffers, and operations that a load may begin before its use; 0 for what usually
        is.
    in_place
        Whether computations access tensors where they live.
    executor
        Where points are simulated; by default processes, or this one for few points.

    Returns
    -------
    polars.DataFrame
        ``memory``, ``capacity``, ``shared_by`` (0 for what the system has), ``latency`` (ns),
        ``bandwidth`` (bytes per ns), ``fits``, ``ns`` (null where nothing fits) and ``ratio`` to
        the step without tiers.
    """
    refuse_in_fork()
    wanted: dict[bytes, _Wanted] = {}
    places: list[list[bytes]] = []  # of each memory, capacity and sharing, what fits
    figures = [_figures(with_sharing(system, sharing), grid) for sharing in grid.sharings]
    for memory, capacity, number in product(
        grid.memories, grid.capacities, range(len(grid.sharings))
    ):
        there = with_sharing(with_room(system, memory, capacity), grid.sharings[number])
        own = plain.staging(there, *staging, in_place=in_place)
        places.append([])
        for placer in placers:
            tier = plain.chosen(placer, there, own)
            if not _fits(plain, tier, rooms_of(there, own.buffers)):
                continue
            key = own.buffers.to_bytes(8, "little") + b"".join(one.tobytes() for one in tier)
            known = wanted.setdefault(key, _Wanted(tier, there, own, {}))
            known.figures.update(dict.fromkeys(figures[number]))
            places[-1].append(key)
    found = _simulated(plain, wanted, executor, grid.size)
    rooms = len(grid.memories), len(grid.capacities), len(grid.sharings)
    ns = np.full((*rooms, len(grid.latencies) * len(grid.bandwidths)), np.inf)
    for number, fitting in enumerate(places):
        at = np.unravel_index(number, rooms)
        for key in fitting:
            ns[at] = np.minimum(ns[at], [found[key][one] for one in figures[at[2]]])
    return _table(plain, grid, system.tiers[0].latency, ns)


class _Wanted(NamedTuple):
    """A placement, and for which latencies and bandwidths of a rank it is simulated."""

    tier: tuple[Ints, ...]
    system: System
    staging: Staging
    figures: dict[_Figures, None]


def _simulated(
    plain: PlainStep, wanted: Mapping[bytes, _Wanted], executor: Executor | None, points: int
) -> dict[bytes, dict[_Figures, int]]:
    """Return how long steps are with each placement, by latency and bandwidth."""
    found: dict[bytes, dict[_Figures, int]] = {}
    tell(0, len(wanted))
    tasks = (_task(plain, one) for one in wanted.values())
    with _mapping(executor, len(wanted), points) as mapped:
        for (key, one), times in zip(wanted.items(), mapped(_times, tasks), strict=True):
            found[key] = dict(zip(one.figures, times, strict=True))
            tell(len(found), len(wanted))
    return found


def _figures(system: System, grid: TierGrid) -> list[_Figures]:
    """Return all latencies, each with a rank's share of each bandwidth."""
    sharing = system.tiers[0].shared_by or system.network.num_ranks
    return [(latency, rate / sharing) for latency in grid.latencies for rate in grid.bandwidths]


def _table(plain: PlainStep, grid: TierGrid, latency: float, ns: Floats) -> pl.DataFrame:
    """Return the points; what needs less fits, too: 0 is as much as there is, or any."""
    for axis, sizes in ((0, grid.memories), (1, grid.capacities)):
        order = np.argsort([size or math.inf for size in sizes], kind="stable")
        best = np.minimum.accumulate(np.take(ns, order, axis=axis), axis=axis)
        ns = np.take(best, np.argsort(order), axis=axis)
    rows = []
    for point, time in zip(product(*grid[1:], grid.bandwidths), ns.ravel().tolist(), strict=True):
        memory, capacity, sharing, stated, bandwidth = point
        is_there = math.isfinite(time)
        rows.append({
            "memory": memory or plain.system.memory_capacity, "capacity": capacity,
            "shared_by": sharing, "latency": latency if stated is None else stated,
            "bandwidth": bandwidth, "fits": is_there,
            "ns": int(time) if is_there else None,
            "ratio": time / max(plain.ns, 1) if is_there else None,
        })  # fmt: skip
    return pl.DataFrame(rows, schema={
        "memory": pl.Int64, "capacity": pl.Int64, "shared_by": pl.Int64, "latency": pl.Float64,
        "bandwidth": pl.Float64, "fits": pl.Boolean, "ns": pl.Int64, "ratio": pl.Float64,
    })  # fmt: skip


def _fits(plain: PlainStep, tiers: Sequence[Ints], rooms: Sequence[TierRoom]) -> bool:
    """Return whether what lives in each tier has room there, at the times without tiers."""
    for tensors, tier in zip(plain.tensors.traces, tiers, strict=True):
        begin, end = tensors.column("begin"), tensors.column("end")
        for number, room in enumerate(rooms):
            mine = np.flatnonzero((tier == number) & (end > begin))
            if math.isinf(room.capacity) or not mine.size:
                continue
            size = plain.tensors.share_of_rank(tensors, room.shared_by)
            time = np.concatenate([begin[mine], end[mine]])
            change = np.concatenate([size[mine], -size[mine]])
            live = np.cumsum(change[np.lexsort((change, time))])
            if live.max() > room.capacity:
                return False
    return True


def _task(plain: PlainStep, wanted: _Wanted) -> _Task:
    """Return the jobs of a placement and the systems, with a rank's share of the tier."""
    systems = [
        with_bandwidth(
            wanted.system if latency is None else with_latency(wanted.system, latency), rate
        )
        for latency, rate in wanted.figures
    ]
    jobs = systems if wanted.staging.in_place else systems[:1]
    return (
        [
            _plain_data(tiered_job(plain.job, plain.tensors, wanted.tier, wanted.staging, one).job)
            for one in jobs
        ],
        systems,
        dict(plain.custom),
    )


def _plain_data(job: Job | Sequence[Trace]) -> Job | Sequence[Trace]:
    """Return a job without operands, which can go to another process."""
    traces = job.traces if isinstance(job, Job) else tuple(job)
    made: dict[int, Trace] = {}
    for trace in traces:
        if id(trace) not in made:
            made[id(trace)] = replace(trace, given_attributes=trace.attributes_without_operands)
    bare = tuple(made[id(trace)] for trace in traces)
    return replace(job, traces=bare) if isinstance(job, Job) else bare


def _times(task: _Task) -> list[int]:
    """Simulate a job on each of some systems, or one for each."""
    jobs, systems, custom = task
    if len(jobs) == 1:
        return [done.makespan for done in simulate_with_memories(jobs[0], systems, custom)]
    return [simulate_job(job, one, custom).makespan for job, one in zip(jobs, systems, strict=True)]


@contextmanager
def _mapping(executor: Executor | None, num: int, points: int) -> Iterator[Any]:
    """Give what applies a function to values, each where there is room."""
    workers = min(os.cpu_count() or 1, num)
    if executor is not None:
        yield executor.map
    elif workers < 2 or points <= _FEW:
        yield map
    else:
        with worker_processes(workers) as pool:
            yield pool.map
