"""The rows of a trace as signs and values: what has to be equal to repeat, and what may grow.

Equal rows have equal numbers, exactly and without hashes. Of names with numbers in them, such as
``layers.3.mlp.up``, the text has to be equal, and the numbers may grow.

Repeats in a sequence of operations, one inside the other, and how numbers grow in them.

Rows are equal by a number of each (its sign). Rows of equal signs have equally many values, such as
their id or the row that they wait for. Rows repeat if their signs do, and if each value grows by
the same step from one turn to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import SPAN_CODES, Attributes

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


_NUMBER = re.compile(r"(?<!\d)(0|[1-9]\d{0,16})(?!\d)")  # as it is written again


class NumberedNames(NamedTuple):
    """The names of rows."""

    pattern: Ints  # int64, shape (rows,): which of ``patterns``
    patterns: list[tuple[str, ...]]  # each different pattern: the texts between its numbers
    # first, number: int64, shapes (rows + 1,) and (numbers,): the numbers in the name of each row
    first: Ints
    number: Ints


def numbered_names(names: pl.Series) -> NumberedNames:
    """Take names apart; each different one once."""
    different = names.unique(maintain_order=True)
    texts = different.cast(pl.String).to_list()
    place = {text: k for k, text in enumerate(texts)}
    codes = names.cast(pl.String).replace_strict(place, return_dtype=pl.Int64).to_numpy()
    known: dict[tuple[str, ...], int] = {}
    parts = [_NUMBER.split(text) for text in texts]
    pattern = [known.setdefault(tuple(one[::2]), len(known)) for one in parts]
    numbers = [[int(digits) for digits in one[1::2]] for one in parts]
    sizes = np.array([len(one) for one in numbers], dtype=np.int64)
    begin = np.cumsum(sizes) - sizes
    flat = np.array([value for one in numbers for value in one], dtype=np.int64)
    first = np.append(0, np.cumsum(sizes[codes]))
    within = np.arange(first[-1]) - np.repeat(first[:-1] - begin[codes], sizes[codes])
    return NumberedNames(np.array(pattern, dtype=np.int64)[codes], list(known), first, flat[within])


def names_of(parts: NumberedNames) -> pl.Series:
    """Return the names of rows; the inverse of :func:`numbered_names`."""
    sizes = np.diff(parts.first)
    most = int(sizes.max(initial=0))
    padded = np.full((sizes.size, most), -1, dtype=np.int64)
    row = np.repeat(np.arange(sizes.size), sizes)
    padded[row, np.arange(parts.number.size) - parts.first[row]] = parts.number
    columns = {"pattern": parts.pattern, **{f"n{k}": padded[:, k] for k in range(most)}}
    frame = pl.DataFrame(columns)
    known = frame.unique(maintain_order=True)
    names = [_name(parts.patterns[pattern], numbers) for pattern, *numbers in known.iter_rows()]
    known = known.with_columns(name=pl.Series(names, dtype=pl.String))
    found = frame.join(known, on=frame.columns, how="left", maintain_order="left")
    return found["name"]


def _name(pattern: tuple[str, ...], numbers: list[int]) -> str:
    between = [str(number) for number in numbers[: len(pattern) - 1]]
    return "".join(text + number for text, number in zip(pattern, [*between, ""], strict=True))


COUNTERS = (
    "id", "parent", "event", "rf_id", "external_id", "correlation", "sequence", "tag", "comms_id",
    "layer", "micro_batch",
)  # fmt: skip
"""Columns of nodes that may grow from turn to turn."""
TIMES = ("start", "duration", "exclusive")


class RowLayout(NamedTuple):
    """How the values of rows are made up: counters, numbers of the name, waits, tensors, storages.

    ``names``, ``deps`` and ``operands`` are int64 of shape (rows + 1,): where the entries of each
    row begin.
    """

    names: Ints
    deps: Ints
    operands: Ints

    @property
    def first(self) -> Ints:
        """Where the values of each row begin; int64, shape (rows + 1,)."""
        rows = np.arange(self.names.size)
        return rows * len(COUNTERS) + self.names + self.deps + 2 * self.operands


class ValueParts(NamedTuple):
    """The values of rows by what they are."""

    counters: Ints  # int64, shape (rows, counters)
    # names, waits, tensors, storages: int64: of each number in a name, each dependency, and each
    # operand
    names: Ints
    waits: Ints
    tensors: Ints
    storages: Ints


def _places(layout: RowLayout) -> ValueParts:
    """Return where in the values each part stands."""
    first, rows = layout.first, np.arange(layout.names.size - 1)
    counters = first[:-1, None] + np.arange(len(COUNTERS))
    begin = first[:-1] + len(COUNTERS)
    found = []
    for of_rows in (layout.names, layout.deps, layout.operands, layout.operands):
        sizes = np.diff(of_rows)
        owner = np.repeat(rows, sizes)
        found.append(begin[owner] + np.arange(owner.size) - of_rows[owner])
        begin = begin + sizes
    return ValueParts(counters, *found)


def join_values(layout: RowLayout, parts: ValueParts) -> Ints:
    """Return the values of all rows, one row after the other; int64, shape (values,)."""
    value = np.empty(int(layout.first[-1]), dtype=np.int64)
    for place, part in zip(_places(layout), parts, strict=True):
        value[place] = part
    return value


def split_values(layout: RowLayout, value: Ints) -> ValueParts:
    """Return values by what they are; the inverse of :func:`join_values`."""
    return ValueParts(*(value[place] for place in _places(layout)))


def row_codes(
    nodes: pl.DataFrame, names: NumberedNames, attributes: Attributes, deps: pl.DataFrame,
    operands: pl.DataFrame,
) -> tuple[Ints, RowLayout]:  # fmt: skip
    """Return a number for each row that is equal for rows that can repeat, and their layout.

    - ``deps``, ``operands``: Sorted by ``row``; what else they state, but for numbers that may
      grow, has to be equal.
    """
    equal = nodes.drop(*COUNTERS, *TIMES, "name").with_columns(
        pattern=pl.Series(names.pattern), nested=nodes["parent"] >= 0
    )
    code = number_table(equal)
    size = nodes.height
    given = attributes.filtered(attributes.node >= 0)
    code = with_entries(code, _begins(given.node.astype(np.int64), size), _attribute_numbers(given))
    of_deps = number_table(deps.select("kind", "inferred", "block"))
    first_dep = _begins(deps["row"].to_numpy(), size)
    code = with_entries(code, first_dep, of_deps)
    of_operands = number_table(operands.select("is_output", "position", "offset", "kind", "role"))
    first_operand = _begins(operands["row"].to_numpy(), size)
    code = with_entries(code, first_operand, of_operands)
    return code, RowLayout(names.first, first_dep, first_operand)


def signed_rows(
    nodes: pl.DataFrame, attributes: Attributes, deps: pl.DataFrame, operands: pl.DataFrame
) -> tuple[SignedRows, RowLayout]:
    """Return the rows of a trace, in which repeats are searched."""
    names = numbered_names(nodes["name"])
    code, layout = row_codes(nodes, names, attributes, deps, operands)
    value = join_values(layout, parts_of(nodes, names, deps, operands))
    return SignedRows(code, layout.first, value), layout


def parts_of(
    nodes: pl.DataFrame, names: NumberedNames, deps: pl.DataFrame, operands: pl.DataFrame
) -> ValueParts:
    """Return the values that tables state."""
    return ValueParts(
        nodes.select(COUNTERS).to_numpy().astype(np.int64), names.number, deps["src"].to_numpy(),
        operands["tensor_id"].to_numpy(), operands["storage_id"].to_numpy(),
    )  # fmt: skip


def _begins(row: Ints, size: int) -> Ints:
    return np.searchsorted(row, np.arange(size + 1)).astype(np.int64)


def _attribute_numbers(attributes: Attributes) -> Ints:
    """Return equal numbers for equal attributes, texts by their content."""
    value = attributes.value.copy()
    spans = np.flatnonzero(np.isin(attributes.type, list(SPAN_CODES)))
    place = number_pairs(value[spans], attributes.length[spans].astype(np.int64))
    first = np.unique(place, return_index=True)[1]
    known: dict[bytes, int] = {}
    numbers = [known.setdefault(attributes.span(int(row)), len(known)) for row in spans[first]]
    value[spans] = np.array(numbers, dtype=np.int64)[place]
    frame = {"name": attributes.name, "type": attributes.type, "value": value}
    return number_table(pl.DataFrame(frame))
