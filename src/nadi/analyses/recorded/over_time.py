"""Values over time beside the operations of a timeline: devices, queues, copies, memory."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, events_of, per_rank
from nadi.analyses.recorded.launches import queue_lengths
from nadi.analyses.recorded.memory_bandwidth import memory_bandwidth_series
from nadi.analyses.recorded.memory_timeline import memory_timeline
from nadi.errors import InputError
from nadi.files.timeline.timeline_values import TimelineCounter
from nadi.trace.arrays import Bools, Ints
from nadi.trace.trace import Job


@per_rank("device work")
def device_activity(events: RankEvents) -> pl.DataFrame:
    """Tell when a rank's devices run work, and when communication without computation.

    - Returns: Ordered by kind and time: ``kind`` (``device busy``; ``exposed communication``, if
      there is communication), ``time_ns`` since the rank's first event, ``percent`` (100 or 0) from
      then on. Sums over time are ``busy_ns`` and ``exposed_communication_ns`` of
      :func:`nadi.analyses.temporal_breakdown`. O(device work log device work).
    """
    start, end = events.column("start"), events.end
    times = np.unique(np.concatenate([start[events.work], end[events.work]]))
    kinds = {"device busy": _runs(events, events.work, times)}
    if (communication := events.of_type("communication")).size:
        computes = _runs(events, events.of_type("computation"), times)
        kinds["exposed communication"] = _runs(events, communication, times) & ~computes
    parts = []
    for kind, holds in kinds.items():
        changes = np.flatnonzero(np.diff(holds, prepend=False))
        parts.append(pl.DataFrame({
            "kind": np.full(changes.size, kind, dtype=object),
            "time_ns": times[changes] - start.min(), "percent": 100 * holds[changes],
        }, schema_overrides={"kind": pl.String}))  # fmt: skip
    return pl.concat(parts)


def _runs(events: RankEvents, rows: Ints, times: Ints) -> Bools:
    """Return whether some of the events run from each time on."""
    begun, ended = (
        np.searchsorted(np.sort(column[rows]), times, "right")
        for column in (events.column("start"), events.end)
    )
    found: Bools = begun > ended
    return found


_ACTIVITY = ("", "%", 1, ("kind",), "percent", device_activity)
_MEMORY = ("memory ", "bytes", 1, ("device",), "allocated_bytes", memory_timeline)
_BANDWIDTH = ("bandwidth ", "MB/s", 1000, ("kind",), "gb_per_s", memory_bandwidth_series)
_QUEUES = ("queue length of device ", "", 1, ("device", "stream"), "length", queue_lengths)


def recorded_counters(job: Job, *, of_work: bool) -> Iterator[TimelineCounter]:
    """Yield the series that ``nadi analyze`` finds in each rank, as far as they are recorded.

    Memory of each device (``memory-series``), bandwidth of each kind of copy
    (``bandwidth-series``), and with ``of_work`` what follows from the operations of devices: when
    they are busy, and communicate without computing (``breakdown``), and the length of each
    stream's queue (``queue-series``). What changes at one moment has its last value there. Times
    are those since the job's origin, and what precedes it is there.
    """
    for trace in job.traces:
        events = events_of(trace)
        if not events.table.height:
            continue
        begin = int(events.column("start").min()) - job.origin
        for title, unit, factor, keys, value, analysis in (
            *((_ACTIVITY, _QUEUES) if of_work else ()), _BANDWIDTH, _MEMORY,
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
                    trace.rank, f"{title}{' stream '.join(map(str, names))}", unit,
                    rows["time"].to_numpy(), values.to_numpy(),
                )  # fmt: skip
