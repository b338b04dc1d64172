"""Idle times of streams, and whether the host, the next kernel, or something else caused each."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.trace.arrays import Bools, Ints

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
