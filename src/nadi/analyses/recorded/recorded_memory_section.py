"""Recorded memory of devices over time, its peak, and the operators that allocate most."""

from __future__ import annotations

import numpy as np

from nadi.results.charts.charts import ChartAxis, LineChart, LineSeries
from nadi.results.charts.page_charts import chart_html
from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Memory over time"
ORDER = 78
_ROWS, _LINES = 40, 8


def render(figures: Figures) -> str:
    """Write a chart, and a row per device and operator; of the whole recording."""
    found = figures.rows("memory", "peaks")
    most = max((row["size_bytes"] for row in found), default=0)
    rows = [
        [
            figures.plain("memory", "peaks", i, "rank"),
            text(row["device"]),
            figures.size("memory", "peaks", i, "peak_bytes"),
            figures.ns("memory", "peaks", i, "peak_ns"),
            text(row["operator"], "(no operator)"),
            figures.count("memory", "peaks", i, "allocations"),
            figures.size("memory", "peaks", i, "size_bytes") + bar(row["size_bytes"], most),
        ]
        for i, row in enumerate(found[:_ROWS])
    ]
    columns = ["rank#", "device", "peak of the device#", "at#", "operator*", "allocations#",
               "allocated in all#"]  # fmt: skip
    return _chart(figures) + table(
        "Allocations by operator, whole recording", columns, rows, searchable=True
    )


def _chart(figures: Figures) -> str:
    series = figures.rows("memory", "series")
    if not series:
        return ""
    largest = sorted(series, key=lambda row: -max(row["allocated_bytes"]))[:_LINES]
    lines = []
    for row in largest:
        time = np.array(row["time_ns"]) / 1e6
        for name in ("allocated", "reserved"):
            size = np.array(row[f"{name}_bytes"]) / 2**30
            if size.any():
                rank = f"rank {row['rank']} " if len(series) > 1 and row["rank"] >= 0 else ""
                lines.append(LineSeries(f"{rank}{row['device']} {name}", time, size))
    note = f"the {_LINES} with the highest peaks of {len(series)}" if len(series) > _LINES else ""
    return chart_html(LineChart(
        "Memory of devices", ChartAxis("time (ms)"), ChartAxis("GiB"), tuple(lines), note
    ))  # fmt: skip
