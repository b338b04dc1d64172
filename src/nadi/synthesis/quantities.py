"""Sizes and durations of operations: their distributions, and how they hang together.

A duration is a quantile of those of its token. Which quantile is correlated: slow steps are slow
throughout, and a slow operation is followed by slow ones. So normal scores of the quantiles have a
mean for each step of each rank, and a correlation with the operation before.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from nadi.model.arrays import Floats, Ints
from nadi.synthesis.grammar import step_parts
from nadi.synthesis.learned_model import Quantities
from nadi.synthesis.tokens import RankTokens

__all__ = ["EDGES", "NUM_VARIANTS", "QuantityLog", "normal_scores"]

EDGES = np.concatenate([np.linspace(0, 0.96875, 63), 1 - 0.5 ** np.arange(5.5, 13.5, 0.5), [1.0]])
"""Shares of durations that are shorter than each bin: finer at the end, where few take long."""
NUM_VARIANTS = 8
_LEAST = 4
"""Durations of a token from which its distribution says anything about one of them."""
_GRID = 8192
_SCORES = np.array([NormalDist().inv_cdf((one + 0.5) / _GRID) for one in range(_GRID)])


def normal_scores(chance: Floats) -> Floats:
    """Return the value of a normal distribution that is not exceeded with a chance."""
    return np.interp(chance * _GRID - 0.5, np.arange(_GRID), _SCORES)


class QuantityLog:
    """Collects the quantities of jobs."""

    def __init__(self) -> None:
        self._token: list[Ints] = []
        self._rows: list[Ints] = []
        self._moments: list[tuple[float, float]] = []

    def add(self, ranks: Sequence[RankTokens], hidden: int) -> None:
        """Collect what the operations of a job state."""
        for rank in dict.fromkeys(map(_Same, ranks)):
            own = rank.rank.columns
            numbers = [own.duration, own.flops, own.bytes, own.comm_bytes, *own.shape.T]
            self._token.append(rank.rank.token)
            width = np.full(own.size, hidden, dtype=np.int64)
            self._rows.append(np.stack([width, *numbers], axis=1))

    def pace(self, ranks: Sequence[RankTokens]) -> tuple[Floats, float]:
        """Return how slow each step of each rank is, and the share of the variance it explains."""
        parts = [step_parts(rank.columns) for rank in ranks]
        token = np.concatenate([rank.token for rank in ranks])
        duration = np.concatenate([rank.columns.duration for rank in ranks])
        score = _scores(token, duration)
        begin = np.cumsum([0, *(rank.token.size for rank in ranks)])
        pace = np.zeros((len(ranks), max(map(len, parts))))
        explained = np.zeros_like(score)
        for number, steps in enumerate(parts):
            own = score[begin[number] : begin[number + 1]]
            mean = explained[begin[number] : begin[number + 1]]
            for step, rows in enumerate(steps):
                known = own[rows]
                known = known[~np.isnan(known)]
                pace[number, step] = known.mean() if known.size else 0.0
                mean[rows] = pace[number, step]
            pace[number, len(steps) :] = pace[number, : len(steps)].mean()
            left = own - mean
            both = ~np.isnan(left[1:]) & ~np.isnan(left[:-1])
            product = left[1:] * left[:-1]
            self._moments.append((float(product[both].sum()), float((left[1:][both] ** 2).sum())))
        known = ~np.isnan(score)
        total = float((score[known] ** 2).mean()) if known.any() else 0.0
        share = float((explained[known] ** 2).mean()) / total if total else 0.0
        return pace, min(share, 1.0)

    def table(self) -> Quantities:
        """Return the quantities by token and width."""
        token, rows = np.concatenate(self._token), np.concatenate(self._rows)
        order = np.lexsort((rows[:, 1], rows[:, 0], token))
        token, rows = token[order], rows[order]
        is_new = np.append(
            True, (token[1:] != token[:-1]) | (rows[1:, 0] != rows[:-1, 0])
        )  # fmt: skip
        first = np.flatnonzero(is_new)
        sizes = _variants(first, rows[:, 2:])
        product = sum(one for one, _ in self._moments)
        square = sum(one for _, one in self._moments)
        return Quantities(
            token[first], rows[first, 0], *(sizes[..., one].copy() for one in range(3)),
            sizes[..., 3:].copy(), _quantiles(first, rows[:, 1]), max(product / square, 0.0) if square else 0.0,
        )  # fmt: skip


class _Same:
    """A rank that equals those that share its tokens and columns."""

    def __init__(self, rank: RankTokens) -> None:
        self.rank = rank

    def __hash__(self) -> int:
        return hash(id(self.rank.columns))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return NotImplemented
        mine, theirs = self.rank, other.rank
        return mine.columns is theirs.columns and np.array_equal(mine.token, theirs.token)


def _scores(token: Ints, duration: Ints) -> Floats:
    """Return the normal score of each duration among those of its token; NaN for few, or none."""
    order = np.lexsort((duration, token))
    first = np.flatnonzero(np.diff(token[order], prepend=-1))
    size = np.diff(np.append(first, token.size))
    within = np.arange(token.size) - np.repeat(first, size)
    of_row = np.repeat(size, size)
    score = np.empty(token.size)
    score[order] = normal_scores((within + 0.5) / of_row)
    few = np.empty(token.size, dtype=np.bool_)
    few[order] = of_row < _LEAST
    return np.where(few | (duration < 0), np.nan, score)


def _variants(first: Ints, values: Ints) -> Ints:
    """Return rows at even distances among those of each entry, in ascending order.

    int64, shape (entries, variants, columns).
    """
    size = np.diff(np.append(first, values.shape[0]))
    owner = np.repeat(np.arange(first.size), size)
    order = np.lexsort((*values.T[::-1], owner))
    place = ((np.arange(NUM_VARIANTS) + 0.5) / NUM_VARIANTS * size[:, None]).astype(np.int64)
    return values[order[first[:, None] + place]]


def _quantiles(first: Ints, duration: Ints) -> Floats:
    """Return means of the durations between shares of each entry, which are ascending in it.

    Means keep the sum, which quantiles of a long tail do not.
    """
    size = np.diff(np.append(first, duration.size))
    passed = np.append(0.0, np.cumsum(np.maximum(duration, 0), dtype=np.float64))
    cuts = EDGES[None, :] * size[:, None] + first[:, None]
    whole = np.minimum(cuts.astype(np.int64), duration.size)
    rest = np.append(np.maximum(duration, 0), 0)[whole] * (cuts - whole)
    sums = np.diff(passed[whole] + rest, axis=1)
    means = sums / (np.diff(EDGES) * size[:, None])
    unknown = duration[first] < 0
    return np.where(unknown[:, None], -1.0, np.maximum(means, 0))
