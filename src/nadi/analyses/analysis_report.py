"""Tables of analyses: printed, as JSON, and in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.analyses.analysis_charts import analysis_chart
from nadi.analyses.registry import ANALYSES, Analysis, analysis_named
from nadi.files.csv_tables import csv_bytes, parquet_bytes
from nadi.files.files import write_beside
from nadi.results.charts.chart_files import CHART_FILES, write_charts
from nadi.results.text import make_table, name_cell, print_table, to_json
from nadi.units import format_bytes, format_count, format_counted, format_ns

__all__ = [
    "ANALYSIS_FILES", "print_analyses", "print_analysis", "write_analysis",
    "write_analysis_page",
]  # fmt: skip

ANALYSIS_FILES = (".csv", ".json", ".parquet", *CHART_FILES)
_TOP = 20  # rows
_RATE_UNITS = {"gb": "GB/s", "tb": "TB/s", "tflop": "TFLOP/s"}
_RATES = tuple(f"{unit}_per_s" for unit in _RATE_UNITS)


def print_analyses(console: Console) -> None:
    """Print the list of analyses."""
    table = make_table("", name="left", table="left", about="left")
    for one in ANALYSES:
        table.add_row(one.name, one.title, one.group)
    print_table(table, console)


def print_analysis(one: Analysis, table: pl.DataFrame, console: Console, top: int = _TOP) -> None:
    """Print the first rows of a table; columns of one value only in many rows are left out."""
    if table.height == 0:
        console.print(Text(f"{one.title}: none"))
        return
    shown = [name for name in table.columns if not _is_idle(table, name)]
    layout = {
        _heading(name, table.columns): "right" if table[name].dtype.is_numeric() else "left"
        for name in shown
    }
    printed = make_table(one.title, **layout)
    for row in table.head(min(top, table.height)).select(shown).iter_rows():
        printed.add_row(*(_cell(name, value) for name, value in zip(shown, row, strict=True)))
    print_table(printed, console)
    if table.height > top:
        console.print(f"{format_counted(table.height - top, 'more row')}: -o writes all")


def _is_idle(table: pl.DataFrame, name: str) -> bool:
    """Return whether a column says nothing: one rank, one device, or no value at all."""
    if table[name].null_count() == table.height:
        return True
    return name in ("rank", "device") and table[name].n_unique() == 1


def _heading(name: str, names: Sequence[str]) -> str:
    if name.endswith(_RATES):
        what, _, unit = name.rpartition("_per_s")[0].rpartition("_")
        return f"{what.replace('_', ' ')} {_RATE_UNITS[unit]}".lstrip()
    for suffix, unit in (("_ns", " time"), ("_bytes", " size"), ("_percent", " %")):
        if name.endswith(suffix):
            base = name.removesuffix(suffix)
            alike = [one for one in names if one in (base, f"{base}_ns", f"{base}_bytes")]
            is_told = suffix == "_percent" or len(alike) > 1
            return base.replace("_", " ") + (unit if is_told else "")
    return "%" if name == "percent" else name.replace("_", " ")


def _cell(name: str, value: Any) -> str | Text:
    if value is None:
        return ""
    if name.endswith("_ns") and not isinstance(value, list):
        return format_ns(round(value))
    if name.endswith("_bytes") and not isinstance(value, list):
        return format_bytes(round(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        # an identifier is no quantity
        is_number = name in ("rank", "device", "stream", "thread", "correlation", "step")
        return str(value) if is_number else format_count(value)
    if isinstance(value, float):
        return f"{value:.1f}" if name.endswith("percent") else f"{value:.4g}"
    return name_cell(str(value))


def write_analysis(path: Path, one: Analysis, table: pl.DataFrame) -> None:
    """Write all rows of a table as CSV, JSON or Parquet, or a chart; which, the suffix says."""
    if path.suffix in CHART_FILES:
        write_charts(path, [analysis_chart(one, table)])
        return
    with write_beside(path) as file:
        if path.suffix == ".parquet":
            file.write(parquet_bytes(table))
        elif path.suffix == ".csv":
            file.write(csv_bytes(_flat(table)))
        else:
            file.write(to_json(table.to_dicts()))


def write_analysis_page(path: Path, found: Mapping[str, pl.DataFrame]) -> None:
    """Write a page with the charts of several analyses, by their names."""
    drawn = [
        analysis_chart(analysis_named(name), table) for name, table in found.items() if table.height
    ]
    write_charts(path, drawn, "Analyses")


def _flat(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table without lists, which CSV files do not have."""
    lists: Sequence[str] = [name for name in table.columns if table[name].dtype == pl.List]
    return table.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists
    )
