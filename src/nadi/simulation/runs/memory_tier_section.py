"""What memory tiers served in a simulated job, when, and what waited for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nadi.results.charts.charts import HeatMap
from nadi.results.charts.page_charts import chart_html
from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Memory tiers of the simulation"
ORDER = 3
_ROWS = 64


def render(figures: Figures) -> str:
    """Write a row per memory, a chart of their use, and a row per operation that waits."""
    if figures.get("simulation"):
        figures = figures.under("simulation")
    found = figures.rows("memory_tiers")
    rows = [
        [
            text(row["tier"]),
            figures.plain("memory_tiers", i, "memory"),
            figures.size("memory_tiers", i, "bytes_read"),
            figures.size("memory_tiers", i, "bytes_written"),
            figures.ns("memory_tiers", i, "busy_ns"),
            figures.ns("memory_tiers", i, "waiting_ns"),
            figures.percent("memory_tiers", i, "utilization") + bar(row["utilization"] or 0, 1.0),
        ]
        for i, row in enumerate(found[:_ROWS])
    ]
    if not rows:
        return ""
    columns = ["tier", "memory#", "read#", "written#", "busy#", "queueing#", "utilization#"]
    waits = [
        [
            text(row["name"]),
            text(row["tier"]),
            figures.count("memory_waits", i, "count"),
            figures.ns("memory_waits", i, "waiting_ns"),
        ]
        for i, row in enumerate(figures.rows("memory_waits")[:_ROWS])
    ]
    return (
        table("What each memory served", columns, rows, searchable=True)
        + _use(figures.rows("memory_tiers_over_time"))
        + table("Operations that wait for memory", ["operation*", "tier", "count#", "wait time#"],
                waits, searchable=True)
    )  # fmt: skip


def _use(found: list[dict[str, Any]]) -> str:
    """Draw the utilization of the busiest memory of each tier in each part of the time."""
    known = [row for row in found if row["utilization"] is not None]
    if not known:
        return ""
    tiers = list(dict.fromkeys(row["tier"] for row in known))
    starts = sorted({row["start_ns"] for row in known})
    values = np.full((len(tiers), len(starts)), np.nan)
    for row in known:
        at = tiers.index(row["tier"]), starts.index(row["start_ns"])
        values[at] = np.fmax(values[at], 100 * row["utilization"])
    return chart_html(HeatMap(
        "Utilization of memory tiers over time", "begin of each part of the time (ms)", "tier",
        tuple(f"{start / 1e6:.4g}" for start in starts), tuple(tiers), values, "percent",
        "the busiest memory of each tier",
    ))  # fmt: skip
