"""From a job to its event graph: threads, launches, streams, waits and collectives as edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nadi.errors import NadiError
from nadi.graph import EventGraph
from nadi.graph_builder.collectives import meet
from nadi.graph_builder.edges import Edges, join_edges, join_limits
from nadi.graph_builder.ranks import RankOps, rank_ops, thread_edges
from nadi.graph_builder.waiting import device_edges, waiting_edges
from nadi.kernels.groups import group_rows
from nadi.kernels.paths import topological_order
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
    return _finish(job, ranks, join_edges(edges), np.concatenate([time, meetings.entered]))


def _describe_cycle(ranks: Sequence[RankOps], vertex: int) -> str:
    op = vertex // 2
    for rank in ranks:
        if rank.first_op <= op < rank.first_op + rank.rows.size:
            name = rank.trace.nodes["name"][int(rank.rows[op - rank.first_op])]
            return f"dependencies form a cycle through {name!r} of rank {rank.trace.rank}"
    return "dependencies form a cycle through a collective"


def _finish(job: Job, ranks: Sequence[RankOps], edges: Edges, time: _Ints) -> EventGraph:
    """Sort the edges by destination, order the vertices, and name what is left as delay."""
    src, dst, weight, kind, edge_op = edges
    if ((src < 0) | (src >= time.size) | (dst < 0) | (dst >= time.size)).any():
        raise NadiError("", "a dependency names no operation", "please report this recording")
    in_ptr = np.zeros(time.size + 1, dtype=np.int64)
    edge = np.empty(src.size, dtype=np.int64)
    group_rows(dst, in_ptr, edge)
    in_src, weight = src[edge], weight[edge]
    order = np.empty(time.size, dtype=np.int64)
    on_cycle = topological_order(in_ptr, in_src, order)
    if on_cycle >= 0:
        raise NadiError("", _describe_cycle(ranks, on_cycle), "please report this recording")
    delay = time.copy()
    entered = np.flatnonzero(np.diff(in_ptr))
    if entered.size:
        asked = np.maximum.reduceat(time[in_src] + weight, in_ptr[entered])
        delay[entered] -= asked
    none = np.empty(0, dtype=np.int64)
    return EventGraph(
        job=job,
        op_trace=np.repeat(np.arange(len(ranks)), [rank.rows.size for rank in ranks]),
        op_row=np.concatenate([none, *(rank.rows for rank in ranks)]),
        op_parent=np.concatenate([none, *(rank.parent for rank in ranks)]),
        time=time,
        delay=delay,
        in_ptr=in_ptr,
        in_src=in_src,
        weight=weight,
        edge_op=edge_op[edge],
        edge_kind=kind[edge].astype(np.uint8),
        order=order,
    )
