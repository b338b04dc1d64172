"""Stragglers: the ranks that the others wait for, and the longest waits with their causes."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Stragglers"
ORDER = 50


def render(figures: Figures) -> str:
    """Write a row per rank that is ever late, and one per collective with a long wait."""
    ranks = figures.rows("stragglers", "ranks")
    most = max((row["caused_ns"] for row in ranks), default=0)
    by_rank = [
        [
            figures.plain("stragglers", "ranks", i, "rank"),
            figures.count("stragglers", "ranks", i, "times_last"),
            figures.ns("stragglers", "ranks", i, "caused_ns")
            + bar(row["caused_ns"], most, "waiting"),
            figures.ns("stragglers", "ranks", i, "waited_ns"),
        ]
        for i, row in enumerate(ranks)
        if row["times_last"] or row["caused_ns"] or row["waited_ns"]
    ]
    collectives = figures.rows("stragglers", "collectives")
    longest = [
        [
            text(row["name"]),
            figures.plain("stragglers", "collectives", i, "rank"),
            figures.ns("stragglers", "collectives", i, "waited_ns"),
            figures.ns("stragglers", "collectives", i, "longest_ns"),
            text(str(row["cause"])),
            text(row["operation"], "(between operations)"),
        ]
        for i, row in enumerate(collectives)
    ]
    if not longest:
        return ""
    columns = ["collective*", "last rank#", "wait time of the others#", "longest wait#",
               "why it is late", "mostly*"]  # fmt: skip
    return table(
        "By rank", ["rank#", "times last#", "wait time caused#", "own wait time#"], by_rank
    ) + table("Collectives with the longest wait times", columns, longest)
