"""The work of each stream of each device, in the order in which it ran."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nadi.trace.arrays import Ints
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace

__all__ = ["StreamWork", "stream_keys", "stream_work"]

_BEFORE_ALL = np.iinfo(np.int64).min


@dataclass(frozen=True)
class StreamWork:
    """The device work of one rank, stream by stream.

    Attributes
    ----------
    rows
        int64, shape (work,): nodes, by stream and then in order of start.
    keys
        int64, shape (streams,): the number of each stream of each device, ascending.
    ptr
        int64, shape (streams + 1,): stream s has ``rows[ptr[s]:ptr[s + 1]]``.
    launched
        int64 ns, shape (work,): the start of the launch call. A stream runs its work in the order
        of launches, so this is at least the start of all launches before it. The smallest int64 if
        no call is recorded.
    """

    rows: Ints
    keys: Ints
    ptr: Ints
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

    ``launcher`` is from :func:`nadi.recordings.dependencies.launch_correlation.launcher_rows`.
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
