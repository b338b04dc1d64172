"""What a device does over time: computes, communicates, copies, or nothing, and then why."""

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.kernels.sequences import union_length
from nadi.trace.arrays import Bools, Ints


@per_rank("device work")
def temporal_breakdown(events: RankEvents) -> pl.DataFrame:
    """Divide the time from the first to the last device work of each rank.

    Work that runs at the same time on several streams counts once.

    Returns
    -------
    polars.DataFrame
        A row per rank, int64 ns: ``total_ns`` = ``busy_ns`` + ``idle_ns``; ``busy_ns`` =
        ``computation_ns`` + ``exposed_communication_ns`` (without computation at the same time) +
        ``exposed_memory_ns`` (copies and sets without either). ``communication_ns`` and
        ``memory_ns`` are with what overlaps. O(device work log device work).
    """
    rows = events.work
    total = int(events.end[rows].max() - events.column("start")[rows].min())
    busy = union_ns(events, rows)
    computation = events.of_type("computation")
    computing = union_ns(events, computation)
    communication = events.of_type("communication")
    either = union_ns(events, np.append(computation, communication))
    return pl.DataFrame({
        "total_ns": [total],
        "busy_ns": [busy],
        "idle_ns": [total - busy],
        "computation_ns": [computing],
        "exposed_communication_ns": [either - computing],
        "exposed_memory_ns": [busy - either],
        "communication_ns": [union_ns(events, communication)],
        "memory_ns": [union_ns(events, events.of_type("memory"))],
    })  # fmt: skip


@per_rank("device work")
def communication_overlap(events: RankEvents) -> pl.DataFrame:
    """Measure how much of each rank's communication runs while it computes.

    Returns
    -------
    polars.DataFrame
        ``communication_ns``, ``overlapped_ns`` and ``exposed_ns`` (int64 ns), and
        ``overlap_percent`` (float64, null without communication). O(work log work).
    """
    computation, communication = events.of_type("computation"), events.of_type("communication")
    talking = union_ns(events, communication)
    either = union_ns(events, np.append(computation, communication))
    overlap = talking + union_ns(events, computation) - either
    return pl.DataFrame({
        "communication_ns": [talking],
        "overlapped_ns": [overlap],
        "exposed_ns": [talking - overlap],
        "overlap_percent": pl.Series([100 * overlap / talking if talking else None],
                                     dtype=pl.Float64),
    })  # fmt: skip


def union_ns(events: RankEvents, rows: Ints) -> int:
    """Return the time in ns in which at least one of some events runs."""
    return union_length(events.column("start")[rows], events.end[rows])


IDLE_CAUSES = ("host wait", "kernel wait", "other")
"""Host wait: the next work had not been launched. Kernel wait: it had, and follows closely."""


@per_rank("device work", uses=("launches",))
def idle_times(events: RankEvents, kernel_gap_ns: int = 30_000) -> pl.DataFrame:
    """Divide the idle time of each stream by its cause.

    A stream is idle from the end of its work so far to the start of its next. The cause is the host
    if the call that launches the next work starts after that end; else it is the launch
    of one kernel after the other if the gap is below ``kernel_gap_ns``; else it is another, such as
    an event that the stream waits for. Work whose launch call is not recorded was launched before.

    Returns
    -------
    polars.DataFrame
        A row per stream and cause: ``device``, ``stream``, ``cause``, ``idle_ns``,
        ``idle_percent`` (of the stream's idle time), ``gaps`` (their number), ``mean_ns``,
        ``min_ns``, ``median_ns``, ``max_ns`` (of a gap). O(work log work).
    """
    start = events.column("start")
    rows = _in_streams(events)
    device, stream = events.column("device")[rows], events.column("stream")[rows]
    first = np.append(True, (device[1:] != device[:-1]) | (stream[1:] != stream[:-1]))
    device, stream = device[first], stream[first]
    idle_from = _idle_from(start[rows], start[rows] + events.column("duration")[rows], first)
    chosen = ~first & (start[rows] > idle_from)
    number = np.cumsum(first)[chosen] - 1
    rows, idle_from = rows[chosen], idle_from[chosen]
    gap, call = start[rows] - idle_from, events.launcher[rows]
    is_late = (call >= 0) & (start[call] > idle_from)
    code = np.where(is_late, 0, np.where(gap < kernel_gap_ns, 1, 2))
    gaps = pl.DataFrame({"group": number * len(IDLE_CAUSES) + code, "gap": gap})
    table = gaps.group_by("group").agg(
        idle_ns=pl.sum("gap"), gaps=pl.len().cast(pl.Int64), mean_ns=pl.mean("gap"),
        min_ns=pl.min("gap"), median_ns=pl.median("gap"), max_ns=pl.max("gap"),
    ).sort("group")  # fmt: skip
    number, code = np.divmod(table["group"].to_numpy(), len(IDLE_CAUSES))
    causes = pl.Series(IDLE_CAUSES, dtype=pl.Enum(IDLE_CAUSES))
    of_stream = pl.sum("idle_ns").over("device", "stream")
    return table.with_columns(
        pl.Series("device", device[number]), pl.Series("stream", stream[number]),
        causes.gather(code).alias("cause"),
    ).select(
        "device", "stream", "cause", "idle_ns",
        (100 * pl.col("idle_ns") / of_stream).alias("idle_percent"),
        "gaps", "mean_ns", "min_ns", "median_ns", "max_ns",
    )  # fmt: skip


def _in_streams(events: RankEvents) -> Ints:
    """Return the rows of device work by device, stream and start."""
    rows = events.work
    keys = (events.column(name)[rows] for name in ("start", "stream", "device"))
    return rows[np.lexsort(tuple(keys))]


def _idle_from(start: Ints, end: Ints, first: Bools) -> Ints:
    """Return the end of all earlier work of each one's stream; 0 for the ``first`` of a stream.

    Streams are shifted apart for one running maximum.
    """
    base = int(start.min())
    shift = (np.cumsum(first) - 1) * (int(end.max()) - base + 1) - base
    reach = np.maximum.accumulate(end + shift)
    reach[1:] = reach[:-1] - shift[1:]
    reach[first] = 0
    return reach
