"""How much of a job stands in another one word for word: runs of operations with their sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.kernels.sequences import expand_ranges
from nadi.sharing.synthesis.job_columns import JobColumns, RankColumns, lane_numbers
from nadi.trace.arrays import Floats, Hashes

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_RUNS = (8, 32)
_SIZES = ("flops", "bytes", "comm_bytes")


class Verbatim(NamedTuple):
    """How much of a job B stands in a job A.

    Attributes
    ----------
    measure
        What is counted, such as ``unseen runs of 32``.
    share
        From 0 to 1.
    floor
        That of another recording of the program of A; None if none was given.
    ceiling
        That of a job whose operations are drawn column by column.
    """

    measure: str
    share: float
    floor: float | None
    ceiling: float


def verbatim_shares(known: JobColumns, other: JobColumns) -> dict[str, float]:
    """Return how much of another job stands in a known one; shares from 0 to 1.

    An operation is its name, without numbers, and its sizes. ``longest run`` is the longest run of
    a thread or stream that the known job has, too, over the longest of them all; ``unseen runs``
    are those of so many operations in a row that it does not have; ``nearest sequence`` is how much
    of each thread or stream differs from the one of the known job that is the most alike, by runs
    of 8. O(operations log operations + pairs of threads and streams that have such runs in common).
    """
    labels = {name: number for number, name in enumerate(known.labels)}
    for name in other.labels:
        labels.setdefault(name, len(labels))
    mine, theirs = _sequences(known, labels), _sequences(other, labels)
    longest = max(map(len, theirs), default=0)
    found = {"longest run": _longest_run(mine, theirs) / max(longest, 1)}
    for length in _RUNS:
        seen, asked = _runs(mine, length), _runs(theirs, length)
        found[f"unseen runs of {length}"] = (
            float((~np.isin(asked, seen)).mean()) if asked.size else 0.0
        )
    found["nearest sequence"] = _nearest(mine, theirs)
    return found


def _sequences(columns: JobColumns, labels: dict[str, int]) -> list[Hashes]:
    """Return the operations of each different thread or stream, as hashes in their order."""
    of_label = np.array([labels[name] for name in columns.labels], dtype=np.uint64)
    found: dict[bytes, Hashes] = {}
    for rank in {id(one): one for one in columns.ranks}.values():
        operation = _hashes(rank, of_label)
        lane = lane_numbers(rank)
        for one in np.unique(lane).tolist():
            own = operation[lane == one]
            found.setdefault(own.tobytes(), own)
    return list(found.values())


def _hashes(rank: RankColumns, of_label: Hashes) -> Hashes:
    found = of_label[rank.label] + np.uint64(1)
    with np.errstate(over="ignore"):
        for name in _SIZES:
            found = (found ^ (found >> np.uint64(29))) * _FACTOR
            found += getattr(rank, name).astype(np.uint64)
        return (found ^ (found >> np.uint64(32))) * _FACTOR


def _runs(sequences: list[Hashes], length: int) -> Hashes:
    """Return a hash of each run of so many operations of each sequence."""
    return np.concatenate([_runs_of(one, length) for one in sequences] or [np.zeros(0, np.uint64)])


def _runs_of(sequence: Hashes, length: int) -> Hashes:
    count = sequence.size - length + 1
    if count <= 0:
        return np.zeros(0, dtype=np.uint64)
    found = sequence.copy()
    done = 1  # a run is made of two that overlap
    with np.errstate(over="ignore"):
        while done < length:
            step = min(done, length - done)
            found = found[: found.size - step] * _FACTOR ^ found[step:]
            found ^= found >> np.uint64(31)
            done += step
    return found


def _longest_run(known: list[Hashes], other: list[Hashes]) -> int:
    """Return the most operations in a row that both have."""
    low, high = 0, max(map(len, other), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if np.isin(_runs(other, middle), _runs(known, middle)).any():
            low = middle
        else:
            high = middle - 1
    return low


def _nearest(known: list[Hashes], other: list[Hashes]) -> float:
    """Return how far sequences are from the nearest, each by its length; 0 to 1."""
    mine, theirs = ([np.unique(_runs_of(one, min(_RUNS[0], one.size))) for one in side]
                    for side in (known, other))  # fmt: skip
    apart = 1 - _most_alike(mine, theirs)
    return float(np.average(apart, weights=[one.size for one in other])) if other else 0.0


def _most_alike(known: list[Hashes], other: list[Hashes]) -> Floats:
    """Return for each set what it has in common with a known set, over both, at most.

    Values that the same known sets have are counted together, and of those that most sets have,
    the sets without them: of threads that are nearly alike these are few. So each set is looked up
    once, and not beside each known one.
    """
    sizes = np.array([one.size for one in known], dtype=np.int64)
    if not sizes.sum():
        return np.zeros(len(other))
    value, place = np.unique(np.concatenate(known), return_inverse=True)
    order = np.argsort(place, kind="stable")
    owner = np.repeat(np.arange(sizes.size), sizes)[order]
    begin = np.searchsorted(place[order], np.arange(value.size + 1))
    names = np.random.default_rng(0).integers(1 << 63, size=sizes.size)
    named = np.bitwise_xor.reduceat(names[owner], begin[:-1])
    _, first, alike = np.unique(named, return_index=True, return_inverse=True)
    often = 2 * (begin[first + 1] - begin[first]) > sizes.size
    rows = [owner[begin[one] : begin[one + 1]] for one in first.tolist()]
    for one in np.flatnonzero(often).tolist():
        rows[one] = np.delete(np.arange(sizes.size), rows[one])
    count = np.array([one.size for one in rows])
    start, row, sign = np.cumsum(count) - count, np.concatenate(rows), np.where(often, -1, 1)
    best = np.zeros(len(other))
    for number, own in enumerate(other):
        at = np.minimum(np.searchsorted(value, own), value.size - 1)
        times = np.bincount(alike[at[value[at] == own]], minlength=first.size)
        met = np.flatnonzero(times)
        which, at = expand_ranges(start[met], count[met])
        common = np.bincount(row[at], (times * sign)[met][which], sizes.size) + times[often].sum()
        best[number] = (common / np.maximum(own.size + sizes - common, 1)).max()
    return best
