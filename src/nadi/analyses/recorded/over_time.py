"""Values over time beside the operations of a timeline: devices, queues, copies, memory.

The bandwidth of copies and memory sets.
"""

from collections.abc import Iterator

import msgspec
import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, events_of, per_rank
from nadi.analyses.recorded.launches import queue_lengths
from nadi.analyses.recorded.memory_timeline import memory_timeline
from nadi.errors import InputError
from nadi.files.timeline.timeline_values import TimelineCounter
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.trace import Job


class _Args(msgspec.Struct):
    bandwidth: float = msgspec.field(default=float("nan"), name="memory bandwidth (GB/s)")
    size: int = msgspec.field(default=-1, name="bytes")


_decoder = msgspec.json.Decoder(_Args)


@per_rank("copies")
def memory_bandwidth_series(events: RankEvents) -> pl.DataFrame:
    """Follow the bandwidth of copies and memory sets: the sum over those that run at once.

    Copies whose bytes are not recorded are left out.

    Returns
    -------
    polars.DataFrame
        A row per change of each kind of copy: ``kind`` such as ``Memcpy HtoD``, ``time_ns`` (since
        the rank's first event), ``gb_per_s`` from then on. O(copies log copies).
    """
    rows, kind, rate, _ = _copies(events)
    known = ~np.isnan(rate)
    rows, kind, rate = rows[known], kind.filter(pl.Series(known)), rate[known]
    start = events.column("start")
    time = np.concatenate([start[rows], events.end[rows]]) - int(start.min())
    series = pl.DataFrame({
        "kind": pl.concat([kind, kind]), "time_ns": time, "change": np.concatenate([rate, -rate]),
        "which": np.tile(np.arange(rows.size), 2), "is_end": np.repeat([False, True], rows.size),
    })  # fmt: skip
    # a copy that takes no time begins before it ends
    ordered = series.sort("kind", "time_ns", "is_end", "which", maintain_order=True)
    total = pl.col("change").cum_sum().over("kind")
    running = pl.when("is_end").then(-1).otherwise(1).cum_sum().over("kind")
    return ordered.select(
        "kind", "time_ns", gb_per_s=pl.when(running == 0).then(0.0).otherwise(total)
    )


@per_rank("copies")
def memory_bandwidth(events: RankEvents) -> pl.DataFrame:
    """Summarize copies and memory sets by kind.

    Returns
    -------
    polars.DataFrame
        ``kind``, ``count``, ``size_bytes`` (their sum, null if not recorded), ``sum_ns``,
        ``gb_per_s`` (bytes by time), and ``min``, ``median``, ``max`` of single ones in GB/s; the
        longest first. O(copies log copies).
    """
    rows, kind, rate, size = _copies(events)
    table = pl.DataFrame({
        "kind": kind, "rate": pl.Series(rate).fill_nan(None),
        "duration": events.column("duration")[rows],
        "size": pl.Series(size).set(pl.Series(size < 0), None),
    })  # fmt: skip
    known = pl.col("size").null_count() == 0
    return (
        table.group_by("kind")
        .agg(
            count=pl.len().cast(pl.Int64),
            size_bytes=pl.when(known).then(pl.sum("size")),
            sum_ns=pl.sum("duration"),
            gb_per_s=pl.when(known).then(pl.sum("size") / pl.sum("duration")),
            min=pl.min("rate"), median=pl.median("rate"), max=pl.max("rate"),
        )
        .sort("sum_ns", "kind", descending=[True, False])
    )  # fmt: skip


def _copies(events: RankEvents) -> tuple[Ints, pl.Series, Floats, Ints]:
    """Return the rows of copies and sets, their kinds, bandwidths in GB/s and sizes."""
    rows = events.of_type("memory")
    kind = events.table["name"].gather(rows).cast(pl.String).str.split(" (").list.first()
    return rows, kind, *bandwidth_of(events, rows)


def bandwidth_of(events: RankEvents, rows: Ints) -> tuple[Floats, Ints]:
    """Return the bandwidth of some copies in GB/s, as recorded, or bytes by time; and their bytes.

    float64 and int64, shape (rows,); where not recorded, bytes are -1 and the bandwidth is NaN.
    """
    trace = events.trace
    node = rows if events.node is None else events.node[rows]
    size = trace.column("bytes")[node].copy()
    duration = events.column("duration")[rows]
    rate = np.where((size > 0) & (duration > 0), size / np.maximum(duration, 1), np.nan)
    attributes = trace.attributes
    place = np.full(trace.nodes.height, -1, dtype=np.int64)
    place[node] = np.arange(node.size)
    chosen = attributes.rows_named("args")
    owner = attributes.node[chosen]
    at_row = np.where(owner >= 0, place[owner], -1)
    for row, at in zip(chosen[at_row >= 0].tolist(), at_row[at_row >= 0].tolist(), strict=True):
        try:
            args = _decoder.decode(attributes.span(row))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # another tool's: not a number
        if args.bandwidth == args.bandwidth:
            rate[at] = args.bandwidth
        if size[at] < 0:
            size[at] = args.size
    return rate, size


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
