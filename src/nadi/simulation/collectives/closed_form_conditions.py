"""Conditions under which the engine computes many messages in closed form."""

from __future__ import annotations

from nadi.simulation.collectives.phases import Phase, Recipe
from nadi.simulation.collectives.step_tables import ROOTED
from nadi.simulation.engine.codes import Comm, PhaseKind

__all__ = [
    "is_whole",
    "meets",
]


def is_whole(recipe: Recipe, num_members: int) -> bool:
    """Return whether the last entry into a collective determines all its times."""
    if len(recipe.phases) != 1:
        return False
    (phase,) = recipe.phases
    return phase.size == num_members and not phase.both and meets(phase)


def meets(phase: Phase) -> bool:
    """Return whether the last entry into a phase determines all its times."""
    if phase.algorithm == PhaseKind.DIRECT:
        all_at_once = phase.window < 0 or phase.window >= phase.size - 1
        return phase.comm != Comm.ALL_REDUCE and all_at_once
    if phase.algorithm == PhaseKind.STEPS:
        return phase.comm not in ROOTED
    return phase.algorithm in (PhaseKind.RING, PhaseKind.HALVING_DOUBLING, PhaseKind.TIMED)
