"""Sweeps as tables on a terminal, as data, and in files: tables and charts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.estimates.sweep_axes import SweepAxis
from nadi.files.csv_tables import csv_bytes, parquet_bytes
from nadi.files.files import write_beside
from nadi.results.charts.chart_files import CHART_FILES, write_charts
from nadi.results.charts.charts import ChartAxis, HeatMap, LineChart, LineSeries
from nadi.results.charts.scales import short_number
from nadi.results.text import make_table, print_table, to_json
from nadi.trace.arrays import Floats
from nadi.units import format_bytes, format_count, format_ns, format_number

__all__ = ["SWEEP_FILES", "print_sweep", "sweep_chart", "sweep_rows", "write_sweep"]

SWEEP_FILES = (".csv", ".json", ".parquet", *CHART_FILES)
_MOST_ROWS, _MOST_COLUMNS = 40, 12
_MOST_LINES = 10  # of a chart, before two axes make a heat map
_RATE = "sequences/s"
_CHOICES = {
    "tensor_par": "tp", "pipeline_par": "pp", "data_par": "dp", "microbatch_size": "micro-batch",
    "pipeline_interleaving": "interleaving", "activation_recompute": "recompute",
}  # fmt: skip
_MOVED = ("weight_offload", "activations_offload", "optimizer_offload")


def sweep_rows(frame: pl.DataFrame) -> bytes:
    """Write the rows of a sweep as JSON."""
    return to_json(frame.to_dicts())


def write_sweep(path: Path, frame: pl.DataFrame, axes: Sequence[SweepAxis], title: str) -> None:
    """Write a table, or a chart of the rate; which, the suffix says."""
    if path.suffix in CHART_FILES:
        write_charts(path, [sweep_chart(frame, axes, title)])
        return
    with write_beside(path) as file:
        if path.suffix == ".parquet":
            file.write(parquet_bytes(frame))
        elif path.suffix == ".csv":
            file.write(csv_bytes(frame))
        else:
            file.write(sweep_rows(frame))


# charts


def sweep_chart(frame: pl.DataFrame, axes: Sequence[SweepAxis], title: str) -> LineChart | HeatMap:
    """Draw the rate over the axes: lines, or a heat map where there would be too many."""
    rate = _rates(frame, axes)
    first, last = axes[0], axes[-1]
    note = "points without a value are not possible" if np.isnan(rate).any() else ""
    numbers = {axis.name: _numbers(axis) for axis in axes}
    if len(axes) == 1:
        return LineChart(
            title, _chart_axis(first, numbers[first.name]), ChartAxis(_RATE),
            (LineSeries("", numbers[first.name], rate[:, 0]),), note,
        )  # fmt: skip
    if len(last.values) <= _MOST_LINES:
        series = tuple(
            LineSeries(_at(last, value), numbers[first.name], rate[:, k])
            for k, value in enumerate(last.values)
        )
        x = _chart_axis(first, numbers[first.name])
        return LineChart(title, x, ChartAxis(_RATE), series, note)
    return HeatMap(
        title, first.title, last.title, tuple(map(_shown, first.values)),
        tuple(map(_shown, last.values)), rate.T, _RATE, note,
    )  # fmt: skip


def _rates(frame: pl.DataFrame, axes: Sequence[SweepAxis]) -> Floats:
    """Give the rate by the value of each axis; NaN where nothing is possible."""
    rate = frame["rate"].fill_null(float("nan")).to_numpy().astype(np.float64)
    return rate.reshape(len(axes[0].values), -1)


def _numbers(axis: SweepAxis) -> Floats:
    """Give the values of an axis as numbers; names and truth values by their position."""
    if all(type(value) in (int, float) for value in axis.values):
        return np.array(axis.values, dtype=np.float64)
    return np.arange(len(axis.values), dtype=np.float64)


def _chart_axis(axis: SweepAxis, numbers: Floats) -> ChartAxis:
    if any(isinstance(value, (str, bool)) for value in axis.values):
        named = ", ".join(f"{k} {value}" for k, value in enumerate(axis.values))
        return ChartAxis(f"{axis.name}: {named}")
    ratio = numbers.max() / numbers.min() if numbers.min() > 0 else 1
    return ChartAxis(axis.title, is_log=bool(ratio >= 8))


# text


def _shown(value: Any) -> str:
    return short_number(value) if type(value) in (int, float) else str(value)


def _at(axis: SweepAxis, value: Any) -> str:
    return f"{axis.name} {_shown(value)}{' ' if axis.unit else ''}{axis.unit}"


def print_sweep(frame: pl.DataFrame, axes: Sequence[SweepAxis], console: Console) -> None:
    """Print a row per point, or the rates of two axes as a table; and the best point."""
    if len(axes) == 2 and len(axes[1].values) <= _MOST_COLUMNS:
        _print_rates(frame, axes, console)
    else:
        _print_points(frame, axes, console)
    feasible = frame["rate"].is_not_null().sum()
    console.print()
    points = f"{format_count(frame.height)} point{'s' if frame.height > 1 else ''}"
    counts = f"{points}, {format_count(int(feasible))} possible"
    if feasible:
        row = frame.row(int(frame["rate"].arg_max() or 0), named=True)
        where = ", ".join(_at(axis, row[axis.name]) for axis in axes)
        counts += f"; fastest: {format_number(row['rate'])} {_RATE} at {where}"
    console.print(Text(counts))


def _print_rates(frame: pl.DataFrame, axes: Sequence[SweepAxis], console: Console) -> None:
    columns = {axes[0].title: "right"} | {_shown(value): "right" for value in axes[1].values}
    table = make_table(f"{_RATE}, by {axes[0].name} and {axes[1].title}", **columns)
    rates = _rates(frame, axes)
    rows = rates.shape[0]
    for value, rate in zip(axes[0].values[:_MOST_ROWS], rates, strict=False):
        table.add_row(
            _shown(value), *("-" if np.isnan(one) else format_number(one) for one in rate)
        )
    print_table(table, console)
    _say_left_out(rows, console)


def _print_points(frame: pl.DataFrame, axes: Sequence[SweepAxis], console: Console) -> None:
    is_search = "feasible" in frame.columns
    columns = dict.fromkeys((axis.title for axis in axes), "right")
    columns |= {_RATE: "right", "step": "right"}
    columns |= dict.fromkeys(_CHOICES.values(), "right") if is_search else {}
    columns |= {"offload": "left"} if is_search else {}
    columns |= {"tier 1": "right", "tier 2": "right"}
    columns |= {} if is_search else {"lacks": "left"}
    table = make_table("", **columns)
    table.title = None
    for row in frame.head(_MOST_ROWS).iter_rows(named=True):
        values = [_shown(row[axis.name]) for axis in axes]
        values += [
            "-" if row["rate"] is None else format_number(row["rate"]),
            _step(row["seconds"]),
        ]
        if is_search:
            there = row["rate"] is not None
            values += [str(row.get(field)) if there else "-" for field in _CHOICES]
            moved = [field.split("_")[0] for field in _MOVED if row.get(field)]
            values.append(" ".join(moved) or "-")
        values += [_bytes(row["tier1_bytes"]), _bytes(row["tier2_bytes"])]
        table.add_row(*values, *([] if is_search else [str(row["lacks"])]))
    print_table(table, console)
    _say_left_out(frame.height, console)


def _say_left_out(rows: int, console: Console) -> None:
    if rows > _MOST_ROWS:
        left = format_count(rows - _MOST_ROWS)
        console.print(Text(f"{left} more rows are not shown; -o FILE.csv has all"))


def _step(seconds: float | None) -> str:
    return "-" if seconds is None else format_ns(round(seconds * 1e9))


def _bytes(size: float | None) -> str:
    return "-" if size is None else format_bytes(int(size))
