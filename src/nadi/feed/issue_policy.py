"""Which of the ready nodes is next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.feed.feeder_kernels import BY_RANK, FIFO, LIFO
from nadi.feed.feeder_node import ETFeederNode, node_of
from nadi.feed.held_nodes import Held
from nadi.feed.node_table import NUMBERS
from nadi.model.arrays import Ints

__all__ = ["Policy", "ReadyNodes"]

Policy = str | Callable[[ETFeederNode], Any]
_COLUMNS = ("runtime", "type", *NUMBERS)
_EMPTY = np.zeros(0, dtype=np.int64)


class ReadyNodes:
    """The rows of ready nodes, in the order of a policy.

    One at a time they go through a heap or queue of Python's integers, which costs less than a
    call of compiled code; many at a time, as arrays.

    Parameters
    ----------
    policy
        "id", "fifo", "lifo", a column of numbers such as "comm_priority", or a function that
        gives what to sort nodes by.

    Attributes
    ----------
    kind
        ``BY_RANK``, ``FIFO`` or ``LIFO``.
    waiting
        The heap of ranks, or the queue or stack of rows.
    fresh
        int64 arrays: rows that became ready after those, and are not in it yet.
    pop, push
        Take out the next of ``waiting``; put one in.
    rank, row_of
        The rank of each row, and the row of each rank. The same number without ranks.
    """

    waiting: list[int] | deque[int]
    pop: Callable[[], int]
    push: Callable[[int], None]
    rank: Sequence[int]
    row_of: Sequence[int]

    def __init__(self, policy: Policy) -> None:
        if isinstance(policy, str) and policy not in ("id", "fifo", "lifo", *_COLUMNS):
            raise UsageError(
                Parameter("policy", policy), "there is no such order",
                f"there are id, fifo, lifo, {', '.join(_COLUMNS)}, and functions of a node",
            )  # fmt: skip
        self._policy = policy
        self.kind = {"fifo": FIFO, "lifo": LIFO}.get(str(policy), BY_RANK)
        self.fresh: list[Ints] = []
        self._keys: list[Any] = []
        self._ranks = self._rows = _EMPTY
        self._is_plain = True
        self._wait(_EMPTY)

    def is_empty(self) -> bool:
        """Tell whether no node is ready."""
        return not self.waiting and not self.fresh

    def merge(self) -> None:
        """Put the fresh ones to those that wait."""
        rows = np.concatenate(self.fresh)
        self.fresh.clear()
        if self.kind == BY_RANK:
            self._wait(np.append(np.array(self.waiting, dtype=np.int64), self._ranks_of(rows)))
        else:
            self.waiting.extend(rows.tolist())

    def take_all(self) -> Ints:
        """Take out all, at least one, in the order of the policy. O(ready * log(ready))."""
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
        """Put back the last of those that were taken all at once."""
        if rows.size:
            self.fresh.append(rows[::-1].copy() if self.kind == LIFO else rows)

    def arrays(self, held: Held) -> tuple[Ints, Ints, Ints]:
        """Give rank and row of all, and what waits by rank or row with room for what may come."""
        if self.fresh:
            self.merge()
        ready = np.empty(len(held.table), dtype=np.int64)
        ready[: len(self.waiting)] = self.waiting
        if self._is_plain:
            plain = np.arange(len(held.table))
            return plain, plain, ready
        return self._ranks, self._rows, ready

    def set_waiting(self, ready: Ints) -> None:
        """Have others wait, as :meth:`arrays` gave them."""
        self._wait(ready)

    def remove(self, row: int) -> None:
        """Take one out that is not next. O(ready)."""
        if self.fresh:
            self.merge()
        self.waiting.remove(self.rank[row])
        if self.kind == BY_RANK:
            heapify(self.waiting)  # type: ignore[arg-type]

    def move(self, held: Held, kept: Ints, new_row: Ints) -> None:
        """Follow the rows to where they are after a read.

        Parameters
        ----------
        held
            The nodes now.
        kept
            int64: the rows that stayed, in order; those behind them are new.
        new_row
            int64, shape (rows before,).
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
