"""Tensors of a job in several tiers of memory: what lives where, when, and what it costs."""

from __future__ import annotations

import numpy as np

from nadi.results.charts.charts import ChartAxis, LineChart, LineSeries
from nadi.results.charts.page_charts import chart_html
from nadi.results.page.figures import Figures, bar, table, text, tiles

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Placement in memory tiers"
ORDER = 88


def render(figures: Figures) -> str:
    """Write the step with and without tiers, a row per tier, role and wait, and what lives when."""
    figures = figures.under("placement")
    if figures.get("with_tiers_ns") is None:
        return ""
    where = f"{figures.count('ranks')} ranks on {text(figures.get('system'))}"
    shown = (
        ("without tiers", figures.ns("without_tiers_ns"), where),
        ("with tiers", figures.ns("with_tiers_ns"), text(figures.get("placement"))),
        ("with by without", figures.share(("with_tiers_ns",), ("without_tiers_ns",)),
         f"in lower tiers: {text(', '.join(figures.get('moves', otherwise=[])) or 'nothing')}"),
    )  # fmt: skip
    charts = "".join(map(chart_html, _live(figures)))
    return tiles(shown) + _tiers(figures) + charts + _roles(figures)


def _tiers(figures: Figures) -> str:
    rows = [
        [
            text(row["name"]),
            figures.whole_size("tiers", i, "capacity") if row["capacity"] else "any",
            figures.size("tiers", i, "peak"),
            figures.ns("tiers", i, "at_ns"),
            figures.plain("tiers", i, "rank"),
            figures.ns("tiers", i, "busy_ns"),
            figures.ns("tiers", i, "queued_ns"),
        ]
        for i, row in enumerate(figures.rows("tiers"))
    ]
    columns = ["tier", "capacity#", "peak of a rank#", "at#", "on rank#", "busy#", "queued#"]
    waits = [
        [
            text(row["name"]),
            text(row["role"]),
            figures.count("waits", i, "count"),
            figures.ns("waits", i, "ns"),
        ]
        for i, row in enumerate(figures.rows("waits"))
    ]
    return table("Tiers", columns, rows) + table(
        "Operations that wait for memory", ["operation*", "waits for", "count#", "time#"], waits
    )


def _roles(figures: Figures) -> str:
    found = figures.rows("each_role_alone")
    most = max((row["step_ns"] for row in found), default=0)
    rows = [
        [
            text(row["role"], "nothing"),
            figures.whole_size("each_role_alone", i, "moved_bytes"),
            figures.whole_size("each_role_alone", i, "freed_bytes"),
            figures.ns("each_role_alone", i, "step_ns") + bar(row["step_ns"], most),
        ]
        for i, row in enumerate(found)
    ]
    columns = ["moves", "bytes#", "frees#", "step#"]
    return table("Each role moved alone", columns, rows)


def _live(figures: Figures) -> list[LineChart]:
    """Draw what lives in each tier over time, by role."""
    charts = []
    for row in figures.rows("live"):
        time = np.array(row["time_ns"]) / 1e6
        series = tuple(
            LineSeries(role, time, np.array(sizes) / 2**30)
            for role, sizes in row["bytes_by_role"].items()
        )
        title = f"What lives in {row['tier']}, on rank {row['rank']}"
        charts.append(LineChart(title, ChartAxis("time (ms)"), ChartAxis("GiB"), series))
    return charts
