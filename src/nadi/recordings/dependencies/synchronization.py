"""Find calls that wait for a device: synchronization, blocking copies, launches on full queues.

A recording names the awaited stream or event only if it has synchronization events
(``cuda_sync``). Without them it is inferred from the order of launches and the times.

Which work a stream waits for is inferred from the order of calls where events have no numbers: a
thread that moves work to another stream records an event after what it launched, and lets the other
stream wait for that event before it launches there. ``ProcessGroupNCCL`` does so before each
collective, with NCCL and with RCCL.

CUDA events in synchronization records: the work that was queued when an event was recorded.

A stream that waits for an event delays all its later work. A wait for a stream, or for an event
recorded on it, is therefore a wait for the last work of the stream and for all events that the
stream waits for after that work.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nadi.kernels.sequences import expand_ranges
from nadi.recordings.dependencies.device_calls import (
    DeviceCalls,
    find_rows,
    stream_keys,
    unique_pairs,
)
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import (
    COPY_FROM_PAGEABLE,
    COPY_ON_DEVICE,
    COPY_TO_PAGEABLE,
    STAGED_COPY_BYTES,
    pattern,
)
from nadi.trace.issues import IssueLog
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
        last, since = _last_work_before(self.here, key, moment)
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


_LAUNCH, _RECORD, _WAIT = range(3)
_FEWEST_REPEATS_OF_PAIRS = 3


def paired_events(here: DeviceCalls) -> tuple[Ints, Ints]:
    """Pair kernels with the work that their stream waits for.

    A wait directly after a record on its thread is for the last work of the stream onto which the
    thread launched last; the thread's next launch is onto the stream that waits. Kernels of one
    name wait so if at least three do, and no measured time contradicts it.

    - Returns src, dst: int64 node rows. O(calls * streams * log nodes).
    """
    call, kind, thread = _calls(here)
    at = np.flatnonzero(kind == _WAIT)
    at = at[(at > 0) & (kind[at - 1] == _RECORD) & (thread[at - 1] == thread[at])]
    if not at.size:
        return at, at
    before, after = _launch_before(call, kind, thread, at), _launch_after(call, kind, thread, at)
    known = (before >= 0) & (after >= 0)
    record, before, after = call[at[known] - 1], before[known], after[known]
    key = here.key
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
    names = here.trace.name_codes[0][waiting].astype(np.int64)
    size = int(names.max(initial=0)) + 1
    count = np.bincount(names, minlength=size)
    wrong = np.bincount(names[here.end[source] > here.start[waiting]], minlength=size)
    chosen = (count[names] >= _FEWEST_REPEATS_OF_PAIRS) & (wrong[names] == 0)
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


_Found = list[tuple[str, tuple[Ints, Ints], bool]]

_DEFAULT_STREAMS = (0, 7)  # its number in HIP's and CUDA's profiler
_WOKEN_WITHIN_NS = 10_000
_LATE_FOR_SURE_NS = 20_000  # beyond what is due
_TAIL_NS = 50_000
_BY_CHANCE = 0.1


def stream_waits(here: DeviceCalls, events: EventWaits, log: IssueLog) -> _Found:
    """Find the device work that waits for work of other streams.

    - Returns list of (kind, (src, dst), inferred): Dependencies of kind event between device
      operations; node rows. O(calls * streams * log nodes).
    """
    if events.are_stated:
        found: _Found = [("event", _stated_stream_waits(here, events, log), False)]
    else:
        guessed = _guessed_stream_waits(here, here.calls("stream wait"), log)
        found = [("event", _both(guessed, paired_events(here)), True)]
    found.append(("event", _default_stream_waits(here, found), True))
    return [*found, ("event", _repeated_waits(here, found), True)]


def _both(first: tuple[Ints, Ints], second: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Return all pairs of two lists once."""
    src, dst = (np.concatenate(column) for column in zip(first, second, strict=True))
    return unique_pairs(src, dst)


def _stated_stream_waits(here: DeviceCalls, events: EventWaits, log: IssueLog) -> tuple[Ints, Ints]:
    """Let the next work of a stream wait for the events that the stream waits for."""
    following = np.full(events.key.size, -1, dtype=np.int64)
    for stream, own in enumerate(here.work.keys):
        mine = np.flatnonzero(events.key == own)
        first = here.work.first_after(stream, events.moment[mine])
        following[mine[first >= 0]] = here.work.rows[first[first >= 0]]
    dst = following[events.wait]
    src, dst = events.source[dst >= 0], dst[dst >= 0]
    key = here.key
    elsewhere = key[src] != key[dst]
    src, dst = src[elsewhere], dst[elsewhere]
    possible = here.end[src] <= here.start[dst]
    log.add(
        "link.event-contradicted", "info", int((~possible).sum()),
        "device operations start before the event completes that their stream waits for",
        "no dependency is added for them",
    )  # fmt: skip
    return unique_pairs(src[possible], dst[possible])


def _guessed_stream_waits(here: DeviceCalls, calls: Ints, log: IssueLog) -> tuple[Ints, Ints]:
    """Infer which work a stream waited for from operations that start late, when other work ends.

    The waiting operation is the next one that this thread launches, or that any thread launches.
    It waits for the last work of another stream that was launched before the wait, if that work
    ends shortly before the operation starts.
    """
    if not calls.size:
        return calls, calls
    calls, dst = _next_launched(here, calls)
    num_waits = np.bincount(dst, minlength=here.start.size)
    late = here.start[dst] > here.due[dst]
    key = here.key
    seen = np.zeros(here.start.size, dtype=np.bool_)
    none = np.empty(0, dtype=np.int64)
    pairs = [(none, none)]
    for stream, own in enumerate(here.work.keys):
        at = here.last_recorded(stream, here.start[calls], here.start[dst])
        src, woken = _just_ended(here, at, dst)
        binds = woken & (key[dst] != own) & late
        pairs.append((src[binds], dst[binds]))
        seen[calls[binds]] = True
    src, dst = unique_pairs(*(np.concatenate(part) for part in zip(*pairs, strict=True)))
    src, dst = _last_to_end(here, src, dst, num_waits)
    log.add(
        "link.event-unknown", "info", int(np.unique(calls).size - seen.sum()),
        "calls make a stream wait for an event that is not recorded and cannot be inferred from "
        "times",
        "record with synchronization events: "
        "experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)",
    )  # fmt: skip
    return src, dst


def _last_to_end(here: DeviceCalls, src: Ints, dst: Ints, most: Ints) -> tuple[Ints, Ints]:
    """Keep the ``most[dst]`` pairs of each ``dst`` whose ``src`` end last."""
    order = np.lexsort((-here.end[src], dst))
    src, dst = src[order], dst[order]
    place = np.arange(dst.size) - np.searchsorted(dst, dst)
    return src[place < most[dst]], dst[place < most[dst]]


def _default_stream_waits(here: DeviceCalls, events: _Found) -> tuple[Ints, Ints]:
    """Infer waits between the default stream and other streams, as CUDA's legacy rule has them.

    The recording does not say whether a stream follows that rule. A dependency is inferred if an
    operation has no event to wait for, starts late, and starts when an earlier launched operation
    ends, with one of the two on the default stream.
    """
    work = here.launched_work
    late = work[here.start[work] > here.due[work]]
    late = _without(here, late, events)
    key = here.key
    is_default = np.isin(here.work.keys % 2**32, _DEFAULT_STREAMS)
    of_default = np.isin(key[late], here.work.keys[is_default])
    none = np.empty(0, dtype=np.int64)
    pairs = [(none, none)]
    for stream, own in enumerate(here.work.keys):
        at = here.work.last_before(stream, here.start[here.launcher[late]])
        src, woken = _just_ended(here, at, late)
        same_device = key[late] // 2**32 == own // 2**32
        binds = woken & (key[late] != own) & same_device & (of_default | is_default[stream])
        pairs.append((src[binds], late[binds]))
    return unique_pairs(*(np.concatenate(part) for part in zip(*pairs, strict=True)))


def _without(here: DeviceCalls, work: Ints, found: _Found) -> Ints:
    """Return the work that has no dependency yet; node rows, ascending."""
    is_left = np.zeros(here.start.size, dtype=np.bool_)
    is_left[work] = True
    for _, (_, dst), _ in found:
        is_left[dst] = False
    return np.flatnonzero(is_left)


def _repeated_waits(here: DeviceCalls, known: _Found) -> tuple[Ints, Ints]:
    """Infer waits between streams that no call tells, from what repeats.

    Operations of one name wait for work of one name on another stream of their device if at least
    three of them, and half of those that are late for a reason that is not known, begin within
    10 us after its end, or within 50 us before: where a device has no room for both, an operation
    begins when the last part of the other one runs. This must happen less than once in ten times
    by chance.
    """
    work = here.work.rows
    late = work[here.start[work] > here.due[work] + _LATE_FOR_SURE_NS]
    late = _without(here, late, known)
    source, waiting = _near_ends(here, late)
    if not source.size:
        return source, waiting
    names = here.trace.name_codes[0].astype(np.int64)
    count_of = int(names.max(initial=0)) + 1
    all_late = np.bincount(names[late], minlength=count_of)
    span = int(np.ptp(here.start[work])) + 1 if work.size else 1
    window = _WOKEN_WITHIN_NS + _TAIL_NS
    by_chance = np.bincount(names[work], minlength=count_of) * window / span
    pair = np.stack([names[source], names[waiting]])
    _, number, count = np.unique(pair, axis=1, return_inverse=True, return_counts=True)
    often = count[number]
    chosen = (often >= _FEWEST_REPEATS) & (2 * often >= all_late[names[waiting]])
    chosen &= by_chance[names[source]] <= _BY_CHANCE
    return unique_pairs(source[chosen], waiting[chosen])


def _near_ends(here: DeviceCalls, late: Ints) -> tuple[Ints, Ints]:
    """Find for work the work of other streams that ends just before it starts, or just after."""
    key, begin = here.key, here.start[late]
    source, waiting = np.empty((2, 0), dtype=np.int64)
    for stream, own in enumerate(here.work.keys):
        low, high = here.work.ptr[stream], here.work.ptr[stream + 1]
        ended = here.work.last_ended(stream, here.end, begin)
        _, woken = _just_ended(here, ended, late)
        elsewhere = (key[late] != own) & (key[late] // 2**32 == own // 2**32)
        last = low + np.searchsorted(here.start[here.work.rows[low:high]], begin) - 1
        runs = (last >= low) & (here.end[here.work.rows[last]] > begin)
        runs &= here.end[here.work.rows[last]] <= begin + _TAIL_NS
        for at, fits in ((ended, woken), (last, runs)):
            fits = fits & elsewhere
            source = np.append(source, here.work.rows[at[fits]])
            waiting = np.append(waiting, late[fits])
    return source, waiting


def _just_ended(here: DeviceCalls, at: Ints, dst: Ints) -> tuple[Ints, Bools]:
    """Check candidate work for each ``dst``, given by its position in ``StreamWork.rows`` or -1.

    - Returns int64 and bool, shape (dst,): Its node row, and whether it ended shortly before
      ``dst`` began.
    """
    src = np.where(at >= 0, here.work.rows[at], 0)
    early = here.start[dst] - here.end[src]
    return src, (at >= 0) & (early >= 0) & (early <= _WOKEN_WITHIN_NS)


def _next_launched(here: DeviceCalls, calls: Ints) -> tuple[Ints, Ints]:
    """Pair calls with the next device work launched after them: by their thread, and by any."""
    thread = here.trace.column("thread")
    launched = here.launched_work
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
    return unique_pairs(*(np.concatenate(part) for part in zip(*pairs, strict=True)))


_Waits = list[tuple[Ints, Ints, bool]]  # work, call, whether it is inferred

QUEUE_LENGTH = 1022  # launches that a stream queues before the next launch blocks
_LONGEST_RETURN_NS = 20_000  # a call usually returns 4 to 8 us after the awaited work
_FEWEST_REPEATS = 3  # that confirm an inference
_MOST_BEGUN = 0.9  # of calls contain the start of their work
_CLOCKS_DIFFER_NS = 20_000  # at most, where device and host are one machine
_FOUND_WITHIN_NS = 50_000  # a call returns at most this long after the awaited work


def synchronization(here: DeviceCalls, device: Trace, log: IssueLog) -> _Found:
    """Find the calls and device operations that wait for device work.

    - ``here``: The linked trace.
    - ``device``: The device trace behind it; its synchronization events name what calls wait for.
    - ``log``: Records waits that are unknown, or that contradict the measured times.
    - Returns list of (kind, (src, dst), inferred): In kind sync a call waits, in kind event a
      device operation waits. O((nodes + calls * streams) log nodes).
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
    if not src.size:  # of most kinds there are none, and a small rank has many kinds
        return src, dst
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
    if not late.any():
        return found, late
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
    names = here.trace.name_codes[0][calls].astype(np.int64)
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
    last, since = _last_work_before(here, key, recorded)
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


def _last_work_before(here: DeviceCalls, key: Ints, moment: Ints) -> tuple[Ints, Ints]:
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
    stated = [device.attributes.of(int(row), "args").get("args") for row in rows]
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
