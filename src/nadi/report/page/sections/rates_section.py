"""FLOP/s and B/s of operators by shape, where shapes were recorded."""

from __future__ import annotations

from nadi.report.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "FLOP/s and B/s by shape"
ORDER = 75
_ROWS = 40


def render(figures: Figures) -> str:
    """Write a row per operator, shape and type of elements; of the whole recording."""
    found = figures.rows("rates")
    ranked = len({row["rank"] for row in found}) > 1
    most = max((row["tflop_per_s"] for row in found), default=0.0)
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
            figures.mean("rates", i, "tflop_per_s") + bar(row["tflop_per_s"], most),
            figures.mean("rates", i, "tb_per_s"),
            figures.mean("rates", i, "flops_per_byte"),
        ])  # fmt: skip
    columns = [*(["rank#"] if ranked else []), "operator*", "shape", "type", "count#", "time#",
               "TFLOP/s#", "TB/s#", "FLOP per byte#"]  # fmt: skip
    title = "Device work of operators, whole recording, most time first"
    return table(title, columns, rows, searchable=True)
