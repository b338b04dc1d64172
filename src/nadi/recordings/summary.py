"""The summary of one trace for ``nadi info``, as data and as text."""

from typing import Any

import msgspec
import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nadi.results.text import TOP, make_table, name_cell, print_issues, print_table
from nadi.trace.arrays import counted_texts
from nadi.trace.trace import Trace
from nadi.units import format_bytes, format_count, format_counted, format_ns, printable


def describe(trace: Trace) -> dict[str, Any]:
    """Summarize a trace by kind, operation, thread, stream and group; times are int ns.

    ``total_ns`` sums durations: nested operations count in each that encloses them.
    """
    nodes = trace.nodes.with_columns(pl.col("name").cast(pl.String))
    timed = nodes.filter(pl.col("start") >= 0)
    first, last = timed["start"].min(), (timed["start"] + timed["duration"]).max()
    return {
        "sources": [msgspec.to_builtins(source) for source in trace.provenance.sources],
        "rank": trace.rank,
        "world_size": trace.world_size,
        "process": trace.process,
        "nodes": nodes.height,
        "timed_nodes": timed.height,
        "span_ns": last - first if isinstance(last, int) and isinstance(first, int) else 0,
        "by_category": _sum_by(nodes, "category"),
        "by_kind": _sum_by(nodes, "kind"),
        "by_communication": _sum_by(nodes.filter(pl.col("comm_type") != "none"), "comm_type"),
        "operations": nodes["name"].n_unique(),
        "by_operation": _sum_by(nodes, "name")[:TOP],
        "by_thread": _sum_by(nodes.filter(pl.col("thread") >= 0), "thread"),
        "by_stream": _sum_by(nodes.filter(pl.col("stream") >= 0), "stream"),
        "groups": trace.groups.to_dicts(),
        "dependencies": counted_texts(trace.deps["kind"]),
        "issues": trace.issues.with_columns(pl.col("severity").cast(pl.String)).to_dicts(),
    }


def _sum_by(nodes: pl.DataFrame, column: str) -> list[dict[str, Any]]:
    """Count and sum by a column, sorted by time, then by number of nodes."""
    dtype = pl.Int64 if nodes.schema[column] == pl.Int64 else pl.String
    return (
        nodes.group_by(pl.col(column).cast(dtype))
        .agg(count=pl.len(), total_ns=pl.col("duration").clip(0).sum())
        .sort("total_ns", "count", column, descending=[True, True, False])
        .to_dicts()
    )


def print_description(data: dict[str, Any], console: Console) -> None:
    """Print the page of text."""
    for source in data["sources"]:
        text = f"{source['path']}  ({source['format']}, {format_bytes(source['size'])})"
        console.print(text, style="bold", markup=False)
    rank = "rank not recorded" if data["rank"] < 0 else f"rank {data['rank']}"
    if data["world_size"] > 0:
        rank += f" of {data['world_size']}"
    span = f", {format_ns(data['span_ns'])} from first to last event" if data["timed_nodes"] else ""
    untimed = data["nodes"] - data["timed_nodes"]
    without = f", {format_count(untimed)} without a timestamp" if untimed else ""
    process = f", process {data['process']}" if data["process"] >= 0 else ""
    nodes = format_counted(data["nodes"], "node")
    names = format_counted(data["operations"], "distinct name")
    console.print(f"{rank}{process}; {nodes}, {names}{without}{span}")
    for title, key, column in (
        ("categories", "by_category", "category"),
        ("communication", "by_communication", "comm_type"),
        ("top operations", "by_operation", "name"),
        ("threads", "by_thread", "thread"),
        ("streams", "by_stream", "stream"),
    ):
        if data[key]:
            print_table(_table(title, column, data[key]), console)
    for group in data["groups"]:
        about = f"group {group['name']} {group['description']}: ranks {group['ranks']}"
        console.print(Text(printable(f"{about} {group['backend']}")))
    print_issues(data["issues"], console)


def _table(title: str, column: str, rows: list[dict[str, Any]]) -> Table:
    table = make_table(title, name="left", count="right", **{"total time": "right"})
    for row in rows:
        time = format_ns(row["total_ns"]) if row["total_ns"] else "-"
        table.add_row(name_cell(str(row[column])), format_count(row["count"]), time)
    return table
