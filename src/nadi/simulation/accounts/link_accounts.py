"""Traffic on each link of a simulated network: logical links, and physical ones by user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.simulation.collectives.link_sharing import Traffic, links_per_rank
from nadi.simulation.collectives.phases import Phase, messages_of, part_of_bytes, sends_by_steps
from nadi.simulation.collectives.step_tables import ROOTED
from nadi.simulation.engine.codes import Comm, NodeKind, PhaseKind
from nadi.simulation.engine.machine_state import HANDSHAKE, LINK, SHAPE, TURN
from nadi.simulation.flows.dimension_links import owned_by
from nadi.simulation.flows.memory_links import access_number
from nadi.simulation.flows.network_graph import NetworkGraph, network_graph
from nadi.simulation.lowering.shared_routes import AllLinks
from nadi.simulation.rules import rules_of
from nadi.simulation.simulation import Simulation
from nadi.simulation.work.recorded_work import STORE, tiers_of_nodes
from nadi.systems.system import Network, System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.schema import COMM_TYPES, LINK_USE, LINKS

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


_AT_ONCE = 1 << 22  # messages
_MESSAGES = "messages"
IN_GROUP = " in group "  # between the type of a collective and the name of its group
_ROUNDING = 1e-3  # of times to whole ns


@checked
def link_use(simulation: Simulation) -> pl.DataFrame:
    """Compute what each physical link carried, for whom, and for how long it was full.

    A collective whose time is known without its messages (NCCL's, or a measured one) carries
    those of its rings, at most as many bytes as links can carry in that time.

    Returns
    -------
    polars.DataFrame
        ``schema.LINK_USE``: links that carried anything, the busiest first. O(links of the ways
        of all messages, those of equal collectives once).
    """
    links, users = AllLinks(simulation.system), _Users(simulation)
    accounts: dict[int, _Account] = {}

    def of_user(user: int) -> _Account:
        if user not in accounts:
            accounts[user] = _Account(links, simulation.system.network)
        return accounts[user]

    def account_of(node: int) -> Account:
        if node >= 0:
            return of_user(users.of_collective(node))
        if not simulation.jobs:
            return of_user(users.of_messages(""))
        return _ByJob(
            [(job.ranks, of_user(users.of_messages(job.name))) for job in simulation.jobs]
        )

    add_traffic(simulation, account_of)
    for user, number, num_bytes in _accesses(simulation, users):
        of_user(user).add_accesses(number, num_bytes)
    loads = [
        (user, load) for user, account in accounts.items() for load in account.loads
    ]  # fmt: skip
    return _table(simulation, links, users.names, loads)


def overload_issues(simulation: Simulation) -> pl.DataFrame:
    """Tell how many links would need longer for their bytes than the job takes.

    - Returns: ``schema.ISSUES``; empty by rules by which transfers share links or wait for them.
    """
    log, system = IssueLog(), simulation.system
    if not (system.network.congestion or rules_of(system).links_are_shared):
        used = link_table(simulation)["utilization"]
        most, over = float(used.max() or 0.0), int((used > 1 + _ROUNDING).sum())  # type: ignore[arg-type]
        log.add(
            "simulate.links-overloaded", "warning", over,
            "links have more to carry than they can in the time of the job, as by ASTRA-sim's "
            "rules transfers do not slow each other down: the time is too short, by a factor of "
            f"{most:.2f} at least",
            "simulate by the default rules (--default-rules, or --system), or with --congestion",
        )  # fmt: skip
    return log.table()


class _Load(NamedTuple):
    """What a user loads on links: int64, shape (links,) each, but for ``units``, float64.

    ``units`` are bytes, but on devices of memory that reads and writes share: there a byte of
    either counts as its bandwidth says.
    """

    link: Ints
    num_bytes: Ints
    units: Floats


def _accesses(simulation: Simulation, users: _Users) -> Iterator[tuple[int, Ints, Ints]]:
    """Yield who loads from and stores to memory tiers, the numbers of the ways, and the bytes."""
    program, system = simulation.program, simulation.system
    node = np.flatnonzero(simulation.trail.kind[: program.num_nodes] == NodeKind.TRANSFER)
    if not node.size:
        return
    tier, store = tiers_of_nodes(program, system)[node], program.kind[node] == STORE
    everybody = np.arange(simulation.cycles.size)
    jobs = [(job.name, job.ranks) for job in simulation.jobs] or [("", everybody)]
    for number, stores in product(range(len(system.tiers)), (False, True)):
        chosen = node[(tier == number) & (store == stores)]
        of_own = np.zeros(program.num_ranks, dtype=np.int64)
        np.add.at(of_own, program.rank[chosen], simulation.trail.size[chosen])
        num_bytes = of_own[simulation.like]
        what = f"{'stores to' if stores else 'loads from'} {system.tiers[number].name}"
        for job, ranks in jobs:
            used = ranks[num_bytes[ranks] > 0]
            if used.size:
                way = access_number(system, used, number, store=stores)
                yield users.named(job, what), way, num_bytes[used]


def _table(
    simulation: Simulation, links: AllLinks, names: list[str], loads: Sequence[tuple[int, _Load]]
) -> pl.DataFrame:
    """Create the table from what users load on links."""
    nothing = np.zeros(0, dtype=np.int64)
    parts = zip(_Load(nothing, nothing, np.zeros(0)), *(load for _, load in loads), strict=True)
    link, num_bytes, units = (np.concatenate(part) for part in parts)
    user = np.repeat(
        np.array([number for number, _ in loads], dtype=np.int64),
        [load.link.size for _, load in loads],
    )
    frame = pl.DataFrame({
        "link": link, "user_bytes": num_bytes, "units": units,
        "users": pl.Series(names, dtype=pl.String).gather(user),
    })  # fmt: skip
    summed = (
        frame.group_by("link", "users", maintain_order=True)
        .agg(pl.col("user_bytes", "units").sum())
        .filter(pl.col("user_bytes") > 0)
        .sort("user_bytes", descending=True, maintain_order=True)
        .group_by("link").agg(pl.col("user_bytes").sum().alias("bytes"), "users",
                              pl.col("user_bytes"), pl.col("units").sum())
        .sort("link")
    )  # fmt: skip
    link, carried = summed["link"].to_numpy(), summed["bytes"].to_numpy()
    full = np.full(link.size, -1, dtype=np.int64)
    if simulation.trail.full.size:
        full = simulation.trail.full[_own_links(simulation, links, link)]
    busy = summed["units"].to_numpy() / links.bandwidth[link]
    time, names_of_links = max(simulation.makespan, 1), links.names
    columns = {
        "link": [names_of_links[one] for one in link.tolist()],
        "bandwidth": links.bandwidth[link] * (carried / summed["units"].to_numpy()),
        "bytes": carried,
        "utilization": busy / time,
        "full": full,
        "users": summed["users"],
        "user_bytes": summed["user_bytes"],
    }
    order = np.lexsort((link, -full, -busy))
    return LINK_USE.build(link.size, columns)[order]


def _own_links(simulation: Simulation, links: AllLinks, link: Ints) -> Ints:
    """Return the links of the ranks that were simulated, for those of the ranks they stand for."""
    lowest = np.unique(simulation.like, return_index=True)[1]
    if lowest.size == simulation.like.size:
        return link
    network, home = simulation.system.network, lowest[simulation.like]
    own = owned_by(network.dimensions, network.num_ranks, link, home)
    return links.memory.owned_by(own, home)


class _Users:
    """Who uses links: collectives by type and group, and messages; of several jobs by job."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._numbers: dict[str, int] = {}
        self._job = {rank: job.name for job in simulation.jobs for rank in job.ranks.tolist()}

    @property
    def names(self) -> list[str]:
        return list(self._numbers)

    def of_collective(self, node: int) -> int:
        """Return the number of the type and group of a collective, one of whose nodes is given."""
        program, trail = self._simulation.program, self._simulation.trail
        job, group = self._job.get(int(program.rank[node]), ""), int(program.group[node])
        name = COMM_TYPES[int(program.comm_type[node])]
        if trail.peer[node] and group >= 0:
            own = self._simulation.group_label(group).removeprefix(f"{job}/")
            name = f"{name}{IN_GROUP}{own}"
        return self.named(job, name)

    def of_messages(self, job: str) -> int:
        """Return the number of the messages of a job."""
        return self.named(job, _MESSAGES)

    def named(self, job: str, what: str) -> int:
        """Return the number of a user of a job; of one job alone, its name is empty."""
        name = f"{job}: {what}" if job else what
        return self._numbers.setdefault(name, len(self._numbers))


class _ByJob:
    """Tells messages to the account of the job whose rank sends them."""

    def __init__(self, accounts: Sequence[tuple[Ints, _Account]]) -> None:
        self._accounts = accounts

    def add_messages(self, src: Ints, dst: Ints, num_bytes: Ints) -> None:
        """Add messages from rank to rank."""
        for ranks, account in self._accounts:
            own = np.isin(src, ranks)
            account.add_messages(src[own], dst[own], num_bytes[own])

    def add_lines(self, d: int, src: Ints, dst: Ints, num_bytes: Ints, inner: int = -1) -> None:
        """Add nothing: only collectives do that."""
        raise NotImplementedError


class _Account:
    """Adds up what messages of one user load on links."""

    def __init__(self, links: AllLinks, network: Network) -> None:
        self._links, self._network = links, network
        self.loads: list[_Load] = []

    def add_messages(self, src: Ints, dst: Ints, num_bytes: Ints) -> None:
        """Add messages from rank to rank, each over all links of its way."""
        for first in range(0, src.size, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            message, link = self._links.hops(src[part], dst[part])
            self._add(link, num_bytes[part][message], 1.0)

    def add_accesses(self, number: Ints, num_bytes: Ints) -> None:
        """Add accesses of memory tiers, by the numbers of their ways."""
        access, link, load = self._links.memory.hops(number)
        self._add(link, num_bytes[access], load)

    def _add(self, link: Ints, num_bytes: Ints, load: Floats | float) -> None:
        if not link.size:
            return
        number, at = number_rows([link])
        total, units = (
            np.bincount(number, weights=num_bytes * one).astype(np.float64) for one in (1.0, load)
        )
        self.loads.append(_Load(link[at], total.astype(np.int64), units))

    def add_lines(self, d: int, src: Ints, dst: Ints, num_bytes: Ints, inner: int = -1) -> None:
        """Add the same messages in every line of ranks that differ in one dimension only."""
        sizes = [dimension.size for dimension in self._network.dimensions]
        stride = int(np.prod(sizes[:d], dtype=np.int64))
        line = np.arange(self._network.num_ranks // sizes[d])
        if inner >= 0:
            line = line[line % stride == inner]
        first = line % stride + line // stride * stride * sizes[d]
        at_once = max(_AT_ONCE // max(src.size, 1), 1)
        for begin in range(0, first.size, at_once):
            part = first[begin : begin + at_once, None]
            one, other = ((part + stride * end).ravel() for end in (src, dst))
            self.add_messages(one, other, np.tile(num_bytes, part.size))
