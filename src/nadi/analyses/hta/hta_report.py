"""The results of ``nadi critical-path --rules hta``: HTA's summary, and the path by operation."""

from __future__ import annotations

from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.analyses.hta.hta_path import HtaCriticalPath
from nadi.results.text import TOP, make_table, name_cell, print_table
from nadi.units import format_count, format_ns, format_percent, printable

__all__ = ["describe_hta_path", "print_hta_path"]

_US = 1000
_WAITING = "(between operations, weight 0)"


def describe_hta_path(path: HtaCriticalPath, annotation: str, rank: int) -> dict[str, Any]:
    """Compute the JSON output; times are int ns, shares are percent as in HTA."""
    sums = _sums(path, "bound_by")
    shares = dict(path.summary().iter_rows())
    return {
        "rank": rank,
        "annotation": annotation,
        "critical_path_ns": path.length,
        "nodes": path.nodes.height,
        "nodes_on_path": path.vertices.size,
        "edges": path.edges.height,
        "summary": [
            {"bound_by": bound_by, "ns": time, "percent": shares[bound_by]}
            for bound_by, time, _ in sums.iter_rows()
        ],
        "top": [
            {"name": name, "bound_by": bound_by, "ns": time, "count": count}
            for name, bound_by, time, count in _operations(path).head(TOP).iter_rows()
        ],
    }


def print_hta_path(path: HtaCriticalPath, annotation: str, rank: int, console: Console) -> None:
    """Print the page of text."""
    data = describe_hta_path(path, annotation, rank)
    where = f"annotation {printable(annotation)!r}" if annotation else "the whole trace"
    console.print(
        Text(
            f"HTA's rules, rank {rank}, {where}: critical path of "
            f"{format_ns(data['critical_path_ns'])}, through {format_count(data['nodes_on_path'])} "
            f"of {format_count(data['nodes'])} event starts and ends"
        )
    )
    total = sum(row["ns"] for row in data["summary"])
    table = make_table(
        "critical path by bottleneck", **{"bound by": "left"}, time="right", share="right"
    )
    for row in data["summary"]:
        shown = row["bound_by"] or _WAITING
        table.add_row(shown, format_ns(row["ns"]), format_percent(row["ns"], total))
    table.add_row("total", format_ns(total), "", style="bold")
    print_table(table, console)
    table = make_table(
        "top operations on the critical path",
        operation="left", **{"bound by": "left"}, time="right", share="right", count="right",
    )  # fmt: skip
    for row in data["top"]:
        table.add_row(
            name_cell(row["name"], "(launch)"), row["bound_by"], format_ns(row["ns"]),
            format_percent(row["ns"], total), format_count(row["count"]),
        )  # fmt: skip
    print_table(table, console)


def _sums(path: HtaCriticalPath, *by: str) -> pl.DataFrame:
    """Sum the breakdown by the given columns: time in ns, count."""
    return (
        path.breakdown()
        .group_by(*by)
        .agg(time=(pl.col("duration").sum() * _US).round().cast(pl.Int64), count=pl.len())
        .sort(*by)
    )


def _operations(path: HtaCriticalPath) -> pl.DataFrame:
    """Sum by operation, largest first; operations with weight 0 are omitted."""
    sums = _sums(path, "s_name", "bound_by").filter(pl.col("bound_by") != "")
    named = sums.with_columns(pl.col("s_name").fill_null(""))
    return named.sort("time", "s_name", "bound_by", descending=[True, False, False])
