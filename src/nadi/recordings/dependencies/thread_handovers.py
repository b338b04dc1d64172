"""Find where a thread hands work to another thread and waits, from the times alone.

A recording does not contain waits of threads. They are inferred from intervals in which a thread
runs no operation while another thread works, and which end soon after that work.

Find threads that only wait: Python frames around a queue, a socket or a timer.

Find where a thread waits for device work without a call: it polls memory that the work writes.

So do libraries whose kernels tell the host how much follows (DeepEP's dispatch). The recording has
only a stretch of the thread in which nothing runs. It is taken as a wait if its repeats confirm it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nadi.kernels.sequences import expand_ranges
from nadi.recordings.dependencies.device_calls import (
    DeviceCalls,
    communication_calls,
    find_rows,
    host_work,
    launcher_rows,
)
from nadi.recordings.dependencies.operator_nesting import Nesting, threads_sharing_locks
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import pattern
from nadi.trace.rows import number_rows
from nadi.trace.schema import LABELS, THREAD_WORK
from nadi.trace.trace import Trace

_EARLY_NS, _LATE_NS = 100_000, 50_000  # work may tell the host before it ends
_MOST = 0.9  # of the stretches at a place follow the work


def polled_work(here: DeviceCalls, before: Ints, after: Ints) -> tuple[Ints, Bools]:
    """Find the device work that threads wait for in stretches in which they run nothing.

    A stretch may wait for the work that its thread launched last, if this still runs when the
    stretch begins, and ends within some tens of us of the end of the stretch. It does if at its
    place of the program at least three stretches, and nine tenths of those that begin while such
    work runs, follow it this closely while their lengths vary twice as much.

    - ``before``, ``after``: int64, shape (stretches,): the boundaries around each, ``2 * row +
      is_end``.
    - Returns int64, bool, shape (stretches,): The node row of the work, or -1, and whether the
      stretch waits for it. O((stretches + work) log work).
    """
    begin, end = _time(here, before), _time(here, after)
    work = _last_launched(here, before // 2, begin)
    running = (work >= 0) & (here.end[work] > begin)
    after_end = end - here.end[work]
    near = running & (after_end >= -_EARLY_NS) & (after_end <= _LATE_NS)
    near &= here.start[work] < end
    names = here.trace.name_codes[0].astype(np.int64)
    place, _ = number_rows([
        names[before // 2], names[after // 2], np.where(work >= 0, names[work], -1)
    ])  # fmt: skip
    waits = np.zeros(work.size, dtype=np.bool_)
    for number in np.unique(place[near]):
        mine = running & (place == number)
        chosen = mine & near
        if chosen.sum() < max(_FEWEST_REPEATS, _MOST * mine.sum()):
            continue
        waits[chosen] = 2 * np.std(after_end[chosen]) < np.std((end - begin)[chosen])
    return work, waits


def _time(here: DeviceCalls, boundary: Ints) -> Ints:
    row = boundary // 2
    return np.where(boundary % 2 == 1, here.end[row], here.start[row])


def _last_launched(here: DeviceCalls, row: Ints, moment: Ints) -> Ints:
    """Return the work that the thread of each node launched last before a moment, or -1."""
    thread = here.trace.column("thread")
    work = here.launched_work
    call = here.launcher[work]
    order = np.lexsort((here.end[work], here.start[call]))
    work, call = work[order], call[order]
    found = np.full(row.size, -1, dtype=np.int64)
    for number in np.unique(thread[row]):
        mine, theirs = thread[row] == number, np.flatnonzero(thread[call] == number)
        at = np.searchsorted(here.start[call[theirs]], moment[mine]) - 1
        found[mine] = np.where(at >= 0, work[theirs[np.maximum(at, 0)]], -1) if theirs.size else -1
    return found


_COMMUNICATION = ("gloo:", "c10d::")
_NO_WORK = ("event query", "capture mode", "device sync", "stream sync", "event sync")


def waiting_threads(trace: Trace) -> Bools:
    """Return which nodes run on threads that only wait.

    Such a thread has Python frames, and no operator, communication or call that launches work or
    copies: a queue's writer, a progress bar, a DataLoader's pin thread, NCCL's watchdog. Its frames
    last as long as the recording, and say nothing about what the job waits for. If no other thread
    works, none counts as waiting.

    - Returns bool, shape (nodes,): O(nodes); where no Python frames are recorded, no thread is
      found.
    """
    found = np.zeros(trace.nodes.height, dtype=np.bool_)
    framed = trace.category_mask("python")
    if not framed.any():
        return found
    on_thread = trace.category_mask(*THREAD_WORK) & (trace.column("start") >= 0)
    rows = np.flatnonzero(on_thread)
    threads, thread = np.unique(trace.column("thread")[rows], return_inverse=True)
    has_frames = np.bincount(thread[framed[rows]], minlength=threads.size) > 0
    works = np.bincount(thread[_work(trace)[rows]], minlength=threads.size) > 0
    if works.any():
        found[rows] = (has_frames & ~works)[thread]
    return found


def _work(trace: Trace) -> Bools:
    """Return which nodes are work, or mark a step; bool, shape (nodes,)."""
    names = "|".join(f"^{prefix}" for prefix in (*_COMMUNICATION, "ProfilerStep#"))
    named = trace.category_mask("annotation") & trace.name_mask(names)
    return trace.category_mask("operator") | working_calls(trace) | named


def working_calls(trace: Trace) -> Bools:
    """Return which nodes are calls of a runtime that do more than wait; bool, shape (nodes,)."""
    calls = trace.category_mask("runtime", "driver")
    return calls & ~trace.name_mask(pattern(*_NO_WORK))


_Found = list[tuple[str, tuple[Ints, Ints]]]

_AUTOGRAD = r"^autograd::engine"
_BACKWARD = rf"{_AUTOGRAD}::evaluate_function"
_OLD_BACKWARD = r"^[^:]*Backward\d*$|^torch::autograd::"  # before torch 1.9 nothing encloses it
_SHORTEST_WAIT_NS = 30_000
_ONLY_COMPUTES = r"^(aten|prims|mkldnn|quantized|inductor)::"
_WAKE_UP_NS = 100_000  # on an idle machine a thread continues within this time
_FEWEST_REPEATS = 3


@dataclass(frozen=True)
class _Stretches:
    """Idle intervals of threads, each between two boundaries.

    ``before`` and ``after`` are boundaries as in :class:`Nesting`, but of node rows
    (``2 * row + is_end``); ``begin`` and ``end`` are their times in ns. ``owner`` is the node that
    they belong to, or -1.
    """

    thread: Ints
    before: Ints
    after: Ints
    begin: Ints
    end: Ints
    owner: Ints

    def __getitem__(self, chosen: Ints | Bools) -> _Stretches:
        return _Stretches(
            self.thread[chosen], self.before[chosen], self.after[chosen],
            self.begin[chosen], self.end[chosen], self.owner[chosen],
        )  # fmt: skip


def hand_overs(trace: Trace, nesting: Nesting) -> _Found:
    """Find where a thread waits for other threads.

    - Returns list of (kind, (src, dst)): Dependencies of the kinds thread, launch and sync; node
      rows, int64. O(ops log ops).
    """
    is_gloo, asks = host_work(trace, "gloo:"), host_work(trace, "c10d::")
    is_idle = (trace.category_mask(*LABELS) & ~is_gloo) | asks | communication_calls(trace)
    may_wait = is_idle | (trace.category_mask("operator") & ~trace.name_mask(_ONLY_COMPUTES))
    parent = np.full(trace.nodes.height, -1, dtype=np.int64)
    parent[nesting.rows] = nesting.parent_row
    may_wait |= operators_that_communicate(trace, parent)
    found = _waits_for_gloo(trace, _stretches(trace, nesting, may_wait), is_gloo, is_idle)
    return found + _waits_for_workers(trace, nesting, _stretches(trace, nesting, is_idle), is_gloo)


def waits_for_polled_work(here: DeviceCalls, nesting: Nesting) -> _Found:
    """Find where a thread waits for device work without a call.

    - Returns list of (kind, (src, dst)): As for :func:`hand_overs`; the work may end after what
      waits for it.
    """
    trace = here.trace
    is_idle = trace.category_mask(*LABELS) & ~host_work(trace, "gloo:")
    stretches = _stretches(trace, nesting, is_idle)
    work, waits = polled_work(here, stretches.before, stretches.after)
    return _returns(work[waits], stretches.after[waits])


def operators_that_communicate(trace: Trace, parent: Ints) -> Bools:
    """Return which operators contain a call of communication, but are none; bool, shape (nodes,).

    So do autograd functions, custom operators, hooks of autograd and operators of distributed
    tensors. They may wait for what they asked for in their own time.

    - ``parent``: int64, shape (nodes,): the node around each, or -1. O(nodes * depth).
    """
    calls = communication_calls(trace)
    around = np.zeros(trace.nodes.height, dtype=np.bool_)
    inside = parent[calls]
    while (inside := np.unique(inside[inside >= 0])).size:
        around[inside] = True
        inside = parent[inside]
    return around & trace.category_mask("operator") & ~calls


def forward_to_backward(trace: Trace) -> tuple[Ints, Ints]:
    """Pair forward operations with backward operations of the same sequence number.

    - Returns src, dst: int64 node rows: the forward operation of a number that starts last, and
      autograd's operation, if they are on different threads. O(nodes log nodes).
    """
    sequence, thread = trace.column("sequence"), trace.column("thread")
    start = trace.column("start")
    known = trace.category_mask("operator") & (sequence >= 0) & (start >= 0)
    is_backward = trace.name_mask(_BACKWARD)
    if not is_backward.any():
        is_backward = trace.name_mask(_OLD_BACKWARD)
    backward = np.flatnonzero(known & is_backward)
    forward = np.flatnonzero(known & ~is_backward & ~np.isin(thread, thread[backward]))
    # rows are in order of start: of equal numbers the last one is found
    _, last = np.unique(sequence[forward][::-1], return_index=True)
    forward = forward[::-1][last]
    source = find_rows(sequence[forward], forward, sequence[backward])
    ended = (source >= 0) & ((start + trace.column("duration"))[source] <= start[backward])
    return source[ended], backward[ended]


def _stretches(trace: Trace, nesting: Nesting, is_idle: Bools) -> _Stretches:
    """Find the intervals of 30 us or more that belong to no node, or to a node of ``is_idle``."""
    start, thread = trace.column("start"), trace.column("thread")
    row = nesting.rows[nesting.boundary // 2]
    is_end = nesting.boundary % 2
    time = start[row] + is_end * trace.column("duration")[row]
    owner = np.where(nesting.owner >= 0, nesting.rows[nesting.owner], -1)
    idle = (owner < 0) | is_idle[owner]
    idle[2 * nesting.thread_ptr[:-1]] = False  # a thread's first boundary has no interval before it
    at = np.flatnonzero(idle)
    at = at[time[at] - time[at - 1] >= _SHORTEST_WAIT_NS]
    vertex = 2 * row + is_end
    return _Stretches(
        thread[row[at]], vertex[at - 1], vertex[at], time[at - 1], time[at], owner[at]
    )


def _waits_for_gloo(trace: Trace, stretches: _Stretches, is_gloo: Bools, is_idle: Bools) -> _Found:
    """Treat intervals in which gloo's work ends as waits for that work.

    An interval waits for all of gloo's work that ends in it. Only threads that issue work to gloo
    wait for it. An interval may just contain the end of such work while its thread runs Python:
    :func:`_are_waits` decides, and :func:`_are_waits_of_operators` for the own time of operators.
    """
    start, thread = trace.column("start"), trace.column("thread")
    gloo = np.flatnonzero(is_gloo & (start >= 0))
    if not gloo.size:
        return []
    end = (start + trace.column("duration"))[gloo]
    gloo, end = gloo[np.argsort(end, kind="stable")], np.sort(end)
    waiting = stretches[np.isin(stretches.thread, thread[host_work(trace, "c10d::")])]
    first = np.searchsorted(end, waiting.begin, side="right")
    last = np.searchsorted(end, waiting.end, side="right") - 1
    some = first <= last
    waiting, first, last = waiting[some], first[some], last[some]
    ends = _Ends(trace, waiting, gloo[last], end[last])
    computes = (waiting.owner >= 0) & ~is_idle[waiting.owner]
    waits = _are_waits(ends, computes)
    waits |= _are_waits_of_operators(ends, computes, waits)
    waiting, first, last = waiting[waits], first[waits], last[waits]
    which, at = expand_ranges(first, last - first + 1)
    work = gloo[at]
    elsewhere = thread[work] != waiting.thread[which]
    work, waiting = work[elsewhere], waiting[which[elsewhere]]
    # who asks for work without a recorded call, and waits, has asked within that time
    asked = (launcher_rows(trace)[work] < 0) & (start[work] >= waiting.begin)
    begun = _begins(waiting[asked], work[asked])
    return begun + _returns(work, waiting.after)


class _Ends:
    """Intervals of threads in which gloo's work ends, and how they lie to that end.

    Attributes
    ----------
    own, unknown
        bool: whether the thread asked for the work, and whether it is not known who did.
    at_once
        bool: whether the interval begins within the call that asked, or at its end.
    late
        int64 ns: how long after the end of the work the thread continues.
    longer
        bool: whether it lasted longer up to that end than after it.
    place
        int64: a number of the place in the program.
    """

    def __init__(self, trace: Trace, idle: _Stretches, work: Ints, done: Ints) -> None:
        """Compare ``idle`` with the last work that ends in each, at ``done`` (int64 ns)."""
        caller = launcher_rows(trace)[work]
        start, thread = trace.column("start"), trace.column("thread")
        self.unknown: Bools = caller < 0
        self.own: Bools = ~self.unknown & (thread[caller] == idle.thread)
        returned = start[caller] + trace.column("duration")[caller]
        self.at_once: Bools = (
            self.own & (idle.begin >= start[caller]) & (idle.begin <= returned)
        )  # fmt: skip
        self.late = idle.end - done
        self.longer: Bools = done - idle.begin >= self.late
        names = trace.name_codes[0].astype(np.int64)
        count = int(names.max(initial=0)) + 1
        self.place = names[idle.before // 2] * count + names[idle.after // 2]


def _are_waits(ends: _Ends, computes: Bools) -> Bools:
    """Return which intervals are waits for gloo's work, but for the own time of operators.

    On an idle machine the thread continues within 100 us after that end; on a busy one it may not
    be scheduled for tens of ms. An interval is a wait for work that its thread issued, or whose
    caller is not known, if the thread did nothing after the call, or if it waited for longer than
    it then took to continue. Work of another thread's call may end in any interval by chance: then
    the thread must continue as soon as three quarters of those waits do. Intervals at the same
    place of the program as a wait are waits too.
    """
    waits: Bools = ends.at_once | ((ends.own | ends.unknown) & ends.longer)
    waits &= ~computes
    if waits.any():
        waits |= ~computes & (ends.late <= np.percentile(ends.late[waits], 75))
    waits |= ~computes & ends.own & np.isin(ends.place, ends.place[waits])
    return waits


def _are_waits_of_operators(ends: _Ends, computes: Bools, known: Bools) -> Bools:
    """Return which intervals of the own time of operators are waits for gloo's work.

    An autograd function, a custom operator or a hook may call a blocking collective, or wait for
    one in Python; it may compute by itself as well. So it waits only for its thread's own work, if
    it waited for longer than it then took to continue. That suffices after the call that asked, and
    once at a place of the program for all times there. Elsewhere the thread must also continue
    within 100 us, or as soon as three quarters of the other waits, ``known``, do; and so it must be
    in half of at least three intervals at the same place.
    """
    likely = computes & ends.own & ends.longer
    called = computes & ends.at_once
    waits: Bools = called & np.isin(ends.place, ends.place[called & likely])
    usual = np.percentile(ends.late[known], 75) if known.any() else 0
    soon = likely & (ends.late <= max(usual, _WAKE_UP_NS))
    _, number, count = np.unique(
        np.where(computes, ends.place, -1), return_inverse=True, return_counts=True
    )
    often = np.bincount(number[soon], minlength=count.size)
    repeated = (often >= _FEWEST_REPEATS) & (2 * often >= count)
    return waits | (soon & repeated[number])


def _waits_for_workers(
    trace: Trace, nesting: Nesting, stretches: _Stretches, is_gloo: Bools
) -> _Found:
    """Treat an idle interval of the main thread in which another thread starts work as a hand-over.

    autograd runs the backward pass of a program that uses a device this way. The work depends on
    the start of the interval, and the end of the interval depends on the work. A thread with which
    the main one shares locks works for itself, unless it runs the backward pass.
    """
    thread = trace.column("thread")
    # threads without operators do not compute: NCCL's watchdog only polls events
    computes = trace.category_mask("operator") & (trace.column("start") >= 0)
    if not computes.any():
        computes = working_calls(trace) & (trace.column("start") >= 0)
    main = _main_thread(trace, nesting, computes)
    waiting = stretches[stretches.thread == main]
    top_level = nesting.rows[nesting.parent < 0]
    workers = np.setdiff1d(thread[computes], [main, *thread[is_gloo]])
    engines = thread[trace.name_mask(_AUTOGRAD)]
    workers = np.setdiff1d(workers, np.setdiff1d(threads_sharing_locks(trace, main), engines))
    found: _Found = []
    for worker in workers:
        found += _episodes(trace, waiting, top_level[thread[top_level] == worker])
    return found


def _episodes(trace: Trace, waiting: _Stretches, work: Ints) -> _Found:
    """Link each interval to the first and the last work inside it."""
    start = trace.column("start")[work]
    end = np.maximum.accumulate(start + trace.column("duration")[work])
    first = np.searchsorted(start, waiting.begin, side="right")
    last = np.searchsorted(end, waiting.end, side="right") - 1
    inside = first <= last  # which is below the number of works
    waiting, first, last = waiting[inside], first[inside], last[inside]
    return _begins(waiting, work[first]) + _returns(work[last], waiting.after)


def _begins(waiting: _Stretches, work: Ints) -> _Found:
    """Add a dependency of work on the boundary that begins the wait for it."""
    at_end = waiting.before % 2 == 1
    row = waiting.before // 2
    return [("thread", (row[at_end], work[at_end])), ("launch", (row[~at_end], work[~at_end]))]


def _returns(work: Ints, after: Ints) -> _Found:
    """Add a dependency of the boundary that ends a wait on the awaited work."""
    at_end = after % 2 == 1
    row = after // 2
    return [("sync", (work[at_end], row[at_end])), ("thread", (work[~at_end], row[~at_end]))]


def _main_thread(trace: Trace, nesting: Nesting, computes: Bools) -> int:
    """Return the thread with the most operators outside of the backward pass, or -1.

    If a program uses a device, the backward thread may have more operators in total. Without
    operators in the recording it is the one with the longest time between its first and last call.
    """
    backward = trace.name_mask(rf"^autograd::|{_OLD_BACKWARD}")[nesting.rows]
    nested = nesting.parent >= 0
    while ((wider := backward | (nested & backward[nesting.parent])) != backward).any():
        backward = wider
    thread = trace.column("thread")
    forward = thread[nesting.rows[computes[nesting.rows] & ~backward]]
    threads, counts = np.unique(forward, return_counts=True)
    if not trace.category_mask("operator").any():
        moments = {
            t: trace.column("start")[nesting.rows[thread[nesting.rows] == t]] for t in threads
        }
        counts = np.array([int(np.ptp(moments[t])) for t in threads])
    return int(threads[np.argmax(counts)]) if threads.size else -1
