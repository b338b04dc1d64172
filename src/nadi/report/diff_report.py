"""Two recordings compared: as data, and as text."""

from __future__ import annotations

from typing import Any

import polars as pl
from rich.console import Console

from nadi.analyze.compared_runs import ComparedRuns
from nadi.report.text_layout import TOP, make_table, name_cell, print_table
from nadi.units import format_ns

__all__ = ["describe_diff", "print_diff"]

_SLIGHT = 0.001  # of the step: changes of the path below are not printed
_NAMED = 3  # changes in the first lines


def describe_diff(found: ComparedRuns) -> dict[str, Any]:
    """Compute the JSON output: every row of every table."""
    return {
        "of": found.of,
        "before_ns": found.before_ns,
        "after_ns": found.after_ns,
        "change_ns": found.after_ns - found.before_ns,
        "path": found.path.to_dicts(),
        "kernels": found.kernels.to_dicts(),
        "calls": found.calls.to_dicts(),
        "modules": found.modules.to_dicts(),
        "steps": found.steps.to_dicts(),
    }


def print_diff(found: ComparedRuns, console: Console, top: int = TOP) -> None:
    """Print what changed: the step, critical path, kernels, modules, calls, ranks and steps."""
    change = found.after_ns - found.before_ns
    slower = "slower" if change > 0 else "faster"
    share = 100 * abs(change) / found.before_ns if found.before_ns else 0.0
    if change == 0:
        console.print(f"{found.of}: {_time(found.before_ns)} in both", style="bold", markup=False)
    else:
        console.print(
            f"{found.of}: {_time(found.before_ns)} -> {_time(found.after_ns)}, "
            f"{_time(abs(change))} ({share:.1f} %) {slower}",
            style="bold", markup=False,
        )  # fmt: skip
        _print_reasons(found, change, console)
    path = found.path.filter(pl.col("change_ns").abs() > _SLIGHT * found.before_ns)
    _print_rows(f"critical path, per {found.of}", path, ("kind", "cause"), console, top)
    kernels = found.kernels.filter(pl.col("state") != "same")
    _print_rows(f"device work by name, per {found.of}", kernels, ("state",), console, top)
    if found.modules.height:
        modules = _host_and_device(found.modules, pl.col("module"))
        title = f"modules without those in them, host and device, per {found.of}"
        _print_rows(title, modules, ("state",), console, top)
    last = pl.col("path").str.split(" > ").list.tail(2).list.join(" > ")
    calls = _host_and_device(found.calls, last)
    _print_rows(f"calls, host and device, per {found.of}", calls, ("state",), console, top)
    ranks = found.steps.group_by(pl.col("rank").cast(pl.String).alias("name"), maintain_order=True)
    means = ranks.agg(pl.mean("before_ns", "after_ns", "change_ns"))
    if means.height > 1 and (means["change_ns"] != 0).any():
        _print_rows("steps by rank", means, (), console, top)


def _host_and_device(table: pl.DataFrame, name: pl.Expr) -> pl.DataFrame:
    """Return the rows that changed, with the times of host and device together."""
    return table.filter(pl.col("state") != "same").with_columns(
        name=name,
        before_ns=pl.col("before_ns") + pl.col("device_before_ns"),
        after_ns=pl.col("after_ns") + pl.col("device_after_ns"),
    )


def _print_reasons(found: ComparedRuns, change: float, console: Console) -> None:
    """Print the changes of the path that go the same way as the step's, the largest first."""
    same = found.path.filter((pl.col("change_ns") * change > 0) & (pl.col("cause") != ""))
    for row in same.head(_NAMED).iter_rows(named=True):
        sign = "+" if row["change_ns"] > 0 else "-"
        console.print(
            f"  {sign}{_time(abs(row['change_ns']))}: {name_cell(row['name'] or '(no operation)')} "
            f"({row['kind']}, {row['cause']})",
            markup=False,
        )


def _print_rows(
    title: str, table: pl.DataFrame, more: tuple[str, ...], console: Console, top: int
) -> None:
    if table.height == 0:
        console.print(f"{title}: no change")
        return
    has_counts = "count_before" in table.columns
    counts = {"count before": "right", "count after": "right"} if has_counts else {}
    printed = make_table(
        title, name="left", **dict.fromkeys(more, "left"), **counts,
        before="right", after="right", change="right",
    )  # fmt: skip
    for row in table.head(min(top, table.height)).iter_rows(named=True):
        change = row["change_ns"]
        sign = "+" if change > 0 else "-" if change < 0 else ""
        sides = ("before", "after") if has_counts else ()
        printed.add_row(
            name_cell(row["name"], "(no operation)"), *(row[name] for name in more),
            *(f"{row[f'count_{side}']:.4g}" for side in sides),
            _time(row["before_ns"]), _time(row["after_ns"]), f"{sign}{_time(abs(change))}",
        )  # fmt: skip
    print_table(printed, console)
    if table.height > top:
        console.print(f"{table.height - top:,} more: --json prints all")


def _time(nanoseconds: float) -> str:
    return format_ns(round(nanoseconds))
