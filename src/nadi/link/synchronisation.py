"""Who waits for a device: calls that return after its work, and streams that wait for others.

What a call waits for the recording says only if it has synchronisation events
(``cuda_sync``). Without them it is found from the order of launches and the times.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nadi.issues import IssueLog
from nadi.link.launches import find_rows
from nadi.link.streams import StreamWork, stream_keys
from nadi.trace import Trace

__all__ = ["BLOCKING_COPY", "QUEUE_LENGTH", "STAGED_COPY_BYTES", "synchronisation"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Found = list[tuple[str, tuple[_Ints, _Ints], bool]]

QUEUE_LENGTH = 1022  # launches that a stream holds before the next one blocks
STAGED_COPY_BYTES = 64 * 1024  # a copy from pageable memory up to this size is taken along
BLOCKING_COPY = r"(?i)->\s*pageable"
_FROM_PAGEABLE = r"(?i)pageable\s*->"
_ON_DEVICE = r"(?i)\bDtoD\b|\bPtoP\b|device\s*->\s*device"
_COPY_CALL = r"^(cuda|hip)Memcpy"
_ASYNCHRONOUS = "Async"
_DEVICE_SYNC = r"^(cuda|hip)DeviceSynchronize|^(cu|hip)CtxSynchronize"
_STREAM_SYNC = r"^(cuda|hip|cu)StreamSynchronize"
_EVENT_SYNC = r"^(cuda|hip|cu)EventSynchronize"
_STREAM_WAIT = r"^(cuda|hip|cu)StreamWaitEvent"
_DEFAULT_STREAMS = (0, 7)  # as HIP and CUDA's profiler number it
_FOUND_WITHIN_NS = 50_000  # a call returns at most so long after what it waited for
_LATE_NS = 3_000
_LATE_IN_CALL_NS = 20_000  # a copy that blocks its call begins some 14 us into it
_WOKEN_WITHIN_NS = 10_000


@dataclass(frozen=True)
class _Device:
    """What every rule below looks at: times, names, launches and streams of one rank."""

    trace: Trace
    launcher: _Ints
    work: StreamWork
    start: _Ints
    end: _Ints
    is_call: _Bools

    def calls(self, pattern: str) -> _Ints:
        """Give the runtime and driver calls whose name fits; node rows, ascending."""
        return np.flatnonzero(self.is_call & self.trace.name_mask(pattern))


@dataclass(frozen=True)
class _Stated:
    """What synchronisation events say, by the correlation of the call that made them.

    Attributes
    ----------
    correlation
        int64, shape (events,).
    source
        int64, shape (events,): the stream waited for, as in ``StreamWork.keys``, or -1.
    target
        int64, shape (events,): the stream that waits, or -1.
    record
        int64, shape (events,): correlation of the call that recorded the event, or -1.
    """

    correlation: _Ints
    source: _Ints
    target: _Ints
    record: _Ints


def synchronisation(
    trace: Trace, device: Trace, launcher: _Ints, work: StreamWork, log: IssueLog
) -> _Found:
    """Find what waits for device work.

    Parameters
    ----------
    trace
        The linked trace.
    device
        The device trace behind it, whose synchronisation events tell what was waited for.
    launcher
        int64, shape (nodes,), from :func:`nadi.link.launches.launcher_rows`.
    work
        The streams of ``trace``.
    log
        Takes note of waits that are unknown, or that the measured times contradict.

    Returns
    -------
    list of (kind, (src, dst), inferred)
        Of kind sync the call is the one that waits, of kind event it is device work.
        O((nodes + calls * streams) log nodes).
    """
    start = trace.column("start")
    end = start + trace.column("duration")
    is_call = trace.category_mask("runtime", "driver")
    here = _Device(trace, launcher, work, start, end, is_call)
    stated = _stated_waits(device)
    found = [
        *_device_syncs(here),
        *_stream_syncs(here, log),
        *_event_syncs(here, stated),
        *_copies(here),
        *_full_queues(here),
    ]
    waits = [("sync", *_consistent(here, src, dst, log), inferred) for src, dst, inferred in found]
    events = _stream_waits(here, stated, log)
    return [
        *((kind, (src, dst), inferred) for kind, src, dst, inferred in waits),
        *events,
        ("event", _default_stream_waits(here, events), True),
    ]


def _consistent(here: _Device, src: _Ints, dst: _Ints, log: IssueLog) -> tuple[_Ints, _Ints]:
    """Leave out waits that the times contradict; only a copy may outlive the call it holds up."""
    start, end = here.start, here.end
    own_copy = here.launcher[src] == dst
    possible = (np.where(own_copy, start[src], end[src]) <= end[dst]) & (start[src] < end[dst])
    log.add(
        "link.sync-contradicted", "info", int((~possible).sum()),
        "device operations end after a call that should have waited for them",
        "these calls are taken not to have waited",
    )  # fmt: skip
    return src[possible], dst[possible]


_Waits = list[tuple[_Ints, _Ints, bool]]


def _device_syncs(here: _Device) -> _Waits:
    """Let device synchronisation wait for all that was launched before it, on any stream."""
    calls = here.calls(_DEVICE_SYNC)
    return [(*_last_work(here, stream, calls), False) for stream in range(here.work.keys.size)]


def _last_work(here: _Device, stream: int, calls: _Ints) -> tuple[_Ints, _Ints]:
    at = here.work.last_before(stream, here.start[calls])
    return here.work.rows[at[at >= 0]], calls[at >= 0]


def _stream_syncs(here: _Device, log: IssueLog) -> _Waits:
    """Let stream synchronisation wait for the last work launched before on its stream.

    The recording says which in a synchronisation event; else it is the stream of a copy
    that was the last thing that the same thread launched; else of the work that ends last
    before the call does, where the call is seen to wait.
    """
    calls = here.calls(_STREAM_SYNC)
    trace = here.trace
    correlation = trace.column("correlation")
    keys = stream_keys(trace.column("device"), trace.column("stream"))
    events = np.flatnonzero(trace.category_mask("sync") & (correlation > 0) & (keys >= 0))
    stated = find_rows(correlation[events], keys[events], correlation[calls])
    guessed = _stream_of_last_copy(here, calls, keys)
    found: _Waits = []
    for of_stream, inferred in ((stated, False), (np.where(stated < 0, guessed, -1), True)):
        for stream, key in enumerate(here.work.keys):
            found.append((*_last_work(here, stream, calls[of_stream == key]), inferred))
    unknown = calls[(stated < 0) & (guessed < 0)]
    src, dst = _nearest_work(here, unknown)
    log.add(
        "link.sync-unknown", "info", unknown.size - dst.size,
        "stream synchronisations do not say which stream they wait for",
        "record with synchronisation events: "
        "experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)",
    )  # fmt: skip
    return [*found, (src, dst, True)]


def _stream_of_last_copy(here: _Device, calls: _Ints, keys: _Ints) -> _Ints:
    """Give the stream of the copy that the thread launched last before each call.

    -1 where the last thing launched is no copy: ``.item()`` copies and waits at once.
    """
    thread = here.trace.column("thread")
    work = here.work.rows[here.launcher[here.work.rows] >= 0]
    launch = here.launcher[work]
    last = np.full(calls.size, -1, dtype=np.int64)
    for t in np.unique(thread[calls]):
        mine, theirs = thread[calls] == t, thread[launch] == t
        last[mine] = find_rows(launch[theirs], work[theirs], calls[mine], nearest=True)
    is_copy = here.trace.category_mask("memcpy")
    return np.where((last >= 0) & is_copy[last], keys[last], -1)


def _nearest_work(here: _Device, calls: _Ints) -> tuple[_Ints, _Ints]:
    """Find for each call the last work launched before it that ends shortly before it returns."""
    best = np.full(calls.size, -1, dtype=np.int64)
    latest = here.start[calls].copy()  # what ended before the call began was not waited for
    for stream in range(here.work.keys.size):
        at = here.work.last_before(stream, here.start[calls])
        row = np.where(at >= 0, here.work.rows[at], 0)
        fits = (at >= 0) & (here.end[row] > latest) & (here.end[row] <= here.end[calls])
        best[fits], latest[fits] = row[fits], here.end[row[fits]]
    near = (best >= 0) & (here.end[calls] - latest <= _FOUND_WITHIN_NS)
    return best[near], calls[near]


def _event_syncs(here: _Device, stated: _Stated) -> _Waits:
    """Let event synchronisation wait for the last work launched before the event's record."""
    calls = here.calls(_EVENT_SYNC)
    if not stated.correlation.size:
        return [(*_nearest_work(here, calls), True)]
    at = find_rows(
        stated.correlation, np.arange(stated.correlation.size),
        here.trace.column("correlation")[calls],
    )  # fmt: skip
    known = (at >= 0) & (stated.source[at] >= 0)
    return [(*_work_before_record(here, stated, at[known], calls[known]), False)]


def _work_before_record(
    here: _Device, stated: _Stated, at: _Ints, calls: _Ints
) -> tuple[_Ints, _Ints]:
    """Find the last work before the record of the event that each call waits for.

    Where the record is not in the trace it was before the call itself. ``at``: which
    synchronisation event is each call's.
    """
    all_calls = np.flatnonzero(here.is_call)
    correlation = here.trace.column("correlation")[all_calls]
    recorded_by = find_rows(correlation, all_calls, stated.record[at])
    moment = here.start[np.where((recorded_by >= 0) & (stated.record[at] > 0), recorded_by, calls)]
    found = np.full(calls.size, -1, dtype=np.int64)
    for stream, key in enumerate(here.work.keys):
        mine = np.flatnonzero(stated.source[at] == key)
        last = here.work.last_before(stream, moment[mine])
        found[mine[last >= 0]] = here.work.rows[last[last >= 0]]
    return found[found >= 0], calls[found >= 0]


def _copies(here: _Device) -> _Waits:
    """Let calls wait for their own copies.

    A copy to pageable memory, and any by a call that is not asynchronous, holds its call
    up until it is done; a large copy from pageable memory until most of it is on its way.
    """
    trace = here.trace
    copies = np.flatnonzero(trace.category_mask("memcpy") & (here.launcher >= 0))
    launch = here.launcher[copies]
    synchronous = (trace.name_mask(_COPY_CALL) & ~trace.name_mask(_ASYNCHRONOUS))[launch]
    from_pageable = trace.name_mask(_FROM_PAGEABLE)[copies]
    waits = trace.name_mask(BLOCKING_COPY)[copies] | (
        synchronous & ~from_pageable & ~trace.name_mask(_ON_DEVICE)[copies]
    )
    staged = from_pageable & (trace.column("bytes")[copies] > STAGED_COPY_BYTES)
    chosen = waits | staged
    return [(copies[chosen], launch[chosen], False)]


def _full_queues(here: _Device) -> _Waits:
    """Let a launch wait for the one ``QUEUE_LENGTH`` launches before it on its stream."""
    found: _Waits = []
    for low, high in pairwise(here.work.ptr):
        rows = here.work.rows[low:high]
        rows = rows[here.launcher[rows] >= 0]
        last_of_launch = np.append(np.diff(here.launcher[rows]) != 0, True)[: rows.size]
        rows = rows[last_of_launch]
        found.append((rows[:-QUEUE_LENGTH], here.launcher[rows[QUEUE_LENGTH:]], True))
    return found


def _stated_waits(device: Trace) -> _Stated:
    """Read what the synchronisation events of a device trace say of events."""
    is_wait = device.category_mask("sync") & device.name_mask(r"^(Event Sync|Stream Wait Event)$")
    rows = np.flatnonzero(is_wait)
    said = [device.attributes.of(int(row)).get("args", {}) for row in rows]

    def column(key: str) -> _Ints:
        values = [args.get(key, -1) for args in said]
        return np.array([v if isinstance(v, int) else -1 for v in values], dtype=np.int64)

    on_device = device.column("device")[rows]
    return _Stated(
        correlation=device.column("correlation")[rows],
        source=stream_keys(on_device, column("wait_on_stream")),
        target=stream_keys(on_device, device.column("stream")[rows]),
        record=column("wait_on_cuda_event_record_corr_id"),
    )


def _stream_waits(here: _Device, stated: _Stated, log: IssueLog) -> _Found:
    """Let the next work of a stream wait for an event of another stream."""
    calls = here.calls(_STREAM_WAIT)
    if not stated.correlation.size:
        return [("event", _guessed_stream_waits(here, calls, log), True)]
    correlation = here.trace.column("correlation")[calls]
    at = find_rows(stated.correlation, np.arange(stated.correlation.size), correlation)
    known = (at >= 0) & (stated.source[at] >= 0) & (stated.target[at] >= 0)
    src, waiting = _work_before_record(here, stated, at[known], calls[known])
    target = np.full(here.start.size, -1, dtype=np.int64)
    target[calls[known]] = stated.target[at[known]]
    dst = np.full(src.size, -1, dtype=np.int64)
    for stream, key in enumerate(here.work.keys):
        mine = np.flatnonzero(target[waiting] == key)
        first = here.work.first_after(stream, here.start[waiting[mine]])
        dst[mine[first >= 0]] = here.work.rows[first[first >= 0]]
    src, dst = src[dst >= 0], dst[dst >= 0]
    possible = here.end[src] <= here.start[dst]
    log.add(
        "link.event-contradicted", "info", int((~possible).sum()),
        "device operations start before the event that their stream waited for",
        "they are taken not to have waited",
    )  # fmt: skip
    return [("event", _unique(src[possible], dst[possible]), False)]


def _guessed_stream_waits(here: _Device, calls: _Ints, log: IssueLog) -> tuple[_Ints, _Ints]:
    """Guess what a stream waited for, where it is seen to: late work that begins with an end.

    The work that waits is the next that this thread launches, or that any does; what it
    waits for is the last work of another stream launched before the wait, if it ends
    shortly before.
    """
    calls, dst = _next_launched(here, calls)
    late = here.start[dst] > _due(here)[dst]
    key = _keys_of_rows(here)
    seen = np.zeros(here.start.size, dtype=np.bool_)
    none = np.empty(0, dtype=np.int64)
    pairs = [(none, none)]
    for stream, own in enumerate(here.work.keys):
        src, woken = _just_ended(here, stream, here.start[calls], dst)
        binds = woken & (key[dst] != own) & late
        pairs.append((src[binds], dst[binds]))
        seen[calls[binds]] = True
    src, dst = _unique(*(np.concatenate(part) for part in zip(*pairs, strict=True)))
    log.add(
        "link.event-unknown", "info", int(np.unique(calls).size - seen.sum()),
        "waits of a stream for an event do not say which, and are not seen in the times",
        "record with synchronisation events: "
        "experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)",
    )  # fmt: skip
    return src, dst


def _default_stream_waits(here: _Device, events: _Found) -> tuple[_Ints, _Ints]:
    """Guess where the default stream and others waited for each other, as CUDA's old rule has it.

    Whether a stream keeps that rule the recording does not say. What is late, without an
    event to wait for, and begins with the end of work launched before it, one of both on
    the default stream, is taken to have waited.
    """
    work = here.work.rows[here.launcher[here.work.rows] >= 0]
    late = work[here.start[work] > _due(here)[work]]
    late = np.setdiff1d(late, np.concatenate([dst for _, (_, dst), _ in events]))
    key = _keys_of_rows(here)
    is_default = np.isin(here.work.keys % 2**32, _DEFAULT_STREAMS)
    of_default = np.isin(key[late], here.work.keys[is_default])
    none = np.empty(0, dtype=np.int64)
    pairs = [(none, none)]
    for stream, own in enumerate(here.work.keys):
        src, woken = _just_ended(here, stream, here.start[here.launcher[late]], late)
        same_device = key[late] // 2**32 == own // 2**32
        binds = woken & (key[late] != own) & same_device & (of_default | is_default[stream])
        pairs.append((src[binds], late[binds]))
    return _unique(*(np.concatenate(part) for part in zip(*pairs, strict=True)))


def _just_ended(here: _Device, stream: int, before: _Ints, dst: _Ints) -> tuple[_Ints, _Bools]:
    """Find the last work of a stream launched before given times, one for each of ``dst``.

    Returns
    -------
    int64 and bool, shape (dst,)
        Its node row, and whether it ended shortly before ``dst`` began.
    """
    at = here.work.last_before(stream, before)
    src = np.where(at >= 0, here.work.rows[at], 0)
    early = here.start[dst] - here.end[src]
    return src, (at >= 0) & (early >= 0) & (early <= _WOKEN_WITHIN_NS)


def _keys_of_rows(here: _Device) -> _Ints:
    """Give the stream of each node, as in ``StreamWork.keys``, or -1."""
    key = np.full(here.start.size, -1, dtype=np.int64)
    key[here.work.rows] = np.repeat(here.work.keys, np.diff(here.work.ptr))
    return key


def _next_launched(here: _Device, calls: _Ints) -> tuple[_Ints, _Ints]:
    """Pair calls with the next device work launched after them: by their thread, and by any."""
    thread = here.trace.column("thread")
    launched = here.work.rows[here.launcher[here.work.rows] >= 0]
    launched = launched[np.argsort(here.launcher[launched], kind="stable")]
    launch = here.launcher[launched]
    none = np.empty(0, dtype=np.int64)
    pairs = [(none, none)]
    for mine, theirs in [
        *((calls[thread[calls] == t], thread[launch] == t) for t in np.unique(thread[calls])),
        (calls, np.ones(launch.size, dtype=np.bool_)),
    ]:
        at = np.searchsorted(launch[theirs], mine)
        inside = at < theirs.sum()
        pairs.append((mine[inside], launched[theirs][at[inside]]))
    return _unique(*(np.concatenate(part) for part in zip(*pairs, strict=True)))


def _due(here: _Device) -> _Ints:
    """Give for each device operation when it is late for its launch and stream; ns, by row."""
    due = np.zeros(here.start.size, dtype=np.int64)
    before, after = here.work.order()
    due[after] = here.end[before] + _LATE_NS
    work = here.work.rows[here.launcher[here.work.rows] >= 0]
    call = here.launcher[work]
    # a copy that blocks its call begins within it
    within = here.start[work] < here.end[call]
    launched = np.where(within, here.start[call] + _LATE_IN_CALL_NS, here.end[call] + _LATE_NS)
    due[work] = np.maximum(due[work], launched)
    return due


def _unique(src: _Ints, dst: _Ints) -> tuple[_Ints, _Ints]:
    """Give every pair once."""
    pairs = np.unique(np.stack([src, dst], axis=1), axis=0)
    return pairs[:, 0].copy(), pairs[:, 1].copy()
