"""Timelines of host threads, device streams and process groups from an event graph.

Waits that operations state by their names: for locks, and for data loaders.

Threads of a recording whose switches the system recorded at the same time.

Timelines of threads from the switches that the system recorded.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nadi.bottlenecks.waiting.timelines import (
    Actor,
    SegmentKind,
    Segments,
    Timelines,
    make_timelines,
)
from nadi.bottlenecks.waiting.waiting_kernels import (
    ChainGraph,
    SegmentColumns,
    SpanColumns,
    SpanGraph,
    divide_spans,
    spans_of_threads,
)
from nadi.errors import InputError
from nadi.files.switches import INTERRUPTS, SWITCH, SwitchEvents
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.replay import Replay
from nadi.recordings.dependencies.operator_nesting import LOCK_WAIT, WOKEN_BY
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest
from nadi.units import format_ns

_LOADER = r"MultiProcessingDataLoaderIter.*(__next__|_next_data|_get_data)"
_FRAMES = ("python", "annotation")


class StatedWaits(NamedTuple):
    """What segments wait for; int64, shape (segments,).

    ``target`` is an actor or -1; ``lock`` a position in ``locks``, the names of locks, or -1.
    """

    target: Ints
    lock: Ints
    locks: list[str]


def stated_waits(
    graph: EventGraph, segments: Segments, actors: list[Actor], number_of: Callable[[Actor], int]
) -> StatedWaits | None:
    """Find work of threads that is a wait: in a lock, or for data from worker processes.

    ``nadi record --locks`` writes ranges ``nadi::wait LOCK``, each followed by ``nadi::woken by
    THREAD``. PyTorch writes ``enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__``,
    whose own time is a wait for the worker processes. O(segments + operations).

    - ``segments``: Those of the graph; ``edge`` leads to the operation that a segment's time
      belongs to.
    - Returns: None if no operation states a wait.
    """
    ranks = np.array(graph.job.ranks, dtype=np.int64)
    loaders, lock_waits = _loaders(graph, ranks), _lock_waits(graph)
    if not loaders and not lock_waits:
        return None
    target, lock = np.full((2, segments.edge.size), -1, dtype=np.int64)
    works = np.flatnonzero(
        (segments.kind == SegmentKind.RUN) & (segments.edge >= 0)
        & (segments.edge < graph.num_edges)
    )  # fmt: skip
    owner = graph.edge_op[segments.edge[works]]
    works, owner = works[owner >= 0], owner[owner >= 0]
    for number, rank in loaders:
        of_rank = number & (ranks[graph.op_trace] == rank)
        loader = number_of(Actor(f"rank {rank} data loader", "data loader", rank))
        target[works[of_rank[owner]]] = loader
    locks: list[str] = []
    woken = {actor.name: n for n, actor in enumerate(actors) if actor.kind == "thread"}
    for op, name, thread in lock_waits:
        rank = int(ranks[graph.op_trace[op]])
        text = f"rank {rank} lock {name}"
        if text not in locks:
            locks.append(text)
        mine = works[owner == op]
        by = woken.get(f"rank {rank} thread {thread}", -1)
        target[mine] = by if by >= 0 else number_of(Actor(text, "lock", rank))
        lock[mine] = locks.index(text)
    return StatedWaits(target, lock, locks)


def _loaders(graph: EventGraph, ranks: Ints) -> list[tuple[Bools, int]]:
    """Return the operations that wait for worker processes, and each rank that has some."""
    named = graph.named(_LOADER)
    if not named.any():
        return []
    inside = nearest(np.arange(graph.num_ops), graph.op_parent, named) >= 0
    waits = inside & (named | graph.gather("category").is_in(_FRAMES).to_numpy())
    return [(waits, rank) for rank in np.unique(ranks[graph.op_trace[named]]).tolist()]


def _lock_waits(graph: EventGraph) -> list[tuple[int, str, int]]:
    """Return each wait for a lock: operation, name of the lock, thread that freed it or -1."""
    waits = np.flatnonzero(graph.named(f"^{re.escape(LOCK_WAIT)}"))
    if not waits.size:
        return []
    told = np.flatnonzero(graph.named(f"^{re.escape(WOKEN_BY)}"))
    thread = graph.numbers("thread")
    following: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for op, name in zip(told.tolist(), graph.names(told).to_list(), strict=True):
        key = int(graph.op_trace[op]), int(thread[op])
        following.setdefault(key, []).append((int(graph.time[2 * op]), name[len(WOKEN_BY) :]))
    for each in following.values():
        each.sort()
    found = []
    for op, name in zip(waits.tolist(), graph.names(waits).to_list(), strict=True):
        ahead = following.get((int(graph.op_trace[op]), int(thread[op])), [])
        end = int(graph.time[2 * op + 1])
        at = np.searchsorted([time for time, _ in ahead], end)
        by = ahead[at][1] if at < len(ahead) else ""
        found.append((op, name[len(LOCK_WAIT) :], int(by) if by.isdecimal() else -1))
    return found


_ON_THREAD = (EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.COMMUNICATION)
_MORE_ROOM = 1 << 18  # for segments than operations have boundaries
_TOGETHER = 1 << 14  # operations whose stretches are in memory at once


@dataclass(frozen=True, eq=False)
class RecordedActors:
    """The actors of a recording, and their segments of the whole recording."""

    actors: list[Actor]  # by number: first threads and streams, then what only others wait for
    # of threads and streams. ``edge`` is an edge of the graph, or, for a delay, the number of edges
    # plus the vertex.
    segments: Segments
    # int64, shape (segments,): position in ``locks`` of the lock that a segment waits for, or -1
    lock: Ints
    locks: list[str]  # names of locks


def recorded_segments(replay: Replay) -> RecordedActors:
    """Divide the time of each thread and stream into work, latency and waits. O(n log n).

    What a vertex waits for is the edge that determined its time in the replay of the unchanged
    graph. A thread works for the weight of the edge from its boundary before. A collective is
    awaited in two parts: until the straggler has entered, the thread or stream of the straggler;
    then the transfers of its process group. Delays that no edge explains are waits for
    ``unexplained``. Locks and data loaders are waited for as
    :func:`nadi.bottlenecks.waiting.recorded_timelines.stated_waits` finds.

    - ``replay``: Of the graph as measured.
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
    if stated is None:
        no_lock = np.broadcast_to(np.int64(-1), divided.actor.shape)
        return RecordedActors(actors, divided, no_lock, [])
    is_wait = stated.target >= 0
    kind = np.where(is_wait, SegmentKind.WAIT, divided.kind)
    target = np.where(is_wait, stated.target, divided.target)
    found = replace(divided, kind=kind, target=target)
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
    graph = replay.graph
    on_host = is_host(graph)
    known = SpanGraph(
        replay.time, graph.delay, replay.bound_by, graph.in_src, graph.edge_op, of_op, channel,
        graph.edge_kind == EdgeKind.COMMUNICATION, on_host,
    )  # fmt: skip
    others = [_first_spans(graph, of_op, on_host), *_stream_spans(replay, of_op, on_host)]
    room = 2 * graph.num_ops + _MORE_ROOM
    while True:
        made = SegmentColumns(*(np.empty(room, dtype=np.int64) for _ in SegmentColumns._fields))
        count = 0
        for spans, size in _thread_spans(graph, of_op, on_host):
            count = int(divide_spans(spans, size, known, unexplained, made, count))
        for spans in others:
            count = int(divide_spans(spans, spans.vertex.size, known, unexplained, made, count))
        if count <= room:
            return Segments(*(column[:count] for column in made))
        room = count


def is_host(graph: EventGraph) -> Bools:
    """Return which operations run on a thread; bool, shape (ops,)."""
    found: Bools = graph.gather("is_cpu").to_numpy()
    return found


def _thread_spans(
    graph: EventGraph, of_op: Ints, on_host: Bools
) -> Iterator[tuple[SpanColumns, int]]:
    """Yield the stretches between the boundaries of threads, some at a time, and their number."""
    on_thread = np.zeros(len(EdgeKind), dtype=np.bool_)
    on_thread[list(_ON_THREAD)] = True
    known = ChainGraph(
        graph.time, graph.in_ptr, graph.in_src, graph.weight, on_thread[graph.edge_kind], of_op,
        on_host,
    )  # fmt: skip
    room = 4 * _TOGETHER
    spans = SpanColumns(*(np.empty(room, dtype=np.int64) for _ in SpanColumns._fields))
    for first in range(0, graph.num_ops, _TOGETHER):
        end = min(first + _TOGETHER, graph.num_ops)
        while (count := int(spans_of_threads(known, first, end, spans))) > room:
            room = count
            spans = SpanColumns(*(np.empty(room, dtype=np.int64) for _ in SpanColumns._fields))
        yield spans, count


def _first_spans(graph: EventGraph, of_op: Ints, on_host: Bools) -> SpanColumns:
    """Return the stretches before the first operations of threads that are caused.

    A thread whose first operation depends on another thread waits for it since the rank began.
    """
    ops = np.flatnonzero(on_host)
    soonest = np.full(int(of_op.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(soonest, of_op[ops], graph.time[2 * ops])
    ops = ops[graph.time[2 * ops] == soonest[of_op[ops]]]
    first = 2 * ops[np.unique(of_op[ops], return_index=True)[1]]
    first = first[np.diff(graph.in_ptr)[first] > 0]
    begins = np.full(len(graph.job.traces), np.iinfo(np.int64).max)
    np.minimum.at(begins, graph.op_trace, graph.time[0 : 2 * graph.num_ops : 2])
    none = np.zeros(first.size, dtype=np.int64)
    before = begins[graph.op_trace[first // 2]]
    return SpanColumns(of_op[first // 2], first, before, none, none - 1)


def _stream_spans(replay: Replay, of_op: Ints, on_host: Bools) -> list[SpanColumns]:
    """Return the stretches before and during the operations of streams."""
    graph, time = replay.graph, replay.time
    op = np.flatnonzero(~on_host)
    op = op[np.lexsort((time[2 * op], of_op[op]))]
    actor, start, end = of_op[op], time[2 * op], time[2 * op + 1]
    new = np.append(True, actor[1:] != actor[:-1])[: op.size]
    # the end of all work before, also of work that overlaps; actors do not mix
    far = np.int64(max(int(time.max(initial=0)), 0) + 1)
    latest = np.maximum.accumulate(end + actor * far) - actor * far
    before = np.where(new, start, np.append(0, latest[:-1])[: op.size])
    idle = before < start
    none = np.zeros(op.size, dtype=np.int64)
    waits = SpanColumns(actor, 2 * op, before, none, none - 1)
    bound = replay.bound_by[2 * op + 1]
    is_own = (bound >= 0) & (graph.in_src[bound] == 2 * op)
    own = np.where(is_own, graph.weight[bound], 0)
    begin = np.maximum(before, start)
    own = np.clip(own - (begin - start), 0, None)
    edge = np.where(own > 0, bound, -1).astype(np.int64)
    works = SpanColumns(actor, 2 * op + 1, begin, own, edge)
    return [SpanColumns(*(column[idle] for column in waits)), works]


_RUN, _RUNNABLE, _WAIT = (int(kind) for kind in SegmentKind)


def switch_timelines(events: SwitchEvents, threads: Sequence[int] | None = None) -> Timelines:
    """Make a timeline of each thread. O(events).

    A thread that leaves the CPU waits until another wakes it, unless it could have gone on. Who
    wakes it, or the interrupt, is what it waited for. The last segment of a thread lasts until the
    recording ends; if it is a wait, nobody knows for whom.

    Parameters
    ----------
    threads
        The threads to follow; by default all but the idle thread. Others may still be waited for.
    """
    chosen = list(threads) if threads is not None else _all_threads(events)
    number = {thread: n for n, thread in enumerate(chosen)}
    actors = [_thread(events, thread) for thread in chosen]
    rows: list[tuple[int, int, int, int, int]] = []
    state = [-1] * len(chosen)
    since = [0] * len(chosen)
    other: dict[int, int] = {}

    def target_of(waker: int) -> int:
        if waker in number:
            return number[waker]
        if waker not in other:
            other[waker] = len(actors)
            actors.append(
                Actor(INTERRUPTS.get(waker, "interrupt"), "interrupt")
                if waker < 0 else _thread(events, waker)
            )  # fmt: skip
        return other[waker]

    columns = zip(
        events.kind.tolist(), events.time.tolist(), events.before.tolist(), events.after.tolist(),
        events.cause.tolist(), events.stays.tolist(), strict=True,
    )  # fmt: skip
    for kind, time, before, after, cause, stays in columns:
        woken = number.get(after, -1)
        if kind == SWITCH:
            left = number.get(before, -1)
            if left >= 0:
                if state[left] >= 0:
                    rows.append((left, _RUN, since[left], time, -1))
                state[left], since[left] = _RUNNABLE if stays else _WAIT, time
            if woken >= 0:
                if state[woken] == _RUNNABLE:
                    rows.append((woken, _RUNNABLE, since[woken], time, -1))
                state[woken], since[woken] = _RUN, time
        elif woken >= 0 and state[woken] == _WAIT:
            rows.append((woken, _WAIT, since[woken], time, target_of(cause or before)))
            state[woken], since[woken] = _RUNNABLE, time
    end = int(events.time.max(initial=0))
    rows += [(n, state[n], since[n], end, -1) for n in range(len(chosen)) if state[n] >= 0]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    none = np.full(table.shape[0], -1, dtype=np.int64)
    actor, kinds, start, stop, target = table.T.copy()
    segments = Segments(actor, kinds, start, stop, target, none)
    return make_timelines(actors, segments, int(events.time.min(initial=end)), end)


def _all_threads(events: SwitchEvents) -> list[int]:
    switches = events.kind == SWITCH
    seen = np.unique(np.concatenate([events.before[switches], events.after]))
    return [thread for thread in seen.tolist() if thread > 0]


def _thread(events: SwitchEvents, thread: int) -> Actor:
    name = events.names.get(thread, "")
    return Actor(f"{name} ({thread})" if name else f"thread {thread}", "thread")


_THREAD = re.compile(r"^rank \d+ thread (\d+)$")
_RECORD = "record both with the system's clock: perf record -k CLOCK_REALTIME, perf script --ns"


def with_switches(found: RecordedActors, events: SwitchEvents, origin: int) -> RecordedActors:
    """Replace work of threads during which they were off the CPU by what they waited for.

    Waits that the recording explains stay as they are. O((segments + events) log events).

    - ``origin``: When the recording began, in ns of the clock of ``events``; segments count from
      it.
    - Raises InputError if no thread of the recording occurs in ``events``, or not at the same time.
    """
    number_of = {
        int(said[1]): number
        for number, actor in enumerate(found.actors)
        if (said := _THREAD.match(actor.name))
    }
    seen = set(np.unique(events.after).tolist())
    threads = [thread for thread in number_of if thread in seen]
    _check(found.segments, events, origin, threads)
    off = switch_timelines(events, threads)
    actors = list(found.actors)
    renamed = [number_of[thread] for thread in threads]
    for actor in off.actors[len(threads) :]:
        renamed.append(len(actors))
        actors.append(Actor(actor.name, "other thread") if actor.kind == "thread" else actor)
    rename = np.array([*renamed, -1], dtype=np.int64)
    away = off.segments.chosen(off.segments.kind != SegmentKind.RUN)
    away = Segments(rename[away.actor], away.kind, away.start - origin, away.end - origin,
                    rename[away.target], away.edge)  # fmt: skip
    segments, source = _carved(found.segments, away)
    return replace(found, actors=actors, segments=segments, lock=found.lock[source])


def _check(segments: Segments, events: SwitchEvents, origin: int, threads: list[int]) -> None:
    if not threads:
        what = "no thread of the recording is in the file of switches"
        raise InputError("", what, "record both at the same time, on the same machine")
    begin, end = origin + int(segments.start.min()), origin + int(segments.end.max())
    first, last = int(events.time[0]), int(events.time[-1])
    if last < begin or first > end:
        what = (
            f"the switches lie {format_ns(max(begin - last, first - end))} "
            f"{'before' if last < begin else 'after'} the recording: their clocks differ"
        )
        raise InputError("", what, _RECORD)


def _carved(segments: Segments, away: Segments) -> tuple[Segments, Ints]:
    """Cut the time away out of work; also returns the segment that each part came from."""
    rows: list[tuple[int, int, int, int, int, int]] = []
    source: list[int] = []
    order = np.lexsort((away.start, away.actor))
    away = away.chosen(order)
    works = (segments.kind == SegmentKind.RUN) & np.isin(segments.actor, away.actor)
    for s in np.flatnonzero(works).tolist():
        actor, start, end = (int(c[s]) for c in (segments.actor, segments.start, segments.end))
        edge = int(segments.edge[s])
        low, high = np.searchsorted(away.actor, [actor, actor + 1])
        at = low + int(np.searchsorted(away.end[low:high], start, side="right"))
        before = len(rows)
        while at < high and away.start[at] < end:
            since, until = max(int(away.start[at]), start), min(int(away.end[at]), end)
            rows.append((actor, int(SegmentKind.RUN), start, since, -1, edge))
            waits = away.kind[at] == SegmentKind.WAIT and away.target[at] >= 0
            kind = SegmentKind.WAIT if waits else SegmentKind.RUNNABLE
            rows.append((actor, int(kind), since, until, int(away.target[at]), edge))
            start = until
            at += 1
        rows.append((actor, int(SegmentKind.RUN), start, end, -1, edge))
        source += [s] * (len(rows) - before)
    kept = np.flatnonzero(~works)
    table = np.array(rows, dtype=np.int64).reshape(-1, 6)
    more = Segments(*(column.copy() for column in table.T))
    old = segments.chosen(kept)
    names = ("actor", "kind", "start", "end", "target", "edge")
    joined = Segments(*(np.concatenate([getattr(old, n), getattr(more, n)]) for n in names))
    return joined, np.concatenate([kept, np.array(source, dtype=np.int64)])
