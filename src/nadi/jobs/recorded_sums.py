"""Sums of gradients that a recording of one replica has not, in buckets as they come.

As PyTorch's DistributedDataParallel (Li et al., arXiv 2006.15704): gradients are put together in
the order in which they are accumulated, up to 25 MiB, the first ones up to 1 MiB; each bucket is
summed as soon as it is full, beside the backward, and the optimizer waits for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.jobs.recorded_ranks import Direction, RecordedRank
from nadi.jobs.recorded_shares import Insertion, SharedRank, with_insertions, working_rows

__all__ = ["DATA_PARALLEL", "with_recorded_sums"]

DATA_PARALLEL = "dp"
"""Role of the groups that sum gradients."""

_FIRST, _BUCKET = 1 << 20, 25 << 20


class _Bucket(NamedTuple):
    """Gradients that are summed at once: when the last of them is there, and their bytes."""

    time: int
    bytes: int


def with_recorded_sums(rank: SharedRank, share: float) -> SharedRank:
    """Let a rank sum its gradients, in a group of its own.

    Parameters
    ----------
    share
        Of the gradients of the recording, which the rank has.

    Raises
    ------
    UsageError
        If the recording states no accumulations of gradients with their tensors.
    """
    parts = rank.known.parts
    listed: list[Insertion] = []
    for step in range(int(parts.step.max(initial=-1)) + 1):
        own = np.flatnonzero((parts.step == step) & (parts.direction == Direction.BACKWARD))
        if own.size:
            buckets = _buckets(rank.known, int(own[-1]), share)
            listed += _insertions(rank, buckets, int(own[-1]))
    if not listed:
        raise UsageError(
            Parameter("dp"), "the recording has one replica, and states no accumulations of "
            "gradients with their tensors, so nothing says what replicas would sum",
            "record host traces, too, or in a process group with DistributedDataParallel",
        )  # fmt: skip
    return with_insertions(rank, listed, DATA_PARALLEL)


def _buckets(known: RecordedRank, part: int, share: float) -> list[_Bucket]:
    """Return the buckets of a backward."""
    found: list[_Bucket] = []
    size, limit = 0, _FIRST
    time = -1
    inside = known.parts.at(known.gradient_times) == part
    rows = np.flatnonzero(inside).tolist()
    for row in rows:
        size += int(np.ceil(known.gradient_bytes[row] * share))
        time = int(known.gradient_times[row])
        if size >= limit:
            found.append(_Bucket(time, size))
            size, limit = 0, _BUCKET
    return [*found, _Bucket(time, size)] if size else found


def _insertions(rank: SharedRank, buckets: Sequence[_Bucket], part: int) -> list[Insertion]:
    """Return what is put in: each sum before the first work behind its last gradient."""
    known = rank.known
    works, _ = working_rows(rank.of_class.trace)
    rows = np.flatnonzero(works)
    later = np.flatnonzero(works & (known.parts.at(known.time) > part))
    before = int(later[0]) if later.size else -1
    found = []
    for bucket in buckets:
        behind = rows[known.time[rows] > bucket.time]
        at = int(behind[0]) if behind.size else int(rows[-1])
        found.append(Insertion(min(at, before) if before >= 0 else at, "all_reduce",
                               bucket.bytes, before))  # fmt: skip
    return found
