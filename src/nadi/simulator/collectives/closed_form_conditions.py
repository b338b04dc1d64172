"""Where the times of many messages can be worked out at once: what the fast ways rely on."""

from __future__ import annotations

from nadi.simulator.collectives.phases import Phase, Recipe
from nadi.simulator.collectives.step_tables import ROOTED
from nadi.simulator.engine.codes import Comm, PhaseKind
from nadi.simulator.machine.system import System

__all__ = ["is_whole", "meets", "nothing_contends"]


def nothing_contends(system: System) -> bool:
    """Tell whether no message ever waits for another's link, bus or receiver."""
    return not (system.network.congestion or system.network.rendezvous or system.bus)


def is_whole(recipe: Recipe, num_members: int) -> bool:
    """Tell whether a collective can be worked out as a whole, when its last member begins."""
    if len(recipe.phases) != 1:
        return False
    (phase,) = recipe.phases
    return phase.size == num_members and not phase.both and meets(phase)


def meets(phase: Phase) -> bool:
    """Tell whether a phase can be worked out when its last member begins."""
    if phase.algorithm == PhaseKind.DIRECT:
        all_at_once = phase.window < 0 or phase.window >= phase.size - 1
        return phase.comm != Comm.ALL_REDUCE and all_at_once
    if phase.algorithm == PhaseKind.STEPS:
        return phase.comm not in ROOTED
    return phase.algorithm in (PhaseKind.RING, PhaseKind.HALVING_DOUBLING)
