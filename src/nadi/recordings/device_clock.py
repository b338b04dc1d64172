"""The clock of a device against its host's: bounded by launches and waits, corrected if wrong.

No kernel starts before its launch call, and no call that waits for a kernel returns before its
end. Profilers convert the times of devices to the host's clock, and on some devices miss it by
microseconds: a kernel then ends after the call that waited for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.recordings.dependencies.device_calls import find_rows, launcher_rows, stream_work
from nadi.trace.arrays import Ints
from nadi.trace.attributes import JoinedAttributes, Part
from nadi.trace.categories import COPY_TO_PAGEABLE, pattern
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEVICE_WORK, ON_DEVICE
from nadi.trace.trace import Trace
from nadi.units import format_ns

__all__ = ["DeviceClock", "align_device", "bound_device_clocks"]

_RARE = 100  # launches for one that precedes its call, which then is an error of the recording


class DeviceClock(NamedTuple):
    """How far the clock of a device is ahead of the host's, in ns.

    Attributes
    ----------
    device
        Its number in the recording.
    late
        int64, ascending: for each wait, how long after the return of the call its work ends. The
        device's clock is ahead by at least the largest.
    early
        int64, ascending: for each launch, the time from the call's start to the work's. The clock
        is ahead by at most the smallest.
    """

    device: int
    late: Ints
    early: Ints

    @property
    def shift(self) -> int:
        """The least correction of the device's times that agrees with the bounds; 0 if none does.

        A wait that contradicts all launches is not used, nor a launch that contradicts all waits
        or is one of few.
        """
        if self.early.size == 0:
            return 0
        low = self.late[self.late <= self.early[0]]
        if low.size and low[-1] > 0:
            return -int(low[-1])
        least = int(self.late[-1]) if self.late.size else np.iinfo(np.int64).min
        high = self.early[self.early >= least]
        if (self.early < 0).sum() * _RARE >= self.early.size and high.size and high[0] < 0:
            return -int(high[0])
        return 0


def align_device(device: Trace, log: IssueLog) -> tuple[Trace, Ints]:
    """Correct the clocks of a rank's devices where they contradict launches and waits.

    Parameters
    ----------
    device
        A Kineto trace as read.
    log
        Records what was corrected.

    Returns
    -------
    Trace
        The same, or with the times of device work moved, in order of start.
    int64, shape (nodes,)
        The launch calls of its nodes, as of ``launcher_rows``.
    """
    launcher = launcher_rows(device)
    clocks = [clock for clock in bound_device_clocks(device, launcher) if clock.shift]
    if not clocks or device.is_part:
        return device, launcher
    start, number = device.column("start").copy(), device.column("device")
    on_device = device.category_mask(*ON_DEVICE) & (start >= 0)
    for clock in clocks:
        mine = on_device & (number == clock.device)
        start[mine] += clock.shift
        moved = f"{format_ns(abs(clock.shift))} {'earlier' if clock.shift < 0 else 'later'}"
        log.add(
            "link.device-clock", "info", int(mine.sum()),
            f"events of device {clock.device} are moved {moved}: they ended after calls that "
            "waited for them, or started before their launch",
            "the clocks of host and device disagree; use a newer profiler or driver",
        )  # fmt: skip
    moved_trace, order = _in_order(device, start)
    new_row = np.empty_like(order)
    new_row[order] = np.arange(order.size)
    caller = launcher[order]
    return moved_trace, np.where(caller >= 0, new_row[caller], -1)


def bound_device_clocks(device: Trace, launcher: Ints) -> list[DeviceClock]:
    """Measure by how much device work seems to be late for waits, and early for launches.

    Parameters
    ----------
    device
        A Kineto trace as read, or a linked trace.
    launcher
        int64, shape (nodes,), from
        :func:`nadi.recordings.dependencies.device_calls.launcher_rows`.

    Returns
    -------
    list of DeviceClock
        One per device with launched work. O(nodes + calls * streams).
    """
    rows = np.flatnonzero(device.category_mask(*DEVICE_WORK) & (launcher >= 0))
    number, start = device.column("device"), device.column("start")
    end = start + device.column("duration")
    copying = rows[device.category_mask("memcpy")[rows]]
    copies = _named(device, copying, COPY_TO_PAGEABLE)
    to_host = _named(device, copying, r"\bDtoH\b")
    waiting = np.flatnonzero(
        device.category_mask("runtime", "driver")
        & device.name_mask(pattern("device sync", "stream sync"))
    )
    devices = np.unique(number[rows]).tolist()
    found = []
    for one in devices:
        mine, copied = rows[number[rows] == one], copies[number[copies] == one]
        late = [end[copied] - end[launcher[copied]]]
        if len(devices) == 1:  # a synchronization does not say which device it waits for
            late.append(_after_synchronization(device, launcher, waiting, end))
            late.append(_after_copies(device, launcher, waiting, to_host, end))
        early = start[mine] - start[launcher[mine]]
        found.append(DeviceClock(one, np.sort(np.concatenate(late)), np.sort(early)))
    return found


def _after_synchronization(device: Trace, launcher: Ints, waiting: Ints, end: Ints) -> Ints:
    """Return how long after device synchronization the last work before it on each stream ends."""
    calls = _named(device, waiting, pattern("device sync"))
    found = [np.empty(0, dtype=np.int64)]
    if calls.size == 0:
        return found[0]
    work = stream_work(device, launcher)
    for stream in range(work.keys.size):
        at = work.last_before(stream, device.column("start")[calls])
        known = at >= 0
        found.append(end[work.rows[at[known]]] - end[calls[known]])
    return np.concatenate(found)


def _after_copies(device: Trace, launcher: Ints, waiting: Ints, to_host: Ints, end: Ints) -> Ints:
    """Return how long after the next synchronization of a stream copies to the host end.

    ``to_host`` are copies. Only copies count that the calling thread launched last, as ``.item()``
    does.
    """
    calls = _named(device, waiting, pattern("stream sync"))
    launches = np.flatnonzero(np.bincount(launcher[launcher >= 0], minlength=launcher.size))
    work = np.full(launcher.size, -1, dtype=np.int64)
    work[launcher[to_host]] = to_host
    thread = device.column("thread")
    found = [np.empty(0, dtype=np.int64)]
    for one in np.unique(thread[calls]):
        mine, theirs = calls[thread[calls] == one], launches[thread[launches] == one]
        copy = find_rows(theirs, work[theirs], mine, nearest=True)
        found.append((end[copy] - end[mine])[copy >= 0])
    return np.concatenate(found)


def _named(device: Trace, rows: Ints, text: str) -> Ints:
    """Return the rows whose name contains a regular expression; for few rows."""
    names = device.nodes["name"].gather(rows).cast(pl.String)
    found: Ints = rows[names.str.contains(text).to_numpy()]
    return found


def _in_order(device: Trace, start: Ints) -> tuple[Trace, Ints]:
    """Return the trace with other times, and the old row of each of its nodes."""
    category = device.nodes["category"].to_physical().to_numpy().astype(np.int64)
    keys = (device.column("event"), category, -device.column("duration"), start)
    order = np.lexsort(keys)
    new_row = np.empty_like(order)
    new_row[order] = np.arange(order.size)
    nodes = device.nodes.with_columns(start=start)[order]
    parts = JoinedAttributes(lambda: (Part(device.attributes, new_row),))
    return replace(device, nodes=nodes, given_attributes=parts), order
