"""What a scaled job consists of: axes, where its nodes come from, and its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from nadi.results.declared import COUNT, Column, Lines, Result, Rows
from nadi.results.text import of_steps
from nadi.units import format_bytes, format_count, format_counted, format_ns

if TYPE_CHECKING:
    from nadi.jobs.scaled.scale import ScaledStep
    from nadi.jobs.scaled_classes import ScaledJob

_ORIGINS = ("copied", "resized", "guessed", "made")
_KINDS = ("computation", "collective", "message")


def _described(found: tuple[ScaledJob, ScaledStep | None]) -> dict[str, Any]:
    """Describe the axes before and after, the origin of nodes, and the makespan; times are ns."""
    scaled, step = found
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
        "num_steps": scaled.num_steps,
        "step": step and {
            "before_ns": step.before_ns, "step_ns": step.step_ns,
            "bound": msgspec.to_builtins(step.bound),
        },
    }  # fmt: skip


def _headline(data: dict[str, Any]) -> str:
    before, after = data["before"], data["after"]
    shared = ("cp",) if max(before["cp"], after["cp"]) > 1 else ()
    axes = ", ".join(
        f"{axis} {before[axis]} -> {after[axis]}" if before[axis] != after[axis]
        else f"{axis} {after[axis]}"
        for axis in ("tp", "dp", "pp", *shared)
    )  # fmt: skip
    ranks = f"{format_counted(before['ranks'], 'rank')} -> {format_count(after['ranks'])}"
    return f"{ranks}, {format_count(data['nodes'])} nodes: {axes}"


def _lines(data: dict[str, Any]) -> Iterator[str]:
    """Say what changed, what was found and guessed, and the makespan with its interval."""
    if data["repriced"]:
        yield f"{format_count(data['repriced'])} measured times changed with sizes"
    for one in data["found"]:
        yield f"found: {one}"
    if data["memory"]:
        first, *others = map(format_bytes, data["memory"])
        where = " in the stages" if len(others) > 1 else ""
        yield f"tensors of a rank at once: {first} before, {', '.join(others)} after{where}"
    for one in data["guesses"]:
        yield f"guessed: {one}"
    if step := data["step"]:
        now, low, high = step["step_ns"], step["bound"]["low_ns"], step["bound"]["high_ns"]
        between = f", between {format_ns(low)} and {format_ns(high)}" if low < high else ""
        before = format_ns(step["before_ns"])
        name = of_steps(data["num_steps"], "the job")
        yield f"{name}: {format_ns(now)} ({format_count(now)} ns){between}; before {before}"


SCALE = Result(
    kind="scale", title="Scaled job", order=83,
    facts=_described,
    headline=_headline,
    parts=(
        Rows(
            "", "origin of nodes", None,
            (Column("kind", "nodes"), *(Column(one, one, COUNT) for one in _ORIGINS)),
            made=lambda data: [
                (("origin", kind), {"kind": f"{kind}s", **counted})
                for kind, counted in data["origin"].items() if any(counted.values())
            ],
        ),
        Lines(_lines),
    ),
)  # fmt: skip
"""Made of a scaled job and its simulated step, or None."""
