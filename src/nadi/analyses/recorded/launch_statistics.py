"""Launches: how long calls take, how long work waits, and what it is worth."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents
from nadi.analyses.recorded.per_rank import per_rank

__all__ = ["launch_summary", "launches"]


@per_rank("launches")
def launches(events: RankEvents) -> pl.DataFrame:
    """List device work with the call that launched it.

    Returns
    -------
    polars.DataFrame
        In order of launch: ``correlation``, ``call`` and ``name``, ``call_ns`` and ``work_ns``
        (their durations), ``delay_ns`` (from the end of the call to the start of the work, 0 if it
        starts before). O(work log work).
    """
    rows = events.work[events.launcher[events.work] >= 0]
    rows = rows[np.lexsort((rows, events.column("start")[events.launcher[rows]]))]
    call, names = events.launcher[rows], events.table["name"].cast(pl.String)
    return pl.DataFrame({
        "correlation": events.column("correlation")[rows],
        "call": names.gather(call), "name": names.gather(rows),
        "call_ns": events.column("duration")[call],
        "work_ns": events.column("duration")[rows],
        "delay_ns": np.maximum(events.column("start")[rows] - events.end[call], 0),
    })  # fmt: skip


@per_rank("launches")
def launch_summary(
    events: RankEvents, long_call_ns: int = 50_000, long_delay_ns: int = 100_000
) -> pl.DataFrame:
    """Summarize launches by call.

    Parameters
    ----------
    events
        A job, a trace, or several.
    long_call_ns, long_delay_ns
        Above which calls and delays count as outliers.

    Returns
    -------
    polars.DataFrame
        ``call``, ``count`` (of pieces of work), ``call_ns``, ``work_ns`` and ``delay_ns``
        (medians), ``short`` (work shorter than its call: the host cannot keep the device busy),
        ``long_calls``, ``long_delays``, ``short_percent``; the most frequent first.
    """
    return (
        launches(events)
        .group_by("call")
        .agg(
            count=pl.len().cast(pl.Int64), call_ns=pl.median("call_ns"),
            work_ns=pl.median("work_ns"), delay_ns=pl.median("delay_ns"),
            short=(pl.col("work_ns") < pl.col("call_ns")).sum().cast(pl.Int64),
            long_calls=(pl.col("call_ns") > long_call_ns).sum().cast(pl.Int64),
            long_delays=(pl.col("delay_ns") > long_delay_ns).sum().cast(pl.Int64),
        )
        .with_columns(short_percent=100 * pl.col("short") / pl.col("count"))
        .sort("count", "call", descending=[True, False])
    )  # fmt: skip
