"""Edges between ranks: no rank leaves a collective before the ranks that it waits for enter it.

Threads that continue while the collective that they wait for is still recorded.

gloo hands its result to the waiting thread before the range of its own work ends: first the future
completes, on which ``DistributedDataParallel`` waits, then the recorded range. So no work of gloo
ends within the interval of the waiting thread, where
:mod:`nadi.recordings.dependencies.thread_handovers` looks for it. Only the times of all ranks
show such
a wait: the interval contains the moment when the straggler entered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.graph.edges.rank_vertices import RankOps, WaitLimits, join_limits, make_limits
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, join_edges, make_edges
from nadi.kernels.sequences import expand_ranges
from nadi.recordings.dependencies.device_calls import communication_calls, launcher_rows
from nadi.recordings.dependencies.thread_handovers import operators_that_communicate
from nadi.trace.arrays import Bools, Ints
from nadi.trace.collectives import FROM_ROOT, TO_ROOT
from nadi.trace.trace import Job

_SHORTEST_WAIT_NS = 30_000


class HostWork(NamedTuple):
    """Collectives on threads of one rank; arrays int64, shape (collectives,)."""

    op: Ints  # operations of gloo's threads
    end: Ints  # ns: when each ends
    hub: Ints  # the vertex of the moment when the straggler entered
    entered: Ints  # ns: that moment

    def chosen(self, which: Ints | Bools) -> HostWork:
        """Return some of them, by position or mask."""
        return HostWork(*(column[which] for column in self))


def early_returns(rank: RankOps, work: HostWork, waited: Ints) -> tuple[Edges, WaitLimits]:
    """Let intervals of threads wait for collectives that end after them.

    An interval of 30 us or more in which a thread runs no operation, but for calls of communication
    and operators that contain them, waits for a collective that the thread issued if it begins
    before the straggler enters and ends between then and the end of the collective. All of its time
    is taken as waiting. Where the issuing call is not recorded, all threads that issue some may
    wait.
    O((boundaries + collectives) log boundaries).

    - ``work``: Those that wait for other ranks, and end after the straggler has entered.
    - ``waited``: int64: vertices whose waits are known already.
    - Returns Edges, Limits: From the moments of entry to the ends of intervals.
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

    - Returns bool, shape (edges,): They lead from the moment when all ranks have entered to a
      boundary outside of the operation that they belong to. O(edges).
    """
    into = graph.destinations // 2
    met = (graph.in_src >= 2 * graph.num_ops) & (graph.edge_op >= 0) & (into < graph.num_ops)
    found = np.zeros(graph.num_edges, dtype=np.bool_)
    edge = np.flatnonzero(met)
    op, into = graph.edge_op[edge], into[edge]
    found[edge] = (into != op) & (graph.op_parent[into] != op)
    return found


@dataclass(frozen=True)
class _Meetings:
    """The collectives of a job in its graph."""

    # int64 ns, shape (collectives,): when the straggler entered, among the ranks that others wait
    # for. These are the times of the collectives' vertices, the last ones of the graph.
    entered: Ints
    # edges, limits: edges and limits from and to these vertices
    edges: Edges
    limits: WaitLimits
    waiting: Ints  # int64: the device operations whose duration consists of wait time and transfer


@dataclass(frozen=True)
class _Parts:
    """The part of each rank in each collective; arrays of shape (parts,), by collective."""

    collective: Ints  # from 0
    rank: Ints  # position in the job
    op: Ints
    call: Ints  # the call around an operation on a thread, or the operation itself
    start: Ints  # when its rank enters: with the call
    end: Ints
    on_thread: Bools
    arrives: Bools  # whether others wait for it
    leaves: Bools  # whether it waits for others


def meet(job: Job, ranks: Sequence[RankOps], first_vertex: int, waited: Ints) -> _Meetings:
    """Make every rank of a collective end after all ranks that it waits for have entered.

    A rank that left before the straggler entered did not wait for it (clocks disagree) and keeps
    its own duration. Threads that continue before a collective on another thread ends wait for it
    as :func:`nadi.graph.edges.collective_edges.early_returns` finds. O(parts log parts).

    - ``first_vertex``: The vertex of the first collective.
    - ``waited``: int64: vertices of threads whose waits are known already.
    """
    parts = _parts(job, ranks)
    count = int(parts.collective.max(initial=-1)) + 1
    entered = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(entered, parts.collective[parts.arrives], parts.start[parts.arrives])
    hub = first_vertex + parts.collective
    last = entered[parts.collective]
    arriving = np.flatnonzero(parts.arrives)
    leaving = np.flatnonzero(parts.leaves & (parts.end > last))
    on_device = leaving[~parts.on_thread[leaving]]
    vertex = 2 * parts.op + 1
    vertex[parts.on_thread] = -1
    early = []
    on_thread = leaving[parts.on_thread[leaving]]
    for rank, of_rank in zip(ranks, _by_rank(parts.rank[on_thread], len(ranks)), strict=True):
        mine = on_thread[of_rank]
        vertex[mine] = _ends_of_waits(rank, parts.op[mine], last[mine])
        work = HostWork(parts.op[mine], parts.end[mine], hub[mine], last[mine])
        early.append(early_returns(rank, work, waited))
    leaving = leaving[vertex[leaving] >= 0]
    reached = _times(ranks, parts.rank[leaving], vertex[leaving])
    edges = join_edges([
        make_edges(
            2 * parts.call[arriving], hub[arriving], 0, EdgeKind.ARRIVAL, parts.op[arriving]
        ),
        make_edges(
            hub[leaving], vertex[leaving], reached - last[leaving], EdgeKind.COMMUNICATION,
            parts.op[leaving],
        ),
        *(found for found, _ in early),
    ])  # fmt: skip
    threads = make_limits(vertex[leaving[parts.on_thread[leaving]]], 0)
    limits = join_limits([threads, *(found for _, found in early)])
    return _Meetings(entered, edges, limits, parts.op[on_device])


def _parts(job: Job, ranks: Sequence[RankOps]) -> _Parts:
    number_of = {rank.trace.rank: number for number, rank in enumerate(ranks)}
    matches = job.matches.sort("collective", maintain_order=True)
    rank = matches["rank"].replace_strict(number_of, return_dtype=pl.Int64).to_numpy()
    node = matches["node"].to_numpy()
    _, collective = np.unique(matches["collective"].to_numpy(), return_inverse=True)
    op, call, start, end = np.zeros((4, rank.size), dtype=np.int64)
    on_thread = np.zeros(rank.size, dtype=np.bool_)
    nodes = []
    by_rank = _by_rank(rank, len(ranks))
    for one, mine in zip(ranks, by_rank, strict=True):
        op[mine], _, end[mine] = one.times(node[mine])
        call[mine] = _calls(one, op[mine])
        start[mine] = one.time_of(2 * call[mine])
        on_thread[mine] = one.trace.nodes["is_cpu"].to_numpy()[node[mine]]
        nodes.append(one.trace.nodes.select("comm_type", "src", "dst")[node[mine]])
    in_order = np.argsort(np.concatenate(by_rank))
    said = pl.concat(nodes)[in_order]
    own_rank = np.array([one.trace.rank for one in ranks])[rank]
    arrives, leaves = _roles(said, own_rank, on_thread)
    return _Parts(collective, rank, op, call, start, end, on_thread, arrives, leaves)


def _calls(rank: RankOps, op: Ints) -> Ints:
    """Return the call of communication around each operation, or the operation itself.

    gloo posts a send or receive before the range of its work begins.
    """
    calls = communication_calls(rank.trace)[rank.rows]
    around = rank.parent[op - rank.first_op]
    return np.where((around >= 0) & calls[np.maximum(around - rank.first_op, 0)], around, op)


def _roles(said: pl.DataFrame, own_rank: Ints, on_thread: Bools) -> tuple[Bools, Bools]:
    """Return which parts others wait for, and which wait for others.

    On threads (gloo) all ranks wait for a root that sends, and a root that receives waits for all
    ranks. A send ends when it has been received, and on devices (NCCL) data passes through all
    ranks: there all wait for each other.
    """
    comm_type = said["comm_type"]
    src, dst = said["src"].to_numpy(), said["dst"].to_numpy()
    from_root = comm_type.is_in(FROM_ROOT).to_numpy() & (src >= 0) & on_thread
    to_root = comm_type.is_in(TO_ROOT).to_numpy() & (dst >= 0) & on_thread
    arrives = ~(from_root & (own_rank != src))
    leaves = ~(from_root & (own_rank == src)) & ~(to_root & (own_rank != dst))
    return arrives, leaves


def _ends_of_waits(rank: RankOps, op: Ints, until: Ints) -> Ints:
    """Find where operations on threads wait for another rank.

    - Returns int64, shape (ops,): The vertex that ends the longest interval of self time of each
      operation, among the intervals that end after ``until``, or -1. This interval is assumed to be
      the wait.
    """
    found = np.full(op.size, -1, dtype=np.int64)
    if op.size == 0:
        return found
    chain = rank.chain
    first, last = rank.at(2 * op) + 1, rank.at(2 * op + 1)
    which, at = expand_ranges(first, last - first + 1)
    own = (chain.owner[at] == op[which]) & (rank.time_of(chain.vertex[at]) > until[which])
    which, at = which[own], at[own]
    order = np.lexsort((at, -chain.gap[at], which))  # of equal intervals the first
    chosen = order[np.append(True, np.diff(which[order]) != 0)[: order.size]]
    found[which[chosen]] = chain.vertex[at[chosen]]
    return found


def _by_rank(rank: Ints, count: int) -> list[Ints]:
    """Return the positions of each of so many ranks, ascending."""
    order = np.argsort(rank, kind="stable")
    return np.split(order, np.searchsorted(rank, np.arange(1, count), sorter=order))


def _times(ranks: Sequence[RankOps], rank: Ints, vertex: Ints) -> Ints:
    time = np.zeros(vertex.size, dtype=np.int64)
    for one, mine in zip(ranks, _by_rank(rank, len(ranks)), strict=True):
        time[mine] = one.time_of(vertex[mine])
    return time
