"""Who waits for whom, and what the step would gain without it."""

from __future__ import annotations

from nadi.results.page.figures import Figures, bar, table, text

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Who waits for whom"
ORDER = 52
_ROWS = 40


def render(figures: Figures) -> str:
    """Write a row per bottleneck, and one per waiter and whom it waits for."""
    rows = []
    found = figures.rows("waits", "bottlenecks")
    most = max((row["gain_ns"] for row in found), default=0)
    for i, row in enumerate(found):
        at = ("waits", "bottlenecks", i)
        meanwhile = row["operations"][0]["name"] if row["operations"] else ""
        rows.append([
            text(row["name"]),
            figures.ns(*at, "gain_ns"),
            figures.share((*at, "gain_ns"), ("waits", "measured_ns"))
            + bar(row["gain_ns"], most, "gain"),
            figures.ns(*at, "waited_ns"),
            "yes" if row["in_knot"] else "",
            text(row["waiters"][0] if row["waiters"] else ""),
            text(meanwhile),
        ])  # fmt: skip
    columns = ["bottleneck*", "gain#", "share#", "waited for#", "end of chain", "waits longest*",
               "meanwhile*"]  # fmt: skip
    title = "Gain if what others wait for took no time"
    knots = [" and ".join(knot) for knot in figures.get("waits", "knots", otherwise=[])]
    said = f"<p>Ends of chains of waits: {text('; '.join(knots))}</p>" if knots else ""
    return table(title, columns, rows) + said + _waits(figures)


def _waits(figures: Figures) -> str:
    rows = [
        [
            text(row["waiter"]),
            text(row["waits_for"]),
            figures.ns("waits", "waits", i, "direct_ns"),
            figures.ns("waits", "waits", i, "weight_ns"),
            figures.share(("waits", "waits", i, "weight_ns"), ("waits", "measured_ns")),
        ]
        for i, row in enumerate(figures.rows("waits", "waits")[:_ROWS])
    ]
    columns = ["waiter*", "waits for*", "direct#", "cascaded#", "share#"]
    title = "Direct, and with what others wait for meanwhile (cascaded)"
    return table(title, columns, rows, searchable=True)
