"""Cut the threads of a job into a chain of pieces of work.

In an event graph operations are nested. A simulator has no nesting: a node runs from its start to
its end, and has only self time. So a thread becomes a chain of pieces, each of which is self time
of one operation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nadi.graph.event_graph import EventGraph
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import LABELS

__all__ = ["Boundaries", "Pieces", "cut_threads", "find_boundaries"]


@dataclass(frozen=True, eq=False)
class Boundaries:
    """Starts and ends of operations of all ranks, thread by thread in order of time.

    The interval of a boundary is the time on its thread since the boundary before it.

    Attributes
    ----------
    vertex
        int64, shape (boundaries,): the vertex of the event graph.
    thread
        int64, shape (boundaries,): number of the thread, counted over all ranks.
    owner
        int64, shape (boundaries,): the operation that ran in the interval, or -1.
    time, before
        int64 ns, shape (boundaries,): the time of the boundary, and of the one before it on the
        thread; for the first boundary, its own time.
    is_first
        bool, shape (boundaries,): whether it is the first of its thread.
    at
        int64, shape (vertices,): the boundary of each vertex, or -1.
    """

    vertex: Ints
    thread: Ints
    owner: Ints
    time: Ints
    before: Ints
    is_first: Bools
    at: Ints


def find_boundaries(graph: EventGraph) -> Boundaries:
    """Return the boundaries of all threads of a job. O(operations log operations)."""
    vertices, threads, owners = [], [], []
    num_threads = first_op = 0
    for number, trace in enumerate(graph.job.traces):
        nesting = nest(trace)
        rows = graph.op_row[graph.op_trace == number]
        op = first_op + np.searchsorted(rows, nesting.rows)
        vertices.append(2 * op[nesting.boundary // 2] + nesting.boundary % 2)
        size = 2 * np.diff(nesting.thread_ptr)
        threads.append(num_threads + np.repeat(np.arange(size.size), size))
        owners.append(np.where(nesting.owner >= 0, op[nesting.owner], -1))
        num_threads += size.size
        first_op += rows.size
    vertex, thread = np.concatenate(vertices), np.concatenate(threads)
    time = graph.time[vertex]
    is_first = np.diff(thread, prepend=-1) != 0
    at = np.full(graph.num_vertices, -1, dtype=np.int64)
    at[vertex] = np.arange(vertex.size)
    before = np.where(is_first, time, np.roll(time, 1))
    return Boundaries(vertex, thread, np.concatenate(owners), time, before, is_first, at)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of threads, in order of thread and time.

    Attributes
    ----------
    op
        int64, shape (pieces,): the operation whose self time it is; -1 for idle time.
    is_comm
        bool, shape (pieces,): whether it is a complete communication operation.
    first
        int64, shape (pieces,): the boundary that ends its first interval.
    of_boundary
        int64, shape (boundaries,): the piece that the boundary's interval belongs to.
    last_at
        int64, shape (boundaries,): the last piece that has started by a boundary on its thread. If
        something outside the thread waits for the boundary, that piece ends there.
    """

    op: Ints
    is_comm: Bools
    first: Ints
    of_boundary: Ints
    last_at: Ints


def cut_threads(
    graph: EventGraph, boundaries: Boundaries, waits: Bools, waited_for: Bools, comm_ops: Ints
) -> Pieces:
    """Cut threads at boundaries with dependencies from or to something outside of the thread.

    Between two such boundaries the order of a thread's work has no effect outside of it. There an
    operation becomes one piece with all of its self time, placed where the operation first ran.
    Time of annotations and idle time stay in place.

    Parameters
    ----------
    waits, waited_for
        bool, shape (boundaries,): whether the boundary depends on something outside its thread;
        whether something outside its thread depends on it.
    comm_ops
        int64: communication on threads, none nested in another. Each becomes one piece with all
        operations nested in it, and with the idle time of its thread before it, which is wait
        time.
    """
    size = boundaries.vertex.size
    inside, comm_of = _communication(boundaries, comm_ops)
    alone = waits & (comm_of < 0)
    cut = boundaries.is_first | alone
    cut[1:] |= alone[:-1] | (waited_for[:-1] & ~inside[:-1])
    cut[1:] |= comm_of[1:] != comm_of[:-1]
    interval = np.cumsum(cut)
    owner = boundaries.owner
    is_label = graph.gather("category").is_in(LABELS).to_numpy()
    in_place = (owner < 0) | is_label[owner]
    part = np.where(in_place, graph.num_ops + np.arange(size), owner)
    part = np.where(comm_of >= 0, comm_of, part)
    _, first, piece = np.unique(
        interval * (graph.num_ops + size) + part, return_index=True, return_inverse=True
    )
    by_time = np.argsort(first)
    number = np.empty(first.size, dtype=np.int64)
    number[by_time] = np.arange(first.size)
    first = first[by_time]
    of_boundary = number[piece]
    op = np.where(comm_of >= 0, comm_of, owner)[first]
    return Pieces(op, comm_of[first] >= 0, first, of_boundary, np.maximum.accumulate(of_boundary))


def _communication(boundaries: Boundaries, comm_ops: Ints) -> tuple[Bools, Ints]:
    """Return whether each boundary is inside communication, and whose interval it ends."""
    size = boundaries.vertex.size
    inside = np.zeros(size, dtype=np.bool_)
    comm_of = np.full(size, -1, dtype=np.int64)
    for op in comm_ops.tolist():
        start, end = boundaries.at[2 * op], boundaries.at[2 * op + 1]
        inside[start:end] = True
        idle = boundaries.owner[start] < 0 and comm_of[start] < 0
        comm_of[start + (not idle) : end + 1] = op
    return inside, comm_of
