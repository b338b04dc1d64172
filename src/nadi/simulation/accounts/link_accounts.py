"""Traffic on each link of a simulated network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.simulation.collectives.link_sharing import Traffic, links_per_rank
from nadi.simulation.collectives.phases import Phase, messages_of, part_of_bytes, sends_by_steps
from nadi.simulation.collectives.step_tables import ROOTED
from nadi.simulation.engine.codes import Comm, NodeKind, PhaseKind
from nadi.simulation.engine.machine_state import HANDSHAKE, LINK, SHAPE, TURN
from nadi.simulation.flows.network_graph import NetworkGraph, network_graph
from nadi.simulation.rules import rules_of
from nadi.simulation.simulation import Simulation
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.rows import number_rows
from nadi.trace.schema import LINKS

_SWITCH = -1


@checked
def link_table(simulation: Simulation) -> pl.DataFrame:
    """Compute the traffic of each link (``schema.LINKS``), in order of dimension.

    With congestion, the engine counts the traffic. Without, messages are summed along their
    routes as if links were not shared: a link that is busy for more than the whole time would
    be congested. Of a collective whose time is known, links carry no more than they can in that
    time. O(messages + links).
    """
    system, engine = simulation.system, simulation.trail.links
    layout = _layout(system)
    if system.network.congestion:
        carried = engine[layout.number, LINK.bytes]
        busy = engine[layout.number, LINK.time]
        peak = engine[layout.number, LINK.peak]
    else:
        traffic = Traffic(system)
        add_traffic(simulation, lambda _: traffic)
        carried = traffic.bytes[layout.number]
        rates = np.array([dimension.bandwidth for dimension in system.network.dimensions])
        busy = (carried / rates[layout.dimension]).astype(np.int64)
        peak = np.full(carried.size, -1, dtype=np.int64)
    columns = {
        "dimension": layout.dimension,
        "kind": pl.Series(_KINDS).gather(layout.kind),
        "src": layout.src,
        "dst": layout.dst,
        "bytes": carried,
        "busy": busy,
        "utilization": busy / max(simulation.makespan, 1),
        "peak_queue": peak,
    }
    return LINKS.build(carried.size, columns)


_KINDS = ("ring", "mesh", "direct", "to switch", "from switch")
_RING, _MESH, _DIRECT, _UP, _DOWN = range(5)


class _Layout(NamedTuple):
    """The links of a network; int64, shape (links,)."""

    number: Ints
    dimension: Ints
    kind: Ints
    src: Ints
    dst: Ints


def _layout(system: System) -> _Layout:
    """List the links of a network in the order of their numbers."""
    num_ranks, stride, first = system.network.num_ranks, 1, 0
    rank = np.arange(num_ranks)
    parts = []
    for d, dimension in enumerate(system.network.dimensions):
        n, per_rank = dimension.size, links_per_rank(dimension)
        src = np.repeat(rank, per_rank)
        place, port = src // stride % n, np.tile(np.arange(per_rank), num_ranks)
        if dimension.topology == "fully-connected":
            dst, kind = src + (port - place) * stride, np.full(src.size, _DIRECT)
            there = port != place
        elif dimension.topology == "switch":
            kind = np.where(port == 0, _UP, _DOWN)
            src, dst = np.where(port == 0, src, _SWITCH), np.where(port == 0, _SWITCH, src)
            there = np.full(src.size, n > 1)
        else:
            to = place + np.where(port == 0, 1, -1)
            dst = src + (to % n - place) * stride
            is_ring = dimension.topology == "ring"
            kind = np.full(src.size, _RING if is_ring else _MESH)
            there = np.full(src.size, n > 1) if is_ring else (to >= 0) & (to < n)
        number = first + np.arange(src.size)
        whole = _Layout(number, np.full(src.size, d), kind, src, dst)
        parts.append(_Layout(*(column[there] for column in whole)))
        stride *= n
        first += src.size
    return _Layout(*(np.concatenate(column) for column in zip(*parts, strict=True)))


# without congestion: what was sent, added up


class _Use(NamedTuple):
    """A phase of a collective of some size among a group, and its direction."""

    group: int
    shape: int
    phase: int
    size: int
    clockwise: bool
    turn: int
    root: int


class Account(Protocol):
    """What is told of messages, as :class:`Traffic` is."""

    def add_messages(self, src: Ints, dst: Ints, num_bytes: Ints) -> None:
        """Add messages from rank to rank."""

    def add_lines(self, d: int, src: Ints, dst: Ints, num_bytes: Ints, inner: int = -1) -> None:
        """Add the same messages in every line of a dimension."""


def add_traffic(simulation: Simulation, account_of: Callable[[int], Account]) -> None:
    """Tell accounts of all messages of a simulation, where none was counted.

    - ``account_of``: Gives the account of a collective, by one of its nodes, or of messages, by -1.
    """
    trail, graph = simulation.trail, None
    if any(p.algorithm == PhaseKind.TIMED for recipe in trail.recipes for p in recipe.phases):
        graph = network_graph(simulation.system)
    nodes = _one_node_of_each(simulation)
    for use, count in _uses(simulation).items():
        account = account_of(nodes[use.group, use.shape])
        for sent in _messages_of_phase(simulation, use, count):
            _add(simulation, graph, account, sent)
    traffic = account_of(-1)
    if simulation.copies:
        _add_messages_of_roles(simulation, traffic)
        return
    sends = np.flatnonzero((trail.kind == NodeKind.SEND) & (trail.rank != trail.peer))
    traffic.add_messages(trail.rank[sends], trail.peer[sends], trail.size[sends])
    if simulation.system.network.rendezvous:
        asks = np.flatnonzero((trail.kind == NodeKind.RECEIVE) & (trail.rank != trail.peer))
        sizes = np.full(asks.size, HANDSHAKE)
        traffic.add_messages(trail.rank[asks], trail.peer[asks], sizes)


def _one_node_of_each(simulation: Simulation) -> dict[tuple[int, int], int]:
    """Return a node of the collectives of each group and shape."""
    trail = simulation.trail
    node = np.flatnonzero(trail.kind == NodeKind.COLLECTIVE)
    group, shape = trail.peer[node], trail.key[node]
    first = number_rows([group, shape])[1] if node.size else node
    pairs = zip(group[first].tolist(), shape[first].tolist(), strict=True)
    return dict(zip(pairs, node[first].tolist(), strict=True))


def _add_messages_of_roles(simulation: Simulation, traffic: Account) -> None:
    """Add the messages of all ranks, where few stand for the others: by place in their groups."""
    program, trail = simulation.program, simulation.trail
    sends = np.flatnonzero(trail.kind == NodeKind.SEND)
    # the lowest rank of each class stands for it
    place = np.unique(simulation.like, return_index=True)[1][trail.rank[sends]]
    pairs = [program.group[sends], place, trail.peer[sends]]
    number, first = number_rows(pairs)
    size = np.bincount(number, weights=trail.size[sends]).astype(np.int64)
    for group, src, dst, total in zip(*(part[first] for part in pairs), size, strict=True):
        ranks = simulation.copies[program.group_names[group]]
        own = ranks[(ranks == src).any(axis=1)][0]
        one, other = (ranks[:, np.flatnonzero(own == end)[0]] for end in (src, dst))
        traffic.add_messages(one, other, np.full(ranks.shape[0], total))


class _Sent(NamedTuple):
    """Messages between the members of each line of a phase; int64, shape (messages,) each.

    ``time`` is that in which they are sent, in ns; 0 if it is not known without them.
    """

    use: _Use
    phase: Phase
    src: Ints
    dst: Ints
    num_bytes: Ints
    time: int
    inner: int


def _messages_of_phase(simulation: Simulation, use: _Use, count: int) -> Iterator[_Sent]:
    system = simulation.system
    phase = _phases(simulation, use.shape)[use.phase]
    root, inner = use.root // phase.stride % phase.size, -1
    if phase.comm in ROOTED:  # lines that hold what the root has, or wants
        inner = use.root % phase.stride
    src, dst, num_bytes = messages_of(
        phase,
        use.size,
        rounds_down=rules_of(system).rounds_down,
        clockwise=use.clockwise,
        turn=use.turn,
        root=root,
    )
    time = 0
    if phase.algorithm == PhaseKind.TIMED:
        time = count * int(simulation.trail.shapes[use.shape, SHAPE.time])
    yield _Sent(use, phase, src, dst, count * num_bytes, time, inner)
    if system.network.rendezvous:
        ends = src, dst, np.full(src.size, _per_pair(phase, system))
        if phase.algorithm == PhaseKind.STEPS:
            ends = sends_by_steps(phase, use.size, turn=use.turn, root=root)
        yield _Sent(use, phase, ends[1], ends[0], count * HANDSHAKE * ends[2], 0, inner)


def _add(simulation: Simulation, graph: NetworkGraph | None, account: Account, sent: _Sent) -> None:
    use, phase = sent.use, sent.phase
    if phase.dim >= 0 and use.group == 0:
        account.add_lines(phase.dim, sent.src, sent.dst, sent.num_bytes, sent.inner)
        return
    members = _groups_alike(simulation, use.group)
    first = _first_of_lines(phase, members.shape[1], sent.inner)
    src, dst = (
        members[:, first[:, None] + phase.stride * ends].ravel() for ends in (sent.src, sent.dst)
    )
    num_bytes = np.tile(sent.num_bytes, first.size * members.shape[0])
    if sent.time and graph is not None:
        num_bytes = _within(graph, src, dst, num_bytes, sent.time)
    account.add_messages(src, dst, num_bytes)


def _within(graph: NetworkGraph, src: Ints, dst: Ints, num_bytes: Ints, time: int) -> Ints:
    """Return no more bytes than links can carry in a time that is known without messages."""
    routes = graph.routes(src, dst)
    link, which = np.unique(routes.link, return_inverse=True)
    on_links = np.bincount(which, weights=np.repeat(num_bytes, np.diff(routes.first)))
    needed = float((on_links / graph.bandwidth[link]).max(initial=0.0))
    if needed <= time:
        return num_bytes
    return np.asarray((num_bytes * (time / needed)).astype(np.int64))


def _groups_alike(simulation: Simulation, group: int) -> Ints:
    """Return the members of a group, and of those that do the same; shape (groups, members)."""
    members = simulation.trail.group_members[group]
    for ranks in simulation.copies.values():
        in_order = np.sort(ranks, axis=1)
        if in_order.shape[1] == members.size and (in_order == np.sort(members)).all(1).any():
            return np.asarray(in_order[:, np.argsort(np.argsort(members))])
    return members[None, :]


def _first_of_lines(phase: Phase, num_members: int, inner: int) -> Ints:
    """Return the position in its group of the first member of each line of a phase.

    With ``inner`` of those that have this place among the dimensions below.
    """
    place = np.arange(num_members)
    first: Ints = place[place // phase.stride % phase.size == 0]
    return first if inner < 0 else first[first % phase.stride == inner]


def _per_pair(phase: Phase, system: System) -> int:
    """Return how many messages a member sends to each of its receivers in a phase."""
    if phase.algorithm == PhaseKind.TREE:
        return 1
    if phase.algorithm == PhaseKind.RING:
        return rules_of(system).num_ring_messages(phase)
    return 2 if phase.comm == Comm.ALL_REDUCE else 1


def _phases(simulation: Simulation, shape: int) -> tuple[Phase, ...]:
    trail = simulation.trail
    return trail.recipes[int(trail.shapes[shape, SHAPE.recipe])].phases


def _uses(simulation: Simulation) -> Counter[_Use]:
    """Count how often each phase runs, over all members."""
    trail = simulation.trail
    node = np.flatnonzero(trail.kind == NodeKind.COLLECTIVE)
    system = simulation.system
    in_turn = system.collectives.queues > 1 or any(
        phase.algorithm == PhaseKind.TREE for recipe in trail.recipes for phase in recipe.phases
    )
    found: Counter[_Use] = Counter()
    if in_turn and rules_of(system).chunks_go_in_turn:
        for rank in np.unique(_first_members(simulation, node)).tolist():
            found.update(_uses_in_order(simulation, node[trail.rank[node] == rank], rank))
        return found
    sizes = np.array([members.size for members in trail.group_members])
    number, one = number_rows([trail.peer[node], trail.key[node]])
    pairs = zip(trail.peer[node[one]].tolist(), trail.key[node[one]].tolist(), strict=True)
    members = np.bincount(number, minlength=one.size)
    of_class = simulation.like
    for (group, shape), count in zip(pairs, members.tolist(), strict=True):
        # of members for which one rank stands, only that is there
        there = np.unique(of_class[trail.group_members[group]]).size
        meetings = count // min(int(sizes[group]), there)
        root, phases = int(trail.shapes[shape, SHAPE.root]), _phases(simulation, shape)
        first = 0
        for chunk, chunks in _chunks(trail.shapes[shape]):
            for p, size in enumerate(_sizes(simulation, shape, chunk)):
                for way, times in _ways(phases[p], first, chunks, system).items():
                    found[_Use(group, shape, p, size, *way, root)] += meetings * times
            first += chunks
    return found


def _ways(
    phase: Phase, first: int, chunks: int, system: System
) -> Counter[tuple[bool, int]]:  # fmt: skip
    """Count the directions and trees that chunks take, by chunk number."""
    if phase.both:  # every second one the other way
        odd = (first + chunks) // 2 - first // 2
        return Counter({(True, 0): chunks - odd, (False, 0): odd})
    if system.collectives.queues == 1 and len(phase.steps) < 2:
        return Counter({(phase.half != TURN.second_half, 0): chunks})
    return Counter(
        (_is_clockwise(phase, number, system.collectives.queues), number % max(len(phase.steps), 1))
        for number in range(first, first + chunks)
    )


def _first_members(simulation: Simulation, node: Ints) -> Ints:
    """Return the rank of the first group member of each collective."""
    first = np.array([members[0] for members in simulation.trail.group_members])
    return first[simulation.trail.peer[node]]


def _chunks(shape: Ints) -> list[tuple[int, int]]:
    """Return the distinct chunk sizes and their counts."""
    count, chunk, rest = int(shape[SHAPE.chunks]), int(shape[SHAPE.chunk]), int(shape[SHAPE.rest])
    return [(size, n) for size, n in ((chunk + 1, rest), (chunk, count - rest)) if n]


def _sizes(simulation: Simulation, shape: int, size: int) -> list[int]:
    """Return the bytes of a chunk at the start of each phase."""
    sizes, rules = [], rules_of(simulation.system)
    for phase in _phases(simulation, shape):
        sizes.append(size)
        if phase.algorithm != PhaseKind.TREE and phase.comm in (Comm.REDUCE_SCATTER, Comm.SCATTER):
            size = part_of_bytes(size, phase.size, rounds_down=rules.rounds_down)
        elif phase.algorithm != PhaseKind.TREE and phase.comm in (Comm.ALL_GATHER, Comm.GATHER):
            size *= phase.size
    return sizes


def _uses_in_order(simulation: Simulation, node: Ints, rank: int) -> Counter[_Use]:
    """Iterate over a rank's collectives in start order, per queue and tree.

    Those count of whose group the rank is the first member.
    """
    trail = simulation.trail
    num_queues = simulation.system.collectives.queues
    queue_turns: Counter[tuple[int, int]] = Counter()
    tree_turns: Counter[int] = Counter()
    found: Counter[_Use] = Counter()
    node = node[np.lexsort((node, simulation.start[node]))]
    for group, shape in zip(trail.peer[node].tolist(), trail.key[node].tolist(), strict=True):
        counts = int(trail.group_members[group][0]) == rank
        phases = _phases(simulation, shape)
        for chunk, chunks in _chunks(trail.shapes[shape]):
            sizes = _sizes(simulation, shape, chunk)
            for _ in range(chunks):
                for p, phase in enumerate(phases):
                    place = max(phase.dim, 0), phase.half
                    clockwise = _is_clockwise(phase, queue_turns[place], num_queues)
                    queue_turns[place] += 1
                    turn = tree_turns[phase.tree] % 2
                    tree_turns[phase.tree] += phase.algorithm == PhaseKind.TREE
                    if counts:
                        found[_Use(group, shape, p, sizes[p], clockwise, turn, 0)] += 1
    return found


def _is_clockwise(phase: Phase, turn: int, num_queues: int) -> bool:
    """Return the direction of a ring that uses a queue in turn."""
    if num_queues == 1:
        return phase.half != TURN.second_half
    first = num_queues // 2 if phase.half == TURN.second_half else 0
    size = (num_queues, num_queues // 2, num_queues - num_queues // 2)[phase.half]
    return first + turn % size < num_queues // 2
