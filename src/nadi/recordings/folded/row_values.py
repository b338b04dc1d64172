"""The rows of a trace as signs and values: what has to be equal to repeat, and what may grow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.recordings.folded.distinct_values import number_pairs, number_table, with_entries
from nadi.recordings.folded.numbered_names import NumberedNames, numbered_names
from nadi.recordings.folded.repeat_search import SignedRows
from nadi.trace.arrays import Ints
from nadi.trace.attributes import SPAN_CODES, Attributes

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
