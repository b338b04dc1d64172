"""Many ready nodes at once, as arrays."""

from __future__ import annotations

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.feed.feeder_node import ETFeederNode, node_of
from nadi.feed.held_nodes import Held
from nadi.feed.node_table import NUMBERS
from nadi.model.arrays import Bools, Ints

__all__ = ["NodeBatch"]


class NodeBatch:
    """Nodes that a feeder handed out together, in their order.

    Attributes
    ----------
    id
        int64, shape (nodes,).
    """

    def __init__(self, held: Held, rows: Ints) -> None:
        self._held = held
        self._rows = rows
        self.id: Ints = held.table.ids[rows]

    def __len__(self) -> int:
        return self.id.size

    def __getitem__(self, place: int) -> ETFeederNode:
        """Give one of them as a node."""
        return node_of(self._held, int(self._rows[place]))

    def __repr__(self) -> str:
        return f"<NodeBatch of {len(self)}>"

    @property
    def type(self) -> Ints:
        """Chakra's number of each one's type; int64, shape (nodes,)."""
        return self._held.table.kind[self._rows]

    @property
    def runtime(self) -> Ints:
        """How long each was measured to take; int64, shape (nodes,), us."""
        return self._held.table.runtime[self._rows]

    @property
    def is_cpu_op(self) -> Bools:
        """Which are work of the host; bool, shape (nodes,)."""
        return np.asarray(self.number("is_cpu_op") != 0)

    @property
    def name(self) -> list[str]:
        """What each is called."""
        return self._text("name")

    @property
    def pg_name(self) -> list[str]:
        """Process group of each, empty where it has none."""
        return self._text("pg_name")

    def number(self, name: str) -> Ints:
        """Give a number of each node by the name of its attribute, as ``comm_size``.

        Returns
        -------
        ndarray
            int64, shape (nodes,); -1 where a node has none.

        Raises
        ------
        UsageError
            If there is no column of this name.
        """
        if name not in NUMBERS:
            raise UsageError(
                Parameter("name", name), "there is no such column",
                f"there are {', '.join(NUMBERS)}; others are attributes of each node",
            )  # fmt: skip
        return self._held.table.number(name)[self._rows]

    def rows_in(self, held: Held) -> Ints:
        """Give the rows of the nodes among those that are held now, -1 where it is not."""
        return self._rows if held is self._held else held.rows.find(self.id)

    def _text(self, name: str) -> list[str]:
        column = self._held.table.texts[name]
        return [column.texts[code] for code in column.code[self._rows].tolist()]
