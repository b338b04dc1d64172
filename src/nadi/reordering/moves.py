"""Moving operations to an earlier place on their threads, as a change of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import UsageError
from nadi.graph import CycleError, EdgeKind, Edges, EventGraph, make_edges
from nadi.reordering.data_edges import tensor_pairs, with_tensor_edges
from nadi.reordering.layout import Layout, find_rows
from nadi.reordering.units import BLOCKERS, Units, find_units

__all__ = ["Move", "MoveEarlier", "moved", "require_tensors"]

_Ints = npt.NDArray[np.int64]
_MAX_NAMES = 3


@dataclass(frozen=True)
class Move:
    """One operation and the one after whose end it is to start; node rows of a rank."""

    rank: int
    row: int
    after: int


@dataclass(frozen=True)
class MoveEarlier:
    """Start operations earlier on their threads, each right after the end of another one.

    With an operation moves all that lies in it, and the work that it launches moves on its
    stream as far. The time of threads between operations stays where it is, and so do waits
    for communication; what comes after a wait may move before it.

    Attributes
    ----------
    moves
        Made in this order.
    """

    moves: tuple[Move, ...]
    name: str = ""
    after: str = ""

    def __str__(self) -> str:
        ranks = sorted({move.rank for move in self.moves})
        shown = ", ".join(map(str, ranks))
        return f"start {self.name} right after {self.after} (rank {shown})"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; nothing moves to before ``since``, ns since the job's origin.

        The graph keeps all dependencies by tensors from then on.

        Raises
        ------
        UsageError
            If the job has no dependencies by tensors, or one does not allow the move.
        """
        require_tensors(graph)
        changed = with_tensor_edges(graph)
        # of different ranks moves do not touch each other
        for batch in _batches(self.moves):
            layout = Layout.of(changed)
            units = find_units(layout, changed.replay().time, since)
            pairs = [_located(units, move) for move in batch]
            for unit, after in pairs:
                self._check(units, unit, after)
            try:
                changed = moved(units, pairs)
            except CycleError as error:
                raise UsageError(
                    str(self), f"it would wait for itself: {error.what}", "choose a later place"
                ) from None
        return changed

    def _check(self, units: Units, unit: int, after: int) -> None:
        graph = units.layout.graph
        name = graph.op_names[int(units.op[unit])]
        if not units.can_move[unit]:
            raise UsageError(str(self), f"{name} cannot move by itself", "choose an operator")
        if units.end[after] < units.low[unit]:
            blocker = units.op[int(units.first_place(units.low[unit]))]
            raise UsageError(
                str(self),
                f"{name} has to stay after {graph.op_names[int(blocker)]} "
                f"({BLOCKERS[units.blocker[unit]]})",
                "choose a later place; nadi reorder lists what may move",
            )


def require_tensors(graph: EventGraph) -> None:
    """Raise UsageError if nothing is known of the data that operations need."""
    if not tensor_pairs(graph)[0].size:
        raise UsageError(
            "reordering", "the job has no dependencies by tensors",
            "give host traces too (ExecutionTraceObserver), and load with tensors=True",
        )  # fmt: skip


def _batches(moves: Sequence[Move]) -> list[list[Move]]:
    """Put together what follows each other and is of different ranks."""
    batches: list[list[Move]] = []
    for move in moves:
        if not batches or any(move.rank == other.rank for other in batches[-1]):
            batches.append([])
        batches[-1].append(move)
    return batches


def _located(units: Units, move: Move) -> tuple[int, int]:
    """Give the units of a move.

    Raises
    ------
    UsageError
        If there are no such, or they do not stand in this order on one thread.
    """
    graph = units.layout.graph
    ranks = list(graph.job.ranks)
    found = [-1, -1]
    if move.rank in ranks:
        trace = ranks.index(move.rank)
        rows = np.array([move.row, move.after])
        inside = (rows >= 0) & (rows < graph.job.traces[trace].nodes.height)
        ops = np.where(inside, find_rows(graph, trace, np.where(inside, rows, -1)), -1)
        found = [units.at_op(int(op)) if op >= 0 else -1 for op in ops]
    unit, after = found
    where = f"move of rank {move.rank}, row {move.row}, after row {move.after}"
    if min(found) < 0:
        raise UsageError(where, "there is no such operation that a program calls", "check the rows")
    thread = units.layout.thread[units.op]
    if thread[unit] != thread[after] or after >= unit:
        raise UsageError(where, "it does not come later on the same thread", "check the rows")
    return unit, after


@dataclass
class _Edits:
    """Edges to take away and to add, and delays to change, while moves are made."""

    removed: list[int] = field(default_factory=list)
    added: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    without_delay: list[int] = field(default_factory=list)

    def add(self, src: int, dst: int, weight: int, kind: int, op: int) -> None:
        self.added.append((int(src), int(dst), int(weight), int(kind), int(op)))


def moved(units: Units, moves: Sequence[tuple[int, int]]) -> EventGraph:
    """Give the graph with units moved, each right after another one; of a rank one at most.

    Raises
    ------
    CycleError
        If something would wait for itself. O(vertices + edges).
    """
    layout, graph = units.layout, units.layout.graph
    edits = _Edits()
    parent = graph.op_parent.copy()
    for unit, after in moves:
        if after < unit - 1:
            _move_on_thread(units, unit, after, edits)
            _move_on_streams(units, unit, after, edits)
            parent[units.op[unit]] = graph.op_parent[units.op[after]]
    kept = np.ones(graph.num_edges, dtype=np.bool_)
    kept[edits.removed] = False
    columns = np.array(edits.added, dtype=np.int64).reshape(-1, 5).T
    new = make_edges(*columns[:3], columns[3], columns[4])
    edges = Edges(
        *(np.concatenate([old[kept], more]) for old, more in zip(graph.edges, new, strict=True))
    )
    delay = graph.delay.copy()
    delay[edits.without_delay] = 0
    return replace(layout.graph, delay=delay, op_parent=parent).with_edges(edges)


def _move_on_thread(units: Units, unit: int, after: int, edits: _Edits) -> None:
    """Take a unit out of the chain of its thread and put it in again.

    What happens before it by its place and not by itself, the time since the operation before
    and waits for communication, then happens before what followed it.
    """
    layout, graph = units.layout, units.layout.graph
    chain, link = layout.chain, layout.link
    begin, end, place = int(units.begin[unit]), int(units.end[unit]), int(units.end[after])
    start = int(chain[begin])
    follows = end + 1 < chain.size and link[end + 1] >= 0
    then = int(link[end + 1]) if follows else -1
    own_place = [int(link[begin]), *_waits_for_communication(layout, start)]
    for edge in own_place:
        edits.removed.append(edge)
        if follows:
            weight = graph.weight[edge] + graph.delay[start] + graph.weight[then]
            edits.add(
                graph.in_src[edge], chain[end + 1], weight, graph.edge_kind[edge],
                graph.edge_op[edge],
            )  # fmt: skip
    edits.without_delay.append(start)
    if follows:
        edits.removed.append(then)
    gap = int(link[place + 1])
    kind, op = graph.edge_kind[gap], graph.edge_op[gap]
    edits.removed.append(gap)
    edits.add(chain[place], start, 0, kind, op)
    edits.add(chain[end], chain[place + 1], graph.weight[gap], kind, op)


def _waits_for_communication(layout: Layout, vertex: int) -> list[int]:
    """Give the edges by which a thread waits at a vertex for communication."""
    graph = layout.graph
    found = []
    for edge in range(int(graph.in_ptr[vertex]), int(graph.in_ptr[vertex + 1])):
        source = int(graph.in_src[edge])
        if graph.edge_kind[edge] == EdgeKind.THREAD and source < 2 * graph.num_ops:
            trace, row = int(graph.op_trace[source // 2]), int(graph.op_row[source // 2])
            if graph.job.traces[trace].nodes["comm_type"][row] != "none":
                found.append(edge)
    return found


def _move_on_streams(units: Units, unit: int, after: int, edits: _Edits) -> None:
    """Let the work of a unit pass on its streams what is launched by the units that it passes."""
    layout, graph = units.layout, units.layout.graph
    works = layout.works.op[int(units.first_work[unit]) : int(units.last_work[unit])]
    works = works[layout.on_device[works]]
    if not works.size:
        return
    streams = _Rows(units, unit, after)
    by_stream = sorted(works.tolist(), key=lambda op: int(layout.resource[op]))
    for _, members in groupby(by_stream, key=lambda op: int(layout.resource[op])):
        for run in streams.runs(set(members)):
            _keep_events(units, streams, run, edits)
            streams.put_forward(run)
    streams.write(edits)


class _Rows:
    """Device work as lists, in which runs of work are put forward."""

    def __init__(self, units: Units, unit: int, after: int) -> None:
        self.layout = units.layout
        self.place = int(units.end[after])
        self.own_place = int(units.begin[unit])
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}

    def previous(self, op: int) -> int:
        """Give the work before, or -1."""
        return self.before.get(op, int(self.layout.streams.before[op]))

    def following(self, op: int) -> int:
        """Give the work after, or -1."""
        return self.after.get(op, int(self.layout.streams.after[op]))

    def is_passed(self, op: int) -> bool:
        """Tell whether work is launched between the two places of the unit, on its thread."""
        call = int(self.layout.launched_by[op])
        return call >= 0 and self.place < self.layout.at[2 * call] < self.own_place

    def last_kept(self, op: int) -> int:
        """Give the last work of a stream, back from one, that is not passed, or -1."""
        while op >= 0 and self.is_passed(op):
            op = self.previous(op)
        return op

    def runs(self, members: set[int]) -> list[list[int]]:
        """Give the work of the unit on a stream as runs without other work in them, in order."""
        firsts = [op for op in members if self.previous(op) not in members]
        found = []
        for op in sorted(firsts):
            run = [op]
            while self.following(run[-1]) in members:
                run.append(self.following(run[-1]))
            found.append(run)
        start = self.layout.graph.time
        return sorted(found, key=lambda run: int(start[2 * run[0]]))

    def put_forward(self, run: list[int]) -> None:
        """Put a run right after the last work that it does not pass."""
        old = self.previous(run[0])
        kept = self.last_kept(old)
        if kept == old:
            return
        then = self.following(run[-1])
        # of what it passes the first now follows it
        first = old
        while self.previous(first) != kept:
            first = self.previous(first)
        self._join(old, then)
        self._join(kept, run[0])
        self._join(run[-1], first)

    def _join(self, one: int, other: int) -> None:
        if one >= 0:
            self.after[one] = other
        if other >= 0:
            self.before[other] = one

    def write(self, edits: _Edits) -> None:
        """Give each work whose neighbour changed the edge from that; its turn-around stays."""
        graph, streams = self.layout.graph, self.layout.streams
        for op, before in self.before.items():
            edge = int(streams.edge[op])
            if before == int(streams.before[op]):
                continue
            if edge >= 0:
                edits.removed.append(edge)
            if before >= 0:
                weight = graph.weight[edge] if edge >= 0 else 0
                edits.add(2 * before + 1, 2 * op, weight, EdgeKind.STREAM, op)


def _keep_events(units: Units, streams: _Rows, run: list[int], edits: _Edits) -> None:
    """Let work wait for events at its new place: for what is there on the other stream then.

    What it waited for at the old place the work after it on its stream still waits for.
    """
    graph = units.layout.graph
    then = streams.following(run[-1])
    for op in run:
        for edge in range(int(graph.in_ptr[2 * op]), int(graph.in_ptr[2 * op + 1])):
            source = int(graph.in_src[edge])
            if graph.edge_kind[edge] != EdgeKind.SYNC or not streams.is_passed(source // 2):
                continue
            edits.removed.append(edge)
            weight, kind = graph.weight[edge], EdgeKind.SYNC
            kept = streams.last_kept(source // 2)
            if kept >= 0:
                edits.add(2 * kept + 1, 2 * op, weight, kind, op)
            if then >= 0:
                edits.add(source, 2 * then, weight, kind, then)
