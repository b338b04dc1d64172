"""How alike two jobs are, as data and as text."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from nadi.results.text import make_table, print_table
from nadi.sharing.similarity.similarity import Likeness, Similarity
from nadi.units import format_ns

__all__ = ["describe_comparison", "print_comparison"]


def describe_comparison(found: Similarity) -> dict[str, Any]:
    """Describe each distance with its reference points, and the step times."""
    return {
        "reference_system": found.reference,
        "measures": [
            {
                "measure": one.measure, "distance": one.distance, "floor": one.floor,
                "ceiling": one.ceiling, "is_near": one.is_near,
            }
            for one in found.measures
        ],
        "step_ns": [
            {"system": system, "what_if": change, "a": a, "b": b}
            for (system, change), (a, b) in found.step_ns.items()
        ],
    }  # fmt: skip


def print_comparison(found: Similarity, console: Console) -> None:
    """Print a row per measure, and one per system and change."""
    has_floor = any(one.floor is not None for one in found.measures)
    columns = {"measure": "left", "distance": "right"}
    columns |= {"same program": "right"} if has_floor else {}
    table = make_table(
        "distance from 0 (equal) to 1 (nothing in common)",
        **columns, **{"independent draws": "right", "": "left"},
    )  # fmt: skip
    for one in found.measures:
        if "step time" not in one.measure:
            table.add_row(*_cells(one, has_floor))
    print_table(table, console)
    console.print(
        f"gaps, live memory and critical path: as simulated on {found.reference}", markup=False
    )
    console.print()
    times = make_table("step time", system="left", **{"what-if": "left"}, A="right", B="right",
                       difference="right")  # fmt: skip
    for (system, change), (a, b) in found.step_ns.items():
        share = f"{100 * (b - a) / a:+.1f} %" if a else "-"
        times.add_row(system, change, format_ns(a), format_ns(b), share)
    print_table(times, console)


def _cells(one: Likeness, has_floor: bool) -> list[str]:
    floor = [] if not has_floor else ["-" if one.floor is None else f"{one.floor:.3f}"]
    return [
        one.measure, f"{one.distance:.3f}", *floor, f"{one.ceiling:.3f}",
        "near" if one.is_near else "far",
    ]  # fmt: skip
