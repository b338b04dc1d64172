"""Step time: measured, replayed, and on another system; and how much of it is explained."""

from __future__ import annotations

from nadi.results.page.figures import Figures, Path, bar, table, text, tiles

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Step time"
ORDER = 5


def render(figures: Figures) -> str:
    """Write a tile per time, and a row per step."""
    if figures.get("measured_ns") is None:
        return ""
    window = text(figures.get("window", otherwise=""))
    shown = [("measured", figures.ns("measured_ns"), window)]
    if figures.get("replayed_ns") is not None:
        shown.append(("replayed", figures.ns("replayed_ns"), _same(figures)))
    if figures.get("on_system"):
        system = text(figures.get("on_system", "system"))
        shown.append(("predicted", figures.ns("on_system", "predicted_ns"), f"on {system}"))
    if figures.get("explained"):
        explained, of = ("explained", "explained_ns"), ("explained", "measured_ns")
        note = f"{figures.share(explained, of)} of the critical path"
        shown.append(("explained by dependencies", figures.ns(*explained), note))
    if figures.get("exposed_comm_ns"):
        exposed: Path = ("exposed_comm_ns",)
        note = f"{figures.share(exposed, ('measured_ns',))} of the step, mean over ranks"
        shown.append(("exposed communication", figures.ns(*exposed), note))
    return tiles(shown) + _steps(figures)


def _same(figures: Figures) -> str:
    same = figures.get("measured_ns") == figures.get("replayed_ns")
    return "identical" if same else "not the measured time"


def _steps(figures: Figures) -> str:
    steps = figures.rows("steps")
    longest = max((step["measured_ns"] for step in steps), default=0)
    rows = [
        [
            figures.plain("steps", i, "step"),
            figures.ns("steps", i, "measured_ns"),
            figures.ns("steps", i, "replayed_ns"),
            bar(step["measured_ns"], longest),
        ]
        for i, step in enumerate(steps)
    ]
    return table("Steps", ["step#", "measured#", "replayed#", ""], rows)
