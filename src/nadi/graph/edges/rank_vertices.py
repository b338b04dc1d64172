"""The operations of one rank as vertices, and its threads as chains of vertices.

Edges and limits: the result of each rule for the graph, concatenated at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nadi.graph.edges.thread_chain_kernels import Chain, ThreadOps, chain_threads
from nadi.graph.event_graph import EdgeKind, Edges
from nadi.recordings.dependencies.operator_nesting import Nesting, nest
from nadi.recordings.dependencies.operator_nesting_kernels import Nested
from nadi.recordings.dependencies.thread_handovers import waiting_threads
from nadi.trace.arrays import Ints
from nadi.trace.schema import DEVICE_WORK, LABELS
from nadi.trace.trace import Trace


class WaitLimits(NamedTuple):
    """Boundaries before which a thread waits: at most ``most`` of the time before is its own work.

    int64, shape (limits,): vertex; ns.
    """

    vertex: Ints
    most: Ints


@dataclass(frozen=True)
class RankOps:
    """The operations of one rank, and their vertices."""

    trace: Trace  # the rank
    first_op: int  # number of its first operation in the job
    rows: Ints  # int64, shape (ops,): node rows, ascending
    op_of_row: Ints  # int64, shape (nodes,): number in the job, or -1
    # start, end: int64 ns since the job's origin, shape (ops,)
    start: Ints
    end: Ints
    parent: Ints  # int64, shape (ops,): number in the job of the enclosing operation, or -1
    chain: Chain  # its threads

    def times(self, row: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the number, start and end of the operations of node rows."""
        op = self.op_of_row[row]
        return op, self.start[op - self.first_op], self.end[op - self.first_op]

    def at(self, vertex: Ints) -> Ints:
        """Return the positions of vertices of this rank in its chain."""
        return self.chain.at[vertex - 2 * self.first_op]

    def time_of(self, vertex: Ints) -> Ints:
        """Return the times of vertices of this rank."""
        op = vertex // 2 - self.first_op
        return np.where(vertex % 2 == 1, self.end[op], self.start[op])


def rank_ops(trace: Trace, first_op: int, origin: int) -> RankOps:
    """Enumerate the operations of a rank, and chain its threads. O(nodes log nodes).

    Threads that only wait are left out: they determine nothing, and last as long as the recording.
    """
    nesting = nest(trace, waiting_threads(trace))
    is_op = trace.category_mask(*DEVICE_WORK)
    is_op[nesting.rows] = True
    rows = np.flatnonzero(is_op)
    op_of_row = np.full(trace.nodes.height, -1, dtype=np.int64)
    op_of_row[rows] = first_op + np.arange(rows.size)
    start, end = _times(trace, rows, origin)
    chain, parent = _chain(trace, nesting, op_of_row[nesting.rows], first_op, start, end)
    return RankOps(trace, first_op, rows, op_of_row, start, end, parent, chain)


def _times(trace: Trace, rows: Ints, origin: int) -> tuple[Ints, Ints]:
    start = trace.column("start")[rows]
    start -= origin
    end = trace.column("duration")[rows]
    end += start
    return start, end


def _chain(
    trace: Trace, nesting: Nesting, number: Ints, first_op: int, start: Ints, end: Ints
) -> tuple[Chain, Ints]:
    """Chain the threads of a rank; also returns each operation's enclosing operation, or -1."""
    is_comm = trace.comm_mask()[nesting.rows]
    is_label = trace.category_mask(*LABELS)[nesting.rows]
    kind_of = np.full(number.size + 1, EdgeKind.HOST_OP, dtype=np.uint8)
    kind_of[:-1][is_label] = EdgeKind.HOST_GAP
    kind_of[:-1][is_comm] = EdgeKind.COMMUNICATION
    kind_of[-1] = EdgeKind.HOST_GAP
    vertex, gap, owner = (np.empty(nesting.boundary.size, dtype=np.int64) for _ in range(3))
    kind = np.empty(nesting.boundary.size, dtype=np.uint8)
    at = np.full(2 * start.size, -1, dtype=np.int64)
    parent = np.full(start.size, -1, dtype=np.int64)
    chain = Chain(vertex, gap, owner, kind, nesting.thread_ptr, at)
    nested = Nested(nesting.boundary, nesting.owner, nesting.parent, nesting.exclusive)
    chain_threads(
        nested, ThreadOps(np.append(number, -1), kind_of, start, end), first_op, chain, parent
    )
    return chain, parent


class RankPart(NamedTuple):
    """What a rank alone determines of its job's graph; its operations are numbered from 0.

    It is made where the rank is linked, and a shift of the rank's clock changes nothing in it.
    """

    # rows, parent, chain: as of ``RankOps``
    rows: Ints
    parent: Ints
    chain: Chain
    waits: list[Edges]  # of all dependencies, but for program order on threads
    limits: list[WaitLimits]  # of the boundaries of threads that wait in these
    device: Edges  # from start to end of device work

    def placed(
        self, trace: Trace, first_op: int, origin: int
    ) -> tuple[RankOps, list[Edges], list[WaitLimits], Edges]:
        """Give the operations their numbers in the job; the part is used up.

        - ``trace``: The rank as it is in the job.
        - ``first_op``: Number of its first operation in the job.
        - ``origin``: The job's origin.
        - Returns RankOps, list of Edges, list of Limits, Edges: The operations; ``waits``,
          ``limits`` and ``device`` between them. O(operations + dependencies).
        """
        start, end = _times(trace, self.rows, origin)
        op_of_row = np.full(trace.nodes.height, -1, dtype=np.int64)
        op_of_row[self.rows] = first_op + np.arange(self.rows.size)
        chain = self.chain._replace(
            vertex=_moved(self.chain.vertex, 2 * first_op),
            owner=_moved(self.chain.owner, first_op),
            # lowered where a thread waits; an executor may give back what cannot be written
            gap=np.require(self.chain.gap, requirements="W"),
        )
        ops = RankOps(
            trace, first_op, self.rows, op_of_row, start, end, _moved(self.parent, first_op), chain
        )
        limits = [one._replace(vertex=_moved(one.vertex, 2 * first_op)) for one in self.limits]
        waits = [_placed(one, first_op) for one in self.waits]
        return ops, waits, limits, _placed(self.device, first_op)


def _placed(edges: Edges, first_op: int) -> Edges:
    return edges._replace(
        src=_moved(edges.src, 2 * first_op), dst=_moved(edges.dst, 2 * first_op),
        op=_moved(edges.op, first_op),
    )  # fmt: skip


def _moved(numbers: Ints, by: int) -> Ints:
    """Return numbers that are larger by so much, but for -1, which stands for none."""
    return np.where(numbers >= 0, numbers + by, -1) if by else numbers


def thread_edges(rank: RankOps, limits: WaitLimits) -> list[Edges]:
    """Connect the boundaries of each thread by the measured time between them, or less.

    ``limits`` are the boundaries before which the thread waits, with the time that is its own
    work. The chain's gaps are lowered to that time; the edges share the arrays of the chain.
    """
    chain = rank.chain
    first = 2 * rank.first_op
    mine = (limits.vertex >= first) & (limits.vertex < first + 2 * rank.rows.size)
    np.minimum.at(chain.gap, rank.at(limits.vertex[mine]), limits.most[mine])
    edges = []
    for t in range(chain.thread_ptr.size - 1):
        low, high = 2 * int(chain.thread_ptr[t]), 2 * int(chain.thread_ptr[t + 1])
        after = slice(low + 1, high)
        edges.append(Edges(
            chain.vertex[low : max(high - 1, low)], chain.vertex[after], chain.gap[after],
            chain.kind[after], chain.owner[after],
        ))  # fmt: skip
    return edges


def make_limits(vertex: Ints, most: Ints | int) -> WaitLimits:
    """Make limits; a scalar ``most`` applies to all of them."""
    return WaitLimits(vertex, np.broadcast_to(np.asarray(most, dtype=np.int64), vertex.shape))


def join_limits(parts: Sequence[WaitLimits]) -> WaitLimits:
    """Concatenate limits, in order."""
    none = np.empty(0, dtype=np.int64)
    columns = zip(WaitLimits(none, none), *parts, strict=True)
    return WaitLimits(*(np.concatenate(column) for column in columns))
