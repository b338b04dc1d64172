"""The queue of each stream: work that was launched and has not begun."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.analyze.recorded.per_rank import per_rank
from nadi.analyze.recorded.rank_events import RankEvents

__all__ = ["full_queues", "queue_lengths", "queue_summary"]

_PLACE = ("device", "stream")
_STATISTICS = ("mean", "std", "min", "p25", "median", "p75", "max")


@per_rank("launches")
def queue_lengths(events: RankEvents) -> pl.DataFrame:
    """Follow the length of each stream's queue.

    A call that launches work makes the queue of its stream longer when the call starts; the work
    makes it shorter when it starts. Launches come first where both happen at once.

    Returns
    -------
    polars.DataFrame
        A row per change, in order of time on each stream: ``device``, ``stream``, ``time_ns``
        (since the rank's first event), ``length`` after it. O(work log work).
    """
    rows = events.work[events.launcher[events.work] >= 0]
    start = events.column("start")
    time = np.concatenate([start[events.launcher[rows]], start[rows]])
    both = np.tile(rows, 2)
    device, stream = events.column("device")[both], events.column("stream")[both]
    order = np.lexsort((time, stream, device))  # stable: launches first
    change = np.repeat(np.array([1, -1]), rows.size)[order]
    # every stream ends with an empty queue, so one sum serves for all
    return pl.DataFrame({
        "device": device[order], "stream": stream[order],
        "time_ns": time[order] - int(start.min()), "length": np.cumsum(change),
    })  # fmt: skip


@per_rank("launches")
def queue_summary(events: RankEvents) -> pl.DataFrame:
    """Summarize the length of each stream's queue.

    Returns
    -------
    polars.DataFrame
        ``device``, ``stream``, ``changes``; ``mean``, ``std``, ``min``, ``p25``, ``median``,
        ``p75``, ``max`` of the length over its changes, as HTA counts; ``mean_over_time``, for
        which each length counts as long as it lasted. O(work log work).
    """
    series = queue_lengths(events)
    lasts = (pl.col("time_ns").shift(-1) - pl.col("time_ns")).over(_PLACE).fill_null(0)
    length = pl.col("length")
    return (
        series.with_columns(lasts=lasts)
        .group_by(_PLACE, maintain_order=True)
        .agg(
            changes=pl.len().cast(pl.Int64), mean=length.mean(), std=length.std(),
            min=length.min(), p25=length.quantile(0.25, "linear"), median=length.median(),
            p75=length.quantile(0.75, "linear"), max=length.max(),
            mean_over_time=(length * pl.col("lasts")).sum() / pl.col("lasts").sum(),
        )
    )  # fmt: skip


@per_rank("launches")
def full_queues(events: RankEvents, max_length: int = 1024) -> pl.DataFrame:
    """Measure how long each stream's queue was full, so that launches had to wait.

    Parameters
    ----------
    events
        A job, a trace, or several.
    max_length
        The length of a full queue: CUDA's holds 1,024.

    Returns
    -------
    polars.DataFrame
        Of streams whose queue ever was: ``device``, ``stream``, ``full_ns``, ``full_percent`` of
        the time from the first to the last change. O(work log work).
    """
    lasts = (pl.col("time_ns").shift(-1) - pl.col("time_ns")).over(_PLACE).fill_null(0)
    is_full = pl.col("length") >= max_length
    return (
        queue_lengths(events)
        .with_columns(lasts=lasts)
        .group_by(_PLACE, maintain_order=True)
        .agg(
            full_ns=pl.col("lasts").filter(is_full).sum(), was_full=is_full.any(),
            full_percent=100 * pl.col("lasts").filter(is_full).sum() / pl.col("lasts").sum(),
        )
        .filter("was_full")
        .drop("was_full")
    )  # fmt: skip
