"""Find which work a stream waits for from the order of calls, where events have no numbers.

A thread that moves work to another stream records an event after what it launched, and lets the
other stream wait for that event before it launches there. ``ProcessGroupNCCL`` does so before each
collective, with NCCL and with RCCL.
"""

from __future__ import annotations

import numpy as np

from nadi.recordings.dependencies.device_calls import DeviceCalls, unique_pairs
from nadi.trace.arrays import Ints, text_codes

__all__ = ["paired_events"]

_LAUNCH, _RECORD, _WAIT = range(3)
_FEWEST_REPEATS = 3


def paired_events(here: DeviceCalls) -> tuple[Ints, Ints]:
    """Pair kernels with the work that their stream waits for.

    A wait directly after a record on its thread is for the last work of the stream onto which the
    thread launched last; the thread's next launch is onto the stream that waits. Kernels of one
    name wait so if at least three do, and no measured time contradicts it.

    Returns
    -------
    src, dst
        int64 node rows. O(calls * streams * log nodes).
    """
    call, kind, thread = _calls(here)
    at = np.flatnonzero(kind == _WAIT)
    at = at[(at > 0) & (kind[at - 1] == _RECORD) & (thread[at - 1] == thread[at])]
    before, after = _launch_before(call, kind, thread, at), _launch_after(call, kind, thread, at)
    known = (before >= 0) & (after >= 0)
    record, before, after = call[at[known] - 1], before[known], after[known]
    key = here.keys_of_rows()
    work = _work_of_calls(here)
    own, waiting = key[work[before]], work[after]
    source = np.full(waiting.size, -1, dtype=np.int64)
    for stream, number in enumerate(here.work.keys):
        mine = np.flatnonzero(own == number)
        last = here.work.last_before(stream, here.start[record[mine]])
        source[mine] = np.where(last >= 0, here.work.rows[last], -1)
    moved = (source >= 0) & (own != key[waiting]) & (own // 2**32 == key[waiting] // 2**32)
    moved &= here.trace.category_mask("kernel")[waiting]
    source, waiting = source[moved], waiting[moved]
    names = text_codes(here.trace.nodes["name"])[waiting]
    size = int(names.max(initial=0)) + 1
    count = np.bincount(names, minlength=size)
    wrong = np.bincount(names[here.end[source] > here.start[waiting]], minlength=size)
    chosen = (count[names] >= _FEWEST_REPEATS) & (wrong[names] == 0)
    return unique_pairs(source[chosen], waiting[chosen])


def _calls(here: DeviceCalls) -> tuple[Ints, Ints, Ints]:
    """Return calls that launch, record and wait, in order on each thread: row, kind and thread."""
    launches = np.unique(here.launcher[here.launched_work])
    parts = (launches, here.calls("event record"), here.calls("stream wait"))
    call = np.concatenate(parts)
    kind = np.repeat([_LAUNCH, _RECORD, _WAIT], [part.size for part in parts])
    thread = here.trace.column("thread")[call]
    order = np.lexsort((call, here.start[call], thread))
    return call[order], kind[order], thread[order]


def _launch_before(call: Ints, kind: Ints, thread: Ints, at: Ints) -> Ints:
    """Return the launch before each position on its thread, or -1."""
    last = np.maximum.accumulate(np.where(kind == _LAUNCH, np.arange(kind.size), -1))[at]
    return np.where((last >= 0) & (thread[last] == thread[at]), call[last], -1)


def _launch_after(call: Ints, kind: Ints, thread: Ints, at: Ints) -> Ints:
    """Return the launch after each position on its thread, or -1."""
    places = np.flatnonzero(kind == _LAUNCH)
    following = np.searchsorted(places, at)
    inside = following < places.size
    found = places[np.minimum(following, places.size - 1)] if places.size else at
    return np.where(inside & (thread[found] == thread[at]), call[found], -1)


def _work_of_calls(here: DeviceCalls) -> Ints:
    """Return the first work that each node launched, or -1; shape (nodes,)."""
    work = here.launched_work
    work = work[np.argsort(here.start[work], kind="stable")][::-1]
    found = np.full(here.start.size, -1, dtype=np.int64)
    found[here.launcher[work]] = work
    return found
