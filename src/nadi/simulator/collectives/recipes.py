"""How a collective is done: its phases, each an algorithm in one dimension, and its chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nadi.errors import UsageError
from nadi.kernels import machine as M
from nadi.simulator.collectives.steps import ROOTED, Steps, steps_of
from nadi.simulator.machine.config import Algorithm, System, parse_algorithm

__all__ = ["Phase", "Recipe", "chunks_of", "recipe_of"]

_COMM = {
    "all_reduce": M.ALL_REDUCE,
    "reduce_scatter": M.REDUCE_SCATTER,
    "all_gather": M.ALL_GATHER,
    "all_to_all": M.ALL_TO_ALL,
    "broadcast": M.BROADCAST,
    "reduce": M.REDUCE_TO,
    "gather": M.GATHER,
    "scatter": M.SCATTER,
}
_ALGORITHM = {
    "ring": M.RING,
    "biring": M.RING,
    "direct": M.DIRECT,
    "halvingdoubling": M.HALVING_DOUBLING,
    "doublebinarytree": M.TREE,
}
# which of a dimension's queues a phase takes in turn
_ALL, _FIRST_HALF, _SECOND_HALF = range(3)


@dataclass(frozen=True)
class Phase:
    """One algorithm among so many members; ``dim`` is -1 for all members as one ring.

    Of ``both`` every second chunk goes the other way round, over links of its own.
    ``name`` is that of the algorithm, where it is done by steps.
    """

    dim: int
    comm: int
    half: int
    algorithm: int
    window: int
    tree: int
    size: int
    share: float = 1.0
    spread: bool = False
    both: bool = False
    name: str = ""

    @property
    def steps(self) -> tuple[Steps, ...]:
        """Give the steps of what is done by steps; those of the two trees, chunks take in turn."""
        if self.algorithm != M.STEPS:
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
        """Whether chunks are halved, so that one half goes the other way round."""
        return any(phase.both for phase in self.phases)

    @property
    def num_slots(self) -> int:
        """Give how many senders, at most, a member tells apart in a phase."""
        return max((_slots(phase) for phase in self.phases), default=1)


def _slots(phase: Phase) -> int:
    if phase.algorithm == M.STEPS:
        return max(steps.num_places for steps in phase.steps)
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
    names = system.collectives.algorithms(comm_type)
    if not names:
        raise UsageError(
            comm_type, "the system says of no algorithm for it", "add one for each dimension"
        )
    algorithms = [parse_algorithm(name, comm_type) for name in names]
    if comm_type == "barrier":
        comm_type = "all_reduce"
    if group_size:
        phases, delay = _group_phases(system, comm_type, algorithms, group_size)
    elif algorithms[0].single:
        size = system.network.num_ranks
        phases = [
            _phase(system.compat, comm_type, algorithms[0], size, -1, _half(system, comm_type), 0)
        ]
        delay = system.collectives.endpoint_delay
    else:
        phases = _by_dimension(system, comm_type, algorithms, involved)
        delay = system.collectives.endpoint_delay
    if not system.compat:
        phases = [_both_ways(system, phase, algorithms) for phase in phases]
        phases = [_sharing(system, phase, phases) for phase in phases]
    return Recipe(tuple(phases), delay, bool(group_size and system.compat))


def _both_ways(system: System, phase: Phase, algorithms: list[Algorithm]) -> Phase:
    """Let a ring go both ways round, where that is asked for and each way has its own links.

    What has a root is done by steps, which have one way only.
    """
    asked = algorithms[min(max(phase.dim, 0), len(algorithms) - 1)].name == "biring"
    if not asked or phase.dim < 0 or phase.size == 2 or phase.algorithm != M.RING:
        return phase
    topology = system.network.dimensions[phase.dim].topology
    return replace(phase, both=topology in ("ring", "fully-connected"))


def _sharing(system: System, phase: Phase, phases: list[Phase]) -> Phase:
    """Say how many messages of a phase share a link at once, where none waits for another.

    As many chunks as are worked on at once do. Of a direct algorithm, all messages of a rank
    share its link to a switch; in a ring, they go through all links between. Those of a tree's
    two children share the way to their parent. ASTRA-sim lets each have a link for itself. What
    is done by steps sends one message after the other, but for those to and from a root at once.
    """
    if system.network.congestion:
        return phase
    collectives = system.collectives
    queues = collectives.queues  # each of which works on one at least
    at_once = queues * -(-collectives.active_chunks // queues)
    halves = any(other.both for other in phases) and not phase.both
    share = float(min(at_once, collectives.chunks * (2 if halves else 1)))
    topologies = {system.network.dimensions[d].topology for d in _dims_of(system, phase)}
    n = phase.size
    if phase.algorithm == M.STEPS and phase.name == "direct":
        if topologies == {"ring"} and phase.dim >= 0:
            share *= n // 2  # a ring has two ways
        elif topologies != {"fully-connected"} or len(_dims_of(system, phase)) > 1:
            share *= n - 1
    elif phase.algorithm == M.DIRECT:
        window = n - 1 if phase.window < 0 else min(phase.window, n - 1)
        share *= max(1.0, _sharing_of_direct(system, n, phase.dim, window))
    far = phase.algorithm == M.HALVING_DOUBLING or phase.name not in ("", "ring", "direct")
    return replace(phase, share=share, spread=far)


def _sharing_of_direct(system: System, n: int, dim: int, window: int) -> float:
    """Say how many messages share a link, if each of n members sends to each other.

    So many as the busiest link carries, if all are under way at once; of a window, its part of
    them. Members of a group may stand anywhere: at most all before a link send to all behind it.
    """
    dimensions, num_ranks = system.network.dimensions, system.network.num_ranks
    if dim >= 0:
        return window * _of_a_line(dimensions[dim].topology, n) / (n - 1)
    used = [one for one in dimensions if one.size > 1]
    loads = [_of_a_line(one.topology, one.size) * (num_ranks // one.size) for one in used]
    topologies = {one.topology for one in dimensions}
    if n < num_ranks:
        most = 1 if topologies == {"fully-connected"} and len(dimensions) == 1 else n - 1
        if topologies & {"ring", "mesh"}:
            most = min(n // 2 * (n - n // 2), max(loads))
        return window * most / (n - 1)
    slowest = min(one.bandwidth for one in used)
    busiest = max(load * slowest / one.bandwidth for load, one in zip(loads, used, strict=True))
    if window == n - 1:  # the slowest messages set the time
        return busiest
    # each rank's messages one behind the other, by the slowest dimension that they go through
    times, faster = 0.0, num_ranks
    for one in sorted(used, key=lambda one: one.bandwidth):
        faster //= one.size
        times += (one.size - 1) * faster * slowest / one.bandwidth
    return window * busiest / times


def _of_a_line(topology: str, n: int) -> int:
    """Give how many messages the busiest link of n ranks in one dimension carries.

    In a ring those to the member opposite go clockwise, as the router sends them.
    """
    half = n // 2
    if topology == "ring":
        return half * (half + 1) // 2
    return {"fully-connected": 1, "switch": n - 1, "mesh": half * (n - half)}[topology]


def _dims_of(system: System, phase: Phase) -> range:
    """Give the dimensions that a phase's messages go through."""
    num_dims = len(system.network.dimensions)
    return range(num_dims) if phase.dim < 0 else range(phase.dim, phase.dim + 1)


def _half(system: System, comm_type: str) -> int:
    aware = comm_type == "all_reduce" and system.collectives.bandwidth_aware
    return _FIRST_HALF if aware else _ALL


def _group_phases(
    system: System, comm_type: str, algorithms: list[Algorithm], size: int
) -> tuple[list[Phase], int]:
    collectives = system.collectives
    if system.compat:
        delay = collectives.group_endpoint_delay
        algorithm = algorithms[0] if len(algorithms) == 1 else Algorithm("ring", -1, False)
    else:
        delay, algorithm = collectives.endpoint_delay, algorithms[0]
    if size == 1:
        return [], delay
    if algorithm.name == "doublebinarytree" and system.compat:
        raise UsageError(
            comm_type, "doubleBinaryTree in a process group stops ASTRA-sim",
            "choose another algorithm, or the right rules: compat = ''",
        )  # fmt: skip
    return [
        _phase(system.compat, comm_type, algorithm, size, -1, _half(system, comm_type), 0)
    ], delay


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
    if not system.compat:  # which leaves out dimensions that no algorithm is given for
        algorithms = algorithms + algorithms[-1:] * (len(sizes) - len(algorithms))
    dims = [d for d in range(len(algorithms)) if sizes[d] > 1 and involved >> d & 1]
    steps: list[tuple[int, str, int]]
    if _half(system, comm_type) == _FIRST_HALF:
        steps = [(d, "reduce_scatter", _FIRST_HALF) for d in dims[:-1]]
        steps += [(d, "all_reduce", _FIRST_HALF) for d in dims[-1:]]
        steps += [(d, "all_gather", _SECOND_HALF) for d in reversed(dims[:-1])]
    else:
        inwards = comm_type in ("all_gather", "broadcast", "scatter")  # those of slow links first
        in_order = reversed(dims) if inwards else dims
        steps = [(d, comm_type, _ALL) for d in in_order]
    # which of the two trees comes next is counted for each type and dimension
    first_tree = _COMM[comm_type] * len(sizes)
    return [
        _phase(system.compat, comm, algorithms[d], sizes[d], d, half, first_tree + d)
        for d, comm, half in steps
    ]


_INVOLVED_AT_MOST = 4


def _phase(
    compat: str, comm: str, algorithm: Algorithm, size: int, dim: int, half: int, tree: int
) -> Phase:
    code, number, name = _COMM[comm], _ALGORITHM[algorithm.name], ""
    if compat:
        _check_size(comm, algorithm, size)
    elif code in ROOTED or number == M.TREE or not _is_regular(number, code, size):
        number, name = M.STEPS, algorithm.name.removeprefix("bi")
    return Phase(dim, code, half, number, algorithm.window, tree, size, name=name)


def _is_regular(algorithm: int, comm: int, size: int) -> bool:
    """Tell whether halving and doubling is between pairs in each step."""
    if algorithm != M.HALVING_DOUBLING:
        return True
    return comm != M.ALL_TO_ALL and size & (size - 1) == 0


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
