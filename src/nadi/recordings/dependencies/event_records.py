"""CUDA events in synchronization records: the work that was queued when an event was recorded.

A stream that waits for an event delays all its later work. A wait for a stream, or for an event
recorded on it, is therefore a wait for the last work of the stream and for all events that the
stream waits for after that work.
"""

from dataclasses import dataclass

import numpy as np

from nadi.kernels.sequences import expand_ranges
from nadi.recordings.dependencies.device_calls import (
    DeviceCalls,
    find_rows,
    stream_keys,
    unique_pairs,
)
from nadi.trace.arrays import Ints
from nadi.trace.trace import Trace

_MOST_ID = 1 << 62
_BEFORE_ALL = np.iinfo(np.int64).min


@dataclass(frozen=True)
class _Stated:
    """The content of synchronization events, by the correlation of their calls."""

    correlation: Ints  # int64, shape (events,)
    # int64, shape (events,): the stream of the awaited work, as in ``StreamWork.keys``, or -1
    source: Ints
    target: Ints  # int64, shape (events,): the stream that waits, or -1
    record: Ints  # int64, shape (events,): correlation of the call that recorded the event, or -1


@dataclass(frozen=True)
class EventWaits:
    """The waits for CUDA events of one rank, as recorded in its synchronization events."""

    here: DeviceCalls  # the rank
    stated: _Stated  # all synchronization events that refer to CUDA events
    # key, moment: int64, shape (waits,): the stream that waits, as in ``StreamWork.keys``, and when
    # the wait was issued (ns); by stream and then by time
    key: Ints
    moment: Ints
    # wait, source: int64, shape (sources,): position of a wait, and the node row of the awaited
    # work
    wait: Ints
    source: Ints

    @property
    def are_stated(self) -> bool:
        """Whether the recording has synchronization events that refer to CUDA events."""
        return self.stated.correlation.size > 0

    def queued(self, key: Ints, moment: Ints) -> tuple[Ints, Ints]:
        """Find the work that was queued on streams at given times.

        - ``key``, ``moment``: int64, shape (queries,).
        - Returns which, rows: int64: position of a query, and the node row of work that must end
          before later work of that stream starts: the stream's last work, and what the stream waits
          for after it.
        """
        last, since = _last_work(self.here, key, moment)
        which, wait = _between(self.key, self.moment, key, since, moment)
        first = np.searchsorted(self.wait, wait)
        count = np.searchsorted(self.wait, wait, side="right") - first
        of_wait, at = expand_ranges(first, count)
        known = np.flatnonzero(last >= 0)
        return unique_pairs(
            np.concatenate([known, which[of_wait]]),
            np.concatenate([last[known], self.source[at]]),
        )

    def queued_at_records(self, calls: Ints) -> tuple[Ints, Ints]:
        """Find the work that calls wait for when they wait for an event.

        - Returns which, rows: As for :meth:`queued`, for the calls whose synchronization event is
          recorded.
        """
        at = _stated_of(self.here, self.stated, calls)
        known = np.flatnonzero(at >= 0)
        known = known[self.stated.source[at[known]] >= 0]
        key, moment = _records(self.here, self.stated, at[known], calls[known])
        which, rows = self.queued(key, moment)
        return known[which], rows


def find_events(here: DeviceCalls, device: Trace) -> EventWaits:
    """Read the waits of streams for events, each with the awaited work.

    ``device`` is the device trace behind the rank. O(waits log nodes) for each level of a chain of
    streams that wait for each other.
    """
    stated = _stated_waits(device)
    calls = here.calls("stream wait")
    at = _stated_of(here, stated, calls)
    known = np.flatnonzero(at >= 0)
    known = known[(stated.source[at[known]] >= 0) & (stated.target[at[known]] >= 0)]
    calls, at = calls[known], at[known]
    target = stated.target[at]
    order = np.lexsort((here.start[calls], target))
    calls, at, target = calls[order], at[order], target[order]
    moment = here.start[calls]
    key, recorded = _records(here, stated, at, calls)
    last, since = _last_work(here, key, recorded)
    own = np.flatnonzero(last >= 0)
    waits, pending = _closure(*_between(target, moment, key, since, recorded))
    at_end = last[pending] >= 0
    wait, source = unique_pairs(
        np.concatenate([own, waits[at_end]]), np.concatenate([last[own], last[pending[at_end]]])
    )
    return EventWaits(here, stated, target, moment, wait, source)


def _stated_of(here: DeviceCalls, stated: _Stated, calls: Ints) -> Ints:
    """Return the synchronization event of each call, or -1."""
    correlation = here.trace.column("correlation")[calls]
    return find_rows(stated.correlation, np.arange(stated.correlation.size), correlation)


def _records(here: DeviceCalls, stated: _Stated, at: Ints, calls: Ints) -> tuple[Ints, Ints]:
    """Return the stream and the time of the record of the event that each call waits for.

    If the trace lacks the record, the time of the call itself is its upper bound.
    """
    all_calls = np.flatnonzero(here.is_call)
    correlation = here.trace.column("correlation")[all_calls]
    recorded_by = find_rows(correlation, all_calls, stated.record[at])
    known = (recorded_by >= 0) & (stated.record[at] > 0)
    return stated.source[at], here.start[np.where(known, recorded_by, calls)]


def _last_work(here: DeviceCalls, key: Ints, moment: Ints) -> tuple[Ints, Ints]:
    """Return the last work of a stream before a time, or -1, and when it was launched."""
    last = np.full(key.size, -1, dtype=np.int64)
    since = np.full(key.size, _BEFORE_ALL)
    for stream, own in enumerate(here.work.keys):
        mine = np.flatnonzero(key == own)
        at = here.work.last_before(stream, moment[mine])
        mine, at = mine[at >= 0], at[at >= 0]
        last[mine], since[mine] = here.work.rows[at], here.work.launched[at]
    return last, since


def _between(waiting: Ints, told: Ints, key: Ints, since: Ints, until: Ints) -> tuple[Ints, Ints]:
    """Find the waits issued to a stream between two times; (which query, which wait)."""
    first, last = np.zeros((2, key.size), dtype=np.int64)
    for own in np.unique(key):
        low, high = np.searchsorted(waiting, [own, own + 1])
        mine = key == own
        first[mine] = low + np.searchsorted(told[low:high], since[mine], side="right")
        last[mine] = low + np.searchsorted(told[low:high], until[mine])
    return expand_ranges(first, np.maximum(last - first, 0))


def _closure(src: Ints, dst: Ints) -> tuple[Ints, Ints]:
    """Compute the transitive closure of pairs."""
    order = np.argsort(src, kind="stable")
    by_src, leads_to = src[order], dst[order]
    found = unique_pairs(src, dst)
    while True:
        first = np.searchsorted(by_src, found[1])
        count = np.searchsorted(by_src, found[1], side="right") - first
        which, at = expand_ranges(first, count)
        wider = unique_pairs(
            np.concatenate([found[0], found[0][which]]),
            np.concatenate([found[1], leads_to[at]]),
        )
        if wider[0].size == found[0].size:
            return found
        found = wider


def _stated_waits(device: Trace) -> _Stated:
    """Read the synchronization events of a device trace that refer to CUDA events."""
    is_wait = device.category_mask("sync") & device.name_mask(r"^(Event Sync|Stream Wait Event)$")
    rows = np.flatnonzero(is_wait)
    stated = [device.attributes.of(int(row)).get("args") for row in rows]
    said = [args if isinstance(args, dict) else {} for args in stated]

    def column(key: str) -> Ints:
        values = [args.get(key) for args in said]
        is_id = [isinstance(value, int) and -1 <= value < _MOST_ID for value in values]
        return np.array([v if k else -1 for v, k in zip(values, is_id, strict=True)], np.int64)

    on_device = device.column("device")[rows]
    return _Stated(
        correlation=device.column("correlation")[rows],
        source=stream_keys(on_device, column("wait_on_stream")),
        target=stream_keys(on_device, device.column("stream")[rows]),
        record=column("wait_on_cuda_event_record_corr_id"),
    )
