"""From a job to its event graph: threads, launches, streams, waits and collectives as edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nadi.errors import NadiError
from nadi.graph import Edges, EventGraph
from nadi.graph_builder.collectives import meet
from nadi.graph_builder.edges import join_edges, join_limits
from nadi.graph_builder.ranks import RankOps, rank_ops, thread_edges
from nadi.graph_builder.waiting import device_edges, waiting_edges
from nadi.overheads import Overheads, estimate_overheads
from nadi.trace import Job

__all__ = ["build_graph"]

_Ints = npt.NDArray[np.int64]


def build_graph(job: Job, overheads: Sequence[Overheads] | None = None) -> EventGraph:
    """Build the graph of a job. O(nodes log nodes + deps).

    Parameters
    ----------
    overheads
        What is typical of each rank, in the order of ``job.traces``; by default estimated
        from each rank's own trace.

    Returns
    -------
    EventGraph
        Its operations are in order of trace, then row.
    """
    if overheads is None:
        overheads = [estimate_overheads(trace) for trace in job.traces]
    operations, time, edges = _vertices_and_edges(job, overheads)
    if min(edges.src.min(initial=0), edges.dst.min(initial=0)) < 0:
        raise NadiError("", "a dependency names no operation", "please report this recording")
    return EventGraph.build(job, *operations, time, edges)


def _vertices_and_edges(
    job: Job, overheads: Sequence[Overheads]
) -> tuple[tuple[_Ints, _Ints, _Ints], _Ints, Edges]:
    """Find the operations (trace, row and parent of each), the time of each vertex, and all edges.

    What is known of threads in between takes more memory than the graph, and ends here.
    """
    ranks: list[RankOps] = []
    for trace in job.traces:
        ranks.append(rank_ops(trace, sum(rank.rows.size for rank in ranks), job.origin))
    times = [np.stack([rank.start, rank.end], axis=1).ravel() for rank in ranks]
    time = np.concatenate([np.empty(0, dtype=np.int64), *times])
    meetings = meet(job, ranks, time.size)
    edges, limits = [meetings.edges], [meetings.limits]
    for rank, typical in zip(ranks, overheads, strict=True):
        more_edges, more_limits = waiting_edges(rank, typical)
        edges += [*more_edges, device_edges(rank, meetings.waiting)]
        limits += more_limits
    joined = join_limits(limits)
    edges += [thread_edges(rank, joined) for rank in ranks]
    return _operations(ranks), np.concatenate([time, meetings.entered]), join_edges(edges)


def _operations(ranks: Sequence[RankOps]) -> tuple[_Ints, _Ints, _Ints]:
    """Put the operations of ranks together: trace, row and parent of each."""
    none = np.empty(0, dtype=np.int64)
    op_trace = np.repeat(np.arange(len(ranks)), [rank.rows.size for rank in ranks])
    op_row = np.concatenate([none, *(rank.rows for rank in ranks)])
    op_parent = np.concatenate([none, *(rank.parent for rank in ranks)])
    return op_trace, op_row, op_parent
