"""A recording beside a saved prediction of it: as data, and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console

from nadi.results.text import TOP, make_table, name_cell, print_table
from nadi.units import format_ns, format_percent, printable

if TYPE_CHECKING:  # pages take the words only
    from nadi.bottlenecks.differences.predictions import ComparedPrediction

__all__ = ["PART_WORDS", "describe_compared_prediction", "print_compared_prediction"]

PART_WORDS = {
    "computing": "computation",
    "transferring": "exposed transfer",
    "waiting": "exposed wait for other ranks",
    "copying": "copies, and memory beyond the device",
    "rest": "host and idle",
}
"""What the parts of a rank's time are called."""


def describe_compared_prediction(found: ComparedPrediction) -> dict[str, Any]:
    """Compute the JSON output: every row of every table; times are ns."""
    return {
        "kind": found.kind,
        "system": found.system,
        "window": found.window,
        "measured_ns": found.measured_ns,
        "predicted_ns": found.predicted_ns,
        "change_ns": found.predicted_ns - found.measured_ns,
        "parts": found.parts.to_dicts(),
        "ranks": found.ranks.to_dicts(),
        "operations": found.operations.to_dicts(),
    }


def print_compared_prediction(found: ComparedPrediction, console: Console, top: int = TOP) -> None:
    """Print how far the prediction is from what was measured, and where."""
    change = found.predicted_ns - found.measured_ns
    on = f" on {printable(found.system)}" if found.system else ""
    verb = "longer" if change > 0 else "shorter"
    console.print(
        f"{found.window}: measured {_time(found.measured_ns)}, predicted by the {found.kind}{on} "
        f"{_time(found.predicted_ns)}, {format_percent(abs(change), found.measured_ns)} {verb}",
        style="bold", markup=False,
    )  # fmt: skip
    columns = {"measured": "right", "predicted": "right", "change": "right"}
    table = make_table("time of a rank, mean over ranks", part="left", **columns)
    for row in found.parts.iter_rows(named=True):
        table.add_row(PART_WORDS[row["part"]], *_cells(row, "measured_ns", "predicted_ns"))
    print_table(table, console)
    if found.ranks.height > 1:
        table = make_table("when each rank finishes", rank="right", **columns)
        for row in found.ranks.head(top).iter_rows(named=True):
            table.add_row(str(row["rank"]), *_cells(row, "measured_ns", "predicted_ns"))
        print_table(table, console)
    changed = found.operations.filter(pl.col("change_ns") != 0)
    if changed.height:
        table = make_table("operations by name, self time", name="left", **columns)
        for row in changed.head(top).iter_rows(named=True):
            table.add_row(name_cell(row["name"]), *_cells(row, "before_ns", "after_ns"))
        print_table(table, console)
    if max(changed.height, found.ranks.height) > top:
        console.print("--json prints all rows")


def _cells(row: dict[str, Any], before: str, after: str) -> list[str]:
    sign = "+" if row["change_ns"] > 0 else "-" if row["change_ns"] < 0 else ""
    return [_time(row[before]), _time(row[after]), f"{sign}{_time(abs(row['change_ns']))}"]


def _time(nanoseconds: float) -> str:
    return format_ns(round(nanoseconds))
