"""The queue of each stream: work that was launched and has not begun."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, per_rank

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
    return pl.concat(
        one.changes.select(
            *one.names(), "time_ns", "length",
        )
        for one in _queues(events)
    )  # fmt: skip


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
    length, lasts = pl.col("length"), _LASTS
    return _of_each(
        events, changes=pl.len().cast(pl.Int64), mean=length.mean(), std=length.std(),
        min=length.min(), p25=length.quantile(0.25, "linear"), median=length.median(),
        p75=length.quantile(0.75, "linear"), max=length.max(),
        mean_over_time=(length * lasts).sum() / lasts.sum(),
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
    is_full = pl.col("length") >= max_length
    full = _LASTS.filter(is_full).sum()
    return (
        _of_each(
            events, full_ns=full, was_full=is_full.any(), full_percent=100 * full / _LASTS.sum()
        )
        .filter("was_full")
        .drop("was_full")
    )


class _Queue(NamedTuple):
    """The queue of one stream: a row per change, with ``time_ns`` and ``length`` after it."""

    device: int
    stream: int
    changes: pl.DataFrame

    def names(self) -> tuple[pl.Expr, ...]:
        """Give the columns ``device`` and ``stream``, of the same type for any number."""
        return tuple(
            pl.lit(number, dtype=pl.Int64).alias(name)
            for name, number in (("device", self.device), ("stream", self.stream))
        )


_LASTS = (pl.col("time_ns").shift(-1) - pl.col("time_ns")).fill_null(0)
"""How long each length lasts."""


def _of_each(events: RankEvents, **values: pl.Expr) -> pl.DataFrame:
    """Return a row per stream, with values of its queue."""
    return pl.concat(one.changes.select(*one.names(), **values) for one in _queues(events))


def _queues(events: RankEvents) -> Iterator[_Queue]:
    """Yield the queues of streams, one after the other: there are many changes."""
    rows = events.work[events.launcher[events.work] >= 0]
    start = events.column("start")
    device, stream = events.column("device")[rows], events.column("stream")[rows]
    order = np.lexsort((stream, device))
    rows, device, stream = rows[order], device[order], stream[order]
    first = np.append(True, (device[1:] != device[:-1]) | (stream[1:] != stream[:-1]))
    for place, mine in zip(
        np.flatnonzero(first).tolist(), np.split(rows, np.flatnonzero(first)[1:]), strict=True
    ):
        time = np.concatenate([start[events.launcher[mine]], start[mine]])
        order = np.argsort(time, kind="stable")  # launches first
        length = np.cumsum(np.where(order < mine.size, 1, -1))
        changes = pl.DataFrame({"time_ns": time[order] - int(start.min()), "length": length})
        yield _Queue(int(device[place]), int(stream[place]), changes)
