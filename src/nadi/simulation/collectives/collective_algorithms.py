"""How a system runs a collective: phases, each an algorithm in one dimension, and chunks."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from nadi.errors import UsageError
from nadi.simulation.collectives.link_sharing import is_whole_dimension, shared
from nadi.simulation.collectives.phases import Phase, Recipe, grid_of, grid_of_all, positions_in
from nadi.simulation.collectives.step_tables import COMM, ROOTED
from nadi.simulation.engine.codes import Comm, PhaseKind
from nadi.simulation.engine.machine_state import TURN
from nadi.systems.system import Algorithm, Collectives, Network, System, parse_algorithm
from nadi.trace.arrays import Ints
from nadi.trace.collectives import FROM_ROOT, run_as

PhaseOf = Callable[[str, Algorithm, int, int, int, int], Phase]
"""Makes a phase: of a collective, by an algorithm, among so many members, in a dimension, with the
queues that it takes in turn, and where its trees are counted."""

_ALGORITHM = {
    "ring": PhaseKind.RING,
    "biring": PhaseKind.RING,
    "direct": PhaseKind.DIRECT,
    "halvingdoubling": PhaseKind.HALVING_DOUBLING,
    "doublebinarytree": PhaseKind.TREE,
}


def recipe_of(
    system: System, comm_type: str, members: Ints | None = None, involved: int = -1, root: int = 0
) -> Recipe:
    """Choose the phases of a collective.

    - ``system``: The system.
    - ``comm_type``: One of ``collectives.COLLECTIVES``.
    - ``members``: int64, shape (members,): the ranks of its group; None for all ranks. Those that
      stand as a grid are in its order (:func:`~.grids.in_order_of_grid`), and do it dimension by
      dimension, as all ranks do.
    - ``involved``: Which dimensions take part, as bits; -1 for all.
    - ``root``: Position of the root among the members, where there is one.
    - Raises UsageError if no algorithm can do it.
    """
    algorithms = algorithms_of(system, comm_type)
    comm_type = run_as(comm_type, COMM)
    network = system.network
    size, sizes = network.num_ranks, grid_of_all(network)
    if members is not None:
        size, sizes, involved = members.size, grid_of(network, members), -1
    alone = members is not None and size == 1
    if not sizes or (algorithms[0].single and not alone):
        phases = one_line(system, comm_type, algorithms[0], size, _phase)
    else:  # the last algorithm is also that of dimensions that none is given for
        algorithms += algorithms[-1:] * (len(sizes) - len(algorithms))
        phases = phases_by_dimension(system, comm_type, algorithms, involved, sizes, _phase)
    phases = [_both_ways(system, phase, algorithms, members) for phase in phases]
    phases = [shared(system, phase, phases, members, root) for phase in phases]
    return Recipe(tuple(phases), system.collectives.endpoint_delay, is_group=False)


def timed_recipe(network: Network, comm_type: str, members: Ints, algorithm: str) -> Recipe:
    """Create the recipe of a collective whose time is known: one phase among all members.

    It waits in the queue of the last dimension in which they differ, the slowest of those that it
    uses: so collectives within nodes and those between them run beside each other.
    """
    comm = COMM[run_as(comm_type, COMM)]
    differs = [bool((places != places[0]).any()) for places in positions_in(network, members)]
    queue = max((d for d, found in enumerate(differs) if found), default=0)
    phase = Phase(
        -1, comm, TURN.of_all, PhaseKind.TIMED, -1, 0, members.size, name=algorithm, queue=queue,
        together=_beside_each_other(members // network.dimensions[0].size),
    )  # fmt: skip
    return Recipe((phase,), delay=0, is_group=False)


def _beside_each_other(node: Ints) -> int:
    """Return how many members in a row are of one node; 1 if not as many of each node."""
    first = np.flatnonzero(np.diff(node, prepend=-1))
    counts = np.diff(first, append=node.size)
    is_even = (counts == counts[0]).all() and np.unique(node[first]).size == first.size
    return int(counts[0]) if is_even else 1


def algorithms_of(system: System, comm_type: str) -> list[Algorithm]:
    """Return the algorithms of a collective type; UsageError if the system defines none."""
    names = system.collectives.algorithms(comm_type)
    if not names:
        raise UsageError(
            comm_type, "the system defines no algorithm for it", "add one per dimension"
        )
    return [parse_algorithm(name, comm_type) for name in names]


def _both_ways(
    system: System, phase: Phase, algorithms: list[Algorithm], members: Ints | None
) -> Phase:
    """Use both directions of a ring if requested and each direction has its own links.

    What has a root is done by steps, which have one way only.
    """
    asked = algorithms[min(max(phase.dim, 0), len(algorithms) - 1)].name == "biring"
    if not asked or phase.size == 2 or phase.algorithm != PhaseKind.RING:
        return phase
    if not is_whole_dimension(system.network, phase, members):
        return phase
    topology = system.network.dimensions[phase.dim].topology
    return replace(phase, both=topology in ("ring", "fully-connected"))


def _half(system: System, comm_type: str) -> int:
    aware = comm_type == "all_reduce" and system.collectives.bandwidth_aware
    return TURN.first_half if aware else TURN.of_all


def one_line(
    system: System, comm_type: str, algorithm: Algorithm, size: int, phase_of: PhaseOf
) -> list[Phase]:
    """Run a collective among all members as one line, regardless of their positions."""
    return [phase_of(comm_type, algorithm, size, -1, _half(system, comm_type), 0)]


def phases_by_dimension(
    system: System, comm_type: str, algorithms: list[Algorithm], involved: int,
    sizes: tuple[int, ...], phase_of: PhaseOf,
) -> list[Phase]:  # fmt: skip
    """Create phases per dimension; UsageError if there are more algorithms than dimensions."""
    if len(algorithms) > len(sizes):
        raise UsageError(
            comm_type, f"{len(algorithms)} algorithms for {len(sizes)} dimensions",
            "give one per dimension",
        )  # fmt: skip
    dims = [d for d in range(len(algorithms)) if sizes[d] > 1 and involved >> d & 1]
    steps: list[tuple[int, str, int]]
    if _half(system, comm_type) == TURN.first_half:
        steps = [(d, "reduce_scatter", TURN.first_half) for d in dims[:-1]]
        steps += [(d, "all_reduce", TURN.first_half) for d in dims[-1:]]
        steps += [(d, "all_gather", TURN.second_half) for d in reversed(dims[:-1])]
    else:
        inwards = comm_type in ("all_gather", *FROM_ROOT)  # those of slow links first
        in_order = reversed(dims) if inwards else dims
        steps = [(d, comm_type, TURN.of_all) for d in in_order]
    # which of the two trees comes next is counted for each type and dimension
    first_tree = COMM[comm_type] * len(sizes)
    strides = [prod(sizes[:d]) for d in range(len(sizes))]
    return [
        replace(phase_of(comm, algorithms[d], sizes[d], d, half, first_tree + d), stride=strides[d])
        for d, comm, half in steps
    ]


def _phase(comm: str, algorithm: Algorithm, size: int, dim: int, half: int, tree: int) -> Phase:
    """Create a phase; it uses a step table if its members behave differently."""
    phase = phase_by_name(comm, algorithm, size, dim, half, tree)
    by_steps = phase.comm in ROOTED or phase.algorithm in (PhaseKind.TREE, PhaseKind.STEPS)
    if not by_steps and _is_regular(phase.algorithm, phase.comm, size):
        return phase
    return replace(phase, algorithm=PhaseKind.STEPS, name=algorithm.name.removeprefix("bi"))


def phase_by_name(
    comm: str, algorithm: Algorithm, size: int, dim: int, half: int, tree: int
) -> Phase:
    """Create a phase from the names of a collective and an algorithm."""
    kind = _ALGORITHM.get(algorithm.name, PhaseKind.STEPS)
    return Phase(dim, COMM[comm], half, kind, algorithm.window, tree, size)


def _is_regular(algorithm: int, comm: int, size: int) -> bool:
    """Return whether halving-doubling works in pairs in each step."""
    if algorithm != PhaseKind.HALVING_DOUBLING:
        return True
    return comm != Comm.ALL_TO_ALL and size & (size - 1) == 0


def chunks_of(collectives: Collectives, size: int) -> tuple[int, int, int]:
    """Divide a collective of ``size`` bytes into chunks.

    - Returns int: How many chunks there are.
    - and int: Bytes of each.
    - and int: How many have one byte more.
    """
    count = max(min(collectives.chunks, size // collectives.least_chunk), 1)
    return count, size // count, size % count
