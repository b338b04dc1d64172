"""Timelines of host threads, device streams and process groups from an event graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.replay import Replay
from nadi.model.arrays import Bools, Ints
from nadi.waiting.stated_waits import stated_waits
from nadi.waiting.timelines import Actor, SegmentKind, Segments

__all__ = ["RecordedActors", "is_host", "recorded_segments"]

_ON_THREAD = (EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.COMMUNICATION)
_RUN, _RUNNABLE, _WAIT = (int(kind) for kind in SegmentKind)


@dataclass(frozen=True, eq=False)
class RecordedActors:
    """The actors of a recording, and their segments of the whole recording.

    Attributes
    ----------
    actors
        By number: first threads and streams, then what only others wait for.
    segments
        Of threads and streams. ``edge`` is an edge of the graph, or, for a delay, the number of
        edges plus the vertex.
    lock
        int64, shape (segments,): position in ``locks`` of the lock that a segment waits for, or -1.
    locks
        Names of locks.
    """

    actors: list[Actor]
    segments: Segments
    lock: Ints
    locks: list[str]


class _Spans(NamedTuple):
    """Stretches of time of actors that end at a vertex; int64, shape (spans,).

    The actor may work from ``start`` for ``own`` ns (edge ``edge``); the rest is divided by what
    the vertex waits for.
    """

    actor: Ints
    vertex: Ints
    start: Ints
    own: Ints
    edge: Ints


def recorded_segments(replay: Replay) -> RecordedActors:
    """Divide the time of each thread and stream into work, latency and waits. O(n log n).

    What a vertex waits for is the edge that determined its time in the replay of the unchanged
    graph. A thread works for the weight of the edge from its boundary before. A collective is
    awaited in two parts: until the straggler has entered, the thread or stream of the straggler;
    then the transfers of its process group. Delays that no edge explains are waits for
    ``unexplained``. Locks and data loaders are waited for as
    :func:`nadi.waiting.stated_waits.stated_waits` finds.

    Parameters
    ----------
    replay
        Of the graph as measured.
    """
    graph = replay.graph
    actors, of_op = _actors(graph)
    numbers: dict[str, int] = {}

    def number_of(actor: Actor) -> int:
        if actor.name not in numbers:
            numbers[actor.name] = len(actors)
            actors.append(actor)
        return numbers[actor.name]

    channel = _channels(graph, number_of)
    unexplained = number_of(Actor("unexplained", "unexplained"))
    divided = _divided(replay, of_op, channel, unexplained)
    stated = stated_waits(graph, divided, actors, number_of)
    is_wait = stated.target >= 0
    found = Segments(
        divided.actor, np.where(is_wait, _WAIT, divided.kind), divided.start, divided.end,
        np.where(is_wait, stated.target, divided.target), divided.edge,
    )  # fmt: skip
    return RecordedActors(actors, found, stated.lock, stated.locks)


def _actors(graph: EventGraph) -> tuple[list[Actor], Ints]:
    """Return threads and streams, and which of them each operation runs on."""
    of_op = np.empty(graph.num_ops, dtype=np.int64)
    actors: list[Actor] = []
    on_host, thread = is_host(graph), graph.numbers("thread")
    device = graph.numbers("device")
    for number, rank in enumerate(graph.job.ranks):
        mine = np.flatnonzero(graph.op_trace == number)
        hosts, works = mine[on_host[mine]], mine[~on_host[mine]]
        threads, code = np.unique(thread[hosts], return_inverse=True)
        of_op[hosts] = len(actors) + code
        actors += [Actor(f"rank {rank} thread {one}", "thread", rank) for one in threads.tolist()]
        span = int(graph.op_stream[works].max(initial=0)) + 2  # streams begin at -1
        places, code = np.unique(device[works] * span + graph.op_stream[works], return_inverse=True)
        of_op[works] = len(actors) + code
        devices, streams = np.divmod(places + 1, span)
        several = np.unique(devices).size > 1
        actors += [
            Actor(
                f"rank {rank} {f'device {one} ' if several else ''}stream {stream}", "stream", rank
            )
            for one, stream in zip(devices.tolist(), (streams - 1).tolist(), strict=True)
        ]
    return actors, of_op


def _channels(graph: EventGraph, number_of: Callable[[Actor], int]) -> Ints:
    """Return the number of the process group's transfers for each operation, or -1."""
    found = np.full(graph.num_ops, -1, dtype=np.int64)
    group = graph.numbers("group")
    is_comm = (graph.gather("comm_type") != "none").to_numpy()
    for number, trace in enumerate(graph.job.traces):
        mine = np.flatnonzero(is_comm & (graph.op_trace == number))
        names = [
            f"transfers of group {name}" + (f" ({text})" if text not in ("", "undefined") else "")
            for name, text in trace.groups.select("name", "description").iter_rows()
        ]
        for code in np.unique(group[mine]).tolist():
            name = names[code] if 0 <= code < len(names) else "transfers"
            found[mine[group[mine] == code]] = number_of(Actor(name, "channel"))
    return found


def _divided(replay: Replay, of_op: Ints, channel: Ints, unexplained: int) -> Segments:
    """Return the segments of all threads and streams."""
    graph, time = replay.graph, replay.time
    spans = _joined([*_thread_spans(graph, of_op), *_stream_spans(replay, of_op)])
    v, until = spans.vertex, time[spans.vertex]
    bound = replay.bound_by[v]
    has = bound >= 0
    source = np.where(has, graph.in_src[bound], v)
    via_hub = source >= 2 * graph.num_ops
    last = replay.bound_by[source]
    entered = np.where(via_hub & (last >= 0), graph.in_src[last], source)
    awaited = of_op[np.minimum(entered // 2, graph.num_ops - 1)]
    self_bound = bound == spans.edge
    rest = np.minimum(spans.start + spans.own, until)
    told = np.where(has & ~self_bound, np.clip(time[source], rest, until), rest)
    explained = np.clip(until - np.where(has, graph.delay[v], until - rest), told, until)
    none = np.full(v.size, -1, dtype=np.int64)
    alone = awaited == spans.actor
    to_channel = np.where(
        via_hub, channel[np.minimum(np.where(has, graph.edge_op[bound], 0), graph.num_ops - 1)], -1
    )
    pure = np.where(has & (graph.edge_kind[bound] == EdgeKind.COMMUNICATION), channel[v // 2], -1)
    pure = np.where(self_bound & (v % 2 == 1) & ~is_host(graph)[v // 2], pure, -1)
    return _assembled([
        (spans, np.where(pure >= 0, _WAIT, _RUN), spans.start, rest, pure, spans.edge),
        (spans, np.where(alone, _RUNNABLE, _WAIT), rest, told, np.where(alone, -1, awaited), none),
        (spans, np.where(to_channel >= 0, _WAIT, _RUNNABLE), told, explained, to_channel, bound),
        (spans, np.full(v.size, _WAIT), explained, until, np.full(v.size, unexplained),
         graph.num_edges + v),
    ])  # fmt: skip


def is_host(graph: EventGraph) -> Bools:
    """Return which operations run on a thread; bool, shape (ops,)."""
    found: Bools = graph.gather("is_cpu").to_numpy()
    return found


def _thread_spans(graph: EventGraph, of_op: Ints) -> list[_Spans]:
    """Return the stretches between the boundaries of threads, and before the first that is caused.

    A thread whose first operation depends on another thread waits for it since the rank began.
    """
    edge = np.flatnonzero(np.isin(graph.edge_kind, _ON_THREAD))
    source, vertex = graph.in_src[edge], graph.destinations[edge]
    real = (source < 2 * graph.num_ops) & (vertex < 2 * graph.num_ops)
    edge, source, vertex = edge[real], source[real], vertex[real]
    on_host = is_host(graph)
    chain = on_host[vertex // 2] & on_host[source // 2]
    chain &= of_op[vertex // 2] == of_op[source // 2]
    edge, source, vertex = edge[chain], source[chain], vertex[chain]
    found = _Spans(of_op[vertex // 2], vertex, graph.time[source], graph.weight[edge], edge)
    ops = np.flatnonzero(on_host)
    first = 2 * ops[np.lexsort((graph.time[2 * ops], of_op[ops]))]
    first = first[np.unique(of_op[first // 2], return_index=True)[1]]
    first = first[np.diff(graph.in_ptr)[first] > 0]
    begins = np.full(len(graph.job.traces), np.iinfo(np.int64).max)
    np.minimum.at(begins, graph.op_trace, graph.time[0 : 2 * graph.num_ops : 2])
    none = np.zeros(first.size, dtype=np.int64)
    before = begins[graph.op_trace[first // 2]]
    return [found, _Spans(of_op[first // 2], first, before, none, none - 1)]


def _stream_spans(replay: Replay, of_op: Ints) -> list[_Spans]:
    """Return the stretches before and during the operations of streams."""
    graph, time = replay.graph, replay.time
    op = np.flatnonzero(~is_host(graph))
    op = op[np.lexsort((time[2 * op], of_op[op]))]
    actor, start, end = of_op[op], time[2 * op], time[2 * op + 1]
    new = np.append(True, actor[1:] != actor[:-1])[: op.size]
    # the end of all work before, also of work that overlaps; actors do not mix
    far = np.int64(max(int(time.max(initial=0)), 0) + 1)
    latest = np.maximum.accumulate(end + actor * far) - actor * far
    before = np.where(new, start, np.append(0, latest[:-1])[: op.size])
    idle = before < start
    none = np.zeros(op.size, dtype=np.int64)
    waits = _Spans(actor, 2 * op, before, none, none - 1)
    bound = replay.bound_by[2 * op + 1]
    is_own = (bound >= 0) & (graph.in_src[bound] == 2 * op)
    own = np.where(is_own, graph.weight[bound], 0)
    begin = np.maximum(before, start)
    own = np.clip(own - (begin - start), 0, None)
    works = _Spans(actor, 2 * op + 1, begin, own, np.where(own > 0, bound, -1))
    return [_Spans(*(column[idle] for column in waits)), works]


def _joined(parts: list[_Spans]) -> _Spans:
    return _Spans(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


_Piece = tuple[_Spans, Ints, Ints, Ints, Ints, Ints]


def _assembled(pieces: list[_Piece]) -> Segments:
    """Put pieces together, without empty ones."""
    parts = []
    for spans, kind, start, end, target, edge in pieces:
        kept = end > start
        columns = (spans.actor, kind, start, end, target, edge)
        parts.append([column[kept].astype(np.int64, copy=False) for column in columns])
    return Segments(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
