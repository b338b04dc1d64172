"""Threads that continue while the collective that they wait for is still recorded.

gloo hands its result to the waiting thread before the range of its own work ends: first the future
completes, on which ``DistributedDataParallel`` waits, then the recorded range. So no work of gloo
ends within the interval of the waiting thread, where
:mod:`nadi.recordings.dependencies.thread_handovers` looks for it. Only the times of all ranks
show such
a wait: the interval contains the moment when the straggler entered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.graph.edges.edge_list import Limits, join_edges, make_limits
from nadi.graph.edges.rank_vertices import RankOps
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.recordings.dependencies.launch_correlation import communication_calls, launcher_rows
from nadi.recordings.dependencies.thread_handovers import operators_that_communicate
from nadi.trace.arrays import Bools, Ints

__all__ = ["HostWork", "early_returns", "returns_early"]

_SHORTEST_WAIT_NS = 30_000


class HostWork(NamedTuple):
    """Collectives on threads of one rank; arrays int64, shape (collectives,).

    Attributes
    ----------
    op
        Operations of gloo's threads.
    end
        ns: when each ends.
    hub
        The vertex of the moment when the straggler entered.
    entered
        ns: that moment.
    """

    op: Ints
    end: Ints
    hub: Ints
    entered: Ints

    def chosen(self, which: Ints | Bools) -> HostWork:
        """Return some of them, by position or mask."""
        return HostWork(*(column[which] for column in self))


def early_returns(rank: RankOps, work: HostWork, waited: Ints) -> tuple[Edges, Limits]:
    """Let intervals of threads wait for collectives that end after them.

    An interval of 30 us or more in which a thread runs no operation, but for calls of communication
    and operators that contain them, waits for a collective that the thread issued if it begins
    before the straggler enters and ends between then and the end of the collective. All of its time
    is taken as waiting. Where the issuing call is not recorded, all threads that issue some may
    wait.
    O((boundaries + collectives) log boundaries).

    Parameters
    ----------
    work
        Those that wait for other ranks, and end after the straggler has entered.
    waited
        int64: vertices whose waits are known already.

    Returns
    -------
    Edges, Limits
        From the moments of entry to the ends of intervals.
    """
    none = np.empty(0, dtype=np.int64)
    found = [make_edges(none, none, none, EdgeKind.COMMUNICATION, none)]
    if work.op.size:
        thread = rank.trace.column("thread")
        caller = launcher_rows(rank.trace)[rank.rows[work.op - rank.first_op]]
        called_by = np.where(caller >= 0, thread[caller], -1)
        own = thread[rank.rows[work.op - rank.first_op]]
        calls = communication_calls(rank.trace)
        around = operators_that_communicate(rank.trace, rank.trace.column("parent"))
        idle = _idle_intervals(rank, calls | around, waited)
        for number in np.unique(thread[calls]).tolist():
            mine = np.isin(called_by, (number, -1)) & (own != number)
            found.append(_of_thread(rank, number, work.chosen(mine), idle))
    edges = join_edges(found)
    return edges, make_limits(edges.dst, 0)


def _idle_intervals(rank: RankOps, calls: Bools, waited: Ints) -> Bools:
    """Return before which boundaries a thread does nothing, or waits in a call, for 30 us."""
    chain = rank.chain
    waits = np.append(calls[rank.rows], False)[np.maximum(chain.owner - rank.first_op, -1)]
    idle: Bools = (chain.kind == EdgeKind.HOST_GAP) | waits
    idle &= (chain.gap >= _SHORTEST_WAIT_NS) & ~np.isin(chain.vertex, waited)
    return idle


def _of_thread(rank: RankOps, thread: int, work: HostWork, idle: Bools) -> Edges:
    """Return the edges into the ends of the intervals of one thread."""
    chain, ptr = rank.chain, 2 * rank.chain.thread_ptr
    first = chain.vertex[ptr[:-1]] // 2 - rank.first_op
    number = np.flatnonzero(rank.trace.column("thread")[rank.rows[first]] == thread)
    within = slice(*ptr[[number[0], number[0] + 1]].tolist()) if number.size else slice(0, 0)
    at = within.start + np.flatnonzero(idle[within])
    end = rank.time_of(chain.vertex[at])
    begin = end - chain.gap[at]
    place = np.searchsorted(end, work.entered, side="right")
    inside = np.flatnonzero(place < at.size)
    place, work = place[inside], work.chosen(inside)
    fits = (begin[place] <= work.entered) & (end[place] <= work.end)
    place, work = place[fits], work.chosen(fits)
    weight = end[place] - work.entered
    return make_edges(work.hub, chain.vertex[at[place]], weight, EdgeKind.COMMUNICATION, work.op)


def returns_early(graph: EventGraph) -> Bools:
    """Return which edges let another thread continue before a collective's own range ends.

    Returns
    -------
    bool, shape (edges,)
        They lead from the moment when all ranks have entered to a boundary outside of the
        operation that they belong to. O(edges).
    """
    into = graph.destinations // 2
    met = (graph.in_src >= 2 * graph.num_ops) & (graph.edge_op >= 0) & (into < graph.num_ops)
    found = np.zeros(graph.num_edges, dtype=np.bool_)
    edge = np.flatnonzero(met)
    op, into = graph.edge_op[edge], into[edge]
    found[edge] = (into != op) & (graph.op_parent[into] != op)
    return found
