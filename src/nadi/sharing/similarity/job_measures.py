"""What a job is like, measured: of its operations, their graph, and a simulated run of it.

Distances between distributions, from 0 for equal ones to 1 for ones with nothing in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nadi.sharing.synthesis.job_columns import JobColumns, RankColumns
from nadi.simulation.accounts.memory_accounts import live_memory
from nadi.simulation.accounts.simulation_as_recording import simulated_path
from nadi.simulation.simulation import Simulation
from nadi.trace.arrays import Floats, Ints
from nadi.trace.schema import COMM_TYPES, NODE_KINDS

_Counts = Mapping[object, float]


def total_variation(one: _Counts, other: _Counts) -> float:
    """Return the total variation of two distributions: half the sum of differences of shares.

    Parameters
    ----------
    one, other
        How often each thing occurs, or how much of it there is.

    Returns
    -------
    float
        0 if all shares are equal or both are empty, 1 if nothing is in both.
    """
    p, q = _shares(one, other)
    if p.sum() == 0 or q.sum() == 0:
        return float(p.sum() != q.sum())
    return float(np.clip(np.abs(p - q).sum() / 2, 0, 1))


def jensen_shannon(one: _Counts, other: _Counts) -> float:
    """Return the Jensen-Shannon divergence of two distributions in bits, between 0 and 1."""
    p, q = _shares(one, other)
    if p.sum() == 0 or q.sum() == 0:
        return float(p.sum() != q.sum())
    middle = (p + q) / 2
    return float(np.clip((_divergence(p, middle) + _divergence(q, middle)) / 2, 0, 1))


def overlap_distance(one: _Counts, other: _Counts) -> float:
    """Return how much of two amounts of several kinds differs: 0 if all are equal.

    The sum of differences over the sum of both, so that more of everything is a difference, too.
    """
    p, q = _amounts(one, other)
    both = float(p.sum() + q.sum())
    return float(np.abs(p - q).sum() / both) if both else 0.0


def relative_difference(one: float, other: float) -> float:
    """Return the difference of two amounts over the larger; 0 if both are 0."""
    most = max(abs(one), abs(other))
    return abs(one - other) / most if most else 0.0


def wasserstein(one: Ints | Floats, other: Ints | Floats) -> float:
    """Return the Wasserstein distance of two samples over the sum of their means.

    The area between their distribution functions. Values are 0 or more, so the result is between 0
    and 1. O(n log n).
    """
    if not one.size or not other.size:
        return float(one.size != other.size)
    both = float(one.mean() + other.mean())
    if both == 0:
        return 0.0
    a, b = np.sort(one), np.sort(other)
    edges = np.sort(np.concatenate([a, b]))
    share_a = np.searchsorted(a, edges[:-1], side="right") / a.size
    share_b = np.searchsorted(b, edges[:-1], side="right") / b.size
    return float((np.abs(share_a - share_b) * np.diff(edges)).sum() / both)


def wasserstein_by_key(
    one: Sequence[object], values: Ints, other: Sequence[object], others: Ints
) -> float:
    """Return the mean distance of the values of each key, by the share of the key's sum.

    A key that only one sample has counts as far away: 1. Where all values are 0, 0.
    """
    mine, theirs = _by_key(one, values), _by_key(other, others)
    weight, distance = [], []
    for key in dict.fromkeys([*mine, *theirs]):
        a, b = mine.get(key, _NONE), theirs.get(key, _NONE)
        weight.append(a.sum() / max(values.sum(), 1) + b.sum() / max(others.sum(), 1))
        distance.append(wasserstein(a, b))
    total = sum(weight)
    return float(np.dot(weight, distance) / total) if total else 0.0


_NONE = np.zeros(0, dtype=np.int64)


def _by_key(keys: Sequence[object], values: Ints) -> dict[object, Ints]:
    number: dict[object, int] = {}
    codes = np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(1, len(number)))
    return dict(zip(number, np.split(values[order], cuts), strict=False))


def _amounts(one: _Counts, other: _Counts) -> tuple[Floats, Floats]:
    keys = dict.fromkeys([*one, *other])
    return (
        np.array([one.get(key, 0) for key in keys], dtype=np.float64),
        np.array([other.get(key, 0) for key in keys], dtype=np.float64),
    )


def _shares(one: _Counts, other: _Counts) -> tuple[Floats, Floats]:
    p, q = _amounts(one, other)
    if not p.sum() or not q.sum():  # an empty one has nothing in common with the other
        return (p > 0).astype(np.float64), (q > 0).astype(np.float64)
    return p / p.sum(), q / q.sum()


def _divergence(p: Floats, middle: Floats) -> float:
    known = p > 0
    return float((p[known] * np.log2(p[known] / middle[known])).sum())


_GRAM = 3
_COMP = NODE_KINDS.index("COMP")


class JobMeasures(NamedTuple):
    """What a job is like.

    Attributes
    ----------
    mix, grams
        How often each operation, and each three in a row on a thread or stream, occur.
    names, durations, sizes
        Of each computation its operation; ns; FLOPs and bytes, for those that state any.
    sized
        The operation of each size.
    gaps
        Idle ns between operations of a thread or stream in the simulated run.
    degrees
        How many operations wait for so many, and so many wait for them.
    depth, width
        Operations on the longest chain of a rank, and most at the same depth, of all ranks.
    volume
        Bytes of communication by type, size of the group, and size of the message.
    memory
        Largest live memory of a rank in bytes; -1 if no tensors are stated.
    path
        Time of the simulated critical path by kind, in ns.
    """

    mix: Mapping[object, float]
    grams: Mapping[object, float]
    names: list[str]
    durations: Ints
    sized: list[str]
    sizes: Ints
    gaps: Ints
    degrees: Mapping[object, float]
    depth: int
    width: int
    volume: Mapping[object, float]
    memory: int
    path: Mapping[object, float]


def measures_of(columns: JobColumns, run: Simulation) -> JobMeasures:
    """Measure a job and its simulated run. O(nodes log nodes)."""
    mix: Counter[object] = Counter()
    grams: Counter[object] = Counter()
    degrees: Counter[object] = Counter()
    volume: Counter[object] = Counter()
    names: list[str] = []
    sized: list[str] = []
    durations, sizes = [], []
    depth = width = 0
    for rank in columns.ranks:
        own = [columns.labels[label] for label in rank.label.tolist()]
        mix.update(own)
        grams.update(_grams(rank, own))
        degrees.update(_degrees(rank))
        volume.update(_volume(rank, columns))
        deep, wide = _extent(rank)
        depth, width = max(depth, deep), max(width, wide)
        timed = np.flatnonzero((rank.duration >= 0) & (rank.kind == _COMP))
        names += [own[row] for row in timed.tolist()]
        durations.append(rank.duration[timed])
        for column in (rank.flops, rank.bytes, rank.comm_bytes):
            stated = np.flatnonzero(column >= 0)
            sized += [own[row] for row in stated.tolist()]
            sizes.append(column[stated])
    live = live_memory(run)
    path: dict[object, float] = {
        str(kind): float(time) for kind, time in simulated_path(run).by_kind().items() if time
    }
    return JobMeasures(
        mix, grams, names, np.concatenate(durations), sized, np.concatenate(sizes), _gaps(run),
        degrees, depth, width, volume, -1 if live is None else int(live["peak"].to_numpy().max()),
        path,
    )  # fmt: skip


def distances_of(one: JobMeasures, other: JobMeasures) -> dict[str, float | None]:
    """Return how far two jobs are apart by each measure, 0 to 1; None where neither states it."""
    has_memory = one.memory >= 0 or other.memory >= 0
    return {
        "operation mix": total_variation(one.mix, other.mix),
        "operation sequences": jensen_shannon(one.grams, other.grams),
        "durations": wasserstein_by_key(one.names, one.durations, other.names, other.durations)
        if one.durations.size or other.durations.size else None,
        "sizes": wasserstein_by_key(one.sized, one.sizes, other.sized, other.sizes)
        if one.sizes.size or other.sizes.size else None,
        "gaps": wasserstein(one.gaps, other.gaps),
        "degrees": total_variation(one.degrees, other.degrees),
        "depth": relative_difference(one.depth, other.depth),
        "width": relative_difference(one.width, other.width),
        "communication": overlap_distance(one.volume, other.volume)
        if one.volume or other.volume else None,
        "live memory": relative_difference(max(one.memory, 0), max(other.memory, 0))
        if has_memory else None,
        "critical path": total_variation(one.path, other.path),
    }  # fmt: skip


def _lanes(rank: RankColumns) -> Ints:
    """Return a number for each thread and stream; int64, shape (operations,)."""
    on_stream = rank.stream >= 0
    key = np.where(on_stream, 2 * rank.stream, 2 * np.maximum(rank.thread, -1) + 1)
    return np.unique(key, return_inverse=True)[1].reshape(-1)


def _grams(rank: RankColumns, own: list[str]) -> Counter[object]:
    lane = _lanes(rank)
    order = np.argsort(lane, kind="stable")
    in_order = [own[row] for row in order.tolist()]
    at = lane[order]
    whole = np.flatnonzero(at[_GRAM - 1 :] == at[: at.size - _GRAM + 1]).tolist()
    return Counter(tuple(in_order[row : row + _GRAM]) for row in whole)


def _degrees(rank: RankColumns) -> Counter[object]:
    waits = np.bincount(rank.dst, minlength=rank.size)
    awaited = np.bincount(rank.src, minlength=rank.size)
    found: Counter[object] = Counter()
    for side, counts in (("in", waits), ("out", awaited)):
        number, times = np.unique(counts, return_counts=True)
        for degree, many in zip(number.tolist(), times.tolist(), strict=True):
            found[side, degree] = many
    return found


def _extent(rank: RankColumns) -> tuple[int, int]:
    """Return operations on the longest chain, and the most operations at one depth."""
    depth = [1] * rank.size
    for src, dst in zip(rank.src.tolist(), rank.dst.tolist(), strict=True):  # sorted by dst
        if depth[src] >= depth[dst]:
            depth[dst] = depth[src] + 1
    return max(depth, default=0), int(np.bincount(depth or [0]).max())


def _volume(rank: RankColumns, columns: JobColumns) -> Counter[object]:
    found: Counter[object] = Counter()
    sizes = [*(len(ranks) for ranks in columns.groups), len(columns.ranks)]
    for row in np.flatnonzero(rank.kind != _COMP).tolist():
        if rank.comm_type[row]:
            members = 2 if rank.peer[row] >= 0 else sizes[rank.group[row]]
            amount = max(int(rank.comm_bytes[row]), 0)
            found[COMM_TYPES[rank.comm_type[row]], members, amount] += amount
    return found


def _gaps(run: Simulation) -> Ints:
    """Return the idle ns between neighbors in the lanes of the program, 0 for none."""
    program = run.program
    if program.lane is None:
        return np.zeros(0, dtype=np.int64)
    inside = np.flatnonzero(program.lane >= 0)
    order = inside[np.lexsort((run.start[inside], program.lane[inside]))]
    same = program.lane[order[1:]] == program.lane[order[:-1]]
    idle: Ints = run.start[order[1:]] - run.end[order[:-1]]
    return np.asarray(np.maximum(idle, 0)[same], dtype=np.int64)
