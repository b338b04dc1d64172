"""Steps of a placed job over bandwidths and capacities, in processes.

A placement depends on capacities, and not on bandwidths: each is made once. What fits into a memory
fits into a larger one, so the step of a capacity is the fastest of all that need no more.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from nadi.forks import refuse_in_fork
from nadi.model.arrays import Ints
from nadi.model.trace import Job, Trace
from nadi.pipeline.placed_steps import PlainStep, with_bandwidth, with_room
from nadi.placement.placement_choice import Placer, TierRoom, rooms_of
from nadi.placement.staged_moves import Staging
from nadi.placement.tiered_jobs import tiered_job
from nadi.progress import tell
from nadi.simulator.engine_driver import simulate_job
from nadi.simulator.machine.system import System

__all__ = ["TierGrid", "sweep_tiers"]

_Task: TypeAlias = tuple[list[Job | Sequence[Trace]], list[System]]
_FEW = 12  # points that are not worth processes


class TierGrid(NamedTuple):
    """What is varied.

    Attributes
    ----------
    bandwidths
        Of the second tier, in bytes per ns, of all its ranks together.
    memories, capacities
        Bytes of the first tier, and of the second one; 0 for what the system has, or any.
    """

    bandwidths: tuple[float, ...]
    memories: tuple[int, ...] = (0,)
    capacities: tuple[int, ...] = (0,)

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.bandwidths) * len(self.memories) * len(self.capacities)


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
        ``memory``, ``capacity`` and ``bandwidth`` (bytes per ns), ``fits``, ``ns`` (null where
        nothing fits) and ``ratio`` to the step without tiers.
    """
    refuse_in_fork()
    tasks: list[_Task] = []
    places: list[list[int]] = []  # of each memory and capacity, the tasks of what fits
    known: dict[bytes, int] = {}
    for memory, capacity in product(grid.memories, grid.capacities):
        there = with_room(system, memory, capacity)
        own = plain.staging(there, *staging, in_place=in_place)
        places.append([])
        for placer in placers:
            tier = plain.chosen(placer, there, own)
            if not _fits(plain, tier, rooms_of(there, own.buffers)):
                continue
            key = own.buffers.to_bytes(8, "little") + b"".join(one.tobytes() for one in tier)
            if key not in known:
                known[key] = len(tasks)
                tasks.append(_task(plain, tier, there, own, grid.bandwidths))
            places[-1].append(known[key])
    found: list[list[int]] = []
    tell(0, len(tasks))
    with _mapping(executor, len(tasks), grid.size) as mapped:
        for one in mapped(_times, tasks):
            found.append(one)
            tell(len(found), len(tasks))
    return _table(plain, grid, places, found)


def _table(
    plain: PlainStep, grid: TierGrid, places: Sequence[Sequence[int]],
    found: Sequence[Sequence[int]],
) -> pl.DataFrame:  # fmt: skip
    shape = len(grid.memories), len(grid.capacities), len(grid.bandwidths)
    ns = np.full(shape, np.inf)
    for number, fitting in enumerate(places):
        if fitting:
            ns[np.unravel_index(number, shape[:2])] = np.min(
                [found[one] for one in fitting], axis=0
            )
    # what needs less fits, too; 0 is as much as there is, or any
    for axis, sizes in ((0, grid.memories), (1, grid.capacities)):
        order = np.argsort([size or math.inf for size in sizes], kind="stable")
        best = np.minimum.accumulate(np.take(ns, order, axis=axis), axis=axis)
        ns = np.take(best, np.argsort(order), axis=axis)
    rows = []
    for m, memory in enumerate(grid.memories):
        for c, capacity in enumerate(grid.capacities):
            for b, bandwidth in enumerate(grid.bandwidths):
                time = float(ns[m, c, b])
                is_there = math.isfinite(time)
                rows.append({
                    "memory": memory or plain.system.memory_capacity, "capacity": capacity,
                    "bandwidth": bandwidth, "fits": is_there,
                    "ns": int(time) if is_there else None,
                    "ratio": time / max(plain.ns, 1) if is_there else None,
                })  # fmt: skip
    return pl.DataFrame(rows, schema={
        "memory": pl.Int64, "capacity": pl.Int64, "bandwidth": pl.Float64, "fits": pl.Boolean,
        "ns": pl.Int64, "ratio": pl.Float64,
    })  # fmt: skip


def _fits(plain: PlainStep, tiers: Sequence[Ints], rooms: Sequence[TierRoom]) -> bool:
    """Return whether what lives in each tier has room there, at the times without tiers."""
    for tensors, tier in zip(plain.tensors.traces, tiers, strict=True):
        size = tensors.column("bytes")
        begin, end = tensors.column("begin"), tensors.column("end")
        for number, room in enumerate(rooms):
            mine = np.flatnonzero((tier == number) & (end > begin))
            if math.isinf(room.capacity) or not mine.size:
                continue
            time = np.concatenate([begin[mine], end[mine]])
            change = np.concatenate([size[mine], -size[mine]])
            live = np.cumsum(change[np.lexsort((change, time))])
            if live.max() > room.capacity:
                return False
    return True


def _task(
    plain: PlainStep, tier: Sequence[Ints], system: System, staging: Staging,
    bandwidths: Sequence[float],
) -> _Task:  # fmt: skip
    """Return the jobs of a placement and the systems, with a rank's share of the tier."""
    sharing = system.tiers[0].shared_by or system.network.num_ranks
    systems = [with_bandwidth(system, bandwidth / sharing) for bandwidth in bandwidths]
    jobs = systems if staging.in_place else systems[:1]
    return [
        _plain_data(tiered_job(plain.job, plain.tensors, tier, staging, one).job) for one in jobs
    ], systems


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
    jobs, systems = task
    return [
        simulate_job(jobs[min(number, len(jobs) - 1)], system).makespan
        for number, system in enumerate(systems)
    ]


@contextmanager
def _mapping(executor: Executor | None, num: int, points: int) -> Iterator[Any]:
    """Give what applies a function to values, each where there is room."""
    workers = min(os.cpu_count() or 1, num)
    if executor is not None:
        yield executor.map
    elif workers < 2 or points <= _FEW:
        yield map
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            try:
                yield pool.map
            finally:
                pool.shutdown(cancel_futures=True)
