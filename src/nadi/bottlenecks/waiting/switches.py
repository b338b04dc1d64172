"""Threads of a recording whose switches the system recorded at the same time."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from nadi.bottlenecks.waiting.recorded_timelines import RecordedActors
from nadi.bottlenecks.waiting.thread_switches import switch_timelines
from nadi.bottlenecks.waiting.timelines import Actor, SegmentKind, Segments
from nadi.errors import InputError
from nadi.files.switch_events import SwitchEvents
from nadi.trace.arrays import Ints
from nadi.units import format_ns

__all__ = ["with_switches"]

_THREAD = re.compile(r"^rank \d+ thread (\d+)$")
_RECORD = "record both with the system's clock: perf record -k CLOCK_REALTIME, perf script --ns"


def with_switches(found: RecordedActors, events: SwitchEvents, origin: int) -> RecordedActors:
    """Replace work of threads during which they were off the CPU by what they waited for.

    Waits that the recording explains stay as they are. O((segments + events) log events).

    Parameters
    ----------
    origin
        When the recording began, in ns of the clock of ``events``; segments count from it.

    Raises
    ------
    InputError
        If no thread of the recording occurs in ``events``, or not at the same time.
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
