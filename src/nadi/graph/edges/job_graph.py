"""Build the event graph of a job: threads, launches, streams, waits and collectives as edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nadi.errors import NadiError, check_kind, checked
from nadi.forks import refuse_in_fork
from nadi.graph.edges.collective_edges import meet
from nadi.graph.edges.edge_list import Limits, join_limits
from nadi.graph.edges.rank_vertices import RankOps, rank_ops, thread_edges
from nadi.graph.edges.waiting_edges import device_edges, waiting_edges
from nadi.graph.event_graph import Edges, EventGraph
from nadi.graph.overheads import Overheads, TraceDeps, overheads_of
from nadi.trace.arrays import Ints
from nadi.trace.trace import Job

__all__ = ["build_graph"]


@checked
def build_graph(job: Job, overheads: Sequence[Overheads] | None = None) -> EventGraph:
    """Build the graph of a job. O(nodes log nodes + deps).

    Parameters
    ----------
    overheads
        The typical overheads of each rank, in the order of ``job.traces``; by default estimated
        from each rank's own trace.

    Returns
    -------
    EventGraph
        Operations are in order of trace, then row.
    """
    check_kind("job", job, Job, "read one with nadi.load_job")
    refuse_in_fork()
    operations, time, edges = _vertices_and_edges(job, overheads)
    if any(min(part.src.min(initial=0), part.dst.min(initial=0)) < 0 for part in edges):
        what = "a dependency refers to an unknown operation"
        raise NadiError("", what, "please report this recording")
    return EventGraph.build(job, *operations, time, edges)


def _vertices_and_edges(
    job: Job, overheads: Sequence[Overheads] | None
) -> tuple[tuple[Ints, Ints, Ints], Ints, list[Edges]]:
    """Return the operations (trace, row and parent of each), the times of vertices, and all edges.

    The intermediate tables of threads take more memory than the graph; they are freed on return.
    """
    ranks: list[RankOps] = []
    waiting: list[tuple[list[Edges], list[Limits]]] = []
    for number, trace in enumerate(job.traces):
        deps = TraceDeps(trace)
        typical = overheads_of(deps) if overheads is None else overheads[number]
        rank = rank_ops(trace, sum(rank.rows.size for rank in ranks), job.origin)
        ranks.append(rank)
        waiting.append(waiting_edges(rank, deps, typical))
        del deps
    num_vertices = 2 * sum(rank.rows.size for rank in ranks)
    known = join_limits([one for _, of_rank in waiting for one in of_rank])
    meetings = meet(job, ranks, num_vertices, known.vertex)
    edges = [meetings.edges]
    for rank, (more_edges, _) in zip(ranks, waiting, strict=True):
        edges += [*more_edges, device_edges(rank, meetings.waiting)]
    joined = join_limits([known, meetings.limits])
    for rank in ranks:
        edges += thread_edges(rank, joined)
    time = np.empty(num_vertices + meetings.entered.size, dtype=np.int64)
    time[num_vertices:] = meetings.entered
    for rank in ranks:
        own = time[2 * rank.first_op : 2 * (rank.first_op + rank.rows.size)]
        own[0::2], own[1::2] = rank.start, rank.end
    return _operations(ranks), time, edges


def _operations(ranks: Sequence[RankOps]) -> tuple[Ints, Ints, Ints]:
    """Concatenate the operations of ranks: trace, row and parent of each."""
    op_trace = np.repeat(np.arange(len(ranks)), [rank.rows.size for rank in ranks])
    return op_trace, _one([rank.rows for rank in ranks]), _one([rank.parent for rank in ranks])


def _one(parts: Sequence[Ints]) -> Ints:
    """Concatenate arrays; a single array is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype=np.int64), *parts])
