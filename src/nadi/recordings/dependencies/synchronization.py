"""Find calls that wait for a device: synchronization, blocking copies, launches on full queues.

A recording names the awaited stream or event only if it has synchronization events
(``cuda_sync``). Without them it is inferred from the order of launches and the times.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nadi.recordings.dependencies.device_calls import (
    DeviceCalls,
    find_rows,
    stream_keys,
    unique_pairs,
)
from nadi.recordings.dependencies.event_records import EventWaits, find_events
from nadi.recordings.dependencies.stream_waits import stream_waits
from nadi.trace.arrays import Bools, Ints, text_codes
from nadi.trace.categories import COPY_FROM_PAGEABLE, COPY_ON_DEVICE, COPY_TO_PAGEABLE, pattern
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

_Found = list[tuple[str, tuple[Ints, Ints], bool]]
_Waits = list[tuple[Ints, Ints, bool]]  # work, call, whether it is inferred

QUEUE_LENGTH = 1022  # launches that a stream queues before the next launch blocks
STAGED_COPY_BYTES = 64 * 1024  # up to this size copies from pageable memory do not block
_LONGEST_RETURN_NS = 20_000  # a call usually returns 4 to 8 us after the awaited work
_FEWEST_REPEATS = 3  # that confirm an inference
_MOST_BEGUN = 0.9  # of calls contain the start of their work
_CLOCKS_DIFFER_NS = 20_000  # at most, where device and host are one machine
_FOUND_WITHIN_NS = 50_000  # a call returns at most this long after the awaited work


def synchronization(here: DeviceCalls, device: Trace, log: IssueLog) -> _Found:
    """Find the calls and device operations that wait for device work.

    Parameters
    ----------
    here
        The linked trace.
    device
        The device trace behind it; its synchronization events name what calls wait for.
    log
        Records waits that are unknown, or that contradict the measured times.

    Returns
    -------
    list of (kind, (src, dst), inferred)
        In kind sync a call waits, in kind event a device operation waits.
        O((nodes + calls * streams) log nodes).
    """
    events = find_events(here, device)
    found = [
        *_device_syncs(here),
        *_stream_syncs(here, events, log),
        *_event_syncs(here, events),
        *_copies(here),
        *_blocking_launches(here),
        *_full_queues(here),
    ]
    waits = [("sync", *_consistent(here, src, dst, log), inferred) for src, dst, inferred in found]
    return [
        *((kind, (src, dst), inferred) for kind, src, dst, inferred in waits),
        *stream_waits(here, events, log),
    ]


def _consistent(here: DeviceCalls, src: Ints, dst: Ints, log: IssueLog) -> tuple[Ints, Ints]:
    """Drop waits that contradict the times; only a copy may end after the call that it blocks.

    A device whose clock is a little late seems to end work after the return of the call that waits
    for it. Then the call waits for the last work of the stream that had ended.
    """
    start, end = here.start, here.end
    own_copy = here.launcher[src] == dst
    src, is_other = _ended_before(here, src, dst, own_copy)
    log.add(
        "link.sync-clocks", "info", int(is_other.sum()),
        "device operations end shortly after the return of a call that waits for them, as clocks "
        "differ", "the call waits for the work before them",
    )  # fmt: skip
    possible = (np.where(own_copy, start[src], end[src]) <= end[dst]) & (start[src] < end[dst])
    log.add(
        "link.sync-contradicted", "info", int((~possible).sum()),
        "device operations end after the return of a call that waits for them",
        "no dependency is added between them",
    )  # fmt: skip
    src, dst = src[possible], dst[possible]
    return unique_pairs(src, dst) if is_other.any() else (src, dst)


def _ended_before(here: DeviceCalls, src: Ints, dst: Ints, own_copy: Bools) -> tuple[Ints, Bools]:
    """Replace work that ends shortly after the call returns; tells which was replaced."""
    end, found = here.end, src.copy()
    late = ~own_copy & (end[src] > end[dst]) & (end[src] - end[dst] <= _CLOCKS_DIFFER_NS)
    keys = stream_keys(here.trace.column("device")[src], here.trace.column("stream")[src])
    for stream, key in enumerate(here.work.keys):
        mine = np.flatnonzero(late & (keys == key))
        at = here.work.last_ended(stream, end, end[dst[mine]])
        rows = here.work.rows[at]
        known = (at >= 0) & (end[rows] > here.start[dst[mine]])
        found[mine[known]] = rows[known]
    return found, found != src


def _device_syncs(here: DeviceCalls) -> _Waits:
    """Add a dependency of device synchronization on all earlier launches, on any stream."""
    calls = here.calls("device sync")
    return [(*_last_work(here, stream, calls), False) for stream in range(here.work.keys.size)]


def _last_work(here: DeviceCalls, stream: int, calls: Ints) -> tuple[Ints, Ints]:
    at = here.work.last_before(stream, here.start[calls])
    return here.work.rows[at[at >= 0]], calls[at >= 0]


def _stream_syncs(here: DeviceCalls, events: EventWaits, log: IssueLog) -> _Waits:
    """Add a dependency of stream synchronization on the last earlier launch of its stream.

    A synchronization event names the stream. Without one it is the stream of a copy, if the same
    thread launched that copy last and its end explains when the call returns. Otherwise it is the
    stream of the work that ends last before the call returns, if the call is long enough to have
    waited.
    """
    calls = here.calls("stream sync")
    trace = here.trace
    correlation = trace.column("correlation")
    keys = stream_keys(trace.column("device"), trace.column("stream"))
    said = np.flatnonzero(trace.category_mask("sync") & (correlation > 0) & (keys >= 0))
    stated = find_rows(correlation[said], keys[said], correlation[calls])
    guessed = _stream_of_last_copy(here, calls, keys)
    found: _Waits = []
    for of_stream, inferred in ((stated, False), (np.where(stated < 0, guessed, -1), True)):
        known = calls[of_stream >= 0]
        which, rows = events.queued(of_stream[of_stream >= 0], here.start[known])
        found.append((rows, known[which], inferred))
    unknown = calls[(stated < 0) & (guessed < 0)]
    src, dst = _nearest_work(here, unknown)
    log.add(
        "link.sync-unknown", "info", unknown.size - dst.size,
        "stream synchronization calls have an unknown stream: no dependency is added",
        "record with synchronization events: "
        "experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)",
    )  # fmt: skip
    return [*found, (src, dst, True)]


def _stream_of_last_copy(here: DeviceCalls, calls: Ints, keys: Ints) -> Ints:
    """Return the stream of the copy that the thread launched last before each call.

    ``.item()`` copies and waits immediately. -1 if the last launch is not a copy, or if the call
    returns long after the copy ends, as it then waits for something else.
    """
    thread = here.trace.column("thread")
    work = here.launched_work
    launch = here.launcher[work]
    last = np.full(calls.size, -1, dtype=np.int64)
    for t in np.unique(thread[calls]):
        mine, theirs = thread[calls] == t, thread[launch] == t
        last[mine] = find_rows(launch[theirs], work[theirs], calls[mine], nearest=True)
    is_copy = here.trace.category_mask("memcpy")
    done = np.maximum(here.end[last], here.start[calls])
    explains = here.end[calls] - done <= _LONGEST_RETURN_NS
    return np.where((last >= 0) & is_copy[last] & explains, keys[last], -1)


def _nearest_work(here: DeviceCalls, calls: Ints, *, by_event: bool = False) -> tuple[Ints, Ints]:
    """Find for each call the last work launched before it that ends shortly before it returns.

    Candidates are the last work of each stream, or the last before an event was recorded.
    """
    best = np.full(calls.size, -1, dtype=np.int64)
    latest = here.start[calls].copy()  # the call did not wait for work that ended before it started
    for stream in range(here.work.keys.size):
        if by_event:
            at = here.last_recorded(stream, here.start[calls], here.end[calls])
        else:
            at = here.work.last_before(stream, here.start[calls])
        row = np.where(at >= 0, here.work.rows[at], 0)
        fits = (at >= 0) & (here.end[row] > latest) & (here.end[row] <= here.end[calls])
        best[fits], latest[fits] = row[fits], here.end[row[fits]]
    near = (best >= 0) & (here.end[calls] - latest <= _FOUND_WITHIN_NS)
    return best[near], calls[near]


def _event_syncs(here: DeviceCalls, events: EventWaits) -> _Waits:
    """Add a dependency of event synchronization on the work before the event's record."""
    calls = here.calls("event sync")
    if not events.are_stated:
        return [(*_nearest_work(here, calls, by_event=True), True)]
    which, rows = events.queued_at_records(calls)
    return [(rows, calls[which], False)]


def _copies(here: DeviceCalls) -> _Waits:
    """Add dependencies of blocking calls on their own copies.

    A copy to pageable memory, and any copy by a synchronous call, blocks its call until it is
    done. A large copy from pageable memory blocks its call until most of it is in transfer.
    """
    trace = here.trace
    copies = np.flatnonzero(trace.category_mask("memcpy") & (here.launcher >= 0))
    launch = here.launcher[copies]
    synchronous = (
        trace.name_mask(pattern("copy")) & ~trace.name_mask(pattern("asynchronous copy"))
    )[launch]
    from_pageable = trace.name_mask(COPY_FROM_PAGEABLE)[copies]
    waits = trace.name_mask(COPY_TO_PAGEABLE)[copies] | (
        synchronous & ~from_pageable & ~trace.name_mask(COPY_ON_DEVICE)[copies]
    )
    staged = from_pageable & (trace.column("bytes")[copies] > STAGED_COPY_BYTES)
    chosen = waits | staged
    return [(copies[chosen], launch[chosen], False)]


def _blocking_launches(here: DeviceCalls) -> _Waits:
    """Infer which launches wait for their own work, as with CUDA_LAUNCH_BLOCKING=1.

    The calls of a name do if nine tenths of them contain the start of their work and half of them
    its end, and if the time from that end to their return varies less than half as much as they
    last: it follows the work, and not the call. Quartiles say how much times vary. Copies have
    rules of their own.
    """
    work = here.launched_work
    work = work[~here.trace.category_mask("memcpy")[work]]
    work = work[np.lexsort((here.end[work], here.launcher[work]))]
    is_last = np.append(np.diff(here.launcher[work]) != 0, True)[: work.size]
    work = work[is_last]
    calls = here.launcher[work]
    begun = here.start[work] < here.end[calls]
    returned = here.end[calls] - here.end[work]
    names = text_codes(here.trace.nodes["name"])[calls]
    blocking = np.zeros(calls.size, dtype=np.bool_)
    for name in np.unique(names):
        mine = names == name
        ended = mine & (returned >= 0)
        often = begun[mine].mean() >= _MOST_BEGUN and 2 * ended.sum() >= mine.sum()
        if often and ended.sum() >= _FEWEST_REPEATS:
            lasted = _spread((here.end - here.start)[calls[mine]])
            blocking[ended] = 2 * _spread(returned[mine]) < lasted
    return [(work[blocking], calls[blocking], True)]


def _spread(times: Ints) -> float:
    lower, upper = np.percentile(times, (25, 75))
    return float(upper - lower)


def _full_queues(here: DeviceCalls) -> _Waits:
    """Add a dependency of each launch on the one ``QUEUE_LENGTH`` launches before on its stream."""
    found: _Waits = []
    for low, high in pairwise(here.work.ptr):
        rows = here.work.rows[low:high]
        rows = rows[here.launcher[rows] >= 0]
        last_of_launch = np.append(np.diff(here.launcher[rows]) != 0, True)[: rows.size]
        rows = rows[last_of_launch]
        found.append((rows[:-QUEUE_LENGTH], here.launcher[rows[QUEUE_LENGTH:]], True))
    return found
