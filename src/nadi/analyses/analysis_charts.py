"""Charts of analyses: what the registry says of each, drawn from its table."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.analyses.registry import Analysis
from nadi.results.charts.charts import (
    BarChart,
    Chart,
    ChartAxis,
    FlameChart,
    LineChart,
    LineSeries,
)
from nadi.trace.arrays import Floats

__all__ = ["analysis_chart", "time_unit"]

_MOST_BARS = 16
_MOST_LINES = 8
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def analysis_chart(one: Analysis, table: pl.DataFrame) -> Chart:
    """Draw the table of an analysis, of all its ranks together.

    Bars are sums over equal labels, or means of them; the longest are drawn. Lines are one for
    each stream, kind or name.
    """
    kind, *columns = one.chart
    if kind == "lines":
        return _lines(one.title, table, columns)
    if kind == "flame":
        return _flame(one.title, table)
    return _bars(one.title, table, columns, is_mean=kind == "means")


def _bars(title: str, table: pl.DataFrame, columns: list[str], *, is_mean: bool) -> BarChart:
    label, *values = columns
    together = [(pl.mean if is_mean else pl.sum)(name).fill_null(0) for name in values]
    rows = table.group_by(pl.col(label).cast(pl.String).fill_null("")).agg(together)
    rows = rows.sort(pl.sum_horizontal(values), label, descending=[True, False])
    shown = rows.head(_MOST_BARS)
    most = shown.select(pl.sum_horizontal(values)).to_series().max() if shown.height else 0
    factor, unit = _unit(values[0], float(most or 0))  # type: ignore[arg-type]
    left = rows.height - shown.height
    note = f"the {_MOST_BARS} largest of {rows.height:,}" if left else ""
    names = tuple(f"{label} {name}" if _is_number(label) else name for name in shown[label])
    parts = tuple(map(_told, values)) if len(values) > 1 else ("",)
    lengths = np.column_stack([np.maximum(_floats(shown[name]), 0) / factor for name in values])
    told = "time" if values[0].endswith("_ns") and len(values) > 1 else _told(values[0])
    return BarChart(title, f"{told}{f' in {unit}' if unit else ''}", names, parts, lengths, note)


def _lines(title: str, table: pl.DataFrame, columns: list[str]) -> LineChart:
    x, y, by = columns
    groups = table.with_columns(pl.col(by).cast(pl.String)).partition_by(
        by, as_dict=True, maintain_order=True
    )
    largest = sorted(groups.items(), key=lambda item: -item[1].height)[:_MOST_LINES]
    begin = float(table[x].min() or 0)  # type: ignore[arg-type]
    along, unit = _unit(x, float(table[x].max() or 0) - begin)  # type: ignore[arg-type]
    high, of_y = _unit(y, float(table[y].max() or 0))  # type: ignore[arg-type]
    series = tuple(
        LineSeries(
            f"{by} {name}" if _is_number(by) else str(name),
            (_floats(rows[x]) - begin) / along, _floats(rows[y]) / high,
        )
        for (name,), rows in largest
    )  # fmt: skip
    left = len(groups) - len(series)
    note = f"the {len(series)} with most rows of {len(groups)}" if left else ""
    across = ChartAxis(f"{_told(x)} since the first in {unit}")
    return LineChart(title, across, ChartAxis(f"{_told(y)}{f' in {of_y}' if of_y else ''}"),
                     series, note)  # fmt: skip


def _flame(title: str, table: pl.DataFrame) -> FlameChart:
    total = _floats(table["total_ns"])
    factor, unit = _unit("total_ns", float(total.max(initial=0)))
    # frames are numbered anew for each rank
    first = pl.col("row").min().over("rank")
    parent = pl.when(pl.col("parent") < 0).then(-1).otherwise(pl.col("parent") + first)
    rows = table.with_row_index("row").cast({"row": pl.Int64})
    below = rows.select(parent).to_series().to_numpy()
    return FlameChart(title, f"time in {unit}", tuple(table["name"]), below, total / factor)


def time_unit(largest_ns: float) -> tuple[float, str]:
    """Return the unit in which a time has at least one digit before the point, and ns of it."""
    return next((unit for unit in _UNITS if largest_ns >= unit[0]), (1.0, "ns"))


def _unit(name: str, largest: float) -> tuple[float, str]:
    if name.endswith("_ns"):
        return time_unit(largest)
    if name.endswith("_bytes"):
        return (2.0**30, "GiB") if largest >= 2**30 else (2.0**20, "MiB")
    return 1.0, ""


def _told(name: str) -> str:
    """Return a column's name as words."""
    words = name.removesuffix("_ns").removesuffix("_bytes").replace("_", " ")
    return "% " + words.removesuffix(" percent") if name.endswith("_percent") else words


def _is_number(name: str) -> bool:
    return name in ("rank", "stream", "device", "step")


def _floats(values: pl.Series) -> Floats:
    found: Floats = values.cast(pl.Float64).fill_null(0.0).to_numpy().astype(np.float64)
    return found
