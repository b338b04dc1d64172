"""Times in which a thread runs no operation for long: it sleeps, or waits for something."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nadi.errors import checked
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.trace.arrays import Bools, Ints

_LEAST_NS = 1_000_000  # Python between two operations takes less
_LOADER = r"MultiProcessingDataLoaderIter.*(?:__next__|_next_data|_get_data)"
# calls of Python in which a thread does nothing; other functions compute
_WAITS_IN_PYTHON = (
    r"<(?:built-in )?(?:function|method) (?:sleep|select|poll|acquire|acquire_lock|wait|get|recv|"
    r"accept|control|join)\b|^nadi::wait |^wait in "
)


class ThreadWaits(NamedTuple):
    """Waits of threads; int64 arrays of shape (waits,).

    Attributes
    ----------
    edge
        The edge of the time between operations, or -1: then the wait is the delay of its end.
    vertex
        The moment at which it ends.
    around
        The operation, range or Python function in which the thread waits, or -1.
    next_op
        The operation that the thread begins next, or -1.
    time_ns
        How long it lasts as recorded, whatever changes of the graph have made of it.
    """

    edge: Ints
    vertex: Ints
    around: Ints
    next_op: Ints
    time_ns: Ints

    def chosen(self, which: Bools | Ints) -> ThreadWaits:
        """Return some of the waits."""
        return ThreadWaits(*(column[which] for column in self))


@checked
def thread_waits(graph: EventGraph) -> ThreadWaits:
    """Find the waits of all threads.

    A wait is time between operations, from what a thread does to what another one does after it,
    or a delay of a thread, of a millisecond or more: Python between two operations takes less.
    Where Python functions are recorded, only calls count that wait, such as ``sleep``, however
    short, and so does the time in ``DataLoader`` with worker processes. What a thread waits for on
    another recorded thread or rank is no wait here: the graph has it as a dependency.
    O(operations log operations).
    """
    found = _every_gap(graph)
    category = graph.gather("category", np.maximum(found.around, 0))
    framed = (category == "python").to_numpy() & (found.around >= 0)
    names = graph.named(_WAITS_IN_PYTHON)
    stated = graph.named(_LOADER) | names
    is_stated = stated[found.around] & (found.around >= 0)
    is_long = ~framed & (found.time_ns >= _LEAST_NS)
    chosen = found.chosen(np.flatnonzero(is_stated | is_long))
    return chosen._replace(next_op=next_ops(graph, chosen.vertex))


def _every_gap(graph: EventGraph) -> ThreadWaits:
    """Return all times between operations or threads, and delays of threads that ran before."""
    into = graph.destinations
    own = 2 * graph.num_ops
    is_gap = (graph.edge_kind == EdgeKind.HOST_GAP) & (into < own)
    # where nothing else is waited for, all of the time is the thread's own
    is_only = np.diff(graph.in_ptr)[into] == 1
    lasts = np.where(is_only, graph.time[into] - graph.time[graph.in_src], graph.weight)
    gap = np.flatnonzero(is_gap & (lasts > 0))
    works = (graph.gather("is_cpu") & (graph.gather("comm_type") == "none")).to_numpy()
    entered = np.diff(graph.in_ptr)[:own] > 0
    late = np.flatnonzero(entered & (graph.delay[:own] > 0) & np.repeat(works, 2))
    op = late // 2
    around = np.where(late % 2 == 0, graph.op_parent[op], op)
    none = np.full(late.size, -1, dtype=np.int64)
    edges = (gap, into[gap], graph.edge_op[gap], np.full(gap.size, -1), lasts[gap])
    delays = (none, late, around, none, graph.delay[late])
    parts = zip(edges, _handed_over(graph, works), delays, strict=True)
    return ThreadWaits(*(np.concatenate(three) for three in parts))


def _handed_over(graph: EventGraph, works: Bools) -> tuple[Ints, ...]:
    """Return the times from a thread to what another one does after it: that one may sleep."""
    into = graph.destinations
    launched = np.append(works, False)[np.minimum(into // 2, graph.num_ops)]
    edge = np.flatnonzero((graph.edge_kind == EdgeKind.LAUNCH) & launched & (graph.weight > 0))
    op = into[edge] // 2
    none = np.full(edge.size, -1, dtype=np.int64)
    return edge, into[edge], graph.op_parent[op], none, graph.weight[edge]


# several analyses ask what comes next
_BY_THREAD: WeakKeyDictionary[EventGraph, tuple[Ints, Ints, Ints]] = WeakKeyDictionary()


def next_ops(graph: EventGraph, vertices: Ints) -> Ints:
    """Return the operation that the thread of each vertex begins then or next, or -1; int64.

    O(operations log operations).
    """
    if graph not in _BY_THREAD:
        _BY_THREAD[graph] = _by_thread(graph)
    order, key, code = _BY_THREAD[graph]
    found = vertices // 2
    ends = np.flatnonzero(vertices % 2 == 1)
    op = vertices[ends] // 2
    at = np.searchsorted(key, code[op] * _span(graph) + graph.time[vertices[ends]])
    later = np.append(order, -1)[at]
    same = (later >= 0) & (code[later] == code[op])
    found[ends] = np.where(same, later, -1)
    return found


def _by_thread(graph: EventGraph) -> tuple[Ints, Ints, Ints]:
    """Return operations of threads in order, thread and start of each as one number, and threads.

    int64: shapes (operations of threads,) twice, and (ops,).
    """
    thread = graph.numbers("thread")
    start = graph.time[0 : 2 * graph.num_ops : 2]
    on_host = np.flatnonzero(graph.gather("is_cpu").to_numpy())
    place = graph.op_trace * (int(thread.max(initial=0)) + 2) + thread
    order = on_host[np.lexsort((start[on_host], place[on_host]))]
    _, code = np.unique(place, return_inverse=True)
    return order, code[order] * _span(graph) + np.maximum(start[order], 0), code


def _span(graph: EventGraph) -> int:
    return int(graph.time.max(initial=0)) + 1
