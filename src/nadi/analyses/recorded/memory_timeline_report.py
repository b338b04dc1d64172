"""Recorded memory of devices over time: as data, short enough to draw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents
from nadi.analyses.recorded.memory_timeline import memory_timeline, peaks_of
from nadi.errors import InputError
from nadi.trace.arrays import Ints

__all__ = ["describe_memory"]

_POINTS = 500  # of a line


def describe_memory(ranks: Iterable[RankEvents]) -> dict[str, Any] | None:
    """Give the peaks and operators of each device, and its memory over time; None if not recorded.

    ``peaks`` are the rows of ``nadi analyze memory``, ``series`` those of ``nadi analyze
    memory-series``, of many the smallest and the largest of equal stretches.
    """
    peaks, series = [], []
    for events in ranks:
        try:
            table = memory_timeline(events)
        except InputError:  # no allocations were recorded
            continue
        found = peaks_of(table.drop("rank")).to_dicts()
        peaks += [{"rank": events.rank, **row} for row in found]
        for (device,), rows in table.group_by("device", maintain_order=True):
            kept = _extremes(rows["allocated_bytes"].to_numpy())
            columns = rows.select("time_ns", "allocated_bytes", "reserved_bytes")[kept]
            series.append({
                "rank": events.rank, "device": device,
                **{name: columns[name].to_list() for name in columns.columns},
            })  # fmt: skip
    return {"peaks": peaks, "series": series} if series else None


def _extremes(values: Ints) -> Ints:
    """Return the positions of the first, the last, and the extremes of equal stretches."""
    if values.size <= _POINTS:
        return np.arange(values.size)
    borders = np.linspace(0, values.size, _POINTS // 2 + 1).astype(np.int64)
    stretch = np.repeat(np.arange(borders.size - 1), np.diff(borders))
    table = pl.DataFrame({"stretch": stretch, "value": values}).with_row_index("at")
    ends = table.group_by("stretch", maintain_order=True).agg(
        low=pl.col("at").get(pl.col("value").arg_min()),
        high=pl.col("at").get(pl.col("value").arg_max()),
    )
    kept = {0, values.size - 1, *ends["low"].to_list(), *ends["high"].to_list()}
    return np.array(sorted(kept), dtype=np.int64)
