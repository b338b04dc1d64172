"""Level ``structure``: as few intervals as keep step time and critical path within a bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from nadi.errors import InputError, Parameter
from nadi.sharing.obfuscation.fidelity import Answer, Fidelity, Yardstick
from nadi.sharing.obfuscation.free_schedule import RankWork, free_schedule, works_of
from nadi.sharing.obfuscation.guarantees import GUARANTEES
from nadi.sharing.obfuscation.merged_work import Beside, Splits, merge_work, slack_of, time_cuts
from nadi.sharing.obfuscation.secret_key import SecretKey
from nadi.simulation.work.recorded_work import nodes_of_job
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.schema import COMM_TYPES, ISSUES, MATCHES
from nadi.trace.trace import Job, Trace

__all__ = ["UNTIMED", "check_mergeable", "check_timed", "merge_job", "simulator_job"]

UNTIMED = (pl.col("kind") == "COMP") & (pl.col("duration") <= 0) & (pl.col("flops") > 0)
"""Computations without a time, which are simulated by what they cost."""

_INTERVALS = (8, 16, 32, 64, 128, 256, 512)
# the number of collectives between two cuts: one, else powers of 4, 2 and sqrt(2)
_BASES = (np.inf, 4.0, 2.0, 2.0**0.5)
_SPREADS = (1.5, 0.5, 0.0)  # of the sizes of parts and messages
_TRIED = 4  # numbers of intervals, before parts are more alike
_STARTS = 3  # of the numbers of intervals, the first is one of so many
_SHIFT = 0.4  # of a cut, as a part of an interval
_CLASSES = 6  # of slack


def simulator_job(job: Job) -> Job:
    """Return a job whose nodes a simulator can run as they are: a recording is converted.

    Raises
    ------
    NadiError
        If it cannot be converted.
    """
    if job.rank_groups is not None:
        return job
    played = frozenset(COMM_TYPES) - {"none", "send", "recv"}
    traces, _ = nodes_of_job(job, played, at_once=True)
    return Job(tuple(traces), MATCHES.empty(), ISSUES.empty())


def check_mergeable(job: Job, level: str) -> None:
    """Raise InputError if operations of a job cannot be merged."""
    if job.world_size > len(job.traces):
        raise InputError(
            "job", f"it has the traces of {len(job.traces)} of {job.world_size} ranks: level "
            f"{level} needs all members of a collective", "give all ranks, or use level shapes",
        )  # fmt: skip
    for rank, trace in enumerate(job.traces):
        if trace in job.traces[:rank]:
            continue
        kinds = set(trace.nodes["kind"].unique().to_list())
        if {"MEM_LOAD", "MEM_STORE"} & kinds or trace.attributes.rows_named("involved_dim").size:
            raise InputError(
                f"rank {rank}", f"it accesses remote memory, or involves some dimensions only: "
                f"level {level} cannot merge that", "use level shapes",
            )  # fmt: skip


def check_timed(job: Job, level: str) -> None:
    """Raise InputError if computations have no time of their own, but a price on each system."""
    for rank, trace in enumerate(job.traces):
        if trace in job.traces[:rank]:
            continue
        untimed = trace.nodes.filter(UNTIMED)
        if untimed.height:
            raise InputError(
                f"rank {rank}", f"{untimed.height} computations have no time, by which level "
                f"{level} is checked", ["name the system that it ran on with ", Parameter("system"),
                                        ", or use level names"],
            )  # fmt: skip


def merge_job(
    job: Job, key: SecretKey, systems: Mapping[str, System], before: Mapping[str, Answer]
) -> tuple[Job, list[Fidelity]]:
    """Merge the operations of a job as far as its answers stay within the tolerance of structure.

    Where the job is cut, and into how many intervals at least, follows from the key.

    Parameters
    ----------
    job
        Without names, from :func:`simulator_job`, with times.
    key
        With the salt of the job.
    systems
        On which both jobs are simulated.
    before
        The answers of the original.

    Raises
    ------
    InputError
        If the job cannot be merged, or not within the tolerance.
    """
    tolerance = GUARANTEES["structure"].tolerance
    done = free_schedule(job)
    works = works_of(job, done)
    yardstick = Yardstick(before, systems, tolerance)
    least = int((key.unit("intervals") + 1) / 2 * _STARTS)
    for spread in _SPREADS:
        splits = Splits(lambda meeting, part: key.unit("part", str(meeting), str(part)), spread)
        for intervals in _INTERVALS[least : least + _TRIED if spread else None]:
            grid = _grid(max(done.makespan, 1), intervals, key)
            for base in _BASES:
                merged = _merged(job, works, grid, base, splits)
                if yardstick.measure(merged) is not None and (
                    found := yardstick.measure(_as_written(merged))
                ):
                    return merged, found
    raise InputError(
        "job", f"its answers differ by more than {tolerance:.0%} even if it is merged into "
        f"{intervals} intervals, so that level structure cannot keep its promise",
        "use level shapes",
    )  # fmt: skip


def _as_written(job: Job) -> Job:
    """Return a job as who reads its files gets it: each rank has a trace of its own.

    Ranks that share one are simulated as one, also where at one moment several groups of it begin
    to communicate, which ranks of their own do in an order.
    """
    if job.rank_groups is None:
        return job
    own = tuple(job.own_trace(rank) for rank in range(len(job.traces)))
    return Job(own, MATCHES.empty(), ISSUES.empty())


def _grid(end: int, intervals: int, key: SecretKey) -> Ints:
    """Return where to cut: evenly, but for a secret shift of each cut."""
    shifts = [_SHIFT * key.unit("cut", str(intervals), str(n)) for n in range(1, intervals)]
    places = (np.arange(1, intervals) + np.array(shifts)) / intervals
    return np.unique(np.concatenate([[0], np.rint(places * end), [end]]).astype(np.int64))


def _merged(job: Job, works: Sequence[RankWork], grid: Ints, base: float, splits: Splits) -> Job:
    factor = _of_messages(works, splits)
    different = list({id(work): work for work in works}.values())
    beside = _beside(different, [slack_of(work, grid) for work in different])
    done: dict[int, Trace] = {}
    for work, own in zip(different, beside, strict=True):
        sizes = work.trace.nodes["comm_bytes"].to_numpy()[work.row]
        for node in _messages(work).tolist():
            sizes[node] = max(round(int(sizes[node]) * factor[int(work.meeting[node])]), 1)
        done[id(work)] = merge_work(work, time_cuts(work, grid), sizes, own, base, splits)
    return replace(job, traces=tuple(done[id(work)] for work in works), matches=MATCHES.empty())


def _messages(work: RankWork) -> Ints:
    return np.flatnonzero(~work.computes & ~work.collective & (work.meeting >= 0))


def _of_messages(works: Sequence[RankWork], splits: Splits) -> dict[int, float]:
    """Return a factor for the size of each message, by its number; their volume stays."""
    volume: dict[int, int] = {}
    for work in works:
        sizes = work.trace.nodes["comm_bytes"].to_numpy()
        for node in _messages(work).tolist():
            volume[int(work.meeting[node])] = int(sizes[work.row[node]])
    if not splits.spread or not volume:
        return dict.fromkeys(volume, 1.0)
    factor = {one: math.exp(splits.spread * splits.secret(one, 0)) for one in volume}
    moved = sum(volume[one] * factor[one] for one in volume)
    return {one: own * sum(volume.values()) / max(moved, 1) for one, own in factor.items()}


def _beside(works: Sequence[RankWork], slack: Sequence[Ints]) -> list[Beside]:
    """Return the least slack of any member for all members of each collective, and its class.

    Slack of one class differs by a factor of two at most, but in the last class.
    """
    size = max((int(work.meeting.max(initial=-1)) for work in works), default=-1) + 1
    least = np.full(size + 1, np.iinfo(np.int64).max)
    for work, own in zip(works, slack, strict=True):
        np.minimum.at(least, work.meeting[work.collective], own[work.collective])
    common = [np.where(work.collective, least[work.meeting], 0) for work in works]
    octaves = [np.log2(np.maximum(own, 1)).astype(np.int64) for own in common]
    top = max(int(own.max(initial=0)) for own in octaves)
    return [
        Beside(own, np.where(own > 0, 1 + np.minimum(top - octave, _CLASSES - 1), 0), _CLASSES + 1)
        for own, octave in zip(common, octaves, strict=True)
    ]
