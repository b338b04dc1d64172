"""What a device does over time: computes, communicates, copies, or nothing."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.kernels.sequences import union_length
from nadi.trace.arrays import Ints


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
    busy = union_of(events, rows)
    computation = events.of_type("computation")
    computing = union_of(events, computation)
    communication = events.of_type("communication")
    either = union_of(events, np.append(computation, communication))
    return pl.DataFrame({
        "total_ns": [total],
        "busy_ns": [busy],
        "idle_ns": [total - busy],
        "computation_ns": [computing],
        "exposed_communication_ns": [either - computing],
        "exposed_memory_ns": [busy - either],
        "communication_ns": [union_of(events, communication)],
        "memory_ns": [union_of(events, events.of_type("memory"))],
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
    talking = union_of(events, communication)
    either = union_of(events, np.append(computation, communication))
    overlap = talking + union_of(events, computation) - either
    return pl.DataFrame({
        "communication_ns": [talking],
        "overlapped_ns": [overlap],
        "exposed_ns": [talking - overlap],
        "overlap_percent": pl.Series([100 * overlap / talking if talking else None],
                                     dtype=pl.Float64),
    })  # fmt: skip


def union_of(events: RankEvents, rows: Ints) -> int:
    """Return the time in ns in which at least one of some events runs."""
    return union_length(events.column("start")[rows], events.end[rows])
