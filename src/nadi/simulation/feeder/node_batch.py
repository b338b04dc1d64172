"""A batch of ready nodes as arrays."""

from __future__ import annotations

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.simulation.feeder.feeder_node import ETFeederNode, node_of
from nadi.simulation.feeder.held_nodes import Held
from nadi.simulation.feeder.node_table import NUMBERS
from nadi.trace.arrays import Bools, Ints

__all__ = ["NodeBatch"]


class NodeBatch:
    """Nodes that a feeder handed out together, in order."""

    def __init__(self, held: Held, rows: Ints, ids: Ints | None = None) -> None:
        self._held = held
        self._rows = rows
        self._ids = ids

    def __len__(self) -> int:
        return self._rows.size

    @property
    def id(self) -> Ints:
        """Id of each node; int64, shape (nodes,)."""
        if self._ids is None:
            self._ids = self._held.table.ids[self._rows]
        return self._ids

    def __getitem__(self, place: int) -> ETFeederNode:
        """Return one of the nodes."""
        return node_of(self._held, int(self._rows[place]))

    def __repr__(self) -> str:
        return f"<NodeBatch of {len(self)}>"

    @property
    def type(self) -> Ints:
        """Chakra's number of each node's type; int64, shape (nodes,)."""
        return self._held.table.kind[self._rows]

    @property
    def runtime(self) -> Ints:
        """Measured duration of each node; int64, shape (nodes,), us."""
        return self._held.table.runtime[self._rows]

    @property
    def is_cpu_op(self) -> Bools:
        """Whether each node runs on the host; bool, shape (nodes,)."""
        return np.asarray(self.number("is_cpu_op") != 0)

    @property
    def name(self) -> list[str]:
        """Name of each node."""
        return self._text("name")

    @property
    def pg_name(self) -> list[str]:
        """Process group of each node; empty if it has none."""
        return self._text("pg_name")

    def number(self, name: str) -> Ints:
        """Return a numeric attribute of each node, such as ``comm_size``.

        Returns
        -------
        ndarray
            int64, shape (nodes,); -1 for nodes without it.

        Raises
        ------
        UsageError
            If no column has this name.
        """
        if name not in NUMBERS:
            raise UsageError(
                Parameter("name", name), "is not a column",
                f"give one of {', '.join(NUMBERS)}; read others with get_other_attr()",
            )  # fmt: skip
        return self._held.table.number(name)[self._rows]

    def rows_in(self, held: Held) -> Ints:
        """Return the current rows of the nodes; -1 for nodes that are no longer held."""
        return self._rows if held is self._held else held.rows.find(self.id)

    def _text(self, name: str) -> list[str]:
        column = self._held.table.texts[name]
        return [column.texts[code] for code in column.code[self._rows].tolist()]
