"""FLOP/s and B/s of operators by shape, against what the device could reach."""

from __future__ import annotations

from typing import Any

import numpy as np

from nadi.results.charts.charts import ChartAxis, LineChart, LineSeries
from nadi.results.charts.page_charts import chart_html
from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "FLOP/s and B/s by shape"
ORDER = 75
_ROWS = 40
_POINTS = 400  # shapes in the chart


def render(figures: Figures) -> str:
    """Write the roofline, the roofs, and a row per operator, shape and type of elements."""
    found = figures.rows("rates")
    roofs = figures.rows("roofs", "types")
    roof_of = {row["type"]: i for i, row in enumerate(roofs)}
    ranked = len({row["rank"] for row in found}) > 1
    most = max((row["tflop_per_s"] or 0.0 for row in found), default=0.0)
    rows = []
    for i in sorted(range(len(found)), key=lambda i: -found[i]["sum_ns"])[:_ROWS]:
        row = found[i]
        rows.append([
            *([figures.plain("rates", i, "rank")] if ranked else []),
            text(row["operator"]),
            text(row["shape"]),
            text(row["type"]),
            figures.count("rates", i, "count"),
            figures.ns("rates", i, "sum_ns"),
            figures.mean("rates", i, "tflop_per_s") + bar(row["tflop_per_s"] or 0.0, most),
            figures.mean("rates", i, "tb_per_s"),
            figures.mean("rates", i, "flops_per_byte"),
            *(_against_roof(figures, i, roof_of.get(row["type"], -1)) if roofs else []),
        ])  # fmt: skip
    columns = [*(["rank#"] if ranked else []), "operator*", "shape", "type", "count#", "time#",
               "TFLOP/s#", "TB/s#", "FLOP per byte#",
               *(["bound by", "of the roof#"] if roofs else [])]  # fmt: skip
    title = "Device work of operators, whole recording, most time first"
    return _roofline(found, roofs) + _roofs(figures) + table(title, columns, rows, searchable=True)


def _against_roof(figures: Figures, row: int, roof: int) -> list[str]:
    """Write what bounds a shape, and its share of that."""
    if roof < 0:
        return ["", "-"]
    at = ("roofs", "types", roof)
    ridge = figures.get(*at, "ridge_flops_per_byte")
    if figures.get("rates", row, "flops_per_byte") >= ridge:
        share = figures.share(("rates", row, "tflop_per_s"), (*at, "peak_tflops"))
        return ["compute", share]
    return ["memory", figures.share(("rates", row, "tb_per_s"), (*at, "tb_per_s"))]


def _roofs(figures: Figures) -> str:
    rows = [
        [
            text(row["type"]),
            figures.mean("roofs", "types", i, "peak_tflops"),
            figures.mean("roofs", "types", i, "tb_per_s"),
            figures.mean("roofs", "types", i, "ridge_flops_per_byte"),
        ]
        for i, row in enumerate(figures.rows("roofs", "types"))
    ]
    system = figures.get("roofs", "system", otherwise="")
    recorded = figures.get("roofs", "recorded", otherwise="")
    columns = ["type", "peak TFLOP/s#", "TB/s#", "ridge point FLOP per byte#"]
    return table(f"Roofs of {recorded}, as nadi systems {system} states them", columns, rows)


def _roofline(found: list[dict[str, Any]], roofs: list[dict[str, Any]]) -> str:
    """Draw each shape by its intensity, below the roofs if these are known."""
    shown = [row for row in found if row["tflop_per_s"] > 0 and row["flops_per_byte"] > 0]
    shown = sorted(shown, key=lambda row: -row["sum_ns"])[:_POINTS]
    if len(shown) + len(roofs) < 2:  # a point alone says nothing
        return ""
    series = []
    for name in dict.fromkeys(row["class"] for row in shown):
        mine = [row for row in shown if row["class"] == name]
        labels = tuple(f"{row['operator']} {row['shape']} {row['type']}" for row in mine)
        x, y = (np.array([row[key] for row in mine]) for key in ("flops_per_byte", "tflop_per_s"))
        series.append(LineSeries(name, x, y, is_points=True, labels=labels))
    every = np.array([row["flops_per_byte"] for row in shown] or [1.0])
    for row in roofs:
        ridge = row["ridge_flops_per_byte"]
        x = np.array(sorted({min(every.min(), ridge / 8), ridge, max(every.max(), ridge * 8)}))
        y = np.minimum(x * row["tb_per_s"], row["peak_tflops"])
        series.append(LineSeries(f"roof, {row['type']}", x, y))
    return chart_html(LineChart(
        "Roofline: FLOP/s by intensity", ChartAxis("FLOP per byte", is_log=True),
        ChartAxis("TFLOP/s", is_log=True), tuple(series),
    ))  # fmt: skip
