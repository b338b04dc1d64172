"""How a collective is done: its phases, each an algorithm in one dimension, and its chunks."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nadi.errors import UsageError
from nadi.model.arrays import Ints
from nadi.simulator.collectives.grids import grid_of, grid_of_all
from nadi.simulator.collectives.link_sharing import is_whole_dimension, shared
from nadi.simulator.collectives.phases import Phase, Recipe
from nadi.simulator.collectives.step_tables import ROOTED
from nadi.simulator.engine.codes import Comm, PhaseKind
from nadi.simulator.engine.machine_state import TURN
from nadi.simulator.machine.system import Algorithm, System, parse_algorithm

__all__ = ["chunks_of", "recipe_of"]


_COMM = {
    "all_reduce": Comm.ALL_REDUCE,
    "reduce_scatter": Comm.REDUCE_SCATTER,
    "all_gather": Comm.ALL_GATHER,
    "all_to_all": Comm.ALL_TO_ALL,
    "broadcast": Comm.BROADCAST,
    "reduce": Comm.REDUCE_TO,
    "gather": Comm.GATHER,
    "scatter": Comm.SCATTER,
}
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

    Parameters
    ----------
    system
        The machine.
    comm_type
        One of ``config.COLLECTIVES``.
    members
        int64, shape (members,): the ranks of its group; None for all ranks. By the right rules
        those that stand as a grid are in its order (:func:`~.grids.in_order_of_grid`), and do it
        dimension by dimension, as all ranks do.
    involved
        Which dimensions take part, as bits; -1 for all.
    root
        Position of the root among the members, where there is one.

    Raises
    ------
    UsageError
        If no algorithm can do it.
    """
    names = system.collectives.algorithms(comm_type)
    if not names:
        raise UsageError(
            comm_type, "the system says of no algorithm for it", "add one for each dimension"
        )
    algorithms = [parse_algorithm(name, comm_type) for name in names]
    if comm_type == "barrier":
        comm_type = "all_reduce"
    delay = system.collectives.endpoint_delay
    if members is not None and system.compat:
        delay = system.collectives.group_endpoint_delay
        phases = _group_of_astra_sim(system, comm_type, algorithms, members.size)
        return Recipe(tuple(phases), delay, is_group=True)
    network = system.network
    size, sizes = network.num_ranks, grid_of_all(network)
    if members is not None:
        size, sizes, involved = members.size, grid_of(network, members), -1
    alone = members is not None and size == 1
    if not sizes or (algorithms[0].single and not alone):
        phases = _one_line(system, comm_type, algorithms[0], size)
    else:
        phases = _by_dimension(system, comm_type, algorithms, involved, sizes)
    if not system.compat:
        phases = [_both_ways(system, phase, algorithms, members) for phase in phases]
        phases = [shared(system, phase, phases, members, root) for phase in phases]
    return Recipe(tuple(phases), delay, is_group=False)


def _both_ways(
    system: System, phase: Phase, algorithms: list[Algorithm], members: Ints | None
) -> Phase:
    """Let a ring go both ways round, where that is asked for and each way has its own links.

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


def _group_of_astra_sim(
    system: System, comm_type: str, algorithms: list[Algorithm], size: int
) -> list[Phase]:
    algorithm = algorithms[0] if len(algorithms) == 1 else Algorithm("ring", -1, False)
    if size == 1:
        return []
    if algorithm.name == "doublebinarytree":
        raise UsageError(
            comm_type, "doubleBinaryTree in a process group stops ASTRA-sim",
            "choose another algorithm, or the right rules: compat = ''",
        )  # fmt: skip
    return _one_line(system, comm_type, algorithm, size)


def _one_line(system: System, comm_type: str, algorithm: Algorithm, size: int) -> list[Phase]:
    """Let all members do it as one line, wherever they stand."""
    return [_phase(system.compat, comm_type, algorithm, size, -1, _half(system, comm_type), 0)]


def _by_dimension(
    system: System, comm_type: str, algorithms: list[Algorithm], involved: int,
    sizes: tuple[int, ...],
) -> list[Phase]:  # fmt: skip
    if len(algorithms) > len(sizes):
        raise UsageError(
            comm_type, f"{len(algorithms)} algorithms for {len(sizes)} dimensions",
            "give one for each dimension",
        )  # fmt: skip
    if system.compat and involved < 0 and len(algorithms) > _INVOLVED_AT_MOST:
        raise UsageError(
            comm_type, f"ASTRA-sim ends early with more than {_INVOLVED_AT_MOST} dimensions",
            "use fewer, or the right rules: compat = ''",
        )  # fmt: skip
    if not system.compat:  # which leaves out dimensions that no algorithm is given for
        algorithms = algorithms + algorithms[-1:] * (len(sizes) - len(algorithms))
    dims = [d for d in range(len(algorithms)) if sizes[d] > 1 and involved >> d & 1]
    steps: list[tuple[int, str, int]]
    if _half(system, comm_type) == TURN.first_half:
        steps = [(d, "reduce_scatter", TURN.first_half) for d in dims[:-1]]
        steps += [(d, "all_reduce", TURN.first_half) for d in dims[-1:]]
        steps += [(d, "all_gather", TURN.second_half) for d in reversed(dims[:-1])]
    else:
        inwards = comm_type in ("all_gather", "broadcast", "scatter")  # those of slow links first
        in_order = reversed(dims) if inwards else dims
        steps = [(d, comm_type, TURN.of_all) for d in in_order]
    # which of the two trees comes next is counted for each type and dimension
    first_tree = _COMM[comm_type] * len(sizes)
    strides = [prod(sizes[:d]) for d in range(len(sizes))]
    return [
        replace(
            _phase(system.compat, comm, algorithms[d], sizes[d], d, half, first_tree + d),
            stride=strides[d],
        )
        for d, comm, half in steps
    ]


_INVOLVED_AT_MOST = 4


def _phase(
    compat: str, comm: str, algorithm: Algorithm, size: int, dim: int, half: int, tree: int
) -> Phase:
    code, number, name = _COMM[comm], _ALGORITHM[algorithm.name], ""
    if compat:
        _check_size(comm, algorithm, size)
    elif code in ROOTED or number == PhaseKind.TREE or not _is_regular(number, code, size):
        number, name = PhaseKind.STEPS, algorithm.name.removeprefix("bi")
    return Phase(dim, code, half, number, algorithm.window, tree, size, name=name)


def _is_regular(algorithm: int, comm: int, size: int) -> bool:
    """Tell whether halving and doubling is between pairs in each step."""
    if algorithm != PhaseKind.HALVING_DOUBLING:
        return True
    return comm != Comm.ALL_TO_ALL and size & (size - 1) == 0


def _check_size(comm: str, algorithm: Algorithm, size: int) -> None:
    """Refuse what ASTRA-sim cannot do."""
    name = algorithm.name
    if name == "biring":
        raise UsageError(comm, "ASTRA-sim has no biring", "choose ring, or the right rules")
    if name == "halvingdoubling" and comm == "all_to_all":
        raise UsageError(
            comm, "halvingDoubling has no all-to-all in ASTRA-sim",
            "choose ring or direct, or the right rules: compat = ''",
        )  # fmt: skip
    if size & (size - 1) == 0 or name not in ("halvingdoubling", "doublebinarytree"):
        return
    distances = [size >> (k + 1) for k in range(size.bit_length() - 1)]
    comes_to_an_end = all(size % (2 * distance) == 0 for distance in distances)
    if name == "halvingdoubling" and comm == "all_gather" and comes_to_an_end:
        return  # though not everybody has everything
    raise UsageError(
        comm, f"{name} among {size} ranks: ASTRA-sim needs a power of two",
        "choose ring or direct, or the right rules: compat = ''",
    )  # fmt: skip


def chunks_of(
    system: System, comm_type: str, size: int, num_ranks: int, where: str
) -> tuple[int, int, int]:
    """Cut a collective into chunks; ASTRA-sim makes one more full chunk of what remains.

    Returns
    -------
    int
        How many chunks there are.
    int
        Bytes of each.
    int
        How many have one byte more.

    Raises
    ------
    UsageError
        If an all-gather has fewer bytes than parts.
    """
    collectives = system.collectives
    if not system.compat:
        count = max(min(collectives.chunks, size // collectives.least_chunk), 1)
        return count, size // count, size % count
    chunk = size // collectives.chunks
    if comm_type != "all_gather" and num_ranks > chunk:
        chunk = num_ranks
        size = collectives.chunks * chunk
    if chunk == 0:
        raise UsageError(
            where, f"an all-gather of {size} bytes cannot be cut into {collectives.chunks} parts",
            "cut it into fewer",
        )  # fmt: skip
    return -(-size // chunk), chunk, 0
