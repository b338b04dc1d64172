"""Stretches of time of threads and streams, divided into work, latency and waits.

Waiting time is redistributed in a cascade, over what the awaited actor waits for itself.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, inner, kernel

_RUN, _RUNNABLE, _WAIT = 0, 1, 2  # as SegmentKind
_NONE = -1


class SpanColumns(NamedTuple):
    """Stretches of time of actors that end at a vertex; int64, shape (spans,).

    The actor may work from ``start`` for ``own`` ns (edge ``edge``); the rest is divided by what
    the vertex waits for.
    """

    actor: np.ndarray
    vertex: np.ndarray
    start: np.ndarray
    own: np.ndarray
    edge: np.ndarray


class ChainGraph(NamedTuple):
    """The columns of an event graph that tell how threads go on; int64 unless said otherwise."""

    # time, in_ptr, in_src, weight: as of ``EventGraph``
    time: np.ndarray
    in_ptr: np.ndarray
    in_src: np.ndarray
    weight: np.ndarray
    # bool, shape (edges,): whether an edge may be time of a thread since its boundary before
    on_thread: np.ndarray
    of_op: np.ndarray  # shape (ops,): the actor of each operation
    on_host: np.ndarray  # bool, shape (ops,)


@kernel
def spans_of_threads(graph: ChainGraph, first: int, end: int, spans: SpanColumns) -> int:
    """Give the stretches between the boundaries of threads that end at some operations.

    - ``graph``: The graph.
    - ``first``, ``end``: Which operations.
    - ``spans``: Filled, as far as there is room.
    - Returns: How many there are. O(edges).
    """
    graph, spans = borrowed(graph), borrowed(spans)
    num_ops, place = graph.of_op.size, 0
    for v in range(2 * first, 2 * end):
        if not graph.on_host[v // 2]:
            continue
        actor = graph.of_op[v // 2]
        for e in range(graph.in_ptr[v], graph.in_ptr[v + 1]):
            before = graph.in_src[e] // 2
            if not graph.on_thread[e] or before >= num_ops or graph.of_op[before] != actor:
                continue
            if place < spans.vertex.size:
                spans.actor[place], spans.vertex[place] = actor, v
                spans.start[place], spans.own[place] = graph.time[graph.in_src[e]], graph.weight[e]
                spans.edge[place] = e
            place += 1
    return place


class SpanGraph(NamedTuple):
    """What is known of the graph; int64 unless said otherwise."""

    # time, delay, bound_by (int32): shape (vertices,): of the replay
    time: np.ndarray
    delay: np.ndarray
    bound_by: np.ndarray
    # in_src, edge_op: int32, shape (edges,)
    in_src: np.ndarray
    edge_op: np.ndarray
    # of_op, channel: shape (ops,): the actor of each operation, and the transfers that it is part
    # of, or -1
    of_op: np.ndarray
    channel: np.ndarray
    transfers: np.ndarray  # bool, shape (edges,): whether an edge is a transfer
    on_host: np.ndarray  # bool, shape (ops,)


class SegmentColumns(NamedTuple):
    """Segments, as :class:`~nadi.bottlenecks.waiting.timelines.Segments`; int64, (segments,)."""

    actor: np.ndarray
    kind: np.ndarray
    start: np.ndarray
    end: np.ndarray
    target: np.ndarray
    edge: np.ndarray


@inner
def _put(
    made: SegmentColumns, place: int, actor: int, kind: int, start: int, end: int,
    target: int | np.int64, edge: int,
) -> int:  # fmt: skip
    """Write a segment unless it is empty, or there is no room; gives the next place."""
    if end <= start:
        return place
    if place < made.actor.size:
        made.actor[place], made.kind[place], made.target[place] = actor, kind, target
        made.start[place], made.end[place], made.edge[place] = start, end, edge
    return place + 1


@kernel
def divide_spans(
    spans: SpanColumns, count: int, graph: SpanGraph, unexplained: int, made: SegmentColumns,
    place: int,
) -> int:  # fmt: skip
    """Divide stretches by the edge that determined the moment at which each ends.

    - ``spans``, ``count``: The stretches, and how many they are.
    - ``graph``: The graph and its replay as measured.
    - ``unexplained``: The actor of waits that no edge explains.
    - ``made``, ``place``: Filled from ``place`` on, where there are so many segments before, as far
      as there is room.
    - Returns: How many segments there are then. O(spans).
    """
    spans, graph, made = borrowed(spans), borrowed(graph), borrowed(made)
    num_ops, num_edges = graph.of_op.size, graph.in_src.size
    for i in range(count):
        actor, v, start = spans.actor[i], spans.vertex[i], spans.start[i]
        until, bound = graph.time[v], graph.bound_by[v]
        rest = min(start + spans.own[i], until)
        told, explained = rest, rest
        awaited, transfer, pure = graph.of_op[v // 2], np.int64(_NONE), np.int64(_NONE)
        if bound >= 0:
            source = graph.in_src[bound]
            entered = source
            if source >= 2 * num_ops:
                if graph.bound_by[source] >= 0:
                    entered = graph.in_src[graph.bound_by[source]]
                if graph.edge_op[bound] >= 0:
                    transfer = graph.channel[graph.edge_op[bound]]
            awaited = graph.of_op[min(entered // 2, num_ops - 1)]
            if bound != spans.edge[i]:
                told = min(max(graph.time[source], rest), until)
            elif graph.transfers[bound] and v % 2 == 1 and not graph.on_host[v // 2]:
                pure = graph.channel[v // 2]
            explained = min(max(until - graph.delay[v], told), until)
        alone = awaited == actor
        place = _put(
            made, place, actor, _WAIT if pure >= 0 else _RUN, start, rest, pure, spans.edge[i]
        )
        place = _put(
            made, place, actor, _RUNNABLE if alone else _WAIT, rest, told,
            _NONE if alone else awaited, _NONE,
        )  # fmt: skip
        place = _put(
            made, place, actor, _WAIT if transfer >= 0 else _RUNNABLE, told, explained, transfer,
            bound,
        )  # fmt: skip
        place = _put(made, place, actor, _WAIT, explained, until, unexplained, num_edges + v)
    return place


@inner
def _first_ending_after(end: np.ndarray, left: int, right: int, moment: int) -> int:
    """Return the first of the segments ``left:right`` that ends after a moment, or ``right``."""
    while left < right:
        middle = (left + right) // 2
        if end[middle] > moment:
            right = middle
        else:
            left = middle + 1
    return left


class WaitColumns(NamedTuple):
    """Segments of actors, in order of actor, then time; int64."""

    first: np.ndarray  # shape (actors + 1,): the segments of actor a are ``first[a]:first[a + 1]``
    # start, end: ns, shape (segments,), ascending and without overlap within an actor
    start: np.ndarray
    end: np.ndarray
    target: np.ndarray  # shape (segments,): the actor waited for, or -1 if the segment is no wait
    pair: np.ndarray  # shape (segments,): number of the pair (actor, target) of each wait


@kernel
def redistribute(waits: WaitColumns, weight: np.ndarray) -> int:
    """Add up how long each actor waits for each other one, directly and through others.

    While A waits for B, and B for C, time counts for A -> B and again for B -> C. An actor is not
    visited twice on one chain.

    - ``waits``: The segments.
    - ``weight``: int64 ns, shape (pairs,): added to.
    - Returns: How many waits were followed, nested ones too. O(waits * depth of chains).
    """
    waits = borrowed(waits)
    first, start, end = waits.first, waits.start, waits.end
    target, pair = waits.target, waits.pair
    num_actors = first.size - 1
    on_path = np.zeros(num_actors, dtype=np.bool_)
    # a frame: the actor that is looked at, its next segment, and the time that counts
    frames = np.empty((4, num_actors + 1), dtype=np.int64)
    actor, place, low, high = frames[0], frames[1], frames[2], frames[3]
    num_followed = 0
    for origin in range(num_actors):
        on_path[origin] = True
        for s in range(first[origin], first[origin + 1]):
            if target[s] < 0:
                continue
            num_followed += 1
            weight[pair[s]] += end[s] - start[s]
            depth = -1 if on_path[target[s]] else 0
            actor[0], low[0], high[0], place[0] = target[s], start[s], end[s], -1
            while depth >= 0:
                a = actor[depth]
                if place[depth] < 0:
                    on_path[a] = True
                    place[depth] = _first_ending_after(end, first[a], first[a + 1], low[depth])
                t = place[depth]
                if t >= first[a + 1] or start[t] >= high[depth]:
                    on_path[a] = False
                    depth -= 1
                    continue
                place[depth] += 1
                since, until = max(start[t], low[depth]), min(end[t], high[depth])
                if target[t] < 0 or since >= until:
                    continue
                num_followed += 1
                weight[pair[t]] += until - since
                if not on_path[target[t]]:
                    depth += 1
                    actor[depth], place[depth] = target[t], -1
                    low[depth], high[depth] = since, until
        on_path[origin] = False
    return num_followed
