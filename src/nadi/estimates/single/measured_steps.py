"""Published step times that ship with Nadi, by model, system and plan."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any, NamedTuple

from nadi.files.shipped_files import Shelf

__all__ = ["MeasuredStep", "measured_steps"]

_SHELF = Shelf("measured", "table of measured steps", "docs/estimate.md names them")


class MeasuredStep(NamedTuple):
    """A published step time.

    Attributes
    ----------
    model, system
        Names of those that ship with Nadi.
    plan
        Fields of :class:`nadi.models.ParallelPlan`.
    seconds
        Of a step.
    source
        Where it was published.
    """

    model: str
    system: str
    plan: dict[str, Any]
    seconds: float
    source: str


@cache
def measured_steps() -> tuple[MeasuredStep, ...]:
    """Return all published step times that ship with Nadi."""
    found = []
    for name in _SHELF.names():
        table = tomllib.loads(_SHELF.text(name))
        found += [
            MeasuredStep(
                row["model"], table["system"], row["plan"], row["seconds"], table["source"]
            )
            for row in table["steps"]
        ]
    return tuple(found)
