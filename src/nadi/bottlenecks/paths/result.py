"""Near-critical paths and slack, which ``nadi critical-path`` prints after the critical path."""

from __future__ import annotations

from typing import Any

import polars as pl
from rich.console import Console

from nadi.graph.event_graph import EventGraph
from nadi.graph.near_critical import NearCriticalPath
from nadi.results.text import make_table, name_cell, print_table
from nadi.units import format_count, format_ns

__all__ = ["describe_near", "print_near"]

_NOTHING = "(the critical path)"


def describe_near(
    graph: EventGraph, paths: list[NearCriticalPath], room: pl.DataFrame
) -> dict[str, Any]:
    """Compute the JSON output for near-critical paths and slack; times are int ns."""
    return {
        "near_critical_paths": [
            {
                "through": graph.gather("name")[one.through] if one.through >= 0 else "",
                "rank": graph.job.ranks[int(graph.op_trace[one.through])],
                "slack_ns": one.slack,
                "length_ns": one.path.length,
                "by_kind": {
                    kind.replace(" ", "_"): time for kind, time in one.path.by_kind().items()
                },
            }
            for one in paths
        ],
        "slack": [
            {"kind": kind, "at_most_ns": slack, "operations": operations, "time_ns": time}
            for kind, slack, operations, time in room.select(
                "kind", "slack", "operations", "time"
            ).iter_rows()
        ],
    }


def print_near(
    graph: EventGraph, paths: list[NearCriticalPath], room: pl.DataFrame, console: Console
) -> None:
    """Print both tables."""
    data = describe_near(graph, paths, room)
    table = make_table(
        "near-critical paths", through="left", rank="right", slack="right",
        **{"largest kind": "left"}, time="right",
    )  # fmt: skip
    for row in data["near_critical_paths"]:
        heaviest = max(row["by_kind"], key=row["by_kind"].__getitem__)
        is_critical = not row["through"]
        table.add_row(
            name_cell(row["through"], _NOTHING), "" if is_critical else str(row["rank"]),
            format_ns(row["slack_ns"]), heaviest.replace("_", " "),
            format_ns(row["by_kind"][heaviest]),
        )  # fmt: skip
    print_table(table, console)
    slack = make_table(
        "slack: how much later operations can end without delaying the step",
        kind="left", slack="right", operations="right", **{"total time": "right"},
    )  # fmt: skip
    for row in data["slack"]:
        most = "more" if row["at_most_ns"] is None else f"up to {format_ns(row['at_most_ns'])}"
        most = "none" if row["at_most_ns"] == 0 else most
        slack.add_row(row["kind"], most, format_count(row["operations"]), format_ns(row["time_ns"]))
    print_table(slack, console)
