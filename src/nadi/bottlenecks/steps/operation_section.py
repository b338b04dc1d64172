"""Kernels by time; operators, where no rank has a device."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Kernels and operators"
ORDER = 70


def render(figures: Figures) -> str:
    """Write a row per name."""
    found = figures.rows("operations")
    classed = any(row["class"] for row in found)
    most = max((row["time_ns"] for row in found), default=0)
    rows = []
    for i, row in enumerate(found):
        at = ("operations", i)
        rows.append([
            text(row["name"]),
            *([text(row["class"])] if classed else []),
            figures.ns(*at, "time_ns") + bar(row["time_ns"], most),
            figures.count(*at, "count"),
            figures.ns(*at, "shortest_ns"),
            figures.ns(*at, "longest_ns"),
            figures.count(*at, "ranks"),
        ])  # fmt: skip
    columns = ["name*", *(["class"] if classed else []), "time#", "count#", "shortest#", "longest#",
               "ranks#"]  # fmt: skip
    what = "Work on devices" if classed else "Operators, by self time"
    return table(f"{what}, summed over ranks", columns, rows, searchable=True)
