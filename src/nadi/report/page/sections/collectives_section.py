"""Collectives: the transfer itself apart from the wait for the straggler, and bytes per second."""

from __future__ import annotations

from nadi.report.page.figures import Figures, stacked_bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Collectives"
ORDER = 60


def render(figures: Figures) -> str:
    """Write a row per name, group and size."""
    found = figures.rows("collectives")
    largest = max((row["waiting_ns"] + row["transferring_ns"] for row in found), default=0)
    rows = []
    for i, row in enumerate(found):
        at = ("collectives", i)
        parts = [("waiting", row["waiting_ns"]), ("transferring", row["transferring_ns"])]
        rows.append([
            text(row["name"]),
            text(row["group"]),
            figures.size(*at, "bytes"),
            figures.count(*at, "count"),
            figures.ns(*at, "waiting_ns"),
            figures.ns(*at, "transferring_ns"),
            stacked_bar(parts, largest),
            figures.rate(*at, "bytes_per_second"),
        ])  # fmt: skip
    columns = ["collective*", "group", "size#", "count#", "wait: first to last entry#",
               "transfer: last entry to end#", "", "size by transfer time#"]  # fmt: skip
    return table("By name, group and size; times are sums", columns, rows, searchable=True)
