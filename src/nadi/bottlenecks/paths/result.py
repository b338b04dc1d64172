"""Near-critical paths and slack, which ``nadi critical-path`` tells after the critical path."""

from typing import Any

import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.graph.near_critical import NearCriticalPath
from nadi.results.declared import (
    ALL,
    COUNT,
    NS,
    PLAIN,
    WORDS,
    Column,
    Result,
    Rows,
    in_words,
    name_or,
)
from nadi.units import format_ns


def _described(found: tuple[EventGraph, list[NearCriticalPath], pl.DataFrame]) -> dict[str, Any]:
    """Compute the JSON output; times are int ns."""
    graph, paths, room = found
    return {
        "near_critical_paths": [
            {
                "through": graph.op_names[one.through] if one.through >= 0 else "",
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


def _heaviest(row: dict[str, Any]) -> str:
    by_kind: dict[str, int] = row["by_kind"]
    return max(by_kind, key=by_kind.__getitem__)


def _most(slack: int | None) -> str:
    if slack is None:
        return "more"
    return f"up to {format_ns(slack)}" if slack else "none"


NEAR_CRITICAL = Result(
    kind="near_critical", title="Near-critical paths and slack", order=21, facts=_described,
    headline=None,
    parts=(
        Rows("near_critical_paths", "near-critical paths", None, (
            Column("through", "through", name_or("(the critical path)"), "an operation on it"),
            Column("rank", "rank", PLAIN, "of the operation",
                   shown=lambda row: row["rank"] if row["through"] else ""),
            Column("slack_ns", "slack", NS, "how much shorter it is than the critical path"),
            Column("by_kind", "largest kind", WORDS, "with most time on it", shown=_heaviest),
            Column("by_kind", "time", NS, "of that kind",
                   shown=lambda row: row["by_kind"][_heaviest(row)]),
        ), top=ALL),
        Rows("slack", "slack: how much later operations can end without delaying the step", None, (
            Column("kind", "kind", WORDS),
            Column("at_most_ns", "slack", in_words(_most)._replace(sign="#")),
            Column("operations", "operations", COUNT),
            Column("time_ns", "total time", NS),
        ), top=ALL),
    ),
)  # fmt: skip
"""Declared of the graph, the paths, and the table of slack."""
