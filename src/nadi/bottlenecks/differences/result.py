"""Two recordings compared: as data, and as text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import polars as pl
from rich.console import Console

from nadi.bottlenecks.differences.compared_runs import ComparedRuns
from nadi.results.text import TOP, make_table, name_cell, print_table
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
        "speed": asdict(found.speed),
        "vendors": [list(vendors) for vendors in found.vendors],
        "forms": found.forms.to_dicts(),
        "path": found.path.to_dicts(),
        "kernels": found.kernels.to_dicts(),
        "calls": found.calls.to_dicts(),
        "modules": found.modules.to_dicts(),
        "steps": found.steps.to_dicts(),
    }


def print_diff(found: ComparedRuns, console: Console, top: int = TOP) -> None:
    """Print what changed: the step, critical path, kernels, modules, calls, ranks and steps.

    How the program runs comes first, then the machine; its part is taken out of all other rows.
    """
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
        _print_forms(found, console)
        _print_machine(found, console)
        _print_reasons(found, change, console)
    other_vendor = found.vendors[0] != found.vendors[1] and all(found.vendors)
    path = found.path.filter(_own_change().abs() > _SLIGHT * found.before_ns)
    _print_rows(f"critical path, per {found.of}", path, ("kind", "cause"), console, top)
    kernels = found.kernels.filter(pl.col("state") != "same")
    by = "operator and class" if other_vendor else "name"
    _print_rows(f"device work by {by}, per {found.of}", kernels, ("state",), console, top)
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


def _own_change() -> pl.Expr:
    """Return the change of a row without what the machine explains of it."""
    return pl.col("change_ns") - pl.col("machine_ns")


def _print_forms(found: ComparedRuns, console: Console) -> None:
    """Print what came or went of the ways in which the program runs."""
    for row in found.forms.iter_rows(named=True):
        before, after = (f"{row[f'count_{side}']:.4g}" for side in ("before", "after"))
        taken = max(row["before_ns"], row["after_ns"])
        console.print(f"  {row['form']}: {before} -> {after} a step ({_time(taken)})", markup=False)
    if all(found.vendors) and found.vendors[0] != found.vendors[1]:
        before, after = (" and ".join(vendors) for vendors in found.vendors)
        console.print(
            f"  devices: {before} -> {after}; kernels by operator and class", markup=False
        )


def _print_machine(found: ComparedRuns, console: Console) -> None:
    """Print by which factor all unchanged operations take longer or shorter, and its part."""
    for place, factor in (("on the host", found.speed.host), ("on devices", found.speed.device)):
        if factor != 1:
            percent = f"{abs(factor - 1):.1%}".replace("%", " %")
            slower = "longer" if factor > 1 else "less"
            console.print(
                f"  the machine: unchanged operations {place} take {percent} {slower}", markup=False
            )
    part = float(found.path["machine_ns"].sum() or 0)
    if not found.speed.is_same:
        sign = "+" if part > 0 else "-"
        console.print(f"  {sign}{_time(abs(part))} of the step: taken out below", markup=False)


def _print_reasons(found: ComparedRuns, change: float, console: Console) -> None:
    """Print the changes of the path that go the same way as all of them, the largest first."""
    rest = change - float(found.path["machine_ns"].sum() or 0)
    rows = found.path.with_columns(own=_own_change())
    same = rows.filter(
        (pl.col("own") * rest > 0) & (pl.col("own").abs() > _SLIGHT * found.before_ns)
    )
    for row in same.head(_NAMED).iter_rows(named=True):
        sign = "+" if row["own"] > 0 else "-"
        console.print(
            f"  {sign}{_time(abs(row['own']))}: {name_cell(row['name'] or '(no operation)')} "
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
        change = row["change_ns"] - row.get("machine_ns", 0)
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
