"""What is odd about ASTRA-sim: all that ``compat = "astra-sim"`` changes, and nothing else.

Beyond what is here, flags of the engine are set in :meth:`AstraSimRules.set_world`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NoReturn

import numpy as np

from nadi.errors import InputError, UsageError
from nadi.simulation.collectives.collective_algorithms import (
    algorithms_of,
    one_line,
    phase_by_name,
    phases_by_dimension,
)
from nadi.simulation.collectives.group_grids import grid_of_all
from nadi.simulation.collectives.phases import Phase, Recipe
from nadi.simulation.default_rules import DefaultRules
from nadi.simulation.engine.codes import Comm
from nadi.simulation.engine.machine_state import WORLD
from nadi.simulation.work.program import Program
from nadi.systems.system import ASTRA_SIM_COLLECTIVES, Algorithm, Bus, Network, System  # fmt: skip
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import NODE_KINDS

__all__ = ["AstraSimRules"]

_STAND_INS = {
    "broadcast": "all_gather",
    "gather": "all_gather",
    "reduce": "reduce_scatter",
    "scatter": "reduce_scatter",
    "barrier": "all_reduce",
}
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

        Raises
        ------
        UsageError
            If an all-gather has fewer bytes than parts.
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
            _refuse(program, metadata[0], "a METADATA node stops ASTRA-sim")
        if system.compute.roofline:
            computes = (program.kind == NODE_KINDS.index("COMP")) & ~program.is_cpu
            endless = np.flatnonzero(computes & (program.flops == 0) & (program.tensor_bytes > 0))
            if endless.size:
                _refuse(
                    program, endless[0], "num_ops of 0 takes 292 years in ASTRA-sim",
                    "use the right rules: compat = ''",
                )  # fmt: skip

    def stand_in(self, comm_type: str) -> str:
        """Say what moves as many bytes through its busiest rank, of the four types that there are.

        A broadcast is an all-gather of parts.
        """
        return _STAND_INS.get(comm_type, "")

    def in_place_of(self, comm_type: str, size: int, num_members: int) -> tuple[str, int]:
        """Give the stand-in of a collective, and its bytes."""
        if comm_type == "broadcast":
            size = -(-size // num_members)
        elif comm_type == "barrier":
            size = 1
        return _STAND_INS.get(comm_type, comm_type), size

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


def _refuse(program: Program, node: int, what: str, remedy: str = "") -> NoReturn:
    raise InputError(program.describe(int(node)), what, remedy)


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
