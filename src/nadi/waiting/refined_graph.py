"""Dependencies between threads, where a recording states more than times alone show."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from nadi.graph.event_graph import EdgeKind, EventGraph, make_edges
from nadi.graph.inferred_edges import is_inferred
from nadi.kernels.intervals import expand_ranges
from nadi.model.arrays import Bools, Ints
from nadi.waiting.stated_waits import LOCK_WAIT, WOKEN_BY

__all__ = ["refine_waits"]

_AUTOGRAD = r"^autograd::engine|^gloo:"
_FROM_TIMES = (EdgeKind.LAUNCH, EdgeKind.SYNC, EdgeKind.THREAD)
_SHORTEST_WAIT_NS = 30_000


def refine_waits(graph: EventGraph) -> EventGraph:
    """Return the graph with waits that are stated or certain; all times stay as measured.

    Two kinds of waits between threads are inferred from times alone
    (:mod:`nadi.link.dependencies.thread_handovers`), and here corrected. A thread that was recorded
    to wait for a lock does not hand work to the thread that has it. And a thread that continues
    while gloo's work is still recorded, but after all ranks have entered it, waited for it: gloo
    tells the thread before its own range ends. O((vertices + edges) log edges).
    """
    return _with_early_returns(_without_hand_overs(graph))


def _without_hand_overs(graph: EventGraph) -> EventGraph:
    """Drop inferred dependencies between threads that wait for each other's locks."""
    waits = np.flatnonzero(graph.named(f"^{re.escape(LOCK_WAIT)}"))
    if not waits.size:
        return graph
    told = np.flatnonzero(graph.named(f"^{re.escape(WOKEN_BY)}"))
    thread = graph.numbers("thread")
    by = [int(name[len(WOKEN_BY) :]) for name in graph.names(told).to_list()]
    pairs = set(zip(graph.op_trace[told].tolist(), thread[told].tolist(), by, strict=True))
    working = np.flatnonzero(graph.named(_AUTOGRAD))
    engines = set(zip(graph.op_trace[working].tolist(), thread[working].tolist(), strict=True))
    of_locks = {
        (rank, *ends)
        for rank, a, b in pairs
        for ends in ((a, b), (b, a))
        if (rank, b) not in engines
    }
    edge = np.flatnonzero(np.isin(graph.edge_kind, _FROM_TIMES))
    source, vertex = graph.in_src[edge] // 2, graph.destinations[edge] // 2
    real = (source < graph.num_ops) & (vertex < graph.num_ops)
    edge, source, vertex = edge[real], source[real], vertex[real]
    ends = zip(graph.op_trace[vertex].tolist(), thread[source].tolist(), thread[vertex].tolist(),
               strict=True)  # fmt: skip
    dropped = edge[np.array([one in of_locks for one in ends], dtype=np.bool_)]
    dropped = dropped[is_inferred(graph, dropped)]
    if not dropped.size:
        return graph
    alone = np.unique(graph.destinations[dropped])
    return _explained_by_threads(graph.without_edges(dropped), alone)


def _explained_by_threads(graph: EventGraph, vertices: Ints) -> EventGraph:
    """Take the delays of vertices as work of their threads, where they have an edge of it."""
    which, edge = graph.incoming(vertices)
    chain = _is_chain(graph, edge, vertices[which])
    weight, delay = graph.weight.copy(), graph.delay.copy()
    into = vertices[which[chain]]
    before = graph.time[graph.in_src[edge[chain]]]
    weight[edge[chain]] = np.where(delay[into] > 0, graph.time[into] - before, weight[edge[chain]])
    delay[into] = 0
    return replace(graph, weight=weight, delay=delay)


def _is_chain(graph: EventGraph, edge: Ints, vertex: Ints) -> Bools:
    """Return which edges are time of a thread since its boundary before."""
    of_thread = np.isin(graph.edge_kind[edge], (EdgeKind.HOST_OP, EdgeKind.HOST_GAP))
    found: Bools = of_thread & (graph.in_src[edge] < 2 * graph.num_ops) & (vertex >= 0)
    return found


def _with_early_returns(graph: EventGraph) -> EventGraph:
    """Let gaps of threads end with gloo's work that all ranks had entered."""
    hubs, ends, ops = _transfers(graph)
    if not ops.size:
        return graph
    gap = np.flatnonzero(
        (graph.edge_kind == EdgeKind.HOST_GAP) & (graph.weight >= _SHORTEST_WAIT_NS)
    )  # fmt: skip
    vertex, thread, trace = graph.destinations[gap], graph.numbers("thread"), graph.op_trace
    begin, end = graph.time[graph.in_src[gap]], graph.time[vertex]
    new: list[tuple[int, int, int, int]] = []
    for rank in np.unique(trace[ops]).tolist():
        of_rank = np.flatnonzero(trace[ops] == rank)
        of_rank = of_rank[np.argsort(ends[of_rank], kind="stable")]
        mine = np.flatnonzero(trace[vertex // 2] == rank)
        first = np.searchsorted(ends[of_rank], end[mine], side="left")  # ends no sooner
        which, at = expand_ranges(first, np.minimum(of_rank.size - first, 4))
        work, place = of_rank[at], mine[which]
        entered = graph.time[hubs[work]]
        fits = (begin[place] <= entered) & (entered < end[place])
        fits &= thread[ops[work]] != thread[vertex[place] // 2]
        new += zip(gap[place[fits]].tolist(), hubs[work[fits]].tolist(),
                   vertex[place[fits]].tolist(), ops[work[fits]].tolist(), strict=True)  # fmt: skip
    if not new:
        return graph
    edges, hub, dst, op = (np.array(column, dtype=np.int64) for column in zip(*new, strict=True))
    weight = graph.weight.copy()
    weight[edges] = 0
    more = make_edges(hub, dst, graph.time[dst] - graph.time[hub], EdgeKind.COMMUNICATION, op)
    old = replace(graph, weight=weight).edges
    joined = type(old)(*(np.concatenate(pair) for pair in zip(old, more, strict=True)))
    return graph.with_edges(joined)


def _transfers(graph: EventGraph) -> tuple[Ints, Ints, Ints]:
    """Return the meeting vertex, the end and the operation of each part of a gloo collective."""
    edge = np.flatnonzero(
        (graph.edge_kind == EdgeKind.COMMUNICATION) & (graph.in_src >= 2 * graph.num_ops)
    )  # fmt: skip
    op = graph.edge_op[edge]
    on_host = graph.gather("is_cpu").to_numpy()[op]
    edge, op = edge[on_host], op[on_host]
    return graph.in_src[edge], graph.time[2 * op + 1], op
