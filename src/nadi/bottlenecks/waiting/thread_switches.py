"""Timelines of threads from the switches that the system recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nadi.bottlenecks.waiting.timelines import (
    Actor,
    SegmentKind,
    Segments,
    Timelines,
    make_timelines,
)
from nadi.files.switch_events import INTERRUPTS, SWITCH, SwitchEvents

__all__ = ["switch_timelines"]

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
