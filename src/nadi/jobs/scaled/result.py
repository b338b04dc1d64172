"""What a scaled job consists of: axes, where its nodes come from, and its step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.text import Text

from nadi.results.text import make_table, print_table
from nadi.units import format_bytes, format_count, format_ns

if TYPE_CHECKING:
    from nadi.jobs.scaled.scale import ScaledStep
    from nadi.jobs.scaled_classes import ScaledJob

__all__ = ["describe_scale", "print_scale"]

_ORIGINS = ("copied", "resized", "guessed", "made")
_KINDS = ("computation", "collective", "message")


def describe_scale(scaled: ScaledJob, step: ScaledStep | None) -> dict[str, Any]:
    """Describe the axes before and after, the origin of nodes, and the step; times are ns."""
    counted = {kind: dict.fromkeys(_ORIGINS, 0) for kind in _KINDS}
    for kind, origin, nodes in scaled.origin.iter_rows():
        counted[kind][origin] += nodes
    return {
        "before": scaled.before._asdict(),
        "after": scaled.after._asdict(),
        "nodes": scaled.job.num_nodes,
        "origin": counted,
        "repriced": scaled.repriced,
        "found": list(scaled.found),
        "memory": list(scaled.memory),
        "guesses": list(scaled.guesses),
        "step": None if step is None else {
            "before_ns": step.before_ns, "step_ns": step.step_ns,
            "bound": msgspec.to_builtins(step.bound),
        },
    }  # fmt: skip


def print_scale(described: dict[str, Any], console: Console) -> None:
    """Print the axes, a row per kind of node, the guesses, and the step with its interval."""
    before, after = described["before"], described["after"]
    axes = ", ".join(
        f"{axis} {before[axis]} -> {after[axis]}" if before[axis] != after[axis]
        else f"{axis} {after[axis]}"
        for axis in ("tp", "dp", "pp")
    )  # fmt: skip
    one = "rank" if before["ranks"] == 1 else "ranks"
    ranks = f"{format_count(before['ranks'])} {one} -> {format_count(after['ranks'])}"
    console.print(Text(f"{ranks}, {format_count(described['nodes'])} nodes: {axes}"))
    page = make_table("origin of nodes", nodes="left", **dict.fromkeys(_ORIGINS, "right"))
    for kind, counted in described["origin"].items():
        if any(counted.values()):
            page.add_row(f"{kind}s", *(format_count(counted[one]) for one in _ORIGINS))
    print_table(page, console)
    if described["repriced"]:
        console.print(f"{format_count(described['repriced'])} measured times changed with sizes")
    for one in described["found"]:
        console.print(Text(f"found: {one}"))
    if described["memory"]:
        first, *others = map(format_bytes, described["memory"])
        where = " in the stages" if len(others) > 1 else ""
        console.print(
            f"tensors of a rank at once: {first} before, {', '.join(others)} after{where}"
        )
    for guess in described["guesses"]:
        console.print(Text(f"guessed: {guess}"))
    if described["step"]:
        _print_step(described["step"], console)


def _print_step(step: dict[str, Any], console: Console) -> None:
    now, low, high = step["step_ns"], step["bound"]["low_ns"], step["bound"]["high_ns"]
    between = f", between {format_ns(low)} and {format_ns(high)}" if low < high else ""
    before = format_ns(step["before_ns"])
    console.print(Text(f"step {format_ns(now)} ({format_count(now)} ns){between}; before {before}"))
