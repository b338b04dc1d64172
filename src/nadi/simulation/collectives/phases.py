"""The phases of a collective, each an algorithm among a number of members.

Conditions under which the engine computes many messages in closed form.

Groups that form a grid in the network, so that each dimension is a phase.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from nadi.simulation.collectives.step_tables import ROOTED, Steps, steps_of
from nadi.simulation.engine.codes import Comm, PhaseKind, StepKind
from nadi.simulation.engine.machine_state import MOST_PIECES, PIECE, START, STEP, TURN
from nadi.systems.system import Network
from nadi.trace.arrays import Bools, Ints

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

    - ``network``: Of all ranks.
    - ``members``: int64, shape (members,): different ranks.
    - Returns tuple of int: Their product is the number of members; empty if some combination of
      places has none.
    """
    sizes = tuple(len(set(places.tolist())) for places in positions_in(network, members))
    return sizes if prod(sizes) == members.size else ()


def in_order_of_grid(network: Network, members: Ints) -> Ints:
    """Sort the members of a multi-dimensional grid by position.

    Where they differ in one dimension only they are a ring in the order that was given.
    """
    sizes = grid_of(network, members)
    return np.sort(members) if sum(size > 1 for size in sizes) > 1 else members


def messages_of(
    phase: Phase, size: int, *, rounds_down: bool = False, clockwise: bool | None = None,
    turn: int = 0, root: int = 0,
) -> tuple[Ints, Ints, Ints]:  # fmt: skip
    """Compute the bytes that each pair of members exchanges in a phase.

    - ``phase``: One phase of a recipe.
    - ``size``: Bytes of the chunk when the phase begins, as each member has them.
    - ``rounds_down``: Whether bytes that do not divide are lost, as in ASTRA-sim.
    - ``clockwise``: Which way round rings go; by default the way of one queue for each dimension,
      where all-gathers that follow reduce-scatters go the other way.
    - ``turn``: Which of the two trees it is, 0 or 1; chunks take them in turn.
    - ``root``: Position of the root, where there is one.
    - Returns numpy.ndarray, numpy.ndarray, numpy.ndarray: Sender, receiver and bytes, int64, in
      order of sender and receiver. Ranks are positions among the phase's members. O(messages) of
      memory for the algorithm's messages, which are n^2 for direct ones and O(n log n) at most for
      others.
    """
    n = phase.size
    if n < 2:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    if clockwise is None:
        clockwise = phase.half != TURN.second_half
    if _is_in_channels(phase):
        return _summed(n, *_channels(phase, size, 1 if clockwise else -1, root))
    phase = as_followed(phase)
    if phase.algorithm == PhaseKind.STEPS:
        steps = phase.steps
        sent = _steps(steps[turn % len(steps)], n, size, root if phase.comm in ROOTED else 0)
    elif phase.algorithm == PhaseKind.DIRECT:
        sent = _direct(phase.comm, n, size, rounds_down)
    elif phase.algorithm == PhaseKind.HALVING_DOUBLING:
        sent = _halving_doubling(phase.comm, n, size, rounds_down)
    elif phase.algorithm == PhaseKind.TREE:
        sent = _tree(n, size, turn == 0)
    else:
        sent = _ring(phase.comm, n, size, rounds_down, 1 if clockwise else -1)
    return _summed(n, *sent)


def as_followed(phase: Phase) -> Phase:
    """Return a phase whose messages are followed, in the place of one whose time is known.

    That is a ring or, of an all-to-all, a direct exchange; rings over several nodes are
    :func:`_channels`.
    """
    if phase.algorithm != PhaseKind.TIMED:
        return phase
    if phase.comm in ROOTED:
        return replace(phase, algorithm=PhaseKind.STEPS, name="ring")
    direct = phase.comm == Comm.ALL_TO_ALL
    return replace(phase, algorithm=PhaseKind.DIRECT if direct else PhaseKind.RING)


def _is_in_channels(phase: Phase) -> bool:
    """Return whether the messages of a phase whose time is known go round in several channels."""
    if phase.algorithm != PhaseKind.TIMED:
        return False
    passes_on = phase.comm not in ROOTED or phase.comm in (Comm.BROADCAST, Comm.REDUCE)
    several = 1 < phase.together < phase.size
    in_switch = phase.comm == Comm.ALL_REDUCE and phase.name.startswith(IN_SWITCH)
    return phase.comm != Comm.ALL_TO_ALL and passes_on and (several or in_switch)


def _channels(phase: Phase, size: int, step: int, root: int) -> tuple[Ints, Ints, Ints]:
    """Return the messages of rings over all nodes, each with its own way between nodes.

    There are as many as a node has members: each carries its part, and leaves a node over the
    adapter of another member, to whom data goes within the node. What is reduced in switches
    leaves a member once, and its part of the result once more.
    """
    n, inner = phase.size, phase.together
    member = np.arange(n)
    own, place = member // inner * inner, member % inner
    if phase.comm in ROOTED:
        each, first, num_nodes = size, root // inner, n // inner
        outwards = phase.comm == Comm.BROADCAST
        step = 1 if outwards else -1
        last = (first - step) % num_nodes
        goes_on = member // inner != (last if outwards else first)
    else:
        each = int(_ring(phase.comm, n, size, False, step)[2][0])
        goes_on = np.full(n, n > inner)
    within = each
    if phase.comm == Comm.ALL_REDUCE and phase.name.startswith(IN_SWITCH):
        within = size + -(-size // inner)
    stays = np.full(n, inner > 1)
    src = np.concatenate([member[stays], member[goes_on]])
    near, far = own + (place + step) % inner, (member + step * inner) % n
    dst = np.concatenate([near[stays], far[goes_on]])
    counts = [int(stays.sum()), int(goes_on.sum())]
    return src, dst, np.repeat(np.array([within, -(-each // inner)]), counts)


def _summed(n: int, src: Ints, dst: Ints, num_bytes: Ints) -> tuple[Ints, Ints, Ints]:
    """Sum the bytes of each pair of members."""
    pair, place = np.unique(src * n + dst, return_inverse=True)
    total = np.zeros(pair.size, dtype=np.int64)
    np.add.at(total, place, num_bytes)
    return pair // n, pair % n, total


def sends_by_steps(
    phase: Phase, size: int, *, turn: int = 0, root: int = 0
) -> tuple[Ints, Ints, Ints]:  # fmt: skip
    """Count the messages of each pair in a phase with a step table.

    Parameters and what is returned as of :func:`messages_of`, with numbers in place of bytes.
    """
    steps = phase.steps[turn % len(phase.steps)]
    sends, times = _sends(steps, phase.size, size)
    shift = root if phase.comm in ROOTED else 0
    src, dst = (
        (steps.rows[sends, column] + shift) % phase.size for column in (STEP.member, STEP.peer)
    )
    return _summed(phase.size, src, dst, times)


def _steps(steps: Steps, n: int, size: int, root: int) -> tuple[Ints, Ints, Ints]:
    """Count the sends of each member in all its steps, some of which repeat."""
    sends, times = _sends(steps, n, size)
    rows = steps.rows[sends]
    parts = rows[:, STEP.parts]
    # pieces add up to the chunk
    num_bytes = rows[:, STEP.count] * np.where(
        parts > 0, times * -(-size // np.maximum(parts, 1)), size
    )
    return (rows[:, STEP.member] + root) % n, (rows[:, STEP.peer] + root) % n, num_bytes


def _sends(steps: Steps, n: int, size: int) -> tuple[Bools, Ints]:
    """Return the sending steps, and how often each runs."""
    rows = steps.rows
    num_pieces = -(-size // PIECE) if steps.is_piped else 1
    num_pieces = max(min(num_pieces, max(n, MOST_PIECES)), 1)
    length = np.bincount(rows[:, STEP.member], minlength=n)
    again = steps.starts[:, START.count] * num_pieces
    rounds, rest = np.divmod(again, np.maximum(length, 1))
    order = np.argsort(rows[:, STEP.member], kind="stable")
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows)) - np.repeat(np.cumsum(length) - length, length)
    sends = rows[:, STEP.kind] < StepKind.TAKE
    member = rows[sends, STEP.member]
    return sends, rounds[member] + (place[sends] < rest[member])


def part_of_bytes(size: int, n: int, *, rounds_down: bool) -> int:
    """Return the n-th part of a number of bytes."""
    return size // n if rounds_down else -(-size // n)


def _ring(comm: int, n: int, size: int, rounds_down: bool, step: int) -> tuple[Ints, Ints, Ints]:
    part = part_of_bytes(size, n, rounds_down=rounds_down)
    if comm == Comm.ALL_GATHER:
        each = (n - 1) * size
    elif comm == Comm.ALL_REDUCE:
        each = 2 * (n - 1) * part
    elif comm == Comm.ALL_TO_ALL:
        each = n * (n - 1) // 2 * part
    else:
        each = (n - 1) * part
    src = np.arange(n)
    return src, (src + step) % n, np.full(n, each)


def _direct(comm: int, n: int, size: int, rounds_down: bool) -> tuple[Ints, Ints, Ints]:
    each = size if comm == Comm.ALL_GATHER else part_of_bytes(size, n, rounds_down=rounds_down)
    if comm == Comm.ALL_REDUCE:
        each *= 2
    src, dst = np.divmod(np.arange(n * n), n)
    other = src != dst
    return src[other], dst[other], np.full(int(other.sum()), each)


def _halving_doubling(comm: int, n: int, size: int, rounds_down: bool) -> tuple[Ints, Ints, Ints]:
    levels = n.bit_length() - 1
    if comm == Comm.ALL_GATHER:
        steps = [(n >> (k + 1), size << k) for k in range(levels)]
    else:
        halved = [part_of_bytes(size, 2 << k, rounds_down=rounds_down) for k in range(levels)]
        steps = [(1 << k, each) for k, each in enumerate(halved)]
        if comm == Comm.ALL_REDUCE:
            least = size >> (levels + 1)  # ASTRA-sim doubles that, and what is lost stays so
            back = [least << (levels - k) for k in range(levels)] if rounds_down else halved
            steps = [(d, there + b) for (d, there), b in zip(steps, back, strict=True)]
    own = np.arange(n)
    partners = [own + np.where(own // d % 2 == 0, d, -d) for d, _ in steps]
    sizes = np.repeat(np.array([each for _, each in steps]), n)
    return np.tile(own, levels), np.concatenate(partners), sizes


def _tree(n: int, size: int, root_is_last: bool) -> tuple[Ints, Ints, Ints]:
    """Return the messages up and down one in-order tree, whose root has one child."""
    offset = 0 if root_is_last else 1
    below: list[tuple[int, int]] = []
    todo = [(n - 1 if root_is_last else 0, offset, n - 2 + offset)]
    while todo:
        parent, low, high = todo.pop()
        if low > high:
            continue
        middle = (low + high) // 2
        below.append((parent, middle))
        todo += [(middle, low, middle - 1), (middle, middle + 1, high)]
    parents, children = np.array(below, dtype=np.int64).T
    both = np.concatenate([parents, children]), np.concatenate([children, parents])
    return *both, np.full(2 * len(below), size)
