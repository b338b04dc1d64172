"""Laws of sizes: sums of products of conditions, found among many candidates.

A law is a sum of few products with coefficients of at least 0, chosen one after the other
(orthogonal least squares, Chen et al. 1989) by relative errors, so that small sizes count as much
as large ones. Where no sum fits, the cases are divided by a fact, and each half gets a law of its
own. Of the laws that fit the shortest is taken, as it is the likeliest to hold elsewhere.

Sizes are counted, so that a long law whose factors are whole and that meets them to the byte is the
true one (``whole_laws.py``): it comes before all others, and others may be sums of it, as what a
stage has is of what its layers have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import gcd
from typing import NamedTuple

import msgspec
import numpy as np

from nadi.sharing.conditional.stage_values import StageValues
from nadi.sharing.conditional.whole_laws import whole_terms
from nadi.trace.arrays import Bools, Floats, Ints

FITS = 1e-4
"""The largest relative error of a law that fits; what is rounded up to a multiple is so near."""
_MOST_TERMS = 14
_WORTH = 0.7
"""The share of squared errors that a further term leaves at most."""
_STARTS = 6
_SIDES = 4
_AXES = ("per_tp", "per_dp")
_SHARES: tuple[tuple[str, ...], ...] = ((), ("per_tp",), ("per_dp",), _AXES, ("per_edp",))
_BATCHES = ("micro_batch", "tokens", "own_tokens", "whole_tokens")
_SUMS = (
    "products", "layer_products", "layer_dense", "layer_experts", "dense_products",
    "expert_products",
)  # fmt: skip
_OF_PLAN = ("schedule", "recompute", "attention =", "sequence_parallel", "zero", "dp", "cp", "pp")
_MOST_QUESTIONS = 3
_FEW_TERMS = 4.0
_OF_LAW, _LIKELY = "law ", 2
_FIRST_TERMS = 3
_FEW_CASES = 4
_TELLING = 64  # a size that no law meets by chance
_FIRST, _LAST = "first_stage", "last_stage"
_PLACES = (
    (), ("stage_layers",), (_FIRST,), (_LAST,), (_FIRST, f"not {_LAST}"), (_LAST, f"not {_FIRST}"),
    (_FIRST, _LAST),
)  # fmt: skip


class Law(msgspec.Struct, frozen=True):
    """A sum of products, or two laws between which a fact decides.

    Attributes
    ----------
    terms
        A coefficient and the names of its factors.
    fact
        If this is 1 ``high`` holds, else ``low``; no fact for one law.
    """

    terms: tuple[tuple[float, tuple[str, ...]], ...] = ()
    fact: str = ""
    low: Law | None = None
    high: Law | None = None

    def at(self, values: Mapping[str, float]) -> float:
        """Return the size for values by name: sizes, facts, and ``not`` facts."""
        law = self
        while law.low is not None and law.high is not None:
            law = law.high if values.get(law.fact, 0.0) else law.low
        total = 0.0
        for factor, names in law.terms:
            for name in names:
                factor *= _value(name, values)
            total += factor
        return total


def _value(name: str, values: Mapping[str, float]) -> float:
    if name.startswith("not "):
        return 1.0 - values.get(name.removeprefix("not "), 0.0)
    return values.get(name, 0.0)


class _Candidates(NamedTuple):
    """Products: their factors, and float64 of shape (cases, products)."""

    names: list[tuple[str, ...]]
    table: Floats

    def at(self, rows: Ints | Bools) -> _Candidates:
        """Return those of some cases."""
        return self._replace(table=self.table[rows])


class LawFinder:
    """Finds laws for quantities of the same cases.

    Parameters
    ----------
    cases
        What is known of each stage of each job that is learned.
    """

    def __init__(self, cases: Sequence[StageValues]) -> None:
        self.values = [one.sizes | one.facts for one in cases]
        self._facts = [
            name for name in dict.fromkeys(name for one in cases for name in one.facts)
            if len({one.get(name, 0.0) for one in self.values}) > 1
        ]  # fmt: skip
        self._known: list[tuple[Law, Floats]] = []
        self._whole: list[tuple[Law, Floats]] = []

    def find(self, rows: Sequence[int], sizes: Floats, sides: Floats | None = None) -> Law:
        """Return the law of sizes.

        - ``rows``: Of which cases the sizes are.
        - ``sizes``: float64, shape (rows,): none below 0.
        - ``sides``: float64, shape (rows, 4): sides of the operation's product, which factors may
          be.
        """
        chosen = np.array(rows, dtype=np.int64)
        if sizes.size < _FEW_CASES and sizes.min() >= _TELLING:
            for law, everywhere in self._known:
                if np.abs(everywhere[chosen] - sizes).max() < FITS * sizes.min():
                    return law
        if (sizes == sizes[0]).all():
            return Law(((float(sizes[0]), ()),))
        if sides is not None:
            fitted = _best_law(_of_sides(sides), sizes, _STARTS)
            if fitted.error < FITS:
                return fitted.law
        # what many operations share is found once, where there are most cases
        for law, everywhere in self._known:
            factor = float(np.median(sizes / np.maximum(everywhere[chosen], 1e-9)))
            if np.abs(factor * everywhere[chosen] - sizes).max() < FITS * sizes.min():
                return law if abs(factor - 1) < FITS else _times(law, factor)
        sums = self._sums(chosen)
        for names, column in zip(sums.names, sums.table.T, strict=True):
            factor = float(np.median(sizes / np.maximum(column, 1e-9)))
            if np.abs(factor * column - sizes).max() < FITS * sizes.min():
                return self._of_base(((factor, names),))
        law = self._found(chosen, sizes)
        self._remember(law)
        factors = [factor for factor, _ in law.terms]
        if len(factors) > _FEW_TERMS and all(map(float.is_integer, factors)):
            one = _times(law, 1 / gcd(*map(int, factors)))
            self._whole.append((one, np.array([one.at(each) for each in self.values])))
        return law

    def _remember(self, law: Law) -> None:
        """Note a law, and what it becomes where experts are in place of one MLP."""
        laws = [law]
        if any("routed_width" in one for one in self.values):
            laws += [_renamed(law, width) for width in ("expert_ffn", "routed_width")]
        for one in dict.fromkeys(laws):
            self._known.append((one, np.array([one.at(each) for each in self.values])))

    def _found(self, rows: Ints, sizes: Floats) -> Law:
        """Return a law of conditions, and not of sides."""
        found: list[_Fitted] = []
        for candidates in (self._narrow, self._wide):
            if found and min(found, key=lambda one: one.rank).rank <= (False, _FEW_TERMS):
                break
            own = candidates.at(rows)
            found.append(self._best(own, rows, sizes))
            if min(one.error for one in found) >= FITS:
                found.append(self._divided(own, rows, sizes, _MOST_QUESTIONS))
        return min(found, key=lambda one: one.rank).law

    def _best(self, own: _Candidates, rows: Ints, sizes: Floats) -> _Fitted:
        """Return the law that meets sizes to the byte, else the nearest."""
        near = _best_law(own, sizes, _STARTS)
        if near.rank <= (False, _FEW_TERMS):
            return near
        sums = self._sums(rows)
        every = _Candidates([*own.names, *sums.names], np.hstack([own.table, sums.table]))
        weight = 1.0 / np.maximum(sizes, 1.0)
        columns, wanted = every.table * weight[:, None], sizes * weight
        likely = np.argsort(-_gains(columns[:, len(own.names) :], wanted), kind="stable")
        guesses = [
            _sum_of_terms(every.names, columns, wanted, len(own.names) + first, _MOST_TERMS).law
            for first in likely[:_LIKELY].tolist()
        ]
        facts = {
            name: np.array([self.values[row].get(name, 0.0) for row in rows.tolist()])
            for name in self._facts if not name.startswith(_OF_PLAN)
        }  # fmt: skip
        for guess in (*guesses, near.law):
            terms = whole_terms(
                every.names, every.table, sizes, [names for _, names in guess.terms], facts,
                lambda left: [names for _, names in _best_law(every, left, 1).law.terms],
            )  # fmt: skip
            if terms:
                return _Fitted(self._of_base(terms), 0.0, 0.0, (False, 1.0))
        return near

    def _sums(self, rows: Ints) -> _Candidates:
        """Return whole laws as candidates: times the layers of a stage, shared by ranks."""
        names, columns = [], [np.zeros((rows.size, 0))]
        for number, (_, everywhere) in enumerate(self._whole):
            for more in (*_SHARES, *(("stage_layers", *one) for one in _SHARES)):
                factors = [
                    [_value(name, self.values[row]) for name in more] for row in rows.tolist()
                ]
                names.append((f"{_OF_LAW}{number}", *more))
                columns.append((everywhere[rows] * np.prod(factors, axis=1))[:, None])
        return _Candidates(names, np.hstack(columns))

    def _of_base(self, terms: Sequence[tuple[float, tuple[str, ...]]]) -> Law:
        """Return the law of terms, of which some are other laws times factors."""
        found: list[tuple[float, tuple[str, ...]]] = []
        for factor, names in terms:
            if names and names[0].startswith(_OF_LAW):
                base, _ = self._whole[int(names[0].removeprefix(_OF_LAW))]
                found += [(factor * times, (*own, *names[1:])) for times, own in base.terms]
            else:
                found.append((factor, names))
        return Law(tuple(found))

    def _divided(self, own: _Candidates, rows: Ints, sizes: Floats, questions: int) -> _Fitted:
        """Return laws between which facts decide."""
        best: tuple[float, str, Bools] = (np.inf, "", np.zeros(0, dtype=np.bool_))
        for fact in self._facts:
            holds = np.array([bool(self.values[row].get(fact, 0.0)) for row in rows.tolist()])
            if min(holds.sum(), (~holds).sum()) < _FEW_CASES:
                continue
            error = sum(
                _best_law(own.at(part), sizes[part], 1, _FIRST_TERMS).squares
                for part in (~holds, holds)
            )
            if error < best[0]:
                best = error, fact, holds
            if error < FITS * FITS:
                break
        if not best[1]:
            return _Fitted(Law(), np.inf, np.inf, (True, np.inf))
        halves = []
        for part in (~best[2], best[2]):
            half = self._best(own.at(part), rows[part], sizes[part])
            if half.error >= FITS and questions > 1:
                other = self._divided(own.at(part), rows[part], sizes[part], questions - 1)
                half = min(half, other, key=lambda one: one.rank)
            halves.append(half)
        low, high = halves
        error = max(low.error, high.error)
        terms = 1.0 + (low.rank[1] + high.rank[1])  # the question counts as one
        rank = (error >= FITS, error if error >= FITS else terms)
        law = Law(fact=best[1], low=low.law, high=high.law)
        return _Fitted(law, error, low.squares + high.squares, rank)

    @property
    def _widths(self) -> list[str]:
        inside = {*_AXES, "per_edp", *_BATCHES, *_SUMS, "stage_layers", _FIRST, _LAST, *self._facts}
        every = dict.fromkeys(name for one in self.values for name in one)
        return [name for name in every if name not in inside and self._varies(name)]

    def _varies(self, name: str) -> bool:
        return len({one.get(name, 0.0) for one in self.values}) > 1

    @cached_property
    def _narrow(self) -> _Candidates:
        """What one rank computes or sends: tokens times widths, shared by ranks of an axis."""
        widths = self._widths
        pairs = [(one, other) for one in ("hidden", "sequence") for other in widths]
        products: list[tuple[str, ...]] = [(), *((one,) for one in (*widths, *_SUMS)), *pairs]
        names = [
            (*batch, *product, *axes)
            for axes in _SHARES
            for batch in ((), *((one,) for one in _BATCHES))
            for product in products
        ]
        return self._candidates(names)

    @cached_property
    def _wide(self) -> _Candidates:
        """Sums over a stage: widths times the layers, or once at an end, and only if a fact is."""
        widths = self._widths
        singles = [(one,) for one in (*widths, *_SUMS)]
        products = [(), *singles, *(("hidden", one) for one in widths)]
        flags: list[tuple[str, ...]] = [()]
        for fact in self._facts:
            if fact not in (_FIRST, _LAST) and not fact.startswith(_OF_PLAN):
                flags += [(fact,), (f"not {fact}",)]
        names = [
            (*product, *place, *flag, *axes)
            for flag in flags
            for axes in _SHARES
            for place in _PLACES
            for product in products
        ]
        return self._candidates(names)

    def _candidates(self, names: Sequence[tuple[str, ...]]) -> _Candidates:
        """Return the products of names, of equal ones the first."""
        single = {
            name: np.array([_value(name, one) for one in self.values])
            for name in dict.fromkeys(name for product in names for name in product)
        }
        ones = np.ones(len(self.values))
        known: dict[bytes, tuple[tuple[str, ...], Floats]] = {}
        for product in names:
            column = ones
            for name in product:
                column = column * single[name]
            if column.any():
                known.setdefault(column.tobytes(), (product, column))
        table = np.stack([column for _, column in known.values()], axis=1)
        return _Candidates([product for product, _ in known.values()], table)


def _of_sides(sides: Floats) -> _Candidates:
    """Return the products of sides, each at most once."""
    names, columns = [], []
    for mask in range(1 << _SIDES):
        own = [side for side in range(_SIDES) if mask >> side & 1]
        names.append(tuple(f"side_{side}" for side in own))
        columns.append(sides[:, own].prod(axis=1))
    table = np.stack(columns, axis=1)
    return _Candidates(names, table)


def _renamed(law: Law, width: str) -> Law:
    """Return a law with another width in place of that of the MLP."""
    if law.low is not None and law.high is not None:
        return Law(fact=law.fact, low=_renamed(law.low, width), high=_renamed(law.high, width))
    return Law(
        tuple(
            (one, tuple(width if name == "ffn" else name for name in names))
            for one, names in law.terms
        )
    )


def _times(law: Law, factor: float) -> Law:
    if law.low is not None and law.high is not None:
        return Law(fact=law.fact, low=_times(law.low, factor), high=_times(law.high, factor))
    return Law(tuple((factor * one, names) for one, names in law.terms))


class _Fitted(NamedTuple):
    """A law, its largest relative error and their squares; and a rank: the least is the best."""

    law: Law
    error: float
    squares: float
    rank: tuple[bool, float]


def _best_law(
    candidates: _Candidates, sizes: Floats, starts: int, terms: int = _MOST_TERMS
) -> _Fitted:
    """Return the law of few terms that is nearest to sizes; of those that fit, the shortest.

    - ``starts``: How many first terms are tried: with the best one alone a sum can begin wrongly.
    """
    weight = 1.0 / np.maximum(sizes, 1.0)
    columns = candidates.table * weight[:, None]
    wanted = sizes * weight
    gain = _gains(columns, wanted)
    found = [
        _sum_of_terms(candidates.names, columns, wanted, first, terms)
        for first in np.argsort(-gain, kind="stable")[:starts].tolist()
    ]
    return min(found, key=lambda one: one.rank)


def _sum_of_terms(
    names: Sequence[tuple[str, ...]], columns: Floats, wanted: Floats, first: int, terms: int
) -> _Fitted:
    """Add the term that leaves least, until it fits or a term explains little of what is left.

    A case pays for a quarter of a term, so that a few of them cannot be met by chance.
    O(cases x candidates) for each term.
    """
    apart = columns  # what terms that were taken do not explain
    chosen: list[int] = []
    factors, left = np.zeros(0), wanted
    place = first
    while True:
        kept, found = _not_negative(columns[:, [*chosen, place]], wanted)
        trial = [[*chosen, place][one] for one in kept]
        after = wanted - columns[:, trial] @ found
        if chosen and after @ after > _WORTH * (left @ left):
            break
        chosen, factors, left = trial, found, after
        most = min(terms, wanted.size // 4)
        if np.abs(left).max() < FITS / 100 or len(chosen) >= most:
            break
        direction = apart[:, place] / np.sqrt(apart[:, place] @ apart[:, place])
        apart = apart - np.outer(direction, direction @ apart)
        gain = _gains(apart, left)
        gain[chosen] = 0.0
        place = int((gain >= gain.max() * (1 - 1e-9)).argmax())
        if gain[place] <= 0:
            break
    error = float(np.abs(left).max())
    products = zip(factors.tolist(), chosen, strict=True)
    law = Law(tuple((factor, names[one]) for factor, one in products))
    return _Fitted(
        law,
        error,
        float(left @ left),
        (error >= FITS, error if error >= FITS else float(len(chosen))),
    )


def _gains(columns: Floats, left: Floats) -> Floats:
    """Return by how much the squares of what is left shrink with each column; 0 if it falls."""
    along = left @ columns
    squares = np.einsum("ij,ij->j", columns, columns)
    return np.where(
        (along > 0) & (squares > 1e-10), along * along / np.maximum(squares, 1e-10), 0.0
    )


def _not_negative(table: Floats, wanted: Floats) -> tuple[list[int], Floats]:
    """Return columns, and their factors of at least 0, with the least squares; others are left."""
    kept = list(range(table.shape[1]))
    while kept:
        found: Floats = np.linalg.lstsq(table[:, kept], wanted, rcond=None)[0].astype(np.float64)
        share = np.abs(table[:, kept]).max(axis=0) * np.abs(found)
        bad: Bools = (found < 0) | (share < 1e-9)
        if not bad.any():
            return kept, found
        worst = int(np.where(bad, np.where(found < 0, found, 0.0) - 1e-12, np.inf).argmin())
        kept.pop(worst)
    return kept, np.zeros(0)
