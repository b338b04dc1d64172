"""How a collective is done: its phases, each an algorithm in one dimension, and its chunks."""

from __future__ import annotations

from dataclasses import dataclass

from nadi.errors import UsageError
from nadi.kernels import machine as M
from nadi.simulator.config import Algorithm, Collectives, System, parse_algorithm

__all__ = ["Phase", "Recipe", "chunks_of", "recipe_of"]

_COMM = {
    "all_reduce": M.ALL_REDUCE,
    "reduce_scatter": M.REDUCE_SCATTER,
    "all_gather": M.ALL_GATHER,
    "all_to_all": M.ALL_TO_ALL,
}
_ALGORITHM = {
    "ring": M.RING,
    "direct": M.DIRECT,
    "halvingdoubling": M.HALVING_DOUBLING,
    "doublebinarytree": M.TREE,
}
# which of a dimension's queues a phase takes in turn
_ALL, _FIRST_HALF, _SECOND_HALF = range(3)


@dataclass(frozen=True)
class Phase:
    """One algorithm among so many members; ``dim`` is -1 for all members as one ring."""

    dim: int
    comm: int
    half: int
    algorithm: int
    window: int
    tree: int
    size: int


@dataclass(frozen=True)
class Recipe:
    """The phases of a collective, and the time in ns that a rank spends on each packet."""

    phases: tuple[Phase, ...]
    delay: int
    is_group: bool

    @property
    def num_slots(self) -> int:
        """Give how many senders, at most, a member tells apart in a phase."""
        return max((_slots(phase) for phase in self.phases), default=1)


def _slots(phase: Phase) -> int:
    if phase.algorithm == M.DIRECT:
        return phase.size
    if phase.algorithm == M.HALVING_DOUBLING:
        return phase.size.bit_length()
    return 3 if phase.algorithm == M.TREE else 1


def recipe_of(system: System, comm_type: str, group_size: int, involved: int) -> Recipe:
    """Choose the phases of a collective.

    Parameters
    ----------
    system
        The machine.
    comm_type
        One of ``config.COLLECTIVES``.
    group_size
        Number of members of its group; 0 for all ranks.
    involved
        Which dimensions take part, as bits; -1 for all.

    Raises
    ------
    UsageError
        If no algorithm can do it.
    """
    names = getattr(system.collectives, comm_type)
    if not names:
        raise UsageError(
            comm_type, "the system says of no algorithm for it", "add one for each dimension"
        )
    algorithms = [parse_algorithm(name, comm_type) for name in names]
    if group_size:
        return _group_recipe(system, comm_type, algorithms, group_size)
    delay = system.collectives.endpoint_delay
    if algorithms[0].single:
        size = system.network.num_ranks
        phase = _phase(comm_type, algorithms[0], size, -1, _half(system, comm_type), 0)
        return Recipe((phase,), delay, False)
    return Recipe(tuple(_by_dimension(system, comm_type, algorithms, involved)), delay, False)


def _half(system: System, comm_type: str) -> int:
    aware = comm_type == "all_reduce" and system.collectives.bandwidth_aware
    return _FIRST_HALF if aware else _ALL


def _group_recipe(system: System, comm_type: str, algorithms: list[Algorithm], size: int) -> Recipe:
    delay = system.collectives.group_endpoint_delay
    if size == 1:
        return Recipe((), delay, True)
    algorithm = algorithms[0] if len(algorithms) == 1 else Algorithm("ring", -1, False)
    if algorithm.name == "doublebinarytree" and system.compat:
        raise UsageError(
            comm_type, "doubleBinaryTree in a process group stops ASTRA-sim",
            "choose another algorithm, or the right rules: compat = ''",
        )  # fmt: skip
    phase = _phase(comm_type, algorithm, size, -1, _half(system, comm_type), 0)
    return Recipe((phase,), delay, True)


def _by_dimension(
    system: System, comm_type: str, algorithms: list[Algorithm], involved: int
) -> list[Phase]:
    sizes = [dimension.size for dimension in system.network.dimensions]
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
    dims = [d for d in range(len(algorithms)) if sizes[d] > 1 and involved >> d & 1]
    steps: list[tuple[int, str, int]]
    if _half(system, comm_type) == _FIRST_HALF:
        steps = [(d, "reduce_scatter", _FIRST_HALF) for d in dims[:-1]]
        steps += [(d, "all_reduce", _FIRST_HALF) for d in dims[-1:]]
        steps += [(d, "all_gather", _SECOND_HALF) for d in reversed(dims[:-1])]
    else:
        in_order = reversed(dims) if comm_type == "all_gather" else dims
        steps = [(d, comm_type, _ALL) for d in in_order]
    # which of the two trees comes next is counted for each type and dimension
    first_tree = _COMM[comm_type] * len(sizes)
    return [
        _phase(comm, algorithms[d], sizes[d], d, half, first_tree + d) for d, comm, half in steps
    ]


_INVOLVED_AT_MOST = 4


def _phase(comm: str, algorithm: Algorithm, size: int, dim: int, half: int, tree: int) -> Phase:
    _check_size(comm, algorithm, size)
    return Phase(dim, _COMM[comm], half, _ALGORITHM[algorithm.name], algorithm.window, tree, size)


def _check_size(comm: str, algorithm: Algorithm, size: int) -> None:
    """Refuse what an algorithm cannot do."""
    name = algorithm.name
    if name == "halvingdoubling" and comm == "all_to_all":
        raise UsageError(comm, "halvingDoubling has no all-to-all", "choose ring or direct")
    if size & (size - 1) == 0 or name not in ("halvingdoubling", "doublebinarytree"):
        return
    distances = [size >> (k + 1) for k in range(size.bit_length() - 1)]
    if name == "halvingdoubling" and comm == "all_gather":
        if all(size % (2 * distance) == 0 for distance in distances):
            return  # it comes to an end, though not everybody has everything
    raise UsageError(
        comm, f"{name} among {size} ranks: it needs a power of two", "choose ring or direct"
    )


def chunks_of(
    collectives: Collectives, comm_type: str, size: int, num_ranks: int, where: str
) -> tuple[int, int]:
    """Cut a collective into chunks as ASTRA-sim does: a remainder is one more full chunk.

    Returns
    -------
    int
        How many chunks there are.
    int
        Bytes of each.

    Raises
    ------
    UsageError
        If an all-gather has fewer bytes than parts.
    """
    chunk = size // collectives.chunks
    if comm_type != "all_gather" and num_ranks > chunk:
        chunk = num_ranks
        size = collectives.chunks * chunk
    if chunk == 0:
        raise UsageError(
            where, f"an all-gather of {size} bytes cannot be cut into {collectives.chunks} parts",
            "cut it into fewer",
        )  # fmt: skip
    return -(-size // chunk), chunk
