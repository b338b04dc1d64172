"""Values over time beside the operations of a timeline: queues, bandwidth of copies, memory."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from nadi.analyses.recorded.events import events_of
from nadi.analyses.recorded.memory_bandwidth import memory_bandwidth_series
from nadi.analyses.recorded.memory_timeline import memory_timeline
from nadi.analyses.recorded.queue_lengths import queue_lengths
from nadi.errors import InputError
from nadi.files.timeline.timeline_values import TimelineCounter
from nadi.trace.trace import Job

__all__ = ["recorded_counters"]

_MEMORY = ("memory", "bytes", 1, ("device",), "allocated_bytes", memory_timeline)
_BANDWIDTH = ("bandwidth", "MB/s", 1000, ("kind",), "gb_per_s", memory_bandwidth_series)
_QUEUES = ("queue length of device", "", 1, ("device", "stream"), "length", queue_lengths)


def recorded_counters(job: Job, *, queues: bool) -> Iterator[TimelineCounter]:
    """Yield the series that ``nadi analyze`` finds in each rank, as far as they are recorded.

    Memory of each device (``memory-series``), bandwidth of each kind of copy
    (``bandwidth-series``), and with ``queues`` the length of each stream's queue
    (``queue-series``); what changes at one moment has its last value there. Times are those since
    the job's origin, and what precedes it is there.
    """
    for trace in job.traces:
        events = events_of(trace)
        if not events.table.height:
            continue
        begin = int(events.column("start").min()) - job.origin
        for title, unit, factor, keys, value, analysis in (
            _MEMORY, _BANDWIDTH, *((_QUEUES,) if queues else ()),
        ):  # fmt: skip
            try:
                table = analysis(events)
            except InputError:
                continue  # not recorded
            for names, part in table.group_by(*keys, maintain_order=True):
                moved = part.with_columns(time=pl.max_horizontal(pl.col("time_ns") + begin, 0))
                rows = moved.sort("time", maintain_order=True).unique(
                    "time", keep="last", maintain_order=True
                )
                values = (factor * rows[value].cast(pl.Float64)).round().cast(pl.Int64)
                yield TimelineCounter(
                    trace.rank, f"{title} {' stream '.join(map(str, names))}", unit,
                    rows["time"].to_numpy(), values.to_numpy(),
                )  # fmt: skip
