"""A change that moves operations to an earlier position on their threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np

from nadi.errors import UsageError
from nadi.graph.event_graph import CycleError, EdgeKind, Edges, EventGraph
from nadi.graph.replay import replay_graph
from nadi.whatif.reordering.movable_units import (
    BLOCKERS,
    Units,
    find_units,
    tensor_pairs,
    with_tensor_edges,
)
from nadi.whatif.reordering.operation_layout import OperationLayout, operations_of_rows


@dataclass(frozen=True)
class Move:
    """Operations of a rank, in order, and the operation to start after; node rows."""

    rank: int
    rows: tuple[int, ...]
    after: int


@dataclass(frozen=True)
class MoveEarlier:
    """Move operations earlier on their threads, right after another operation.

    With an operation moves all that lies in it, and the work that it launches moves on its
    stream as far. The time of threads between operations stays where it is, and so do waits
    for communication; what comes after a wait may move before it.

    Attributes
    ----------
    moves
        At most one per rank.
    name, after
        Names of the moved operation and of the one before its new position, for messages.
    """

    moves: tuple[Move, ...]
    name: str
    after: str

    def __str__(self) -> str:
        ranks = ", ".join(str(move.rank) for move in self.moves)
        most = max(len(move.rows) for move in self.moves)
        others = f" with {most - 1} before it" if most > 1 else ""
        return f"start {self.name}{others} right after {self.after} (rank {ranks})"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing moves to before ``since``, ns since the job's origin.

        The returned graph has edges for all data dependencies.

        Raises
        ------
        UsageError
            If the job has no data dependencies, or one does not allow the move.
        """
        require_tensors(graph)
        kept = with_tensor_edges(graph)
        units = find_units(OperationLayout.of(kept), replay_graph(kept).time, since)
        blocks = [self._located(units, move) for move in self.moves]
        for block in blocks:
            self._check(units, block)
        try:
            return moved_graph(units, blocks)
        except CycleError as error:
            raise UsageError(
                str(self),
                f"the move creates a dependency cycle: {error.what}",
                "choose a later position",
            ) from None

    def _located(self, units: Units, move: Move) -> Block:
        """Find the units of a move, which have this order on one thread."""
        graph = units.layout.graph
        ranks = list(graph.job.ranks)
        found = np.full(len(move.rows) + 1, -1)
        if move.rank in ranks:
            trace = ranks.index(move.rank)
            rows = np.array([move.after, *move.rows])
            here = (rows >= 0) & (rows < graph.job.traces[trace].nodes.height)
            ops = operations_of_rows(graph, trace, np.where(here, rows, -1))
            found = np.array([units.at_op(op) if op >= 0 else -1 for op in ops.tolist()])
        if found.min() < 0:
            raise UsageError(
                str(self), f"of rank {move.rank} no such operation is called by the program",
                "check the rows",
            )  # fmt: skip
        if (np.diff(found) <= 0).any() or np.ptp(units.layout.thread[units.op[found]]) > 0:
            raise UsageError(
                str(self),
                "the operations are not in ascending order on one thread",
                "check the rows",
            )
        return Block(int(found[0]), tuple(found[1:].tolist()))

    def _check(self, units: Units, block: Block) -> None:
        names = units.layout.graph.op_names
        found = why_not(units, block)
        if found is None:
            return
        unit, blocker, reason = found
        stays = f" after {names[int(units.op[blocker])]}" if blocker >= 0 else " at its position"
        raise UsageError(
            str(self), f"{names[int(units.op[unit])]} must stay{stays} ({reason})",
            "choose a later position; nadi what-if with reorder lists possible moves",
        )  # fmt: skip


@dataclass(frozen=True)
class Block:
    """Units of one thread, ascending, and the unit to start after."""

    after: int
    units: tuple[int, ...]


def why_not(units: Units, block: Block) -> tuple[int, int, str] | None:
    """Return what forbids a move: a unit, the unit it must stay after or -1, why; or None."""
    members = set(block.units)
    for unit in block.units:
        if not units.can_move[unit]:
            return unit, -1, "it cannot move on its own"
        if units.after_fence[unit] > block.after:
            return unit, int(units.after_fence[unit]), BLOCKERS[units.fence_reason[unit]]
        for at in range(int(units.needs_ptr[unit]), int(units.needs_ptr[unit + 1])):
            before = int(units.needs[at])
            if before > block.after and before not in members:
                return unit, before, BLOCKERS[units.needs_reason[at]]
    return None


def held_by(units: Units, block: Block) -> str:
    """Return why a block cannot start before the end of a unit; one of ``BLOCKERS``."""
    for unit in block.units:
        if units.after_fence[unit] == block.after:
            return BLOCKERS[units.fence_reason[unit]]
    for unit in block.units:
        for at in range(int(units.needs_ptr[unit]), int(units.needs_ptr[unit + 1])):
            if units.needs[at] == block.after:
                return BLOCKERS[units.needs_reason[at]]
    return BLOCKERS[0]


def require_tensors(graph: EventGraph) -> None:
    """Raise UsageError if the graph has no data dependencies."""
    if not tensor_pairs(graph)[0].size:
        raise UsageError(
            "reordering", "the job has no data dependencies",
            "add host traces (ExecutionTraceObserver), and load with tensors=True",
        )  # fmt: skip


@dataclass
class _Edits:
    """Edges to remove and to add, and delays to change, while moves are applied."""

    removed: list[int] = field(default_factory=list)
    added: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    without_delay: list[int] = field(default_factory=list)

    def add(self, src: int, dst: int, weight: int, kind: int, op: int) -> None:
        self.added.append((int(src), int(dst), int(weight), int(kind), int(op)))


def moved_graph(units: Units, blocks: Sequence[Block]) -> EventGraph:
    """Return the graph with blocks moved, at most one per rank.

    - Raises CycleError if the move creates a dependency cycle. O(vertices + edges).
    """
    graph = units.layout.graph
    edits = _Edits()
    parent = graph.op_parent.copy()
    for block in map(_without_first, blocks):
        if block.units:
            _move_on_thread(units, block, edits)
            _move_on_streams(units, block, edits)
            parent[units.op[list(block.units)]] = graph.op_parent[units.op[block.after]]
    kept = np.ones(graph.num_edges, dtype=np.bool_)
    kept[edits.removed] = False
    columns = np.array(edits.added, dtype=np.int64).reshape(-1, 5).T
    delay = graph.delay.copy()
    delay[edits.without_delay] = 0
    return replace(graph, delay=delay, op_parent=parent).edited(kept, Edges(*columns))


def _without_first(block: Block) -> Block:
    """Omit units that are at their position already."""
    after, members = block.after, list(block.units)
    while members and members[0] == after + 1:
        after = members.pop(0)
    return Block(after, tuple(members))


def _move_on_thread(units: Units, block: Block, edits: _Edits) -> None:
    """Remove units from the chain of their thread and insert them again.

    What happens before one by its place and not by itself, the time since the operation before
    and waits for communication, then happens before what followed it.
    """
    layout, graph = units.layout, units.layout.graph
    chain, link = layout.chain, layout.link
    begins = set(units.begin[list(block.units)].tolist())
    left: list[tuple[int, int, int, int]] = []  # source, weight, kind and operation of edges
    for unit in block.units:
        begin, end = int(units.begin[unit]), int(units.end[unit])
        start = int(chain[begin])
        of_place = _waits_for_communication(layout, start)
        if not left:
            of_place.append(int(link[begin]))
        edits.removed += of_place
        left += [
            (int(graph.in_src[e]), int(graph.weight[e]), int(graph.edge_kind[e]),
             int(graph.edge_op[e]))
            for e in of_place
        ]  # fmt: skip
        delay = int(graph.delay[start])
        edits.without_delay.append(start)
        if end + 1 == chain.size or link[end + 1] < 0:
            break  # nothing follows on this thread
        then = int(link[end + 1])
        edits.removed.append(then)
        more = delay + int(graph.weight[then])
        left = [(src, weight + more, kind, op) for src, weight, kind, op in left]
        if end + 1 not in begins:
            for src, weight, kind, op in left:
                edits.add(src, chain[end + 1], weight, kind, op)
            left = []
    place = int(units.end[block.after])
    gap = int(link[place + 1])
    edits.removed.append(gap)
    kind, op = graph.edge_kind[gap], graph.edge_op[gap]
    last = chain[place]
    for unit in block.units:
        edits.add(last, chain[units.begin[unit]], 0, kind, op)
        last = chain[units.end[unit]]
    edits.add(last, chain[place + 1], graph.weight[gap], kind, op)


def _waits_for_communication(layout: OperationLayout, vertex: int) -> list[int]:
    """Return the edges by which a thread waits at a vertex for communication of another one."""
    graph = layout.graph
    found = []
    for edge in range(int(graph.in_ptr[vertex]), int(graph.in_ptr[vertex + 1])):
        source = int(graph.in_src[edge])
        if layout.returns_early[edge]:
            found.append(edge)
        if graph.edge_kind[edge] == EdgeKind.THREAD and source < 2 * graph.num_ops:
            trace, row = int(graph.op_trace[source // 2]), int(graph.op_row[source // 2])
            if graph.job.traces[trace].nodes["comm_type"][row] != "none":
                found.append(edge)
    return found


def _move_on_streams(units: Units, block: Block, edits: _Edits) -> None:
    """Move the work of units forward on its streams, past the work of the passed units."""
    layout = units.layout
    streams = _Rows(units, block)
    for unit in block.units:
        works = layout.works.op[int(units.first_work[unit]) : int(units.last_work[unit])]
        works = works[layout.on_device[works]]
        by_stream = sorted(works.tolist(), key=lambda op: int(layout.resource[op]))
        for _, members in groupby(by_stream, key=lambda op: int(layout.resource[op])):
            for run in streams.runs(set(members)):
                _wait_at_new_place(streams, run, edits)
                streams.put_forward(run, edits)
    streams.write(edits)


class _Rows:
    """Device work as linked lists, in which runs of work move forward."""

    def __init__(self, units: Units, block: Block) -> None:
        self.layout = units.layout
        self.of_op = units.of_op
        self.waiting, self.records = units.lets_wait, units.records
        self.members = set(block.units)
        self.place = int(units.end[block.after])
        self.own_place = int(units.begin[block.units[-1]])
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}

    def previous(self, op: int) -> int:
        """Return the work before, or -1."""
        return self.before.get(op, int(self.layout.streams.before[op]))

    def following(self, op: int) -> int:
        """Return the work after, or -1."""
        return self.after.get(op, int(self.layout.streams.after[op]))

    def waits_itself(self, op: int) -> bool:
        """Return whether the unit that launches work makes streams wait for events."""
        return bool(self.waiting[self.of_op[self.layout.launched_by[op]]])

    def is_passed(self, op: int) -> bool:
        """Return whether work is launched by what the units pass on their thread."""
        call = int(self.layout.launched_by[op])
        if call < 0 or not self.place < self.layout.at[2 * call] < self.own_place:
            return False
        return int(self.of_op[call]) not in self.members

    def last_kept(self, op: int) -> int:
        """Return the last work of a stream, back from one, that is not passed, or -1."""
        while op >= 0 and self.is_passed(op):
            op = self.previous(op)
        return op

    def runs(self, members: set[int]) -> list[list[int]]:
        """Return the work of the unit on a stream as runs without other work in them, in order."""
        firsts = [op for op in members if self.previous(op) not in members]
        found = []
        for op in sorted(firsts):
            run = [op]
            while self.following(run[-1]) in members:
                run.append(self.following(run[-1]))
            found.append(run)
        start = self.layout.graph.time
        return sorted(found, key=lambda run: int(start[2 * run[0]]))

    def put_forward(self, run: list[int], edits: _Edits) -> None:
        """Insert a run right after the last work that it does not pass."""
        old = self.previous(run[0])
        kept = self.last_kept(old)
        if kept >= 0:
            self._wait_for(kept, run[-1], edits)
        if kept == old:
            return
        self._wait_for(run[-1], old, edits)
        then = self.following(run[-1])
        # of what it passes the first now follows it
        first = old
        while self.previous(first) != kept:
            first = self.previous(first)
        self._join(old, then)
        self._join(kept, run[0])
        self._join(run[-1], first)

    def _wait_for(self, old: int, new: int, edits: _Edits) -> None:
        """Redirect waits for some work to other work if they are launched after the new position.

        Who waits for the last work of a stream waits for what is then the last. Not if the
        event was recorded along with the work: then it stands for this and no other.
        """
        graph = self.layout.graph
        launcher = int(self.layout.launched_by[old])
        if launcher >= 0 and self.of_op[launcher] >= 0 and self.records[self.of_op[launcher]]:
            return
        for edge in self.layout.waits_for(old):
            vertex = int(self.layout.destinations[edge])
            op = vertex // 2
            call = int(self.layout.launched_by[op]) if self.layout.on_device[op] else op
            unit = int(self.of_op[call]) if call >= 0 else -1
            if self.layout.at[2 * call] > self.place and unit not in self.members and call >= 0:
                edits.add(2 * new + 1, vertex, graph.weight[edge], EdgeKind.SYNC, op)

    def _join(self, one: int, other: int) -> None:
        """Let one follow the other; of either there may be none, -1."""
        self.after[one] = other
        self.before[other] = one

    def write(self, edits: _Edits) -> None:
        """Return each work whose neighbor changed the edge from that.

        Its turn-around stays; what was the first of its stream has the usual one.
        """
        graph, streams, ends_early = self.layout.graph, self.layout.streams, self.layout.ends_early
        self.before.pop(-1, None)  # where the last of a stream moved, nothing is after it
        for op, before in self.before.items():
            edge = int(streams.edge[op])
            if before == int(streams.before[op]):
                continue
            if edge >= 0:
                edits.removed.append(edge)
            into = range(int(graph.in_ptr[2 * op + 1]), int(graph.in_ptr[2 * op + 2]))
            edits.removed += [one for one in into if ends_early[one]]
            if before >= 0:
                weight = graph.weight[edge] if edge >= 0 else streams.usual
                edits.add(2 * before + 1, 2 * op, weight, EdgeKind.STREAM, op)


def _wait_at_new_place(streams: _Rows, run: list[int], edits: _Edits) -> None:
    """Update event waits of moved work to the work that the other stream then has.

    If another operation told its stream to wait, the work after it still waits as before.
    """
    graph = streams.layout.graph
    then = -1 if streams.waits_itself(run[0]) else streams.following(run[-1])
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
