"""What each rank does: compute, transfer, wait, copy, or nothing; and each thread and stream."""

from __future__ import annotations

from nadi.results.page.figures import Figures, stacked_bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Ranks, threads and streams"
ORDER = 40
_PARTS = {
    "computing": "compute",
    "transferring": "exposed transfer",
    "waiting": "exposed wait for stragglers",
    "copying": "exposed copies",
    "idle": "idle",
}
_MOST = 200  # rows of a table


def render(figures: Figures) -> str:
    """Write a row and a bar per rank, and a row per thread and stream."""
    found = figures.rows("activity")
    shown = {
        part: title
        for part, title in _PARTS.items()
        if any(row[f"{part}_ns"] for row in found)
    }  # fmt: skip
    rows = []
    for i, row in enumerate(found[:_MOST]):
        parts = [(part, row[f"{part}_ns"]) for part in shown]
        rows.append([
            figures.plain("activity", i, "rank"),
            stacked_bar(parts, sum(time for _, time in parts)),
            *(figures.ns("activity", i, f"{part}_ns") for part in shown),
        ])  # fmt: skip
    keys = " ".join(
        f'<span><i class="key {part}"></i>{name}</span>' for part, name in shown.items()
    )
    columns = ["rank#", "", *(f"{title}#" for title in shown.values())]
    caption = "Time of each rank" + _more(len(found))
    legend = f"<p class=legend>{keys}</p>" if rows else ""
    return legend + table(caption, columns, rows) + _streams(figures)


def _streams(figures: Figures) -> str:
    found = figures.rows("streams")
    rows = []
    for i, row in enumerate(found[:_MOST]):
        at = ("streams", i)
        parts = [
            ("plain", row["busy_ns"] - row["communicating_ns"]),
            ("transferring", row["communicating_ns"]),
        ]
        rows.append([
            figures.plain(*at, "rank"),
            text(row["resource"]),
            figures.count(*at, "operations"),
            stacked_bar(parts, row["busy_ns"] + row["idle_ns"]),
            figures.ns(*at, "busy_ns"),
            figures.ns(*at, "communicating_ns"),
            figures.ns(*at, "idle_ns"),
        ])  # fmt: skip
    columns = ["rank#", "thread or stream", "operations#", "", "busy#", "of it communication#",
               "idle#"]  # fmt: skip
    caption = "Time of each thread and stream" + _more(len(found))
    return table(caption, columns, rows, searchable=True)


def _more(number: int) -> str:
    return f"; the first {_MOST} of {number}" if number > _MOST else ""
