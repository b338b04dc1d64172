"""An estimate beside the simulated job and the published step time, as data and as text."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from nadi.estimates.single.checks import EstimateCheck
from nadi.results.text import make_table, print_table
from nadi.units import format_change, format_ns, format_percent

__all__ = ["describe_check", "print_check"]


def describe_check(check: EstimateCheck) -> dict[str, Any]:
    """Compute the JSON output: seconds."""
    measured = check.measured
    return {
        "estimated": check.estimated,
        "simulated": check.simulated,
        "measured": measured.seconds if measured else None,
        "source": measured.source if measured else None,
        "parts": [part._asdict() for part in check.parts],
    }


def print_check(check: EstimateCheck, console: Console) -> None:
    """Print both ways part by part, why they part, and the published time."""
    columns = {"part": "left", "estimate": "right", "simulation": "right", "of the step": "right"}
    table = make_table("Estimate and simulated job", **columns)
    rows = [(part.name, part.estimated, part.simulated) for part in check.parts]
    for name, estimated, simulated in (*rows, ("step", check.estimated, check.simulated)):
        difference = format_percent(estimated - simulated, check.simulated)
        table.add_row(name, _seconds(estimated), _seconds(simulated), difference)
    print_table(table, console)
    for part in check.parts:
        if part.reason:
            console.print(Text(f"{part.name}: {part.reason}"))
    measured = check.measured
    if measured is None:
        console.print(Text("no published step time is known for this model, system and plan"))
        return
    console.print(Text(f"measured: {_seconds(measured.seconds)} ({measured.source})"))
    for name, value in (("estimate", check.estimated), ("simulation", check.simulated)):
        console.print(Text(f"  {name} {format_change(value, measured.seconds)}"))


def _seconds(seconds: float) -> str:
    return format_ns(round(seconds * 1e9))
