"""Edges between ranks: no rank leaves a collective before the ranks that it waits for enter it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.graph.edges.early_returns import HostWork, early_returns
from nadi.graph.edges.edge_list import Limits, join_edges, join_limits, make_limits
from nadi.graph.edges.rank_vertices import RankOps
from nadi.graph.event_graph import EdgeKind, Edges, make_edges
from nadi.kernels.sequences import expand_ranges
from nadi.recordings.dependencies.launch_correlation import communication_calls
from nadi.trace.arrays import Bools, Ints
from nadi.trace.trace import Job

__all__ = ["meet"]


@dataclass(frozen=True)
class _Meetings:
    """The collectives of a job in its graph.

    Attributes
    ----------
    entered
        int64 ns, shape (collectives,): when the straggler entered, among the ranks that others
        wait for. These are the times of the collectives' vertices, the last ones of the graph.
    edges, limits
        Edges and limits from and to these vertices.
    waiting
        int64: the device operations whose duration consists of wait time and transfer.
    """

    entered: Ints
    edges: Edges
    limits: Limits
    waiting: Ints


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
    as :func:`nadi.graph.edges.early_returns.early_returns` finds. O(parts log parts).

    Parameters
    ----------
    first_vertex
        The vertex of the first collective.
    waited
        int64: vertices of threads whose waits are known already.
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
    for number, rank in enumerate(ranks):
        mine = leaving[parts.on_thread[leaving] & (parts.rank[leaving] == number)]
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
    for number, one in enumerate(ranks):
        mine = np.flatnonzero(rank == number)
        op[mine], _, end[mine] = one.times(node[mine])
        call[mine] = _calls(one, op[mine])
        start[mine] = one.time_of(2 * call[mine])
        on_thread[mine] = one.trace.nodes["is_cpu"].to_numpy()[node[mine]]
        nodes.append(one.trace.nodes.select("comm_type", "src", "dst")[node[mine]])
    in_order = np.argsort(np.argsort(rank, kind="stable"), kind="stable")
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
    from_root = comm_type.is_in(["broadcast", "scatter"]).to_numpy() & (src >= 0) & on_thread
    to_root = comm_type.is_in(["reduce", "gather"]).to_numpy() & (dst >= 0) & on_thread
    arrives = ~(from_root & (own_rank != src))
    leaves = ~(from_root & (own_rank == src)) & ~(to_root & (own_rank != dst))
    return arrives, leaves


def _ends_of_waits(rank: RankOps, op: Ints, until: Ints) -> Ints:
    """Find where operations on threads wait for another rank.

    Returns
    -------
    int64, shape (ops,)
        The vertex that ends the longest interval of self time of each operation, among the
        intervals that end after ``until``, or -1. This interval is assumed to be the wait.
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


def _times(ranks: Sequence[RankOps], rank: Ints, vertex: Ints) -> Ints:
    time = np.zeros(vertex.size, dtype=np.int64)
    for number, one in enumerate(ranks):
        mine = np.flatnonzero(rank == number)
        time[mine] = one.time_of(vertex[mine])
    return time
