"""What is odd about ASTRA-sim: all that ``compat = "astra-sim"`` changes, and nothing else.

Beyond what is here, flags of the engine are set in :meth:`AstraSimRules.set_world`.

The rules that a system asks for.

The rules by which a system is simulated, as far as others may differ: Nadi's own.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from nadi.errors import UsageError
from nadi.simulation.collectives.collective_algorithms import (
    algorithms_of,
    chunks_of,
    one_line,
    phase_by_name,
    phases_by_dimension,
    recipe_of,
    timed_recipe,
)
from nadi.simulation.collectives.phases import (
    Phase,
    Recipe,
    grid_of_all,
    in_order_of_grid,
    positions_in,
)
from nadi.simulation.engine.codes import Comm
from nadi.simulation.engine.machine_state import NUM_SLOTS, WORLD
from nadi.simulation.work.program import Program, refuse_node
from nadi.systems.collective_times import known_times
from nadi.systems.nccl.measured import nccl_tests_factors
from nadi.systems.system import (  # fmt: skip
    ASTRA_SIM_COLLECTIVES,
    Algorithm,
    Bus,
    Network,
    System,
)
from nadi.trace.arrays import Bools, Ints
from nadi.trace.collectives import COLLECTIVES, run_as
from nadi.trace.schema import NODE_KINDS


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

    collectives: tuple[str, ...] = tuple(COLLECTIVES)
    replayed: tuple[str, ...] = ()
    played: tuple[str, ...] = tuple(COLLECTIVES)
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
        self, system: System, comm_type: str, sizes: Sequence[int], members: Ints
    ) -> list[tuple[Recipe, int] | None]:
        """Give the recipe of each collective whose time is known, and this time in ns.

        The time is that of the collective alone, from when the last member has entered it; the
        start time that the engine adds is taken off. None where messages are followed.
        """
        factor = nccl_tests_factors(comm_type, members.size)[0]
        whole = [size * factor for size in sizes]
        fits = [size <= np.iinfo(np.int64).max for size in whole]
        asked = np.array([size for size, one in zip(whole, fits, strict=True) if one], np.int64)
        known = known_times(system, comm_type, asked, members) if asked.size else None
        if known is None:
            return [None] * len(whole)
        recipes = {
            name: timed_recipe(system.network, comm_type, members, name)
            for name in dict.fromkeys(known.algorithm)
        }
        found = iter(zip(known.algorithm, known.ns.tolist(), strict=True))
        start = system.collectives.start_time
        times = (next(found) if one else None for one in fits)
        return [one and (recipes[one[0]], max(one[1] - start, 0)) for one in times]

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
        for dimension, places in zip(
            network.dimensions, positions_in(network, members), strict=True
        ):
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


_MOST_DIMENSIONS = 4
_OTHERWISE = "or the right rules: compat = ''"


class AstraSimRules(DefaultRules):
    """ASTRA-sim's rules: it simulates four types of collectives, and replays a broadcast."""

    collectives = ASTRA_SIM_COLLECTIVES
    replayed = ("broadcast",)
    played = ()
    remedy = "ASTRA-sim stops there"
    rounds_down = True
    groups_are_custom = True
    chunks_go_in_turn = True
    links_are_shared = False

    def recipe_of(
        self, system: System, comm_type: str, members: Ints | None = None, involved: int = -1,
        root: int = 0,
    ) -> Recipe:  # fmt: skip
        """Choose phases that count no links that messages share.

        A process group is one ring, whatever several algorithms say, with an endpoint delay of
        its own. Dimensions that no algorithm is given for are left out.
        """
        algorithms, collectives = algorithms_of(system, comm_type), system.collectives
        if members is not None:
            phases = _of_group(system, comm_type, algorithms, members.size)
            return Recipe(tuple(phases), collectives.group_endpoint_delay, is_group=True)
        sizes = grid_of_all(system.network)
        if algorithms[0].single:
            phases = one_line(system, comm_type, algorithms[0], system.network.num_ranks, _phase)
        else:
            if involved < 0 and _MOST_DIMENSIONS < len(algorithms) <= len(sizes):
                raise UsageError(
                    comm_type, f"ASTRA-sim ends early with more than {_MOST_DIMENSIONS} dimensions",
                    f"use fewer, {_OTHERWISE}",
                )  # fmt: skip
            phases = phases_by_dimension(system, comm_type, algorithms, involved, sizes, _phase)
        return Recipe(tuple(phases), collectives.endpoint_delay, is_group=False)

    def chunks_of(
        self, system: System, comm_type: str, size: int, num_ranks: int, where: Callable[[], str]
    ) -> tuple[int, int, int]:
        """Cut a collective into chunks; what remains is one more full chunk.

        ``where`` describes the collective, for errors.

        - Raises UsageError if an all-gather has fewer bytes than parts.
        """
        parts = system.collectives.chunks
        chunk = size // parts
        if comm_type != "all_gather" and num_ranks > chunk:
            chunk = num_ranks
            size = parts * chunk
        if chunk == 0:
            raise UsageError(
                where(), f"an all-gather of {size} bytes cannot be cut into {parts} parts",
                "cut it into fewer",
            )  # fmt: skip
        return -(-size // chunk), chunk, 0

    def num_ring_messages(self, phase: Phase) -> int:
        """Count a member's messages: an all-to-all passes on one part in each."""
        if phase.comm == Comm.ALL_TO_ALL:
            return phase.size * (phase.size - 1) // 2
        return super().num_ring_messages(phase)

    def time_of_byte(self, bus: Bus) -> float:
        """Give how long a bus takes for a byte, in ns: a number of 32 bits is read."""
        return float(np.float32(bus.gap))

    def members_are_alike(self, system: System, comm_types: tuple[str, ...]) -> bool:
        """Tell that they are: no algorithm follows steps."""
        return True

    def looked_at(self, comm_types: list[str]) -> tuple[str, ...]:
        """Choose all types, also those that the job has not."""
        return ASTRA_SIM_COLLECTIVES

    def in_ring_order(self, network: Network, ranks: Ints) -> Ints:
        """Let the members of a group work in the order that was given."""
        return ranks

    def standing(self, network: Network, members: Ints) -> list[Hashable]:
        """Give what is equal for groups that do alike: those of one size, wherever they stand."""
        return [members.shape[1]] * members.shape[0]

    def is_computing(self, program: Program, system: System) -> Bools:
        """Choose computation; of what is only replayed, everything that the device does."""
        if not system.compute.replay_only:
            return super().is_computing(program, system)
        return np.asarray((program.kind != NODE_KINDS.index("INVALID")) & ~program.is_cpu)

    def are_simulated(self, num_members: Ints, duration: Ints) -> Bools:
        """Choose all, also those of a group of one."""
        return np.ones(num_members.size, dtype=np.bool_)

    def recorded(self, duration: Ints) -> Ints:
        """Give recorded times in ns: whole microseconds are read."""
        return (duration + 500) // 1000 * 1000

    def check(self, program: Program, system: System) -> None:
        """Refuse what stops ASTRA-sim, or takes it forever."""
        metadata = np.flatnonzero(program.kind == NODE_KINDS.index("METADATA"))
        if metadata.size:
            refuse_node(program, metadata[0], "a METADATA node stops ASTRA-sim")
        if system.compute.roofline:
            computes = (program.kind == NODE_KINDS.index("COMP")) & ~program.is_cpu
            endless = np.flatnonzero(computes & (program.flops == 0) & (program.tensor_bytes > 0))
            if endless.size:
                refuse_node(
                    program, endless[0], "num_ops of 0 takes 292 years in ASTRA-sim",
                    "use the right rules: compat = ''",
                )  # fmt: skip

    def stand_in(self, comm_type: str) -> str:
        """Say what moves as many bytes through its busiest rank, of the four types that there are.

        A broadcast is an all-gather of parts.
        """
        is_other = comm_type in COLLECTIVES and comm_type not in ASTRA_SIM_COLLECTIVES
        return run_as(comm_type, ASTRA_SIM_COLLECTIVES) if is_other else ""

    def in_place_of(self, comm_type: str, size: int, num_members: int) -> tuple[str, int]:
        """Give the stand-in of a collective, and its bytes."""
        if comm_type == "broadcast":
            size = -(-size // num_members)
        elif comm_type == "barrier":
            size = 1
        return self.stand_in(comm_type) or comm_type, size

    def set_world(self, world: Ints, system: System, of_slots: Ints, *, gather: bool) -> None:
        """Set flags of the engine.

        Parts of messages are rounded down. Of a message's way only the lowest dimension counts.
        An all-to-all in a ring passes on one part in each message, as often as all parts need. What
        comes free while a rank issues nodes waits until something else is completed. A collective
        has no start time, chunks start as they come, and all slots share their queues.
        """
        world[WORLD.rounds_down] = world[WORLD.lowest_only] = 1
        world[WORLD.relays_parts] = world[WORLD.issues_late] = 1
        world[WORLD.sets] = 1


def _of_group(
    system: System, comm_type: str, algorithms: list[Algorithm], size: int
) -> list[Phase]:
    algorithm = algorithms[0] if len(algorithms) == 1 else Algorithm("ring", -1, False)
    if size == 1:
        return []
    if algorithm.name == "doublebinarytree":
        raise UsageError(
            comm_type, "doubleBinaryTree in a process group stops ASTRA-sim",
            f"choose another algorithm, {_OTHERWISE}",
        )  # fmt: skip
    return one_line(system, comm_type, algorithm, size, _phase)


def _phase(comm: str, algorithm: Algorithm, size: int, dim: int, half: int, tree: int) -> Phase:
    """Make a phase, of none by steps; refuse what ASTRA-sim cannot do."""
    name = algorithm.name
    if name == "biring":
        raise UsageError(comm, "ASTRA-sim has no biring", "choose ring, or the right rules")
    if name == "halvingdoubling" and comm == "all_to_all":
        raise UsageError(
            comm, "halvingDoubling has no all-to-all in ASTRA-sim",
            f"choose ring or direct, {_OTHERWISE}",
        )  # fmt: skip
    if name in ("halvingdoubling", "doublebinarytree") and size & (size - 1):
        distances = [size >> (k + 1) for k in range(size.bit_length() - 1)]
        comes_to_an_end = all(size % (2 * distance) == 0 for distance in distances)
        # though not everybody has everything then
        if not (name == "halvingdoubling" and comm == "all_gather" and comes_to_an_end):
            raise UsageError(
                comm, f"{name} among {size} ranks: ASTRA-sim needs a power of two",
                f"choose ring or direct, {_OTHERWISE}",
            )  # fmt: skip
    return phase_by_name(comm, algorithm, size, dim, half, tree)


_RULES = {"": DefaultRules(), "astra-sim": AstraSimRules()}


def rules_of(system: System) -> DefaultRules:
    """Give the rules by which a system is simulated, as its ``compat`` says."""
    return _RULES[system.compat]
