"""Hand out the nodes of a trace to a simulator, each after all of its dependencies have ended.

The order in which ready nodes are handed out.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from nadi.errors import FormatError, Parameter, UsageError
from nadi.kernels.jit import prepared
from nadi.simulation.feeder.et_stream import NodeStream, WindowReader, cycle_among, open_pieces
from nadi.simulation.feeder.feeder_kernels import (
    BY_RANK,
    FIFO,
    FREED,
    ISSUED,
    LIFO,
    READY,
    REMOVED,
    WAITING,
    Waiting,
    release_rows,
    run_ready,
)
from nadi.simulation.feeder.feeder_node import ETFeederNode, Held, NodeBatch, node_of
from nadi.simulation.feeder.node_table import NUMBERS, empty_table, joined_tables
from nadi.trace.arrays import Ints
from nadi.trace.trace import Trace

Policy = str | Callable[[ETFeederNode], Any]
_COLUMNS = ("runtime", "type", *NUMBERS)


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


_WINDOW = 1 << 20
_FEW, _FEW_CHILDREN = 2, 16  # nodes that are released without a kernel
_SHOWN = 4  # nodes of a cycle that an error names
_EMPTY = np.zeros(0, dtype=np.int64)
_new = ETFeederNode.__new__
# the states of nodes, for errors
_STATES = ("waits for others", "is ready and was not issued", "was issued and has not ended",
           "has ended", "was removed")  # fmt: skip


class ETFeeder:
    """Hands out the nodes of one rank to a simulator, as Chakra's feeder does.

    A node is handed out once all of its dependencies have ended. The simulator reports the end of
    a node with :meth:`free_children_nodes` and removes it with :meth:`remove_node`. The feeder
    reads a window of nodes at a time, and beyond it until all dependencies are resolved. It reads
    the next window as soon as it holds fewer nodes than a window, so memory does not grow with the
    file.

    Parameters
    ----------
    path_or_trace
        A file or address of any format that Nadi reads, or a trace. Only an .et, plain or gzip,
        is read a window at a time.
    window_size
        How many nodes to read at a time.
    policy
        Which of the ready nodes is next: "id" the lowest id, "fifo" the first that became ready,
        "lifo" the last. A name such as "comm_priority" or "runtime" selects the node with the
        lowest such number, a function of a node the one with the lowest result. Ties are broken by
        id.
    ctrl_deps
        Whether nodes also wait for their control dependencies.

    Raises
    ------
    UsageError
        If the window size or the policy is invalid.
    InputError
        If the file cannot be read.
    FormatError
        If the file is damaged or truncated; if a node depends on a missing node, on itself through
        others, or twice on one node; or if an id is not unique. The error names the node. Errors
        in a later window are raised when that window is read.
    """

    def __init__(
        self,
        path_or_trace: Path | str | Trace,
        window_size: int = _WINDOW,
        *,
        policy: Policy = "id",
        ctrl_deps: bool = False,
    ) -> None:
        if window_size < 1:
            raise UsageError(Parameter("window_size", window_size), "is below 1", "give 1 or more")
        self._window = window_size
        self._with_control = ctrl_deps
        self._ready = ReadyNodes(policy)
        pieces = open_pieces(path_or_trace, window_size)
        self._reader = WindowReader(NodeStream(*pieces, with_control=ctrl_deps))
        self._in_flight: dict[int, ETFeederNode] = {}
        self._num_running = 0  # issued and not ended
        self._num_held = 0  # read and not removed
        self._read_below = window_size  # read on if fewer nodes are held
        self._new_nodes: list[ETFeederNode] = []  # added, but not yet merged with the others
        self._added_children: dict[int, list[int]] = {}  # ids by id
        self._held = Held(empty_table(), self)
        self._waiting = Waiting(self._held.child_first, self._held.child, _EMPTY, _EMPTY)
        self.read_next_window()

    def __repr__(self) -> str:
        return f"<ETFeeder {self._reader.name}: {self._num_held} nodes held>"

    # the calls of Chakra's feeder

    def has_nodes_to_issue(self) -> bool:
        """Return whether any node has not been removed."""
        return self._num_held > 0 or bool(self._new_nodes)

    def get_next_issuable_node(self) -> ETFeederNode | None:
        """Hand out the next ready node.

        Returns
        -------
        ETFeederNode or None
            None if all remaining nodes wait for nodes in flight, or if none remain.

        Raises
        ------
        FormatError
            If nodes wait for each other in a circle. O(log(ready)).
        """
        if self._new_nodes:
            self.resolve_dep()
        ready = self._ready
        if ready.fresh:
            ready.merge()
        if not ready.waiting and not self._find_ready():
            return None
        row = ready.row_of[ready.pop()]
        self._state[row] = ISSUED
        self._num_running += 1
        held = self._held
        node = _new(ETFeederNode)
        node.id = node_id = held.ids[row]
        node._held = held
        node._row = row
        self._in_flight[node_id] = node
        return node

    def push_back_issuable_node(self, node_id: int) -> None:
        """Take back a node that was handed out but could not be started.

        Raises
        ------
        UsageError
            If it was not handed out, or has ended.
        """
        row = self._row_in(node_id, ISSUED, "push_back_issuable_node")
        self._in_flight.pop(node_id, None)
        self._num_running -= 1
        self._state[row] = READY
        if self._ready.fresh:
            self._ready.merge()
        self._ready.push(self._ready.rank[row])

    def lookup_node(self, node_id: int) -> ETFeederNode:
        """Return a node that was read and not removed.

        Raises
        ------
        UsageError
            If no such node is held.
        """
        if (node := self._in_flight.get(node_id)) is not None:
            return node
        self._merge_new()
        return node_of(self._held, self._row_of(node_id, "lookup_node"))

    def free_children_nodes(self, node_id: int) -> None:
        """Report that a node has ended: its children no longer wait for it. O(children).

        Raises
        ------
        UsageError
            If it was not handed out, or has ended before.
        """
        node = self._in_flight.get(node_id)
        state = self._state
        if node is not None and state[node._row] == ISSUED:
            row = node._row
        else:
            row = self._row_in(node_id, ISSUED, "free_children_nodes")
        state[row] = FREED
        self._num_running -= 1
        begin, end = self._child_first[row], self._child_first[row + 1]
        if begin < end:
            missing, ready = self._missing, self._ready
            if ready.fresh:
                ready.merge()
            for child in self._child[begin:end].tolist():
                left = missing[child] - 1
                missing[child] = left
                if left == 0:
                    state[child] = READY
                    ready.push(ready.rank[child])
        if self._added_children:
            self._free_added_children([node_id])

    def remove_node(self, node_id: int) -> None:
        """Remove a node that has ended, and read the next window if there is room for it.

        Raises
        ------
        UsageError
            If the node has not ended.
        FormatError
            If what is read on is broken.
        """
        node = self._in_flight.get(node_id)
        if node is not None and self._state[node._row] == FREED:
            row = node._row
        else:
            row = self._row_in(node_id, FREED, "remove_node")
        self._state[row] = REMOVED
        self._in_flight.pop(node_id, None)
        self._num_held -= 1
        if self._num_held < self._read_below:
            self._read(self._window)

    def add_node(self, node: ETFeederNode) -> None:
        """Add a node that is not in the file; it may depend on nodes that are held or have ended.

        The next call that needs it merges all added nodes with the others. O(nodes held) for all
        of them together.
        """
        self._new_nodes.append(node)

    def read_next_window(self) -> None:
        """Read a window of nodes, however many are held; does nothing at the end of the file.

        Raises
        ------
        FormatError
            Under the same conditions as for the class.
        """
        self._merge_new()
        if not self._reader.is_complete:
            self._read(self._window)

    def resolve_dep(self) -> None:
        """Resolve the dependencies of added nodes now; later calls do so automatically.

        Raises
        ------
        FormatError
            If an added node depends on a missing node, or has the id of another node.
        """
        self._merge_new()

    # many at once

    def drain(self, limit: int | None = None, *, ending: bool = False) -> NodeBatch:
        """Hand out all ready nodes, or ``limit`` of them, in order.

        Parameters
        ----------
        ending
            Whether each node ends and is removed as soon as it is handed out, so that its children
            follow in the same batch. The order is that of a simulator that ends each node before
            the next one. A batch ends when a window is read.

        Returns
        -------
        NodeBatch
            Empty if all remaining nodes wait for nodes in flight, or if none remain. Without
            ``ending``, report their ends with :meth:`release`. O(nodes * log(ready)).

        Raises
        ------
        FormatError
            If nodes wait for each other in a circle.
        """
        self._merge_new()
        if self._ready.is_empty() and not self._find_ready():
            return NodeBatch(self._held, _EMPTY)
        if ending:
            return self._drain_ending(limit)
        rows = self._ready.take_all()
        if limit is not None and limit < rows.size:
            self._ready.put_back(rows[limit:])
            rows = rows[:limit]
        if rows.size > _FEW:
            self._waiting.state[rows] = ISSUED
        else:
            for row in rows.tolist():
                self._state[row] = ISSUED
        self._num_running += rows.size
        return NodeBatch(self._held, rows)

    def release(self, nodes: NodeBatch | Iterable[int]) -> None:
        """End and remove many nodes: a batch, or ids in the order in which they ended.

        Raises
        ------
        UsageError
            If a node was not handed out, or is given twice; then no node is ended.
        FormatError
            If what is read on is broken. O(nodes + children).
        """
        if not isinstance(nodes, NodeBatch):
            given = np.fromiter(nodes, dtype=np.int64)
            nodes = NodeBatch(self._held, self._held.rows.find(given), given)
        rows = nodes.rows_in(self._held)
        refused, ready = self._release_few(rows) if rows.size <= _FEW else self._release_many(rows)
        if refused >= 0:
            row = self._row_of(int(nodes.id[refused]), "release")
            if self._state[row] == ISSUED:
                what = "is given twice; release() ends each node once"
                raise UsageError(self._held.table.described(row), what, "give each id once")
            self._refuse(row, ISSUED, "release")
        if ready is not None:
            self._ready.fresh.append(ready)
        self._num_running -= rows.size
        self._num_held -= rows.size
        if self._in_flight:
            for node_id in nodes.id.tolist():
                self._in_flight.pop(node_id, None)
        if self._added_children:
            self._free_added_children(nodes.id.tolist())
        if self._num_held < self._read_below:
            self._read(self._window)

    def _release_many(self, rows: Ints) -> tuple[int, Ints | None]:
        """End nodes; return the place of one that is refused, or -1, and what is ready now."""
        refused, count = self._release_rows(rows)
        return refused, self._released[:count].copy() if count else None

    def _release_few(self, rows: Ints) -> tuple[int, Ints | None]:
        """Do the same for a few nodes: with few children that costs less than to call a kernel."""
        few: list[int] = rows.tolist()
        first, state, missing = self._child_first, self._state, self._missing
        for row in few:
            # one that is refused, or too many children, is left to the kernel
            if row < 0 or state[row] != ISSUED or first[row + 1] - first[row] > _FEW_CHILDREN:
                return self._release_many(rows)
        if len(few) == 2 and few[0] == few[1]:
            return 1, None
        for row in few:
            state[row] = REMOVED
        ready = []
        for row in few:
            for child in self._child[first[row] : first[row + 1]]:
                left = missing[child] - 1
                missing[child] = left
                if left == 0:
                    state[child] = READY
                    ready.append(child)
        return -1, np.array(ready, dtype=np.int64) if ready else None

    def _drain_ending(self, limit: int | None) -> NodeBatch:
        held = self._held
        most = self._num_held
        if not self._reader.is_complete:
            most = max(most - self._window + 1, 1)
        if self._added_children:
            most = 1  # added dependencies are not in the arrays
        out = np.empty(most if limit is None else min(most, limit), dtype=np.int64)
        count = len(self._ready.waiting) + sum(rows.size for rows in self._ready.fresh)
        rank, row_of, ready = self._ready.arrays(held)
        issued, first, end = run_ready(
            self._ready.kind, rank, row_of, self._waiting, ready, count, out
        )
        self._ready.set_waiting(ready[first:end])
        self._num_held -= issued
        batch = NodeBatch(held, out[:issued])
        if self._added_children:
            self._free_added_children(batch.id.tolist())
        if self._num_held < self._read_below:
            self._read(self._window)
        return batch

    # reading

    def _merge_new(self) -> None:
        """Merge added nodes with the others, as if they came next in the file."""
        if not self._new_nodes:
            return
        content = b"".join([b"\0", *(node.message() for node in self._new_nodes)])
        stream = NodeStream("added nodes", iter([content]), with_control=self._with_control)
        count = len(self._new_nodes)
        self._new_nodes = []
        if (table := stream.read()) is not None:
            self._reader.put_first([table])
            self._read(count)

    def _read(self, count: int) -> None:
        """Read nodes, and append them to those that are held."""
        new = self._reader.read(count)
        before = self._waiting
        kept = np.flatnonzero(before.state != REMOVED)
        new_row = np.full(before.state.size, -1, dtype=np.int64)
        new_row[kept] = np.arange(kept.size)
        old = self._held.table
        held = Held(joined_tables([old if kept.size == len(old) else old.at(kept), new]), self)
        state = np.full(len(held.table), WAITING, dtype=np.int64)
        state[: kept.size] = before.state[kept]
        waits = held.child[state[held.parent] < FREED]
        missing = np.bincount(waits, minlength=state.size)
        # with the added dependencies
        missing[: kept.size] = before.missing[kept]
        is_ready = (missing == 0) & (state == WAITING)
        state[is_ready] = READY
        self._held = held
        self._set_waiting(Waiting(held.child_first, held.child, missing, state))
        self._num_held = state.size
        self._read_below = 0 if self._reader.is_complete else self._window
        self._ready.move(held, kept, new_row)
        if is_ready.any():
            first = np.flatnonzero(is_ready)
            if not held.rows.is_ascending:
                first = first[np.argsort(held.table.ids[first])]
            self._ready.fresh.append(first)
        for node in self._in_flight.values():
            node._held, node._row = held, int(new_row[node._row])
        self._refuse_cycle(held)

    def _set_waiting(self, waiting: Waiting) -> None:
        self._waiting = waiting
        # reading single items is several times faster through memory views
        self._child_first = waiting.child_first.data
        self._child = waiting.child.data
        self._missing, self._state = waiting.missing.data, waiting.state.data
        self._released = np.empty(waiting.state.size, dtype=np.int64)
        self._release_rows = prepared(release_rows, waiting, self._released)

    def _find_ready(self) -> bool:
        """If nothing is ready, read on; returns whether a node became ready."""
        while self._ready.is_empty() and not self._num_running:
            if self._reader.is_complete:
                self._refuse_cycle(self._held, is_stuck=True)
                return False
            self._read(self._window)
        if self._ready.is_empty():
            return False
        if self._ready.fresh:
            self._ready.merge()
        return True

    def _refuse_cycle(self, held: Held, *, is_stuck: bool = False) -> None:
        """Raise an error if nodes depend on each other in a cycle, as they would never be ready."""
        parent, child = held.parent, held.child
        if not is_stuck and (parent < child).all():
            return
        added = [(a, b) for a, children in self._added_children.items() for b in children]
        if added:
            more = held.rows.find(np.array(added, dtype=np.int64).ravel()).reshape(-1, 2)
            parent, child = np.append(parent, more[:, 0]), np.append(child, more[:, 1])
        waits = self._waiting.state[parent] < FREED
        cycle = cycle_among(len(held.table), parent[waits], child[waits])
        if cycle:
            first, *others = (held.table.described(row) for row in cycle)
            way = ", ".join(others[:_SHOWN])
            if len(others) > _SHOWN:
                way += f" and {len(others) - _SHOWN} others"
            raise FormatError(
                self._reader.name, f"{first} depends on itself through {way}",
                "no simulator can run this trace: correct the program that wrote it",
            )  # fmt: skip

    # dependencies that were added

    def add_dependency(self, parent_id: int, child_id: int) -> None:
        """Add a dependency between nodes, for :meth:`ETFeederNode.add_child`.

        Raises
        ------
        UsageError
            If the parent has ended, or the child has started or depends on it already.
        """
        self._merge_new()
        held, waiting = self._held, self._waiting
        parent, child = (self._row_of(number, "add_child") for number in (parent_id, child_id))
        added = self._added_children.get(parent_id, [])
        is_there = child in held.children(parent) or child_id in added
        if parent == child or is_there or waiting.state[parent] >= FREED:
            why = "has ended" if waiting.state[parent] >= FREED else "is its parent already"
            raise UsageError(
                held.table.described(child),
                f"cannot wait for {held.table.described(parent)}, which "
                + ("is itself" if parent == child else why),
                "add_child() is for another node, before this one ends",
            )
        if waiting.state[child] >= ISSUED:
            self._refuse(child, WAITING, "add_child")
        if waiting.state[child] == READY:
            self._ready.remove(child)
            waiting.state[child] = WAITING
        waiting.missing[child] += 1
        self._added_children.setdefault(parent_id, []).append(child_id)

    def added_children(self, node_id: int) -> list[ETFeederNode]:
        """Return the children of a node that :meth:`add_dependency` added."""
        return [self.lookup_node(child) for child in self._added_children.get(node_id, ())]

    def _free_added_children(self, ids: Iterable[int]) -> None:
        for node_id in ids:
            for child_id in self._added_children.pop(node_id, ()):
                child = self._held.row_of(child_id)
                self._missing[child] -= 1
                if self._missing[child] == 0:
                    self._state[child] = READY
                    self._ready.fresh.append(np.array([child]))

    # wrong calls

    def _row_of(self, node_id: int, call: str) -> int:
        row = self._held.row_of(node_id)
        if row < 0 or self._state[row] == REMOVED:
            raise UsageError(
                f"node {node_id}", f"is not held by the feeder, so {call}() cannot use it",
                "it was removed, was not read yet, or is not in the trace: give the id of a held "
                "node",
            )  # fmt: skip
        return row

    def _row_in(self, node_id: int, state: int, call: str) -> int:
        """Return the row of a node, which has to be in the state that a call needs."""
        self._merge_new()
        row = self._row_of(node_id, call)
        if self._state[row] != state:
            self._refuse(row, state, call)
        return row

    def _refuse(self, row: int, state: int, call: str) -> None:
        raise UsageError(
            self._held.table.described(row),
            f"{_STATES[self._state[row]]}; {call}() needs a node that {_STATES[state]}",
            "hand out a node first, then free its children, then remove it",
        )
