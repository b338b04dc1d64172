"""The position of every operation in a graph: thread, stream, and launching call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nadi.graph.edges.collective_edges import returns_early
from nadi.graph.edges.job_graph import ends_after
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.trace.arrays import Bools, Ints, Ints32
from nadi.trace.schema import DEVICE_WORK
from nadi.whatif.selection import launchers

_OF_THREADS = (EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.COMMUNICATION)


@dataclass(frozen=True)
class Works:
    """Launched work: device work, and communication on its own threads.

    In order of the calls, thread by thread; int64, shape (works,).
    """

    # op, call: the work, and the operation that launched it
    op: Ints
    call: Ints
    at: Ints  # where the start of that call stands in the chain of its thread

    def of(self, begin: Ints | int, end: Ints | int) -> tuple[Ints, Ints]:
        """Return the range of works launched between two places of the chain, both included."""
        return np.searchsorted(self.at, begin), np.searchsorted(self.at, end, side="right")


@dataclass(frozen=True)
class Streams:
    """The previous and next device work on the stream of each, or -1; int64, shape (ops,).

    ``edge`` is the edge from the one before, ``usual`` the median weight of these, in ns.
    """

    before: Ints
    after: Ints
    edge: Ints
    usual: int


@dataclass(frozen=True)
class OperationLayout:
    """The threads and streams of a graph as sequences."""

    graph: EventGraph  # the graph
    on_device: Bools  # bool, shape (ops,)
    # thread, resource: int64, shape (ops,): the thread of a host operation, counted over the job,
    # or -1; the thread or stream on which an operation runs, counted over the job
    thread: Ints
    resource: Ints
    # int64, shape (boundaries,): the vertices of host operations, thread by thread, in the order in
    # which the graph has them
    chain: Ints
    at: Ints  # int64, shape (vertices,): the place of each vertex in the chain, or -1
    # int64, shape (boundaries,): the edge from the boundary before on the same thread, or -1
    link: Ints

    @classmethod
    def of(cls, graph: EventGraph) -> OperationLayout:
        """Lay out a graph. O(vertices log vertices + edges)."""
        on_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
        place = [graph.gather(name).to_numpy() for name in ("thread", "device", "stream")]
        of_thread, of_device, of_stream = place
        resource = 2 * graph.op_trace + on_device
        for numbers in (
            np.where(on_device, of_device, of_thread),
            np.where(on_device, of_stream, -1),
        ):
            different, code = np.unique(numbers, return_inverse=True)
            _, resource = np.unique(resource * different.size + code, return_inverse=True)
        resource = resource.astype(np.int64)
        thread = np.where(on_device, -1, resource)
        step = np.empty(graph.num_vertices, dtype=np.int64)
        step[graph.order] = np.arange(graph.num_vertices)
        host = np.flatnonzero(np.repeat(~on_device, 2))
        chain = host[np.lexsort((step[host], thread[host // 2]))]
        at = np.full(graph.num_vertices, -1, dtype=np.int64)
        at[chain] = np.arange(chain.size)
        return cls(graph, on_device, thread, resource, chain, at, _links(graph, chain, at))

    @cached_property
    def launched_by(self) -> Ints:
        """The call that launched each operation, or -1; int64, shape (ops,)."""
        return launchers(self.graph)

    @cached_property
    def works(self) -> Works:
        """What was launched, in order of the calls."""
        call = self.launched_by
        op = np.flatnonzero((call >= 0) & ~self.on_device[call])
        op = op[self.resource[op] != self.resource[call[op]]]
        at = self.at[2 * call[op]]
        order = np.argsort(at, kind="stable")
        return Works(op[order], call[op[order]], at[order])

    def waits_for(self, op: int) -> list[int]:
        """Return the edges by which others wait for the end of device work."""
        edges, source = self._waits
        low, high = np.searchsorted(source, [2 * op + 1, 2 * op + 2])
        found: list[int] = edges[low:high].tolist()
        return found

    @cached_property
    def _waits(self) -> tuple[Ints, Ints32]:
        edges = np.flatnonzero(self.graph.edge_kind == EdgeKind.SYNC)
        order = np.argsort(self.graph.in_src[edges], kind="stable")
        return edges[order], self.graph.in_src[edges[order]]

    @cached_property
    def returns_early(self) -> Bools:
        """Which edges let a thread continue before a collective's own range ends."""
        return returns_early(self.graph)

    @cached_property
    def ends_early(self) -> Bools:
        """Which edges end a kernel after the end of the one that it waits for."""
        return ends_after(self.graph)

    @cached_property
    def destinations(self) -> Ints32:
        """The vertex that each edge enters; int32, shape (edges,)."""
        return self.graph.destinations

    @cached_property
    def streams(self) -> Streams:
        """The order of work on streams."""
        graph = self.graph
        edge_of, before, after = np.full((3, graph.num_ops), -1, dtype=np.int64)
        edges = np.flatnonzero(graph.edge_kind == EdgeKind.STREAM)
        dst, src = graph.destinations[edges] // 2, graph.in_src[edges] // 2
        before[dst], edge_of[dst], after[src] = src, edges, dst
        usual = int(np.median(graph.weight[edges])) if edges.size else 0
        return Streams(before, after, edge_of, usual)


def operations_of_rows(graph: EventGraph, trace: int, rows: Ints) -> Ints:
    """Return the operations of node rows of one trace, or -1; int64, shape (rows,)."""
    low, high = np.searchsorted(graph.op_trace, [trace, trace + 1])
    found = np.full(graph.job.traces[trace].nodes.height + 1, -1, dtype=np.int64)
    found[graph.op_row[low:high]] = np.arange(low, high)
    return found[rows]


def _links(graph: EventGraph, chain: Ints, at: Ints) -> Ints:
    """Find the edge between neighbors on a thread; int64, shape (boundaries,)."""
    link = np.full(chain.size, -1, dtype=np.int64)
    edges = np.flatnonzero(np.isin(graph.edge_kind, _OF_THREADS))
    src, dst = at[graph.in_src[edges]], at[graph.destinations[edges]]
    neighbors = (src >= 0) & (src + 1 == dst)
    link[dst[neighbors]] = edges[neighbors]
    return link
