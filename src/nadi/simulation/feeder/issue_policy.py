"""The order in which ready nodes are handed out."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.simulation.feeder.feeder_kernels import BY_RANK, FIFO, LIFO
from nadi.simulation.feeder.feeder_node import ETFeederNode, Held, node_of
from nadi.simulation.feeder.node_table import NUMBERS
from nadi.trace.arrays import Ints

Policy = str | Callable[[ETFeederNode], Any]
_COLUMNS = ("runtime", "type", *NUMBERS)
_EMPTY = np.zeros(0, dtype=np.int64)


class ReadyNodes:
    """The rows of ready nodes, in the order of a policy.

    Single rows go through a heap or queue of Python integers, which costs less than a call of
    compiled code. Many rows at a time are handled as arrays.

    Parameters
    ----------
    policy
        "id",
        "fifo",
        "lifo", a column of numbers such as "comm_priority", or a function that returns a sort "
        "key for a node.

    Attributes
    ----------
    kind
        ``BY_RANK``, ``FIFO`` or ``LIFO``.
    waiting
        The heap of ranks, or the queue or stack of rows.
    fresh
        int64 arrays: rows that became ready later, and are not in ``waiting`` yet.
    pop, push
        Functions that remove the next entry of ``waiting`` and insert one.
    rank, row_of
        The rank of each row, and the row of each rank; the identity for policies without ranks.
    """

    waiting: list[int] | deque[int]
    pop: Callable[[], int]
    push: Callable[[int], None]
    rank: Sequence[int]
    row_of: Sequence[int]

    def __init__(self, policy: Policy) -> None:
        if isinstance(policy, str) and policy not in ("id", "fifo", "lifo", *_COLUMNS):
            raise UsageError(
                Parameter("policy", policy), "is not a policy",
                f"give id, fifo, lifo, {', '.join(_COLUMNS)}, or a function of a node",
            )  # fmt: skip
        self._policy = policy
        self.kind = {"fifo": FIFO, "lifo": LIFO}.get(str(policy), BY_RANK)
        self.fresh: list[Ints] = []
        self._keys: list[Any] = []
        self._ranks = self._rows = _EMPTY
        self._is_plain = True
        self._wait(_EMPTY)

    def is_empty(self) -> bool:
        """Return whether no node is ready."""
        return not self.waiting and not self.fresh

    def merge(self) -> None:
        """Merge the fresh rows into ``waiting``."""
        rows = np.concatenate(self.fresh)
        self.fresh.clear()
        if self.kind == BY_RANK:
            self._wait(np.append(np.array(self.waiting, dtype=np.int64), self._ranks_of(rows)))
        else:
            self.waiting.extend(rows.tolist())

    def take_all(self) -> Ints:
        """Remove and return all rows, at least one, in order. O(ready * log(ready))."""
        parts = self.fresh
        if self.waiting:
            parts = [self._rows_of(np.array(self.waiting, dtype=np.int64)), *parts]
            self._wait(_EMPTY)
        taken = np.concatenate(parts) if len(parts) != 1 else parts[0]
        self.fresh = []
        if taken.size < 2 or self.kind == FIFO:
            return taken
        if self.kind == LIFO:
            return taken[::-1].copy()
        if not self._is_plain:
            return self._rows[np.sort(self._ranks[taken])]
        taken.sort()
        return taken

    def put_back(self, rows: Ints) -> None:
        """Put back the last rows that :meth:`take_all` returned."""
        if rows.size:
            self.fresh.append(rows[::-1].copy() if self.kind == LIFO else rows)

    def arrays(self, held: Held) -> tuple[Ints, Ints, Ints]:
        """Return ranks, rows, and the waiting entries with room for later ones."""
        if self.fresh:
            self.merge()
        ready = np.empty(len(held.table), dtype=np.int64)
        ready[: len(self.waiting)] = self.waiting
        if self._is_plain:
            plain = np.arange(len(held.table))
            return plain, plain, ready
        return self._ranks, self._rows, ready

    def set_waiting(self, ready: Ints) -> None:
        """Replace ``waiting`` by entries from :meth:`arrays`."""
        self._wait(ready)

    def remove(self, row: int) -> None:
        """Remove a row that is not the next one. O(ready)."""
        if self.fresh:
            self.merge()
        self.waiting.remove(self.rank[row])
        if self.kind == BY_RANK:
            heapify(self.waiting)  # type: ignore[arg-type]

    def move(self, held: Held, kept: Ints, new_row: Ints) -> None:
        """Renumber the rows after a read.

        - ``held``: The nodes after the read.
        - ``kept``: int64: the rows that stayed, in order; the rows after them are new.
        - ``new_row``: int64, shape (rows before,).
        """
        before = np.array(self.waiting, dtype=np.int64)
        rows = new_row[self._rows_of(before)]
        self._set_ranks(held, kept)
        self._wait(self._ranks_of(rows))
        self.fresh = [new_row[fresh] for fresh in self.fresh]

    def _ranks_of(self, rows: Ints) -> Ints:
        return rows if self._is_plain else self._ranks[rows]

    def _rows_of(self, ranks: Ints) -> Ints:
        return ranks if self._is_plain else self._rows[ranks]

    def _wait(self, ranks: Ints) -> None:
        if self.kind == FIFO:
            queue = deque(ranks.tolist())
            self.waiting, self.pop, self.push = queue, queue.popleft, queue.append
            return
        items: list[int] = ranks.tolist()
        self.waiting, self.pop, self.push = items, items.pop, items.append
        if self.kind == BY_RANK:
            heapify(items)
            self.pop, self.push = partial(heappop, items), partial(heappush, items)

    def _set_ranks(self, held: Held, kept: Ints) -> None:
        table, size = held.table, len(held.table)
        policy = self._policy
        self._is_plain = self.kind != BY_RANK or (policy == "id" and held.rows.is_ascending)
        self.rank = self.row_of = range(size)
        if self._is_plain:
            return
        if callable(policy):
            nodes = (node_of(held, row) for row in range(kept.size, size))
            self._keys = [*(self._keys[row] for row in kept.tolist()), *map(policy, nodes)]
            keyed = sorted(range(size), key=lambda row: (self._keys[row], held.ids[row]))
            self._rows = np.array(keyed, dtype=np.int64)
        elif policy == "id":
            self._rows = np.argsort(table.ids)
        else:
            own = {"runtime": table.runtime, "type": table.kind}
            column = own[policy] if policy in own else table.number(policy)
            self._rows = np.lexsort((table.ids, column))
        self._ranks = np.empty(size, dtype=np.int64)
        self._ranks[self._rows] = np.arange(size)
        self.rank, self.row_of = self._ranks.data, self._rows.data
