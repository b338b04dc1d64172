"""How alike two jobs are: distances, and their step times on systems."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Similarity of two jobs"
ORDER = 84


def render(figures: Figures) -> str:
    """Write a row per measure, and one per system and change."""
    figures = figures.under("similarity")
    found = figures.rows("measures")
    rows = [
        [
            text(row["measure"]),
            figures.mean("measures", i, "distance") + bar(row["distance"], 1.0),
            figures.mean("measures", i, "floor"),
            figures.mean("measures", i, "ceiling"),
            "near" if row["is_near"] else "far",
        ]
        for i, row in enumerate(found)
    ]
    steps = [
        [
            text(row["system"]),
            text(row["what_if"]),
            figures.ns("step_ns", i, "a"),
            figures.ns("step_ns", i, "b"),
            figures.share(("step_ns", i, "b"), ("step_ns", i, "a")),
        ]
        for i, row in enumerate(figures.rows("step_ns"))
    ]
    columns = ["measure*", "distance#", "same program#", "independent draws#", ""]
    title = "Distance from 0 (equal) to 1 (nothing in common)"
    return table(title, columns, rows) + table(
        "Step time", ["system", "what if", "A#", "B#", "B by A#"], steps, searchable=True
    )
