"""Calls and device work of one rank, as the rules for dependencies need them.

The work of each stream of each device, in the order in which it ran.

Find the launch call of device work by correlation id, of gloo's work by record function id.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import pattern
from nadi.trace.rows import number_rows
from nadi.trace.schema import DEVICE_WORK, THREAD_WORK
from nadi.trace.trace import Trace

_BEFORE_ALL = np.iinfo(np.int64).min
_LATE_NS = 3_000
_LATE_IN_CALL_NS = 20_000  # a blocking copy starts about 14 us after its call


@dataclass(frozen=True)
class StreamWork:
    """The device work of one rank, stream by stream."""

    rows: Ints  # int64, shape (work,): nodes, by stream and then in order of start
    keys: Ints  # int64, shape (streams,): the number of each stream of each device, ascending
    ptr: Ints  # int64, shape (streams + 1,): stream s has ``rows[ptr[s]:ptr[s + 1]]``
    # int64 ns, shape (work,): the start of the launch call. A stream runs its work in the order of
    # launches, so this is at least the start of all launches before it. The smallest int64 if no
    # call is recorded.
    launched: Ints

    def order(self) -> tuple[Ints, Ints]:
        """Pair each piece of work with the next on its stream; node rows."""
        follows = np.ones(self.rows.size, dtype=np.bool_)
        follows[self.ptr[:-1]] = False
        at = np.flatnonzero(follows)
        return self.rows[at - 1], self.rows[at]

    def last_before(self, stream: int, times: Ints) -> Ints:
        """Find the last work of a stream launched before each time; positions in ``rows``, or -1.

        ``stream`` is a position in ``keys``; int64 ns, shape (times,).
        """
        low, high = self.ptr[stream], self.ptr[stream + 1]
        at = low + np.searchsorted(self.launched[low:high], times) - 1
        return np.where(at >= low, at, -1)

    def last_ended(self, stream: int, end: Ints, times: Ints) -> Ints:
        """Find the last work of a stream that ended by each time, as above.

        ``end``: int64 ns, shape (nodes,).
        """
        low, high = self.ptr[stream], self.ptr[stream + 1]
        ended = np.maximum.accumulate(end[self.rows[low:high]])
        at = low + np.searchsorted(ended, times, side="right") - 1
        return np.where(at >= low, at, -1)

    def first_after(self, stream: int, times: Ints) -> Ints:
        """Find the first work of a stream launched at each time or later, as above."""
        low, high = self.ptr[stream], self.ptr[stream + 1]
        at = low + np.searchsorted(self.launched[low:high], times)
        return np.where(at < high, at, -1)


def stream_keys(device: Ints, stream: Ints) -> Ints:
    """Return a number for every stream of every device; -1 without a stream."""
    return np.where(stream >= 0, np.maximum(device, 0) * 2**32 + stream, -1)


def stream_work(trace: Trace, launcher: Ints) -> StreamWork:
    """Sort the device work of a rank by stream. O(nodes + work log work).

    ``launcher`` is from :func:`nadi.recordings.dependencies.device_calls.launcher_rows`.
    """
    rows = np.flatnonzero(trace.category_mask(*DEVICE_WORK))
    key = stream_keys(trace.column("device"), trace.column("stream"))[rows]
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    keys, first = np.unique(key, return_index=True)
    ptr = np.append(first, rows.size)
    call = launcher[rows]
    launched = np.where(call >= 0, trace.column("start")[call], _BEFORE_ALL)
    for low, high in pairwise(ptr):
        launched[low:high] = np.maximum.accumulate(launched[low:high])
    return StreamWork(rows, keys, ptr, launched)


@dataclass(frozen=True)
class DeviceCalls:
    """Times, names, launches and streams of one rank."""

    trace: Trace  # the rank
    launcher: Ints  # int64, shape (nodes,), from ``launcher_rows``
    work: StreamWork  # its streams
    # start, end: int64 ns, shape (nodes,)
    start: Ints
    end: Ints
    is_call: Bools  # bool, shape (nodes,): runtime and driver calls

    def calls(self, *kinds: str) -> Ints:
        """Return the calls of some kinds of ``runtime_calls.CALLS``; node rows, ascending."""
        return np.flatnonzero(self.is_call & self.trace.name_mask(pattern(*kinds)))

    @cached_property
    def launched_work(self) -> Ints:
        """The device work whose launch is recorded; node rows, stream by stream."""
        rows = self.work.rows
        return rows[self.launcher[rows] >= 0]

    @cached_property
    def key(self) -> Ints:
        """The stream of each node, as in ``StreamWork.keys``, or -1; shape (nodes,)."""
        key = np.full(self.start.size, -1, dtype=np.int64)
        key[self.work.rows] = np.repeat(self.work.keys, np.diff(self.work.ptr))
        return key

    @cached_property
    def due(self) -> Ints:
        """The time after which device work is late for its launch and its stream; else 0.

        int64 ns, shape (nodes,).
        """
        due = np.zeros(self.start.size, dtype=np.int64)
        before, after = self.work.order()
        due[after] = self.end[before] + _LATE_NS
        work = self.launched_work
        call = self.launcher[work]
        # a blocking copy starts within its call
        within = self.start[work] < self.end[call]
        launched = np.where(within, self.start[call] + _LATE_IN_CALL_NS, self.end[call] + _LATE_NS)
        due[work] = np.maximum(due[work], launched)
        return due

    @cached_property
    def _recorded(self) -> Ints:
        """When events were recorded; int64 ns, ascending."""
        return self.start[self.calls("event record")]

    def last_recorded(self, stream: int, before: Ints, ended_by: Ints) -> Ints:
        """Find the work of a stream that an event recorded earlier may represent.

        - ``before``, ``ended_by``: int64 ns, shape (queries,): when the wait for the event began,
          and when it ended.
        - Returns int64, shape (queries,): Position in ``work.rows``, or -1: the last work launched
          before, if it ended by then; else the last work that did end, if an event was recorded
          before the next launch.
        """
        launched, last = self.work.launched, self.work.last_before(stream, before)
        ended = np.minimum(self.work.last_ended(stream, self.end, ended_by), last)
        earlier = np.flatnonzero((ended >= 0) & (ended < last))
        at = ended[earlier]
        until = np.minimum(launched[at + 1], before[earlier])
        recorded = np.searchsorted(self._recorded, until) > np.searchsorted(
            self._recorded, launched[at]
        )
        ended[earlier[~recorded]] = -1
        return ended


def device_calls(trace: Trace, launcher: Ints, work: StreamWork) -> DeviceCalls:
    """Collect the columns that the rules need."""
    start = trace.column("start")
    end = start + trace.column("duration")
    return DeviceCalls(trace, launcher, work, start, end, trace.category_mask("runtime", "driver"))


def unique_pairs(src: Ints, dst: Ints) -> tuple[Ints, Ints]:
    """Return the distinct pairs, in ascending order."""
    _, first = number_rows((src, dst))
    return src[first], dst[first]


_CALLS = r"^c10d::|^_?c10d_functional(_autograd)?::wait_tensor$"


def launcher_rows(trace: Trace) -> Ints:
    """Find the call that launched each operation.

    - Returns int64, shape (nodes,): For device work the runtime or driver call of the same
      correlation id, for gloo's work on its own threads the ``c10d`` call that issued it; else -1.
    """
    launcher = np.full(trace.nodes.height, -1, dtype=np.int64)
    correlation = trace.column("correlation")
    calls = np.flatnonzero(trace.category_mask("runtime", "driver") & (correlation > 0))
    work = np.flatnonzero(trace.category_mask(*DEVICE_WORK) & (correlation > 0))
    launcher[work] = find_rows(correlation[calls], calls, correlation[work])

    is_done = host_work(trace, "gloo:")
    if not is_done.any():
        return launcher
    rf_id = trace.column("rf_id")
    asked = np.flatnonzero(host_work(trace, "c10d::") & (rf_id > 0))
    done = np.flatnonzero(is_done & (rf_id > 0))
    # gloo's work gets its id within the call that issues it: take the nearest call before
    launcher[done] = find_rows(rf_id[asked], asked, rf_id[done], nearest=True)
    without = np.flatnonzero(is_done & (rf_id <= 0))
    if without.size:
        calls = np.flatnonzero(host_work(trace, "c10d::"))
        left = calls[~np.isin(calls, launcher[done])]
        launcher[without] = _calls_in_order(trace, left, without)
    return launcher


def _calls_in_order(trace: Trace, calls: Ints, work: Ints) -> Ints:
    """Return the call of each work of gloo without an id; the recorder may end before it has one.

    The k-th work of a type has the k-th call of that type, if there are as many, and each call
    begins before its work; else -1.
    """
    start = trace.column("start")
    types = [
        [_type_of(name) for name in trace.nodes["name"].gather(rows).cast(str)]
        for rows in (calls, work)
    ]
    of_call, of_work = (np.array(one, dtype=np.str_) for one in types)
    found = np.full(work.size, -1, dtype=np.int64)
    for one in np.unique(of_work):
        asked, done = (
            rows[np.flatnonzero(kind == one)] for rows, kind in ((calls, of_call), (work, of_work))
        )
        asked, done = (rows[np.argsort(start[rows], kind="stable")] for rows in (asked, done))
        if asked.size == done.size and (start[asked] <= start[done]).all():
            found[np.searchsorted(work, done)] = asked
    return found


def _type_of(name: str) -> str:
    """Return what ``c10d::allreduce_`` and ``gloo:all_reduce`` have in common."""
    plain = name.partition(" ")[0].rpartition(":")[2].replace("_", "")
    for ending in ("coalesced", "tensor", "into", "base"):
        plain = plain.removesuffix(ending)
    return "allreduce" if plain == "reducescatter" else plain  # as gloo runs it


def host_work(trace: Trace, prefix: str) -> Bools:
    """Return which nodes are timed host operations whose name has a prefix."""
    named = trace.name_mask(f"^{re.escape(prefix)}")
    return named & trace.category_mask(*THREAD_WORK) & (trace.column("start") >= 0)


def communication_calls(trace: Trace) -> Bools:
    """Return which operators ask for communication or wait for it: their own time is no work.

    Functional collectives (DTensor, FSDP, torch.compile) wait in an operator, ``wait_tensor``.
    """
    return trace.name_mask(_CALLS) & trace.category_mask("operator")


def find_rows(keys: Ints, rows: Ints, wanted: Ints, *, nearest: bool = False) -> Ints:
    """Look up the row of each wanted key.

    - ``keys``, ``rows``: int64, shape (rows,), in any order.
    - ``wanted``: int64, shape (wanted,).
    - ``nearest``: Whether to accept the greatest key below, instead of the key itself.
    - Returns int64, shape (wanted,): -1 for keys that are not found. O(n log n).
    """
    if keys.size == 0:
        return np.full(wanted.size, -1, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    if nearest:
        at = np.searchsorted(keys, wanted) - 1
        return np.where(at >= 0, rows[at], -1)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[at] == wanted, rows[at], -1)
