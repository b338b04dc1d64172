"""An estimated step: where its time goes, what fills memory, what limits it."""

from __future__ import annotations

from nadi.estimates.single.result import PART_NAMES, TENSOR_NAMES
from nadi.results.page.figures import Figures, Path, bar, table, text, tiles

__all__ = ["ORDER", "TITLE", "render"]

TITLE = "Estimate"
ORDER = 2


def render(figures: Figures) -> str:
    """Write a tile per sum, and a row per part of the time, kind of tensor, and limit."""
    figures = figures.under("estimate")
    if figures.get("seconds") is None:
        return ""
    shown = [
        ("step", figures.seconds("seconds"), "estimated"),
        ("rate", figures.mean("rate"), "sequences per second"),
        ("efficiency", figures.percent("efficiency"), "of the matrix engine's peak"),
    ]
    if figures.get("price_per_million_tokens"):
        currency = text(figures.get("currency"))
        price = figures.mean("price_per_million_tokens")
        shown.append(("price", price, f"{currency} a million tokens"))
    lacks = figures.get("lacks")
    problem = f"<p>Not possible: {text(lacks)}</p>" if lacks else ""
    return tiles(shown) + problem + _times(figures) + _memory(figures)


def _times(figures: Figures) -> str:
    whole: Path = ("seconds",)
    times: dict[str, float] = figures.get("times", otherwise={})
    most = max(times.values(), default=0.0)
    rows = [
        [
            PART_NAMES.get(name, name),
            figures.seconds("times", name) + bar(time, most),
            figures.share(("times", name), whole),
        ]
        for name, time in times.items()
        if time
    ]
    limits = [
        [
            text(row["name"]),
            figures.share(("limits", i, "seconds"), whole) + bar(row["seconds"], most),
            text(row["lifted_by"]),
        ]
        for i, row in enumerate(figures.rows("limits"))
        if row["seconds"]
    ]
    return table("Time", ["part", "time#", "share#"], rows) + table(
        "Limits", ["limit", "share#", "what would lift it*"], limits
    )


def _memory(figures: Figures) -> str:
    tiers: list[dict[str, float]] = [
        figures.get(f"tier{k}_bytes", otherwise={}) for k in (1, 2)
    ]  # fmt: skip
    rows = [
        [
            TENSOR_NAMES.get(name, name),
            *(figures.whole_size(f"tier{k}_bytes", name) for k in (1, 2)),
        ]
        for name in tiers[0]
        if any(tier.get(name) for tier in tiers)
    ]
    rows.append(["capacity", *(figures.whole_size(f"tier{k}_capacity") for k in (1, 2))])
    return table("Memory of a processor", ["tensors", "tier 1#", "tier 2#"], rows)
