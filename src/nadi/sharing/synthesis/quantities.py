"""Sizes and durations of operations: their distributions, and how they hang together.

A duration is a quantile of those of its token. Which quantile is correlated: an operation is slow
after certain others, and a slow one is followed by slow ones. So normal scores of the quantiles
have a mean for each context, and a correlation with the operation before. Of each step of each rank
the sums of its parts are learned.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from nadi.recordings.rank_spread import parts_between
from nadi.sharing.synthesis.grammar import step_parts
from nadi.sharing.synthesis.learned_model import Quantities
from nadi.sharing.synthesis.step_course import course_of_steps, means_of_role, num_parts
from nadi.sharing.synthesis.tokens import RankTokens
from nadi.trace.arrays import Floats, Hashes, Ints
from nadi.trace.schema import NODE_KINDS

EDGES = np.concatenate([np.linspace(0, 0.96875, 63), 1 - 0.5 ** np.arange(5.5, 13.5, 0.5), [1.0]])
"""Shares of durations that are shorter than each bin: finer at the end, where few take long."""
NUM_VARIANTS = 8
_COMP = NODE_KINDS.index("COMP")
_LEAST = 4
"""Durations of a token from which its distribution says anything about one of them."""
_CONTEXT = 8
"""Operations, the own included, on which a score depends."""
_DOUBT = 1.0
"""Scores of 0 that are added to those of each context."""
_FACTOR, _FIRST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x5DEECE66D1CE4E5B)
_GRID = 8192
_SCORES = np.array([NormalDist().inv_cdf((one + 0.5) / _GRID) for one in range(_GRID)])


def normal_scores(chance: Floats) -> Floats:
    """Return the value of a normal distribution that is not exceeded with a chance."""
    return np.asarray(np.interp(chance * _GRID - 0.5, np.arange(_GRID), _SCORES))


class Pace(NamedTuple):
    """How slow a job is, and when; see :class:`nadi.sharing.synthesis.learned_model.Template`."""

    load: Floats
    course: Floats
    noise_share: float


class QuantityLog:
    """Collects the quantities of jobs."""

    def __init__(self) -> None:
        self._token: list[Ints] = []
        self._rows: list[Ints] = []
        self._moments: list[tuple[float, float]] = []
        self._effects: list[tuple[Hashes, Floats]] = []

    def add(self, ranks: Sequence[RankTokens], hidden: int) -> None:
        """Collect what the operations of a job state."""
        for rank in dict.fromkeys(map(_Same, ranks)):
            own = rank.rank.columns
            numbers = [own.duration, own.flops, own.bytes, own.comm_bytes, *own.shape.T]
            self._token.append(rank.rank.token)
            of_job = [np.full(own.size, one, dtype=np.int64) for one in (len(ranks), hidden)]
            self._rows.append(np.stack([*of_job, *numbers], axis=1))

    def noise(self, ranks: Sequence[RankTokens], alike: Ints, role: Sequence[int]) -> Pace:
        """Learn how scores depend on context, and on the operation before.

        - ``alike``: As of :func:`nadi.sharing.synthesis.tokens.alike_tokens`.
        - ``role``: Of each rank.
        """
        parts = [step_parts(rank.columns) for rank in ranks]
        token = np.concatenate([rank.token for rank in ranks])
        duration = np.concatenate([rank.columns.duration for rank in ranks])
        score = _scores(token, duration)
        context = np.concatenate([
            contexts_of([alike[rank.token[rows]] for rows in steps])
            for rank, steps in zip(ranks, parts, strict=True)
        ])  # fmt: skip
        known = ~np.isnan(score)
        which, effect = _effects(context[known], score[known])
        self._effects.append((np.unique(context[known]), effect))
        left = score.copy()
        left[known] -= effect[which]
        meets = [[rank.columns.kind[rows] != _COMP for rows in steps]
                 for rank, steps in zip(ranks, parts, strict=True)]  # fmt: skip
        sums = np.zeros((len(ranks), max(map(len, parts)), num_parts(meets)))
        expected = np.zeros_like(sums)
        computes = np.concatenate([rank.columns.kind == _COMP for rank in ranks])
        taken = np.where(computes, np.maximum(duration, 0), 0)
        usual = _usual(token, taken)
        begin = 0
        for number, steps in enumerate(parts):
            for step, rows in enumerate(steps):
                place = parts_between(meets[number][step], sums.shape[2])
                for found, weight in ((sums, taken), (expected, usual)):
                    found[number, step] = np.bincount(place, weight[begin + rows], sums.shape[2])
            own = left[begin : begin + ranks[number].token.size]
            both = ~np.isnan(own[1:]) & ~np.isnan(own[:-1])
            product = (own[1:] * own[:-1])[both].sum()
            self._moments.append((float(product), float((own[1:][both] ** 2).sum())))
            for learned in (sums, expected):  # a rank of fewer steps
                learned[number, len(steps) :] = learned[number, : len(steps)].mean(axis=0)
            begin += own.size
        total = float((score[known] ** 2).mean()) if known.any() else 0.0
        share = float((left[known] ** 2).mean()) / total if total else 1.0
        like = means_of_role(expected.sum(axis=2), np.array(role))
        load = np.divide(sums.sum(axis=2), like, out=np.ones_like(like), where=like > 0)
        return Pace(load, course_of_steps(sums, expected, np.array(role)), share)

    def table(self) -> Quantities:
        """Return the quantities by token, number of ranks and width."""
        token, rows = np.concatenate(self._token), np.concatenate(self._rows)
        order = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0], token))
        token, rows = token[order], rows[order]
        is_new = np.append(
            True, (token[1:] != token[:-1]) | (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
        )  # fmt: skip
        first = np.flatnonzero(is_new)
        sizes = _variants(first, rows[:, 3:])
        product = sum(one for one, _ in self._moments)
        square = sum(one for _, one in self._moments)
        context, effect = self.effects()
        return Quantities(
            token=token[first], ranks=rows[first, 0], hidden=rows[first, 1],
            flops=sizes[..., 0].copy(),
            bytes=sizes[..., 1].copy(), comm_bytes=sizes[..., 2].copy(),
            shape=sizes[..., 3:].copy(), duration=means_of_quantiles(first, rows[:, 2]),
            context=context, effect=effect,
            memory=max(product / square, 0.0) if square else 0.0,
        )  # fmt: skip

    def effects(self) -> tuple[Hashes, Floats]:
        """Return all contexts, ascending, and the score that each adds."""
        context = np.concatenate([one for one, _ in self._effects])
        effect = np.concatenate([one for _, one in self._effects])
        known, which = np.unique(context, return_inverse=True)
        times = np.bincount(which, minlength=known.size)
        return known, np.bincount(which, weights=effect, minlength=known.size) / times


def contexts_of(steps: Sequence[Ints]) -> Hashes:
    """Return a hash of each operation of a rank with those before it; uint64, of all steps.

    Those of the first step differ from those of later ones.

    - ``steps``: The tokens of each step, alike ones as one.
    """
    token = np.concatenate(steps).astype(np.uint64) + np.uint64(1)
    found = np.zeros(token.size, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for back in range(min(_CONTEXT, token.size) - 1, -1, -1):
            found[back:] = found[back:] * _FACTOR + token[: token.size - back]
            found[back:] ^= found[back:] >> np.uint64(29)
        found[: steps[0].size] ^= _FIRST
    return found


def contexts_of_steps(steps: Sequence[Ints], num_learned: int) -> list[Hashes]:
    """Return the contexts of each step of a rank, in words of a job that was learned.

    - ``steps``: The tokens of each step, alike ones as one.
    - ``num_learned``: Steps of that job: with one, each is like its first.
    """
    if num_learned == 1:
        return [contexts_of([one]) for one in steps]
    return np.split(contexts_of(steps), np.cumsum([one.size for one in steps])[:-1])


def _effects(context: Hashes, score: Floats) -> tuple[Ints, Floats]:
    """Return the context of each score by number, and the mean of each drawn towards 0."""
    _, which = np.unique(context, return_inverse=True)
    times = np.bincount(which)
    return which, np.bincount(which, weights=score) / (times + _DOUBT)


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


def _usual(token: Ints, taken: Ints) -> Floats:
    """Return the mean duration of each operation's token."""
    times = np.maximum(np.bincount(token), 1)
    return (np.bincount(token, weights=taken.astype(np.float64)) / times)[token]


def _variants(first: Ints, values: Ints) -> Ints:
    """Return rows at even distances among those of each entry, in ascending order.

    int64, shape (entries, variants, columns).
    """
    size = np.diff(np.append(first, values.shape[0]))
    owner = np.repeat(np.arange(first.size), size)
    order = np.lexsort((*values.T[::-1], owner))
    place = ((np.arange(NUM_VARIANTS) + 0.5) / NUM_VARIANTS * size[:, None]).astype(np.int64)
    return np.asarray(values[order[first[:, None] + place]], dtype=np.int64)


def means_of_quantiles(first: Ints, duration: Ints) -> Floats:
    """Return means of the durations between shares of each entry, which are ascending in it.

    Means keep the sum, which quantiles of a long tail do not.

    - ``first``: int64, shape (entries,): where the durations of each begin.
    - Returns: float64 ns, shape (entries, quantiles); -1 for entries that state none.
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
