"""Distances between distributions, from 0 for equal ones to 1 for ones with nothing in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nadi.trace.arrays import Floats, Ints

__all__ = ["jensen_shannon", "overlap_distance", "relative_difference", "total_variation",
           "wasserstein", "wasserstein_by_key"]  # fmt: skip

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
