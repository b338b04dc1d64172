"""Idle times of streams, and whether the host, the next kernel, or something else caused each."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.analyze.recorded.per_rank import per_rank
from nadi.analyze.recorded.rank_events import RankEvents

__all__ = ["IDLE_CAUSES", "idle_times"]

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
    start, rows = events.column("start"), events.work
    device, stream = events.column("device")[rows], events.column("stream")[rows]
    order = np.lexsort((start[rows], stream, device))
    rows, device, stream = rows[order], device[order], stream[order]
    first = np.append(True, (device[1:] != device[:-1]) | (stream[1:] != stream[:-1]))
    # the end of all earlier work of the stream: streams are shifted apart for one running maximum
    number = np.cumsum(first) - 1
    base = int(start[rows].min())
    span = int(events.end[rows].max()) - base + 1
    reach = np.maximum.accumulate(events.end[rows] - base + number * span)
    idle_from = np.append(0, reach[:-1]) - number * span + base
    call = events.launcher[rows]
    launched = np.where(call >= 0, start[call], idle_from)
    gap = start[rows] - idle_from
    code = np.where(launched > idle_from, 0, np.where(gap < kernel_gap_ns, 1, 2))
    chosen = ~first & (gap > 0)
    gaps = pl.DataFrame({
        "device": device[chosen], "stream": stream[chosen], "code": code[chosen],
        "gap": gap[chosen],
    })  # fmt: skip
    table = gaps.group_by("device", "stream", "code").agg(
        idle_ns=pl.sum("gap"), gaps=pl.len().cast(pl.Int64), mean_ns=pl.mean("gap"),
        min_ns=pl.min("gap"), median_ns=pl.median("gap"), max_ns=pl.max("gap"),
    ).sort("device", "stream", "code")  # fmt: skip
    causes = pl.Series(IDLE_CAUSES, dtype=pl.Enum(IDLE_CAUSES))
    of_stream = pl.sum("idle_ns").over("device", "stream")
    return table.select(
        "device", "stream", causes.gather(table["code"]).alias("cause"), "idle_ns",
        (100 * pl.col("idle_ns") / of_stream).alias("idle_percent"),
        "gaps", "mean_ns", "min_ns", "median_ns", "max_ns",
    )  # fmt: skip
