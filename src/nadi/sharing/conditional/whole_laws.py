"""Laws of sizes whose factors are whole numbers, and that meet sizes to the byte."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nadi.trace.arrays import Bools, Floats

_EXACT, _BYTE = 1e-9, 1.0
_MOST_WRONG = 0.05
_NEARLY = 0.01
_TURNS, _NOTHING = 30, 1e-9
_Names = tuple[str, ...]


def whole_terms(
    names: Sequence[_Names], table: Floats, sizes: Floats, guess: Sequence[_Names],
    facts: Mapping[str, Floats], further: Callable[[Floats], list[_Names]],
) -> list[tuple[float, _Names]]:  # fmt: skip
    """Return terms with whole factors whose sum is exact in nearly all cases; none if none are.

    Large terms tell their factors although small ones are missing: by least absolute errors, so
    that cases in which something else is added do not count. Taken away, they leave small ones.

    - ``names``, ``table``: Products, and float64 of shape (cases, products).
    - ``guess``: Products that may be the terms.
    - ``facts``: What holds in cases; where it does, a term may be there twice.
    - ``further``: Guesses of what makes up the sizes that are left.
    """
    place = {one: number for number, one in enumerate(names)}
    weight = 1.0 / np.maximum(sizes, 1.0)
    found: dict[int, float] = {}
    left, asked = sizes, [place[one] for one in guess]
    while len(found) <= sizes.size // 4:
        before = len(found)
        while asked:
            factors = _least_absolute(table[:, asked] * weight[:, None], left * weight)
            share = (np.abs(factors) * table[:, asked] * weight[:, None]).max(axis=0)
            first = int(share.argmax())
            factor, one = round(factors[first]), asked.pop(first)
            if factor < 1 or abs(factors[first] - factor) > _NEARLY:
                break
            found[one] = found.get(one, 0.0) + factor
            left = left - factor * table[:, one]
        wrong = _wrong(left, sizes)
        if wrong.mean() <= _MOST_WRONG:
            terms = [(factor, names[one]) for one, factor in found.items()]
            columns = [table[:, one] for one in found]
            return [*terms, *_twice(terms, columns, left, sizes, facts)]
        if len(found) == before:
            break
        asked = [place[one] for one in further(np.maximum(left, 0.0))]
    return []


def _wrong(left: Floats, sizes: Floats) -> Bools:
    return np.abs(left) >= np.maximum(_EXACT * sizes, _BYTE)


def _twice(
    terms: Sequence[tuple[float, _Names]], columns: Sequence[Floats], left: Floats, sizes: Floats,
    facts: Mapping[str, Floats],
) -> list[tuple[float, _Names]]:  # fmt: skip
    """Return the term that is there once more where a fact holds, if this explains what is left."""
    if not _wrong(left, sizes).any():
        return []
    for (factor, names), column in zip(terms, columns, strict=True):
        for fact, holds in facts.items():
            if fact not in names and not _wrong(left - factor * column * holds, sizes).any():
                return [(factor, (*names, fact))]
    return []


def _least_absolute(table: Floats, wanted: Floats) -> Floats:
    """Return factors with the least sum of absolute errors, by least squares of other weights."""
    weight = np.ones(wanted.size)
    for _ in range(_TURNS):
        found, *_ = np.linalg.lstsq(table * weight[:, None], wanted * weight, rcond=None)
        weight = 1.0 / np.sqrt(np.maximum(np.abs(table @ found - wanted), _NOTHING))
    return found.astype(np.float64)
