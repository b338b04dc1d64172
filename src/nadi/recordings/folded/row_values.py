"""The rows of a trace as signs and values: what has to be equal to repeat, and what may grow.

Equal rows have equal numbers, exactly and without hashes. Of names with numbers in them, such as
``layers.3.mlp.up``, the text has to be equal, and the numbers may grow.
"""

import re
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.recordings.folded.repeat_search import (
    SignedRows,
    number_pairs,
    number_table,
    with_entries,
)
from nadi.trace.arrays import Ints
from nadi.trace.attributes import SPAN_CODES, Attributes

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
