"""The phases of a collective, each an algorithm among a number of members."""

from __future__ import annotations

from dataclasses import dataclass

from nadi.simulation.collectives.step_tables import Steps, steps_of
from nadi.simulation.engine.codes import PhaseKind

__all__ = ["IN_SWITCH", "Phase", "Recipe"]

# how names of algorithms begin that reduce in switches within a node; NVLS itself, over several,
# also between them
IN_SWITCH = "NVLS"


@dataclass(frozen=True)
class Phase:
    """One algorithm, run by each line of ``size`` members, ``stride`` positions apart in the group.

    ``dim`` is the dimension in which a line's members differ, -1 for all members as one line.
    ``share`` messages have a link together, and if ``far`` so many for each hop; a byte takes at
    least ``pace`` ns, of a message alone. Of ``both`` every second chunk goes the other way round,
    over links of its own. ``name`` is that of the algorithm, where it is done by steps or takes a
    known time. ``queue`` is the dimension in whose queue it waits; -1 is the first or ``dim``.
    ``beside`` chunks are worked on at once. ``together`` members, beside each other, are those of a
    node; 1 if nodes have different numbers of members, or if it does not matter.
    """

    dim: int
    comm: int
    half: int
    algorithm: int
    window: int
    tree: int
    size: int
    stride: int = 1
    share: float = 1.0
    far: bool = False
    pace: float = 0.0
    both: bool = False
    name: str = ""
    queue: int = -1
    beside: int = 1
    together: int = 1

    @property
    def is_in_rounds(self) -> bool:
        """Whether members send to a few others at a time: its messages are followed."""
        return self.algorithm == PhaseKind.DIRECT and 0 < self.window < self.size - 1

    @property
    def steps(self) -> tuple[Steps, ...]:
        """Return the step tables; chunks alternate between the two trees."""
        if self.algorithm != PhaseKind.STEPS:
            return ()
        turns = range(2 if self.name == "doublebinarytree" else 1)
        return tuple(steps_of(self.name, self.comm, self.size, turn) for turn in turns)


@dataclass(frozen=True)
class Recipe:
    """The phases of a collective, and the time in ns that a rank spends on each packet."""

    phases: tuple[Phase, ...]
    delay: int
    is_group: bool

    @property
    def goes_both_ways(self) -> bool:
        """Whether chunks are halved and each half takes one direction of the ring."""
        return any(phase.both for phase in self.phases)

    @property
    def num_slots(self) -> int:
        """Return how many senders, at most, a member tells apart in a phase."""
        return max((_slots(phase) for phase in self.phases), default=1)


def _slots(phase: Phase) -> int:
    if phase.algorithm == PhaseKind.STEPS:
        return max(steps.num_places for steps in phase.steps)
    if phase.algorithm == PhaseKind.DIRECT:
        return phase.size
    if phase.algorithm == PhaseKind.HALVING_DOUBLING:
        return phase.size.bit_length()
    return 3 if phase.algorithm == PhaseKind.TREE else 1
