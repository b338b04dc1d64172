"""Calls and device work of one rank, as the rules for dependencies need them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nadi.recordings.dependencies.device_streams import StreamWork
from nadi.trace.arrays import Bools, Ints
from nadi.trace.runtime_calls import pattern
from nadi.trace.trace import Trace

__all__ = ["DeviceCalls", "device_calls", "unique_pairs"]


@dataclass(frozen=True)
class DeviceCalls:
    """Times, names, launches and streams of one rank.

    Attributes
    ----------
    trace
        The rank.
    launcher
        int64, shape (nodes,), from
        :func:`nadi.recordings.dependencies.launch_correlation.launcher_rows`.
    work
        Its streams.
    start, end
        int64 ns, shape (nodes,).
    is_call
        bool, shape (nodes,): runtime and driver calls.
    """

    trace: Trace
    launcher: Ints
    work: StreamWork
    start: Ints
    end: Ints
    is_call: Bools

    def calls(self, *kinds: str) -> Ints:
        """Return the calls of some kinds of ``runtime_calls.CALLS``; node rows, ascending."""
        return np.flatnonzero(self.is_call & self.trace.name_mask(pattern(*kinds)))

    @cached_property
    def launched_work(self) -> Ints:
        """The device work whose launch is recorded; node rows, stream by stream."""
        rows = self.work.rows
        return rows[self.launcher[rows] >= 0]

    def keys_of_rows(self) -> Ints:
        """Return the stream of each node, as in ``StreamWork.keys``, or -1; shape (nodes,)."""
        key = np.full(self.start.size, -1, dtype=np.int64)
        key[self.work.rows] = np.repeat(self.work.keys, np.diff(self.work.ptr))
        return key

    def last_recorded(self, stream: int, before: Ints, ended_by: Ints) -> Ints:
        """Find the work of a stream that an event recorded earlier may represent.

        Parameters
        ----------
        before, ended_by
            int64 ns, shape (queries,): when the wait for the event began, and when it ended.

        Returns
        -------
        int64, shape (queries,)
            Position in ``work.rows``, or -1: the last work launched before, if it ended by then;
            else the last work that did end, if an event was recorded before the next launch.
        """
        launched, last = self.work.launched, self.work.last_before(stream, before)
        ended = np.minimum(self.work.last_ended(stream, self.end, ended_by), last)
        earlier = np.flatnonzero((ended >= 0) & (ended < last))
        records = self.start[self.calls("event record")]
        at = ended[earlier]
        until = np.minimum(launched[at + 1], before[earlier])
        recorded = np.searchsorted(records, until) > np.searchsorted(records, launched[at])
        ended[earlier[~recorded]] = -1
        return ended


def device_calls(trace: Trace, launcher: Ints, work: StreamWork) -> DeviceCalls:
    """Collect the columns that the rules need."""
    start = trace.column("start")
    end = start + trace.column("duration")
    return DeviceCalls(trace, launcher, work, start, end, trace.category_mask("runtime", "driver"))


def unique_pairs(src: Ints, dst: Ints) -> tuple[Ints, Ints]:
    """Return the distinct pairs, in ascending order."""
    pairs = np.unique(np.stack([src, dst], axis=1), axis=0)
    return pairs[:, 0].copy(), pairs[:, 1].copy()
