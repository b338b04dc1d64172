"""A second tier of memory for training: what it gains, and from which bandwidth it pays."""

from __future__ import annotations

import numpy as np

from nadi.results.charts.charts import ChartAxis, LineChart, LineSeries
from nadi.results.charts.page_charts import chart_html
from nadi.results.page.figures import Figures, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Second memory tier"
ORDER = 86


def render(figures: Figures) -> str:
    """Write a row per model and system, and the rates by bandwidth."""
    found = figures.rows("second_tier")
    rows = []
    for i, row in enumerate(found):
        at = ("second_tier", i)
        rows.append([
            text(row["model"]),
            text(row["system"]),
            figures.count(*at, "ranks"),
            figures.mean(*at, "without", "rate"),
            figures.mean(*at, "best", len(row["best"]) - 1, len(row["best"][-1]) - 1, "rate"),
            figures.mean(*at, "rate_at_any_bandwidth"),
            figures.mean(*at, "pays_from_gbps"),
            figures.mean(*at, "enough_from_gbps"),
        ])  # fmt: skip
    columns = ["model", "system", "ranks#", "sequences/s without#", "with the largest tier#",
               "at any bandwidth#", "pays from GB/s#", "enough from GB/s#"]  # fmt: skip
    return table("What a second tier gains", columns, rows) + _chart(figures)


def _chart(figures: Figures) -> str:
    series = []
    for row in figures.rows("second_tier"):
        curve = row["curve"]
        x = np.array(curve["bandwidths_gbps"], dtype=np.float64)
        y = np.array([np.nan if one is None else one for one in curve["rates"]], dtype=np.float64)
        series.append(LineSeries(f"{row['model']} {row['system']}", x, y))
    if not series:
        return ""
    return chart_html(LineChart(
        "Sequences per second by bandwidth of the second tier", ChartAxis("GB/s", is_log=True),
        ChartAxis("sequences/s"), tuple(series),
    ))  # fmt: skip
