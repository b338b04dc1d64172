"""The nodes that a feeder holds between two reads, and the dependencies among them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol
from weakref import ref

import numpy as np

from nadi.files.node_ids import NodeRows
from nadi.kernels.groups import group_rows
from nadi.simulation.feeder.node_table import NodeTable
from nadi.trace.arrays import Ints

__all__ = ["Feeder", "Held"]


class Feeder(Protocol):
    """The methods of the feeder that its nodes use."""

    def added_children(self, node_id: int) -> list[Any]:
        """Return the added children of a node."""

    def add_dependency(self, parent_id: int, child_id: int) -> None:
        """Make a node depend on another one."""


class Held:
    """A table of nodes with their children. It is immutable: a read makes a new one.

    Attributes
    ----------
    table
        The nodes.
    child_first, child
        int64: the rows that depend on each row, ascending, as in
        :class:`nadi.simulation.feeder.feeder_kernels.Waiting`.
    parent
        int64, shape (children,): the row that each of ``child`` depends on.
    views
        Columns of numbers by the names of a node's attributes; items are Python integers.
    """

    def __init__(self, table: NodeTable, feeder: Feeder | None = None) -> None:
        self.table = table
        # a weak reference, so that an unused feeder is freed at once, with all that it holds
        self._feeder = None if feeder is None else ref(feeder)
        self.rows = NodeRows(table.ids)
        parent = self.rows.find(table.waits)
        child = np.repeat(np.arange(len(table)), table.waits_per_node())
        if (parent < 0).any():  # they have ended
            child, parent = child[parent >= 0], parent[parent >= 0]
        self.child_first = np.empty(len(table) + 1, dtype=np.int64)
        order = np.empty(parent.size, dtype=np.int64)
        group_rows(parent, self.child_first, order)
        self.child: Ints = child[order]
        self.parent: Ints = parent[order]
        self.ids = table.ids.data
        self.views = _Views(table)

    @property
    def feeder(self) -> Feeder | None:
        """The feeder that holds them; None for a node that is not in a feeder."""
        return None if self._feeder is None else self._feeder()

    @cached_property
    def _first_id(self) -> int:
        """The first id if all ids are consecutive, else -1."""
        ids = self.table.ids
        is_plain = ids.size and self.rows.is_ascending and ids[-1] - ids[0] == ids.size - 1
        return int(ids[0]) if is_plain else -1

    def row_of(self, node_id: int) -> int:
        """Return the row of an id, or -1 if no such node is held."""
        if (first := self._first_id) >= 0:
            row = node_id - first
            return row if 0 <= row < len(self.ids) else -1
        if not 0 <= node_id < 1 << 62:
            return -1
        return int(self.rows.find(np.array([node_id]))[0])

    def children(self, row: int) -> list[int]:
        """Return the rows that depend on a row."""
        rows: list[int] = self.child[self.child_first[row] : self.child_first[row + 1]].tolist()
        return rows


class _Views(dict[str, Sequence[int]]):
    """Columns of a table as memory views for fast access to single items, made on first use."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    def __missing__(self, name: str) -> Sequence[int]:
        own = {"kind": self._table.kind, "runtime": self._table.runtime}
        if name in own or name in self._table.numbers:
            column = own[name] if name in own else self._table.numbers[name]
        else:  # no node has this attribute, so there is no column
            column = np.broadcast_to(np.int64(-1), len(self._table))
        view: Sequence[int] = column.data
        self[name] = view
        return view
