"""Repeats in a sequence of operations, one inside the other, and how numbers grow in them.

Rows are equal by a number of each (its sign). Rows of equal signs have equally many values, such as
their id or the row that they wait for. Rows repeat if their signs do, and if each value grows by
the same step from one turn to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.trace.arrays import Bools, Ints

_FEW = 1 << 14  # rows that are sorted faster than a table of them is made


def number_pairs(first: Ints, second: Ints) -> Ints:
    """Return the same number for the same pairs, from 0; int64, both of shape (rows,)."""
    if 0 < first.size < _FEW:
        order = np.lexsort((second, first))
        a, b = first[order], second[order]
        is_new = np.append(False, (a[1:] != a[:-1]) | (b[1:] != b[:-1]))
        number = np.empty(first.size, dtype=np.int64)
        number[order] = np.cumsum(is_new)
        return number
    return number_table(pl.DataFrame({"first": first, "second": second}))


def number_table(frame: pl.DataFrame) -> Ints:
    """Return the same number for equal rows, from 0 in order of appearance; int64, (rows,)."""
    if not frame.height:
        return np.zeros(0, dtype=np.int64)
    names = frame.columns
    known = frame.unique(maintain_order=True).with_row_index("number")
    found = frame.join(known, on=names, how="left", maintain_order="left")
    return found["number"].cast(pl.Int64).to_numpy()


def with_entries(code: Ints, first: Ints, number: Ints) -> Ints:
    """Return numbers of rows that also tell apart what entries they have, in order.

    - ``code``: int64, shape (rows,): numbers of the rows so far.
    - ``first``: int64, shape (rows + 1,): where the entries of each row begin.
    - ``number``: int64, shape (entries,). O(entries log entries).
    """
    sizes = np.diff(first)
    code = number_pairs(code, sizes)
    for position in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > position)
        fresh = number_pairs(code[rows], number[first[rows] + position])
        code = code.copy()
        code[rows] = fresh + int(code.max()) + 1
    return code


_LEAST = 4
"""Rows that a repeat has to save."""
_DEEPEST = 6
_GRAMS = (1, 4, 16, 64, 256)
"""Rows compared at once when periods are guessed: longer ones tell outer repeats from inner."""
_GUESSES = 4
"""Periods tried for each of them, the most frequent first."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class SignedRows(NamedTuple):
    """A sequence of rows."""

    sign: Ints  # int64, shape (rows,)
    # first, value: int64, shapes (rows + 1,) and (values,): the values of each row
    first: Ints
    value: Ints

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.sign.size


class Loop(NamedTuple):
    """Rows that repeat."""

    # first, size: the rows of the first turn
    first: int
    size: int
    turns: int  # how often they come, 2 or more
    inner: tuple[Loop, ...] = ()  # repeats within the first turn, in order

    @property
    def end(self) -> int:
        """One past the last row of the last turn."""
        return self.first + self.size * self.turns


def find_repeats(rows: SignedRows) -> tuple[Loop, ...]:
    """Find repeats that do not overlap, those that save most rows first.

    Periods are guessed from how far away rows like these come next, and then checked. So no
    repeat is wrong, but some may be missed. O(rows log rows) for each level and repeat.
    """
    return tuple(_within(rows, 0, rows.size, 0))


def _within(rows: SignedRows, begin: int, end: int, depth: int) -> Iterator[Loop]:
    """Yield the repeats of the rows from ``begin`` to ``end``, in order."""
    best = _best(rows, begin, end)
    if best is None or depth == _DEEPEST:
        return
    yield from _within(rows, begin, best.first, depth)
    inside = _of_first_turn(rows, best)
    inner = tuple(_moved(loop, best.first) for loop in _within(inside, 0, inside.size, depth + 1))
    yield best._replace(inner=inner)
    yield from _within(rows, best.end, end, depth)


def _moved(loop: Loop, by: int) -> Loop:
    return loop._replace(first=loop.first + by, inner=tuple(_moved(one, by) for one in loop.inner))


def _of_first_turn(rows: SignedRows, loop: Loop) -> SignedRows:
    """Return the rows of a turn, of which equal ones also grow equally from turn to turn."""
    first, size = loop.first, loop.size
    begin, end = rows.first[first], rows.first[first + size]
    own = rows.first[first : first + size + 1] - begin
    step = rows.value[end : rows.first[first + 2 * size]] - rows.value[begin:end]
    sign = with_entries(rows.sign[first : first + size], own, step)
    return SignedRows(sign, own, rows.value[begin:end])


def _best(rows: SignedRows, begin: int, end: int) -> Loop | None:
    """Return the repeat that saves most rows, of equal ones that with the shortest turn."""
    sign = rows.sign[begin:end]
    best: Loop | None = None
    for period in _periods(sign):
        for found in _with_period(rows, begin, sign, period):
            saved = found.size * (found.turns - 1)
            if saved < _LEAST:
                continue
            if best is None or (saved, -period) > (best.size * (best.turns - 1), -best.size):
                best = found
    return best


def _periods(sign: Ints) -> list[int]:
    """Guess periods: distances at which the same rows come again."""
    found: set[int] = set()
    size = 1
    gram = sign.astype(np.uint64)
    with np.errstate(over="ignore"):
        for wanted in _GRAMS:
            while size < wanted and gram.size > size:
                gram = gram[:-size] * _FACTOR + (gram[size:] ^ (gram[size:] >> np.uint64(29)))
                size *= 2
            if size < wanted or gram.size < 2:
                break
            order = np.argsort(gram, kind="stable")
            same = gram[order[1:]] == gram[order[:-1]]
            distance = np.bincount((order[1:] - order[:-1])[same])
            likely = np.argsort(-distance, kind="stable")[:_GUESSES]
            found.update(int(one) for one in likely if distance[one] and one > 0)
    return sorted(found)


def _with_period(rows: SignedRows, begin: int, sign: Ints, period: int) -> Iterator[Loop]:
    """Yield the repeats with a period; ``sign`` is that of the rows from ``begin``."""
    if period >= sign.size:
        return
    for start, length in _runs(sign[period:] == sign[:-period], period):
        first = begin + start
        # rows whose values grow by the same step again
        even = _grows_evenly(rows, first, length, period)
        longest = Loop(first, period, 2)
        for at, steady in _runs(even, 1):
            turns = (steady + 2 * period) // period
            if turns > longest.turns:
                longest = Loop(first + at, period, turns)
        yield longest


def _runs(chosen: Bools, least: int) -> Iterator[tuple[int, int]]:
    """Yield where chosen rows follow one another, and how many, if at least so many."""
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    for start, end in edges.reshape(-1, 2).tolist():
        if end - start >= least:
            yield start, end - start


def _grows_evenly(rows: SignedRows, first: int, length: int, period: int) -> Bools:
    """Return of which rows all values grow equally twice; bool, shape (length - period,).

    The signs of the ``length`` rows from ``first`` come again ``period`` rows later.
    """
    begin, end = rows.first[first], rows.first[first + length]
    later, last = rows.first[first + period], rows.first[first + length + period]
    step = rows.value[later:last] - rows.value[begin:end]
    shift = int(later - begin)
    odd = np.append(0, np.cumsum(step[shift:] != step[: step.size - shift]))
    own = rows.first[first : first + length - period + 1] - begin
    uneven: Ints = odd[own[1:]] - odd[own[:-1]]
    return np.asarray(uneven == 0)
