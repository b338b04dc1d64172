"""From a job to its event graph: threads, launches, streams, waits and collectives as edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import NadiError
from nadi.graph import EdgeKind, EventGraph
from nadi.kernels.groups import group_rows
from nadi.kernels.paths import topological_order
from nadi.link.nesting import nest
from nadi.overheads import launch_latency, stream_turnaround
from nadi.schema import DEVICE_WORK, LABELS
from nadi.trace import Job, Trace

__all__ = ["build_graph"]

_Ints = npt.NDArray[np.int64]


def build_graph(job: Job) -> EventGraph:
    """Build the graph of a job. O(nodes log nodes + deps).

    Returns
    -------
    EventGraph
        Its operations are in order of trace, then row.
    """
    parts: list[_TraceGraph] = []
    for trace in job.traces:
        first_op = sum(part.rows.size for part in parts)
        parts.append(_TraceGraph(trace, first_op, job.origin))
    start = np.concatenate([part.start for part in parts])
    end = np.concatenate([part.end for part in parts])
    edges = _Edges()
    for part in parts:
        part.add_edges(edges)
    time = np.stack([start, end], axis=1).ravel()
    hub_times = _add_collectives(job, parts, edges, time)
    time = np.concatenate([time, np.array(hub_times, dtype=np.int64)])
    return _finish(job, parts, edges, time)


class _Edges:
    """Edges as they are found; the weight of one may be taken back while building."""

    def __init__(self) -> None:
        self._parts: list[tuple[_Ints, _Ints, _Ints, _Ints, _Ints]] = []

    def add(self, src: _Ints, dst: _Ints, weight: _Ints, kind: EdgeKind | _Ints, op: _Ints) -> None:
        """Add edges; all arrays of one shape (edges,)."""
        kinds = np.broadcast_to(np.asarray(kind, dtype=np.int64), src.shape)
        self._parts.append((src, dst, weight, kinds, op))

    def columns(self) -> Sequence[_Ints]:
        """Give src, dst, weight, kind and op of all edges."""
        return [np.concatenate(column) for column in zip(*self._parts, strict=True)]


class _TraceGraph:
    """The operations and edges of one rank while the graph is built."""

    def __init__(self, trace: Trace, first_op: int, origin: int) -> None:
        self.trace = trace
        self.first_op = first_op
        self.nesting = nest(trace)
        self.rows = np.union1d(self.nesting.rows, np.flatnonzero(trace.category_mask(*DEVICE_WORK)))
        self.op_of_row = np.full(trace.nodes.height, -1, dtype=np.int64)
        self.op_of_row[self.rows] = first_op + np.arange(self.rows.size)
        self.start = trace.column("start")[self.rows] - origin
        self.end = self.start + trace.column("duration")[self.rows]
        self.parent = np.full(self.rows.size, -1, dtype=np.int64)
        nested = self.nesting.parent_row
        own = self.op_of_row[self.nesting.rows] - first_op
        self.parent[own] = np.where(nested >= 0, self.op_of_row[nested], -1)
        self._find_thread_edges()

    def _find_thread_edges(self) -> None:
        """Chain the boundaries of each thread with the measured time between them."""
        nesting, trace = self.nesting, self.trace
        op = self.op_of_row[nesting.rows[nesting.boundary // 2]]
        self.boundary_vertex = 2 * op + nesting.boundary % 2
        local = op - self.first_op
        self.boundary_time = np.where(nesting.boundary % 2 == 1, self.end[local], self.start[local])
        owner_row = np.where(nesting.owner >= 0, nesting.rows[nesting.owner], -1)
        is_comm = (trace.nodes["comm_type"] != "none").to_numpy()
        is_work = ~trace.category_mask(*LABELS)
        self.boundary_kind = np.select(
            [owner_row < 0, is_comm[owner_row], is_work[owner_row]],
            [EdgeKind.HOST_GAP, EdgeKind.COMMUNICATION, EdgeKind.HOST_OP],
            EdgeKind.HOST_GAP,
        )
        self.boundary_owner = np.where(owner_row >= 0, self.op_of_row[owner_row], -1)
        self.is_first = np.zeros(op.size, dtype=np.bool_)
        self.is_first[2 * nesting.thread_ptr[:-1]] = True
        previous_time = np.concatenate([[0], self.boundary_time[:-1]])[: op.size]
        self.time_before = np.where(self.is_first, self.boundary_time, previous_time)
        self.boundary_weight = self.boundary_time - self.time_before
        self.boundary_at = np.full(2 * self.rows.size, -1, dtype=np.int64)
        self.boundary_at[self.boundary_vertex - 2 * self.first_op] = np.arange(op.size)

    def add_edges(self, edges: _Edges) -> None:
        """Add the edges of this rank but for those of its threads, which may yet change."""
        deps = self.trace.deps
        for kind, add in (
            ("launch", self._add_launches),
            ("stream", self._add_streams),
            ("sync", self._add_syncs),
            ("thread", self._add_hand_overs),
        ):
            chosen = deps.filter(pl.col("kind") == kind)
            add(edges, chosen["src"].to_numpy(), chosen["dst"].to_numpy())

    def add_thread_edges(self, edges: _Edges) -> None:
        """Add the edges between consecutive boundaries of each thread."""
        at = np.flatnonzero(~self.is_first)
        vertex = self.boundary_vertex
        edges.add(
            vertex[at - 1], vertex[at], self.boundary_weight[at], self.boundary_kind[at],
            self.boundary_owner[at],
        )  # fmt: skip

    def add_device_edges(self, edges: _Edges, waits_for_others: _Ints) -> None:
        """Add the edge from start to end of device work, but for collectives among ranks."""
        on_device = self.trace.category_mask(*DEVICE_WORK)[self.rows]
        op = self.first_op + np.flatnonzero(on_device)
        op = op[~np.isin(op, waits_for_others)]
        row = self.rows[op - self.first_op]
        is_comm = (self.trace.nodes["comm_type"] != "none").to_numpy()[row]
        kind = np.where(is_comm, EdgeKind.COMMUNICATION, EdgeKind.KERNEL)
        edges.add(2 * op, 2 * op + 1, self.trace.column("duration")[row], kind, op)

    def _times(self, row: _Ints) -> tuple[_Ints, _Ints, _Ints]:
        op = self.op_of_row[row]
        return op, self.start[op - self.first_op], self.end[op - self.first_op]

    def _add_launches(self, edges: _Edges, src: _Ints, dst: _Ints) -> None:
        """Anchor device work on the end of its launch, or on the start if it starts sooner."""
        caller, call_start, call_end = self._times(src)
        op, start, _ = self._times(dst)
        after_end, after_start = launch_latency(self.trace, src, dst)
        on_thread = self.trace.nodes["is_cpu"].to_numpy()[dst]
        # work of other threads is asked for at the start of a call, not at its end
        from_end = (start >= call_end) & ~on_thread
        weight = np.where(
            from_end,
            np.minimum(start - call_end, after_end),
            np.minimum(start - call_start, after_start),
        )
        possible = start >= call_start
        source = np.where(from_end, 2 * caller + 1, 2 * caller)
        edges.add(
            source[possible], 2 * op[possible], weight[possible], EdgeKind.LAUNCH, op[possible]
        )
        self._cut_wait(2 * op[possible & on_thread])

    def _add_streams(self, edges: _Edges, src: _Ints, dst: _Ints) -> None:
        """Anchor device work on the end of the work before it, or its start if they overlap."""
        before, _, end_before = self._times(src)
        op, start, _ = self._times(dst)
        gap = start - end_before
        typical = stream_turnaround(self.trace, src, dst)
        weight = np.where(gap >= 0, np.minimum(gap, typical), 0)
        source = np.where(gap >= 0, 2 * before + 1, 2 * before)
        edges.add(source, 2 * op, weight, EdgeKind.STREAM, op)

    def _add_syncs(self, edges: _Edges, src: _Ints, dst: _Ints) -> None:
        """Let the end of a call wait for the end of the work."""
        work, _, work_end = self._times(src)
        call, _, call_end = self._times(dst)
        vertex = 2 * call + 1
        # a call returns some time after the last work that it waits for: one time for all of it
        last_end = np.zeros(self.rows.size, dtype=np.int64)
        np.maximum.at(last_end, call - self.first_op, work_end)
        last_end = last_end[call - self.first_op]
        waits = last_end > self.time_before[self.boundary_at[vertex - 2 * self.first_op]]
        weight = np.where(waits, call_end - last_end, 0)
        edges.add(2 * work + 1, vertex, weight, EdgeKind.SYNC, call)
        self._cut_wait(vertex[waits])

    def _add_hand_overs(self, edges: _Edges, src: _Ints, dst: _Ints) -> None:
        """Let the start of an operation wait for the end of work on another thread."""
        work, _, work_end = self._times(src)
        op, start, _ = self._times(dst)
        edges.add(2 * work + 1, 2 * op, start - work_end, EdgeKind.THREAD, op)
        self._cut_wait(2 * op)

    def _cut_wait(self, vertex: _Ints) -> None:
        """Take the time before a boundary for waiting, which another edge explains."""
        self.boundary_weight[self.boundary_at[vertex - 2 * self.first_op]] = 0

    def wait_inside(self, op: int, until: int) -> int:
        """Find where an operation of a thread waits for an event of another rank.

        Returns
        -------
        int
            The vertex that ends its longest own stretch among those that end after
            ``until``, or -1; the time of that stretch is then taken for the wait.
        """
        at, last = self.boundary_at[2 * (op - self.first_op) :][:2]
        inside = np.arange(at + 1, last + 1)
        own = inside[(self.boundary_owner[inside] == op) & (self.boundary_time[inside] > until)]
        if own.size == 0:
            return -1
        longest = own[np.argmax(self.boundary_weight[own])]
        self.boundary_weight[longest] = 0
        return int(self.boundary_vertex[longest])


def _add_collectives(job: Job, parts: list[_TraceGraph], edges: _Edges, time: _Ints) -> list[int]:
    """Let every rank of a collective finish only after the last has entered it.

    A rank that left before the last one entered did not wait for it (the root of a
    broadcast, or clocks that disagree) and keeps its own time.

    Returns
    -------
    list of int
        The time at which the last rank entered each collective.
    """
    part_of_rank = {part.trace.rank: part for part in parts}
    hubs: list[int] = []
    waiting: list[int] = []
    new: list[tuple[int, int, int, int, int]] = []
    for members in job.matches.partition_by("collective", maintain_order=True):
        ranks, nodes = members["rank"].to_list(), members["node"].to_list()
        ops = [int(part_of_rank[r].op_of_row[n]) for r, n in zip(ranks, nodes, strict=True)]
        entered = max(int(time[2 * op]) for op in ops)
        hub = time.size + len(hubs)
        leaving = [(r, n, op) for r, n, op in zip(ranks, nodes, ops, strict=True)
                   if time[2 * op + 1] > entered]  # fmt: skip
        hubs.append(entered)
        new += [(2 * op, hub, 0, EdgeKind.ARRIVAL, op) for op in ops]
        for rank, node, op in leaving:
            part = part_of_rank[rank]
            if part.trace.nodes["is_cpu"][node]:
                vertex = part.wait_inside(op, entered)
            else:
                vertex = 2 * op + 1
                waiting.append(op)
            if vertex >= 0:
                new.append((hub, vertex, int(time[vertex]) - entered, EdgeKind.COMMUNICATION, op))
    for part in parts:
        part.add_thread_edges(edges)
        part.add_device_edges(edges, np.array(waiting, dtype=np.int64))
    src, dst, weight, kind, op_column = np.array(new, dtype=np.int64).reshape(-1, 5).T
    edges.add(src, dst, weight, kind, op_column)
    return hubs


def _describe_cycle(parts: list[_TraceGraph], vertex: int) -> str:
    op = vertex // 2
    for part in parts:
        if part.first_op <= op < part.first_op + part.rows.size:
            name = part.trace.nodes["name"][int(part.rows[op - part.first_op])]
            return f"dependencies form a cycle through {name!r} of rank {part.trace.rank}"
    return "dependencies form a cycle through a collective"


def _finish(job: Job, parts: list[_TraceGraph], edges: _Edges, time: _Ints) -> EventGraph:
    """Sort the edges by destination, order the vertices, and name what is left as delay."""
    src, dst, weight, kind, edge_op = edges.columns()
    if ((src < 0) | (src >= time.size) | (dst < 0) | (dst >= time.size)).any():
        raise NadiError("", "a dependency names no operation", "please report this recording")
    in_ptr = np.zeros(time.size + 1, dtype=np.int64)
    edge = np.empty(src.size, dtype=np.int64)
    group_rows(dst, in_ptr, edge)
    in_src, weight = src[edge], weight[edge]
    order = np.empty(time.size, dtype=np.int64)
    on_cycle = topological_order(in_ptr, in_src, order)
    if on_cycle >= 0:
        raise NadiError("", _describe_cycle(parts, on_cycle), "please report this recording")
    delay = time.copy()
    entered = np.flatnonzero(np.diff(in_ptr))
    if entered.size:
        asked = np.maximum.reduceat(time[in_src] + weight, in_ptr[entered])
        delay[entered] -= asked
    return EventGraph(
        job=job,
        op_trace=np.repeat(np.arange(len(parts)), [part.rows.size for part in parts]),
        op_row=np.concatenate([part.rows for part in parts]),
        op_parent=np.concatenate([part.parent for part in parts]),
        time=time,
        delay=delay,
        in_ptr=in_ptr,
        in_src=in_src,
        weight=weight,
        edge_op=edge_op[edge],
        edge_kind=kind[edge].astype(np.uint8),
        order=order,
    )
