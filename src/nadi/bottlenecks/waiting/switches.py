"""Threads of a recording whose switches the system recorded at the same time.

Timelines of threads from the switches that the system recorded.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nadi.bottlenecks.waiting.recorded_timelines import RecordedActors
from nadi.bottlenecks.waiting.timelines import (
    Actor,
    SegmentKind,
    Segments,
    Timelines,
    make_timelines,
)
from nadi.errors import InputError
from nadi.files.switches import INTERRUPTS, SWITCH, SwitchEvents
from nadi.trace.arrays import Ints
from nadi.units import format_ns

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
