"""Tables of what each node does on a system, as the event engine needs them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from nadi.errors import InputError, Parameter, UsageError
from nadi.simulation.collectives.phases import Recipe, is_whole
from nadi.simulation.engine.codes import NodeKind, QueuePolicy, Slot
from nadi.simulation.engine.machine_state import NODE, SHAPE
from nadi.simulation.flows.memory_links import MemoryLinks, access_number
from nadi.simulation.rules import rules_of
from nadi.simulation.work.ordered_lanes import (
    in_lanes,
    is_one_at_a_time,
    numbers_in_groups,
    policy_of,
    slots_beside_lanes,
)
from nadi.simulation.work.program import Program, refuse_node
from nadi.simulation.work.recorded_work import (
    NO_TIER,
    OWN_MEMORY,
    STORE,
    Representatives,
    everybody,
    tiers_of_nodes,
)
from nadi.systems.collective_times import nothing_contends
from nadi.systems.memory_tiers import loaded_latency_ns, rate_alone
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Ints
from nadi.trace.collectives import FROM_ROOT, TO_ROOT
from nadi.trace.rows import number_rows
from nadi.trace.schema import COMM_TYPES, NODE_KINDS


def set_tier_accesses(
    program: Program, system: System, nodes: Ints, stand_ins: Representatives, tier: Ints
) -> None:
    """Set what loads and stores of tiers do; the device's own memory is there at once.

    ``tier`` is that of each node, as ``tiers_of_nodes`` has it.

    - Raises UsageError if the system's rules know no tiers.
    """
    nodes[tier == OWN_MEMORY, NODE.kind] = NodeKind.INSTANT
    used = np.unique(tier[tier >= 0]).tolist()
    shares = rules_of(system).links_are_shared
    if used and (system.network.congestion or not shares):
        what = "network.congestion" if shares else "ASTRA-sim's rules"
        raise UsageError(
            "memory tiers", f"{what} cannot simulate them",
            "leave out compat and network.congestion, or describe memory.remote",
        )  # fmt: skip
    size = np.maximum(program.tensor_bytes, 0)
    for number in used:
        of_system = system.tiers[number]
        path = system.path_of(of_system)
        for store in (False, True):
            chosen = np.flatnonzero((tier == number) & ((program.kind == STORE) == store))
            rate = rate_alone(of_system, path, store=store)
            latency = round(loaded_latency_ns(of_system, rate, reads=0.0 if store else 1.0))
            nodes[chosen, NODE.time] = latency
            if not rate:
                continue
            nodes[chosen, NODE.kind] = NodeKind.TRANSFER
            nodes[chosen, NODE.time] += (size[chosen] / rate).astype(np.int64)
            nodes[chosen, NODE.left], nodes[chosen, NODE.size] = latency, size[chosen]
            rank = stand_ins.rank[program.rank[chosen]]
            nodes[chosen, NODE.key] = access_number(system, rank, number, store=store)


def accesses_share_links(program: Program, system: System, nodes: Ints) -> bool:
    """Return whether accesses of tiers may slow down others, or communication.

    What is in one lane waits for each other; so no link may be used from two.
    """
    chosen = np.flatnonzero(nodes[: program.num_nodes, NODE.kind] == NodeKind.TRANSFER)
    if not chosen.size:
        return False
    communicates = np.isin(nodes[:, NODE.kind], (NodeKind.SEND, NodeKind.COLLECTIVE)).any()
    if communicates and any(path.dimensions for path in system.memory_paths):
        return True
    lane = -1 - program.rank if program.lane is None else program.lane
    _, first = number_rows([lane[chosen], nodes[chosen, NODE.key]])
    use, link, _ = MemoryLinks(system).hops(nodes[chosen[first], NODE.key])
    of_lane = lane[chosen[first]][use]
    _, distinct = number_rows([link, of_lane])
    return bool(np.unique(link).size < distinct.size)


_KIND = {name: code for code, name in enumerate(NODE_KINDS)}
_COMM_TYPE = {name: code for code, name in enumerate(COMM_TYPES)}
_LONGEST = 2**62
# where a process group may be described
_GROUPS: list[str | Parameter] = [Parameter("comm_group"), " or groups in the system's file"]
_TOLD = 16  # members of a group


@dataclass(frozen=True, eq=False)
class Tables:
    """The input of a simulation: nodes, collectives, groups and keys, as the kernels need them.

    Arrays are as in :mod:`nadi.simulation.engine.machine_state`, with nothing begun yet. After
    the nodes of the program come those of collectives that are traces of their own.
    """

    program: Program
    system: System
    nodes: Ints
    children: Ints
    shapes: Ints
    recipes: tuple[Recipe, ...]
    group_members: list[Ints]
    group_counts: Ints  # how many collectives each group has, those of the busiest member
    group_regions: Ints  # places of mail that one collective of each group needs
    group_rows: Ints  # seats that it needs
    num_keys: int
    num_servers: int
    representatives: Representatives
    group_is_alike: list[bool]  # whether one rank stands for all members


def tables_of(
    program: Program,
    system: System,
    *,
    representatives: Representatives | None = None,
    custom: Mapping[str, Program] = MappingProxyType({}),
) -> Tables:
    """Compute what each node does on a system. O(nodes + members of groups).

    With ``representatives`` the program is that of some ranks, who stand for all others.
    ``custom`` holds the programs of collectives that are traces of their own, by
    ``system.collectives.custom_traces``.

    - Raises InputError, UsageError if the job does not fit the system, or a node cannot be
      simulated.
    """
    num_ranks = system.network.num_ranks
    stand_ins = representatives or everybody(program.num_ranks)
    if stand_ins.num_ranks != num_ranks:
        raise UsageError(
            "network", f"it has {num_ranks} ranks, but the job has {stand_ins.num_ranks}",
            "choose dimensions of this product, or load the system for so many ranks",
        )  # fmt: skip
    if system.slots == "device":
        program = in_lanes(program, system)
    nodes = np.zeros((program.num_nodes, len(NODE)), dtype=np.int64)
    nodes[:, NODE.rank] = program.rank
    nodes[:, NODE.first], nodes[:, NODE.last] = program.first_child[:-1], program.first_child[1:]
    nodes[:, NODE.waits] = np.bincount(program.children, minlength=program.num_nodes)
    nodes[:, NODE.start] = nodes[:, NODE.end] = nodes[:, NODE.cause] = -1
    nodes[:, NODE.number] = -1
    nodes[:, NODE.slot] = program.slot if program.lane is None else slots_beside_lanes(program)
    groups = _Groups(program, stand_ins)
    _set_delays(program, system, nodes)
    num_servers = _set_accesses(program, system, nodes, stand_ins)
    # replayed, they take their recorded time as everything does
    num_keys = 0 if system.compute.replay_only else _set_messages(program, nodes, stand_ins)
    nodes, children, num_keys = _set_custom(program, system, nodes, groups, custom, num_keys)
    shapes, recipes = _set_collectives(program, system, nodes, groups)
    counts, regions, rows = _mail(nodes, shapes, recipes, groups)
    return Tables(
        program, system, nodes, children, shapes, recipes, groups.members, counts, regions, rows,
        num_keys, num_servers, stand_ins, groups.are_alike(),
    )  # fmt: skip


def with_other_memory(tables: Tables, system: System) -> Tables:
    """Return the tables of the same job on a system with other figures of its memory tiers.

    - Raises UsageError as :func:`tables_of`.
    """
    if system.compute.replay_only:
        return replace(tables, system=system)
    program, nodes = tables.program, tables.nodes.copy()
    tier = tiers_of_nodes(program, system)
    nodes[np.flatnonzero(tier >= 0), NODE.kind] = NodeKind.DELAY
    # those of custom collectives come behind, and access none
    set_tier_accesses(program, system, nodes[: program.num_nodes], tables.representatives, tier)
    return replace(tables, system=system, nodes=nodes)


# what takes a time of its own


def _set_delays(program: Program, system: System, nodes: Ints) -> None:
    """Set the time of computation, or the recorded time of every node in a pure replay."""
    rules = rules_of(system)
    least = 1 if system.slots == "astra-sim" else 0
    nodes[:, NODE.time] = np.maximum(rules.recorded(program.duration), least)
    kind = program.kind
    nodes[:, NODE.kind] = NodeKind.DELAY
    nodes[kind == _KIND["INVALID"], NODE.kind] = NodeKind.INSTANT
    if system.compute.replay_only:
        return
    rules.check(program, system)
    nodes[kind == _KIND["METADATA"], NODE.kind] = NodeKind.INSTANT
    if system.compute.roofline:
        _set_roofline(program, system, nodes)


def _set_roofline(program: Program, system: System, nodes: Ints) -> None:
    compute = system.compute
    chosen = np.flatnonzero((program.kind == _KIND["COMP"]) & ~program.is_cpu)
    if not chosen.size:
        return
    if compute.peak <= 0 or compute.memory_bandwidth <= 0:
        raise UsageError("compute", "a roofline needs peak and memory bandwidth", "state both")
    flops, size = program.flops[chosen], program.tensor_bytes[chosen]
    if (flops < 0).any():
        refuse_node(
            program, chosen[int(np.argmax(flops < 0))],
            "it does not state its number of operations (num_ops)",
            "use recorded times instead of a roofline",
        )  # fmt: skip
    instant = size <= 0
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.minimum(compute.memory_bandwidth * (flops / size), compute.peak)
        seconds = np.where(flops > 0, flops / rate, size / compute.memory_bandwidth)
        time = np.where(instant, 0, seconds * 1e9)
    if not (time < _LONGEST).all():
        refuse_node(program, chosen[int(np.argmax(time >= _LONGEST))], "its time exceeds 146 years")
    nodes[chosen, NODE.time] = time.astype(np.int64)
    nodes[chosen[instant], NODE.kind] = NodeKind.INSTANT


def _set_accesses(program: Program, system: System, nodes: Ints, stand_ins: Representatives) -> int:
    """Set the time and server of loads and stores; return the number of servers."""
    memory = system.remote_memory
    is_access = (program.kind == _KIND["MEM_LOAD"]) | (program.kind == _KIND["MEM_STORE"])
    if not is_access.any() or system.compute.replay_only:
        return 1
    tier = tiers_of_nodes(program, system)
    set_tier_accesses(program, system, nodes, stand_ins, tier)
    chosen = np.flatnonzero(is_access & (tier == NO_TIER))
    if not chosen.size:
        return 1
    if memory is None:
        refuse_node(
            program, chosen[0], "it uses remote memory, but the system has none",
            "describe memory.tiers or memory.remote in the system's file, or remove such nodes",
        )  # fmt: skip
    size = np.maximum(program.tensor_bytes[chosen], 0)
    bandwidth = int(memory.read_bandwidth)
    transfer = size // bandwidth if bandwidth else 0
    nodes[chosen, NODE.time] = int(memory.latency) + transfer
    if memory.kind != "cxl-pool":
        return 1
    nodes[chosen, NODE.kind] = NodeKind.ACCESS
    if memory.shared_by:
        nodes[chosen, NODE.key] = program.rank[chosen] // memory.shared_by
    return program.num_ranks


# messages


def _set_messages(program: Program, nodes: Ints, stand_ins: Representatives) -> int:
    """Set the number by which sends and receives are matched; return how many there are."""
    replayed = nodes[:, NODE.kind] == NodeKind.DELAY
    is_send = (program.kind == _KIND["COMM_SEND"]) & replayed
    is_receive = (program.kind == _KIND["COMM_RECV"]) & replayed
    chosen = np.flatnonzero(is_send | is_receive)
    if not chosen.size:
        return 0
    own = stand_ins.rank[program.rank[chosen]]
    sends = is_send[chosen]
    peer = np.where(sends, program.dst[chosen], program.src[chosen])
    wrong = (peer < 0) | (peer >= stand_ins.num_ranks)
    if wrong.any():
        refuse_node(
            program, chosen[int(np.argmax(wrong))],
            f"its other rank is {int(peer[wrong][0])}, but the job has {stand_ins.num_ranks} "
            f"rank{'s' if stand_ins.num_ranks > 1 else ''}, from 0",
            "check that the traces of all ranks are given",
        )  # fmt: skip
    size = _sizes(program, chosen)
    tag = np.maximum(program.tag[chosen], 0)
    src, dst = np.where(sends, own, peer), np.where(sends, peer, own)
    key, _ = number_rows([tag, stand_ins.of[src], stand_ins.of[dst], size])
    nodes[chosen, NODE.kind] = np.where(sends, NodeKind.SEND, NodeKind.RECEIVE)
    nodes[chosen, NODE.peer], nodes[chosen, NODE.size] = peer, size
    nodes[chosen, NODE.key] = key
    return int(key.max()) + 1


# collectives


def _set_custom(
    program: Program,
    system: System,
    nodes: Ints,
    groups: _Groups,
    custom: Mapping[str, Program],
    num_keys: int,
) -> tuple[Ints, Ints, int]:
    """Add the nodes of custom collectives, which have their own traces.

    - Returns numpy.ndarray: All nodes.
    - and numpy.ndarray: Who waits for each.
    - and int: How many keys sends and receives have.
    """
    children = program.children
    for wholes, group, where, prefix in list(_custom_uses(program, system, nodes, groups)):
        own = custom[prefix]
        rows, keys = _custom_rows(own, groups.members[group], where)
        rows[:, NODE.key] += num_keys
        num_keys += keys
        rank = nodes[wholes, NODE.member]  # the place in the group, as their files are numbered
        count = np.diff(own.first)[rank]
        start = nodes.shape[0] + np.cumsum(count) - count
        nodes[wholes, NODE.kind], nodes[wholes, NODE.size] = NodeKind.CUSTOM, start
        nodes[wholes, NODE.left] = count
        row = np.arange(count.sum()) + np.repeat(own.first[rank] - start + nodes.shape[0], count)
        more = rows[row]
        more[:, NODE.parent] = np.repeat(wholes + 1, count)
        # the dependencies of each use are its own
        of_rank = own.first_child[own.first]
        edges = np.diff(of_rank)[rank]
        ends = np.cumsum(edges)
        entry = np.arange(ends[-1]) - np.repeat(ends - edges - of_rank[rank], edges)
        shift = np.repeat(start - own.first[rank], edges)
        moved = np.repeat(children.size + ends - edges - of_rank[rank], count)
        more[:, NODE.first] += moved
        more[:, NODE.last] += moved
        children = np.concatenate([children, own.children[entry] + shift])
        nodes = np.concatenate([nodes, more])
    return nodes, children, num_keys


def _custom_uses(
    program: Program, system: System, nodes: Ints, groups: _Groups
) -> Iterator[tuple[Ints, int, str, str]]:
    """Return the collectives of a group that are traces of their own: what it is, and which."""
    collectives, rules = system.collectives, rules_of(system)
    if not collectives.custom_traces or system.compute.replay_only:
        return
    chosen = nodes[: program.num_nodes, NODE.kind] == NodeKind.DELAY
    chosen &= program.kind == _KIND["COMM_COLL"]
    chosen &= np.isin(program.comm_type, [_COMM_TYPE[name] for name in rules.collectives])
    if not rules.groups_are_custom:
        chosen &= program.group < 0
    left = np.flatnonzero(chosen)
    ids = program.column("id")[left] if collectives.custom_by_node else left
    of_type = program.comm_type[left]
    uses = [(f"node {key}", name, ids == key) for key, name in collectives.custom_by_node.items()]
    uses += [
        (comm_type, name, of_type == _COMM_TYPE[comm_type])
        for comm_type, name in sorted(collectives.custom.items())
    ]
    taken = np.zeros(left.size, dtype=np.bool_)
    for where, prefix, wanted in uses:
        found = left[wanted & ~taken]
        taken |= wanted
        if found.size:
            _set_groups(program, system, nodes, groups, found)
        for group in np.unique(nodes[found, NODE.peer]).tolist():
            yield found[nodes[found, NODE.peer] == group], group, where, prefix


def _custom_rows(own: Program, members: Ints, where: str) -> tuple[Ints, int]:
    """Return the nodes of a collective's traces, done by members, and how many keys they have."""
    if own.num_ranks != members.size:
        raise UsageError(
            where, f"its traces have {own.num_ranks} ranks, but it has {members.size} members"
        )
    known = [_KIND[name] for name in ("COMP", "COMM_SEND", "COMM_RECV")]
    if not np.isin(own.kind, known).all():
        refuse_node(
            own, int(np.argmin(np.isin(own.kind, known))),
            f"in the traces of {where} only computations, sends and receives are supported",
        )  # fmt: skip
    rows = np.zeros((own.num_nodes, len(NODE)), dtype=np.int64)
    rows[:, NODE.rank], rows[:, NODE.kind] = members[own.rank], NodeKind.DELAY
    rows[:, NODE.slot] = Slot.NONE
    rows[:, NODE.time] = np.maximum(own.duration, 1)
    rows[:, NODE.first], rows[:, NODE.last] = own.first_child[:-1], own.first_child[1:]
    rows[:, NODE.waits] = np.bincount(own.children, minlength=own.num_nodes)
    rows[:, NODE.start] = rows[:, NODE.end] = rows[:, NODE.cause] = -1
    num_keys = _set_messages(own, rows, everybody(own.num_ranks))
    rows[:, NODE.peer] = members[rows[:, NODE.peer]]
    return rows, num_keys


def _few(members: Sequence[int]) -> str:
    more = f" and {len(members) - _TOLD} more" if len(members) > _TOLD else ""
    return f"{list(members[:_TOLD])}{more}"


class _Groups:
    """The process groups of a job; the first one is all ranks."""

    def __init__(self, program: Program, stand_ins: Representatives) -> None:
        self.members: list[Ints] = [np.arange(stand_ins.num_ranks)]
        self.program = program
        self.stand_ins = stand_ins
        self.num_ranks = stand_ins.num_ranks
        self._number: dict[str, int] = {}
        self._place: list[dict[int, int]] = [{}]

    def number(self, code: int, node: int, system: System) -> int:
        """Return the number of a group of the program; -1 is all ranks."""
        if code < 0:
            return 0
        name = self.program.group_names[code]
        if name not in self._number:
            self._number[name] = self._add(name, code, node, system)
        return self._number[name]

    def _add(self, name: str, code: int, node: int, system: System) -> int:
        members = system.groups.get(name) or self.program.group_ranks[code]
        where = f"group {name!r}"
        if not members:
            raise InputError(
                self.program.describe(node), f"the ranks of {where} are unknown",
                ["list its ranks in ", *_GROUPS],
            )  # fmt: skip
        num_ranks = self.num_ranks
        if len(set(members)) < len(members) or not all(0 <= r < num_ranks for r in members):
            raise InputError(
                where, f"its ranks {_few(members)} must be distinct and from 0 to "
                f"{num_ranks - 1}",
                ["correct ", *_GROUPS] if name in system.groups
                else ["the traces state them: give the traces of all ranks, or correct ", *_GROUPS],
            )  # fmt: skip
        if len(members) == num_ranks:
            return 0
        ranks = rules_of(system).in_ring_order(system.network, np.array(members, dtype=np.int64))
        self.members.append(ranks)
        self._place.append({rank: place for place, rank in enumerate(ranks.tolist())})
        return len(self.members) - 1

    def are_alike(self) -> list[bool]:
        """Return of each group whether one rank stands for all its members."""
        fewer, of = self.stand_ins.are_fewer, self.stand_ins.of
        return [fewer and bool((of[ranks] == of[ranks[0]]).all()) for ranks in self.members]

    def place(self, group: int, rank: int) -> int:
        """Return the position of a rank in a group, -1 if it is not a member."""
        return self._place[group].get(rank, -1) if group else rank


def _set_collectives(
    program: Program, system: System, nodes: Ints, groups: _Groups
) -> tuple[Ints, tuple[Recipe, ...]]:
    """Set how each collective runs; return the shapes and recipes."""
    chosen = _simulated(program, system, nodes, groups)
    if not chosen.size:
        return np.zeros((1, len(SHAPE)), dtype=np.int64), ()
    is_barrier = program.comm_type[chosen] == _COMM_TYPE["barrier"]
    columns = [
        program.comm_type[chosen],
        np.where(is_barrier, 1, _sizes(program, chosen)),
        program.involved[chosen],
        _alike(system, groups)[nodes[chosen, NODE.peer]],
        _roots(program, nodes, groups, chosen),
    ]
    shape, first = number_rows(columns)
    nodes[chosen, NODE.kind], nodes[chosen, NODE.key] = NodeKind.COLLECTIVE, shape
    # collectives of the host's slot may run beside others, and share queues with them
    may_meet = nothing_contends(system) and system.collectives.queues == 1
    if program.lane is None:
        may_meet = may_meet and not program.is_cpu[chosen].any()
    else:
        nodes[chosen, NODE.number] = numbers_in_groups(program, nodes[chosen, NODE.peer], chosen)
        # what starts on all members at once does not go on from each member's end
        may_meet = (
            may_meet and policy_of(system) == QueuePolicy.FIFO and is_one_at_a_time(program, chosen)
        )
        if policy_of(system) == QueuePolicy.EXPLICIT:
            nodes[chosen, NODE.size] = program.priority[chosen]
    kinds = zip(*(column[first].tolist() for column in columns), strict=True)
    return _shapes(system, groups, list(kinds), chosen[first], may_meet=may_meet)


def _sizes(program: Program, chosen: Ints) -> Ints:
    """Return the bytes of communications, 0 where they are not stated."""
    size = program.comm_bytes[chosen]
    unknown = chosen[size < 0]
    for rank in np.unique(program.rank[unknown]).tolist():
        trace = program.traces[rank]
        of_rank = unknown[program.rank[unknown] == rank]
        stated = np.isin(program.row[of_rank], trace.given_attributes.nodes_with("comm_size"))
        if stated.any():  # the column holds no negative number, nor one that is no integer
            refuse_node(
                program, of_rank[np.argmax(stated)], "its comm_size is negative, or no integer",
                "write its bytes, 0 or more",
            )  # fmt: skip
    return np.maximum(size, 0)


def _simulated(program: Program, system: System, nodes: Ints, groups: _Groups) -> Ints:
    """Select the collectives to simulate instead of replaying, and find their groups."""
    replayed = nodes[: program.num_nodes, NODE.kind] == NodeKind.DELAY
    chosen = np.flatnonzero((program.kind == _KIND["COMM_COLL"]) & replayed)
    if system.compute.replay_only:
        return chosen[:0]
    rules = rules_of(system)
    chosen = chosen[~_is_one_of(rules.replayed, program.comm_type[chosen])]
    if not chosen.size:
        return chosen
    _set_groups(program, system, nodes, groups, chosen)
    sizes = np.array([len(m) for m in groups.members], dtype=np.int64)
    num_members = sizes[nodes[chosen, NODE.peer]]
    return np.asarray(chosen[rules.are_simulated(num_members, program.duration[chosen])])


def _is_one_of(names: Iterable[str], comm_type: Ints) -> Bools:
    """Tell of each type whether it is among those named; a look-up, faster than a search."""
    listed = np.zeros(len(COMM_TYPES), dtype=np.bool_)
    listed[[_COMM_TYPE[name] for name in names]] = True
    found: Bools = listed[comm_type]
    return found


def _shapes(
    system: System, groups: _Groups, kinds: list[tuple[int, ...]], node: Ints, *, may_meet: bool
) -> tuple[Ints, tuple[Recipe, ...]]:
    """Return the shape and recipe of each kind: type, bytes, dimensions, group and root.

    ``node`` is one of each kind, which errors name.
    """
    shapes = np.zeros((len(kinds), len(SHAPE)), dtype=np.int64)
    rules = rules_of(system)
    recipes: dict[Recipe, int] = {}
    found: dict[tuple[int, ...], Recipe] = {}
    times = _known_times(system, groups, kinds)
    for k, (code, size, involved, group, root) in enumerate(kinds):
        comm_type = COMM_TYPES[code]
        if comm_type not in rules.collectives:
            what = f"a collective of type {comm_type} is not simulated"
            raise UsageError(groups.program.describe(int(node[k])), what, rules.remedy)
        key = code, involved, group, root
        if key not in found:  # whatever their sizes
            members = groups.members[group] if group else None
            found[key] = rules.recipe_of(system, comm_type, members, involved, root)
        recipe = found[key]
        where = partial(groups.program.describe, int(node[k]))
        count, chunk, rest = rules.chunks_of(system, comm_type, size, groups.num_ranks, where)
        time = 0
        if timed := times.get(k):
            recipe, time = timed
            count, chunk, rest = 1, size, 0
        if recipe.goes_both_ways:
            count, (chunk, rest) = 2 * count, divmod(count * chunk + rest, 2 * count)
        # with several in flight, chunks of different sizes may overtake each other
        trees = any(len(phase.steps) > 1 for phase in recipe.phases)
        in_order = (rest == 0 and not trees) or system.collectives.active_chunks == 1
        whole = may_meet and in_order and is_whole(recipe, groups.members[group].size)
        number = recipes.setdefault(recipe, len(recipes))
        shapes[k] = number, count, chunk, int(whole), rest, root, time
    return shapes, tuple(recipes)


def _known_times(
    system: System, groups: _Groups, kinds: list[tuple[int, ...]]
) -> dict[int, tuple[Recipe, int] | None]:
    """Return what is known of each kind without its messages; the sizes of a group at once."""
    rules = rules_of(system)
    alike: dict[tuple[str, int], list[int]] = {}
    for k, (code, _, involved, group, _) in enumerate(kinds):
        if involved < 0 and COMM_TYPES[code] in rules.collectives:
            alike.setdefault((COMM_TYPES[code], group), []).append(k)
    found: dict[int, tuple[Recipe, int] | None] = {}
    for (comm_type, group), chosen in alike.items():
        sizes = [kinds[k][1] for k in chosen]
        known = rules.timed(system, comm_type, sizes, groups.members[group])
        found.update(zip(chosen, known, strict=True))
    return found


def _alike(system: System, groups: _Groups) -> Ints:
    """Return for each group the first group whose collectives run the same way."""
    rules = rules_of(system)
    found: dict[Hashable, int] = {}
    of_group = [0]
    for number, members in enumerate(groups.members[1:], 1):
        (standing,) = rules.standing(system.network, members[None])
        of_group.append(found.setdefault(standing, number))
    return np.array(of_group, dtype=np.int64)


def _roots(program: Program, nodes: Ints, groups: _Groups, chosen: Ints) -> Ints:
    """Return the position of each root in its group; 0 if no root is stated."""
    comm_type = program.comm_type[chosen]
    outwards = _is_one_of(FROM_ROOT, comm_type)
    inwards = _is_one_of(TO_ROOT, comm_type)
    stated = np.where(outwards, program.src[chosen], np.where(inwards, program.dst[chosen], -1))
    places = np.zeros(chosen.size, dtype=np.int64)
    for k in np.flatnonzero(stated >= 0).tolist():
        root = int(stated[k])
        places[k] = groups.place(int(nodes[chosen[k], NODE.peer]), root)
        if places[k] < 0 or root >= groups.num_ranks:
            refuse_node(program, int(chosen[k]), f"its root, rank {root}, is not in its group")
    return places


def _set_groups(
    program: Program, system: System, nodes: Ints, groups: _Groups, chosen: Ints
) -> None:
    """Find the group of each collective, and the position of its rank in it."""
    keys = (program.group[chosen] + 1) * program.num_ranks + program.rank[chosen]
    pairs, first, of_node = np.unique(keys, return_index=True, return_inverse=True)
    numbers, places = [], []
    for key, at in zip(pairs.tolist(), first.tolist(), strict=True):
        code, rank = divmod(key, program.num_ranks)
        node = int(chosen[at])
        number = groups.number(code - 1, node, system)
        place = groups.place(number, int(groups.stand_ins.rank[rank]))
        if place < 0:
            refuse_node(
                program, node, f"its rank is not in its group {program.group_names[code - 1]!r}",
                "give each rank its own trace, and the groups of this job",
            )  # fmt: skip
        numbers.append(number)
        places.append(place)
    nodes[chosen, NODE.peer] = np.array(numbers, dtype=np.int64)[of_node]
    nodes[chosen, NODE.member] = np.array(places, dtype=np.int64)[of_node]


def _mail(
    nodes: Ints, shapes: Ints, recipes: tuple[Recipe, ...], groups: _Groups
) -> tuple[Ints, Ints, Ints]:
    """Return the collectives of each group, and the mail and seats that one of them needs."""
    chosen = nodes[:, NODE.kind] == NodeKind.COLLECTIVE
    group, shape = nodes[chosen, NODE.peer], nodes[chosen, NODE.key]
    sizes = np.array([len(m) for m in groups.members], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    of_member = np.bincount(first[group] + nodes[chosen, NODE.member], minlength=int(sizes.sum()))
    counts = np.maximum.reduceat(of_member, first)
    regions = np.zeros(sizes.size, dtype=np.int64)
    rows = np.zeros(sizes.size, dtype=np.int64)
    if not recipes:
        return counts, regions, rows
    phases = np.array([len(r.phases) for r in recipes], dtype=np.int64)[shapes[:, SHAPE.recipe]]
    slots = np.array([r.num_slots for r in recipes], dtype=np.int64)[shapes[:, SHAPE.recipe]]
    need = shapes[:, SHAPE.chunks] * phases
    np.maximum.at(regions, group, (need * slots)[shape] * sizes[group])
    np.maximum.at(rows, group, shapes[:, SHAPE.chunks][shape] * sizes[group])
    return counts, regions, rows
