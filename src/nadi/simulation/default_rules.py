"""The rules by which a system is simulated, as far as others may differ: Nadi's own."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from nadi.simulation.collectives.collective_algorithms import chunks_of, recipe_of, timed_recipe
from nadi.simulation.collectives.group_grids import in_order_of_grid, places_in
from nadi.simulation.collectives.phases import Phase, Recipe
from nadi.simulation.engine.codes import Comm
from nadi.simulation.engine.machine_state import NUM_SLOTS, WORLD
from nadi.simulation.work.program import Program
from nadi.systems.collective_times import known_times
from nadi.systems.nccl.nccl_tests_sizes import nccl_tests_factors
from nadi.systems.system import COLLECTIVES, Bus, Network, System
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import NODE_KINDS

__all__ = ["DefaultRules"]


class DefaultRules:
    """What a job and a system mean.

    Attributes
    ----------
    collectives
        The types of collectives that are simulated.
    replayed
        Of all types, those that take their recorded time.
    played
        Of all types, those that a recording's collectives stay when they are played.
    remedy
        What is told of a type that neither holds.
    rounds_down
        Whether bytes that do not divide by the members are lost.
    groups_are_custom
        Whether process groups, too, do collectives as traces of their own.
    chunks_go_in_turn
        Whether a chunk's way round a ring, or its tree, depends on the chunks before it; else it
        depends on its own number.
    links_are_shared
        Whether transfers that use one link at the same time slow each other down.
    """

    collectives: tuple[str, ...] = COLLECTIVES
    replayed: tuple[str, ...] = ()
    played: tuple[str, ...] = COLLECTIVES
    remedy = ""
    rounds_down = False
    groups_are_custom = False
    chunks_go_in_turn = False
    links_are_shared = True

    def recipe_of(
        self, system: System, comm_type: str, members: Ints | None = None, involved: int = -1,
        root: int = 0,
    ) -> Recipe:  # fmt: skip
        """Choose the phases of a collective, as ``collective_algorithms`` has them."""
        return recipe_of(system, comm_type, members, involved, root)

    def timed(
        self, system: System, comm_type: str, size: int, members: Ints
    ) -> tuple[Recipe, int] | None:
        """Give the recipe of a collective whose time is known, and this time in ns.

        The time is that of the collective alone, from when the last member has entered it; the
        start time that the engine adds is taken off. None where messages are followed.
        """
        whole = size * nccl_tests_factors(comm_type, members.size)[0]
        if whole > np.iinfo(np.int64).max:
            return None
        known = known_times(system, comm_type, np.array([whole], dtype=np.int64), members)
        if known is None:
            return None
        recipe = timed_recipe(system.network, comm_type, members, known.algorithm[0])
        return recipe, max(int(known.ns[0]) - system.collectives.start_time, 0)

    def chunks_of(
        self, system: System, comm_type: str, size: int, num_ranks: int, where: Callable[[], str]
    ) -> tuple[int, int, int]:
        """Cut a collective into chunks: how many, the bytes of each, and how many have one more."""
        return chunks_of(system.collectives, size)

    def num_ring_messages(self, phase: Phase) -> int:
        """Count the messages that a member of a ring sends in a phase."""
        return (phase.size - 1) * (2 if phase.comm == Comm.ALL_REDUCE else 1)

    def time_of_byte(self, bus: Bus) -> float:
        """Give how long a bus takes for a byte, in ns."""
        return bus.gap

    def members_are_alike(self, system: System, comm_types: tuple[str, ...]) -> bool:
        """Tell whether one member of such collectives stands for all.

        Not where they follow steps, nor where the messages of several rounds share links.
        """
        recipes = [recipe_of(system, name) for name in comm_types if name in COLLECTIVES]
        phases = [phase for recipe in recipes for phase in recipe.phases]
        return not any(phase.steps or phase.is_in_rounds for phase in phases)

    def looked_at(self, comm_types: list[str]) -> tuple[str, ...]:
        """Choose the types of collectives whose algorithms say whether all ranks are alike."""
        return tuple(comm_types)

    def in_ring_order(self, network: Network, ranks: Ints) -> Ints:
        """Put the members of a group in the order in which they work."""
        return in_order_of_grid(network, ranks)

    def standing(self, network: Network, members: Ints) -> list[Hashable]:
        """Give for each group what is equal for those whose collectives are done alike.

        They stand as far from each other in every dimension. ``members`` has shape
        (groups, members).
        """
        least, stride = np.zeros((members.shape[0], 1), dtype=np.int64), 1
        for dimension, places in zip(network.dimensions, places_in(network, members), strict=True):
            least += places.min(axis=1, keepdims=True) * stride
            stride *= dimension.size
        return [row.tobytes() for row in members - least]

    def is_computing(self, program: Program, system: System) -> Bools:
        """Choose the nodes that are not counted as exposed communication; bool, shape (nodes,)."""
        return np.asarray((program.kind == NODE_KINDS.index("COMP")) & ~program.is_cpu)

    def are_simulated(self, num_members: Ints, duration: Ints) -> Bools:
        """Choose the collectives that do not take their recorded time.

        What nobody else takes part in, or nobody whose trace is here, is as long as recorded.
        """
        return np.asarray((num_members > 1) | (duration <= 0))

    def recorded(self, duration: Ints) -> Ints:
        """Give how long what is replayed takes, in ns."""
        return duration

    def check(self, program: Program, system: System) -> None:
        """Raise InputError if the job has a node that cannot be simulated."""

    def stand_in(self, comm_type: str) -> str:
        """Say what is simulated in the place of a type of collective; empty if that is itself."""
        return ""

    def in_place_of(self, comm_type: str, size: int, num_members: int) -> tuple[str, int]:
        """Give the type and bytes of what is simulated in the place of a collective."""
        return comm_type, size

    def set_world(self, world: Ints, system: System, of_slots: Ints, *, gather: bool) -> None:
        """Set the columns of WORLD that depend on rules; ``of_slots`` are those of collectives."""
        world[WORLD.start] = system.collectives.start_time
        world[WORLD.ordered] = int(not gather)
        several = of_slots.size and (of_slots != of_slots[0]).any()
        world[WORLD.sets] = NUM_SLOTS if several and not gather else 1
