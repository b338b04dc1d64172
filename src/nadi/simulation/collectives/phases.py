"""The phases of a collective, each an algorithm among a number of members.

Conditions under which the engine computes many messages in closed form.

Groups that form a grid in the network, so that each dimension is a phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from nadi.simulation.collectives.step_tables import ROOTED, Steps, steps_of
from nadi.simulation.engine.codes import Comm, PhaseKind
from nadi.systems.system import Network
from nadi.trace.arrays import Ints

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


def positions_in(network: Network, ranks: Ints) -> list[Ints]:
    """Return the position of each rank in each dimension; int64, shape (ranks,) for each."""
    found, rest = [], ranks
    for dimension in network.dimensions:
        found.append(rest % dimension.size)
        rest = rest // dimension.size
    return found


def grid_of_all(network: Network) -> tuple[int, ...]:
    """Return the size of each dimension."""
    return tuple(dimension.size for dimension in network.dimensions)


def grid_of(network: Network, members: Ints) -> tuple[int, ...]:
    """Return the grid size of a group in each dimension, or none if it is not a full grid.

    Parameters
    ----------
    network
        Of all ranks.
    members
        int64, shape (members,): different ranks.

    Returns
    -------
    tuple of int
        Their product is the number of members; empty if some combination of places has none.
    """
    sizes = tuple(len(set(places.tolist())) for places in positions_in(network, members))
    return sizes if prod(sizes) == members.size else ()


def in_order_of_grid(network: Network, members: Ints) -> Ints:
    """Sort the members of a multi-dimensional grid by position.

    Where they differ in one dimension only they are a ring in the order that was given.
    """
    sizes = grid_of(network, members)
    return np.sort(members) if sum(size > 1 for size in sizes) > 1 else members
