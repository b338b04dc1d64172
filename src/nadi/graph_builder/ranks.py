"""The operations of one rank as vertices, and its threads as chains of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nadi.graph import EdgeKind, Edges, make_edges
from nadi.graph_builder.edges import Limits
from nadi.link.nesting import Nesting, nest
from nadi.schema import DEVICE_WORK, LABELS
from nadi.trace import Trace

__all__ = ["Chain", "RankOps", "rank_ops", "thread_edges"]

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Chain:
    """The boundaries of all threads of a rank, thread by thread; arrays of shape (boundaries,).

    Attributes
    ----------
    vertex
        int64: the vertex of the boundary.
    time, time_before
        int64 ns: when it was, and when the one before it on its thread was; of a thread's
        first boundary both are the same.
    owner
        int64: the operation that the time before it belongs to, or -1.
    kind
        int64: the kind of edge that this time is.
    is_first
        bool: whether it is the first of its thread.
    at
        int64, shape (2 * ops of the rank,): position of each vertex of the rank, or -1.
    """

    vertex: _Ints
    time: _Ints
    time_before: _Ints
    owner: _Ints
    kind: _Ints
    is_first: npt.NDArray[np.bool_]
    at: _Ints


@dataclass(frozen=True)
class RankOps:
    """The operations of one rank.

    Attributes
    ----------
    trace
        The rank.
    first_op
        Number of its first operation in the job.
    rows
        int64, shape (ops,): node rows, ascending.
    op_of_row
        int64, shape (nodes,): number in the job, or -1.
    start, end
        int64 ns since the job's origin, shape (ops,).
    parent
        int64, shape (ops,): number in the job of the operation around it, or -1.
    chain
        Its threads.
    """

    trace: Trace
    first_op: int
    rows: _Ints
    op_of_row: _Ints
    start: _Ints
    end: _Ints
    parent: _Ints
    chain: Chain

    def times(self, row: _Ints) -> tuple[_Ints, _Ints, _Ints]:
        """Give number, start and end of the operations of node rows."""
        op = self.op_of_row[row]
        return op, self.start[op - self.first_op], self.end[op - self.first_op]

    def at(self, vertex: _Ints) -> _Ints:
        """Give the positions of vertices of this rank in its chain."""
        return self.chain.at[vertex - 2 * self.first_op]


def rank_ops(trace: Trace, first_op: int, origin: int) -> RankOps:
    """Give the operations of a rank numbers, and chain its threads. O(nodes log nodes)."""
    nesting = nest(trace)
    is_op = trace.category_mask(*DEVICE_WORK)
    is_op[nesting.rows] = True
    rows = np.flatnonzero(is_op)
    op_of_row = np.full(trace.nodes.height, -1, dtype=np.int64)
    op_of_row[rows] = first_op + np.arange(rows.size)
    start = trace.column("start")[rows] - origin
    end = start + trace.column("duration")[rows]
    parent = np.full(rows.size, -1, dtype=np.int64)
    enclosing = nesting.parent_row
    parent[op_of_row[nesting.rows] - first_op] = np.where(enclosing >= 0, op_of_row[enclosing], -1)
    times = np.stack([start, end], axis=1).ravel()
    chain = _chain(trace, nesting, op_of_row, first_op, times)
    return RankOps(trace, first_op, rows, op_of_row, start, end, parent, chain)


def _chain(trace: Trace, nesting: Nesting, op_of_row: _Ints, first_op: int, times: _Ints) -> Chain:
    vertex = 2 * op_of_row[nesting.rows[nesting.boundary // 2]] + nesting.boundary % 2
    time = times[vertex - 2 * first_op]
    is_first = np.zeros(vertex.size, dtype=np.bool_)
    is_first[2 * nesting.thread_ptr[:-1]] = True
    previous = np.concatenate([[0], time[:-1]])[: vertex.size]
    owner_row = np.where(nesting.owner >= 0, nesting.rows[nesting.owner], -1)
    is_comm = (trace.nodes["comm_type"] != "none").to_numpy()
    is_work = ~trace.category_mask(*LABELS)
    kind = np.select(
        [owner_row < 0, is_comm[owner_row], is_work[owner_row]],
        [EdgeKind.HOST_GAP, EdgeKind.COMMUNICATION, EdgeKind.HOST_OP],
        EdgeKind.HOST_GAP,
    )
    at = np.full(times.size, -1, dtype=np.int64)
    at[vertex - 2 * first_op] = np.arange(vertex.size)
    return Chain(
        vertex=vertex,
        time=time,
        time_before=np.where(is_first, time, previous),
        owner=np.where(owner_row >= 0, op_of_row[owner_row], -1),
        kind=kind,
        is_first=is_first,
        at=at,
    )


def thread_edges(rank: RankOps, limits: Limits) -> Edges:
    """Chain the boundaries of each thread with the measured time between them, or less.

    ``limits``: how much of the time before a boundary is the thread's own, where it waits.
    """
    chain = rank.chain
    weight = chain.time - chain.time_before
    first = 2 * rank.first_op
    mine = (limits.vertex >= first) & (limits.vertex < first + 2 * rank.rows.size)
    np.minimum.at(weight, rank.at(limits.vertex[mine]), limits.most[mine])
    at = np.flatnonzero(~chain.is_first)
    vertex = chain.vertex
    return make_edges(vertex[at - 1], vertex[at], weight[at], chain.kind[at], chain.owner[at])
