"""From a program and a system to the arrays that the event engine works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from nadi.errors import InputError, UsageError
from nadi.kernels import machine as M
from nadi.kernels.agenda import (
    BLOCK,
    LIST_BITS,
    LIST_SPREAD,
    MOST_RANKS,
    NUM_COUNTERS,
    TIMES,
    Agenda,
)
from nadi.kernels.machine import Machine
from nadi.kernels.meetings import SCRATCH_ROWS
from nadi.schema import COMM_TYPES, NODE_KINDS
from nadi.simulator.config import ASTRA_SIM_COLLECTIVES, COLLECTIVES, System
from nadi.simulator.lanes import (
    in_lanes,
    is_one_at_a_time,
    numbers_in_groups,
    slots_beside_lanes,
)
from nadi.simulator.program import Program
from nadi.simulator.recipes import Phase, Recipe, chunks_of, recipe_of
from nadi.simulator.steps import ROOTED, Steps

__all__ = ["Tables", "agenda_of", "machine_of", "room_of", "tables_of"]

Ints = npt.NDArray[np.int64]
_KIND = {name: code for code, name in enumerate(NODE_KINDS)}
_COMM_TYPE = {name: code for code, name in enumerate(COMM_TYPES)}
_TOPOLOGY = {
    "fully-connected": M.FULLY_CONNECTED,
    "switch": M.SWITCH,
    "ring": M.RING_LINKS,
    "mesh": M.MESH,
}
_LONGEST = 2**62
_MIN_WINDOW = 4
_FEW_TIMES = 16


@dataclass(frozen=True, eq=False)
class Tables:
    """What a simulation is given: its nodes, collectives, groups and keys, as the kernels want it.

    Arrays are as in :mod:`nadi.kernels.machine`, with nothing begun yet. After the nodes of the
    program come those of collectives that are traces of their own.
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
    stands_for_all: bool = False


def tables_of(
    program: Program,
    system: System,
    *,
    stands_for_all: bool = False,
    custom: Mapping[str, Program] = MappingProxyType({}),
) -> Tables:
    """Say what each node does on a system. O(nodes + members of groups).

    With ``stands_for_all`` the program is that of one rank, and every other does the same.
    ``custom`` holds the programs of collectives that are traces of their own, by type.

    Raises
    ------
    InputError, UsageError
        If the job does not fit the system, or a node cannot be simulated.
    """
    num_ranks = system.network.num_ranks
    if program.num_ranks != num_ranks and not stands_for_all:
        raise UsageError(
            "network", f"it has {num_ranks} ranks, and the job {program.num_ranks}",
            "choose dimensions whose product is the number of traces",
        )  # fmt: skip
    if system.slots == "device":
        program = in_lanes(program)
    nodes = np.zeros((program.num_nodes, M.NODE_FIELDS), dtype=np.int64)
    nodes[:, M.N_RANK] = program.rank
    nodes[:, M.N_FIRST], nodes[:, M.N_LAST] = program.first_child[:-1], program.first_child[1:]
    nodes[:, M.N_WAITS] = np.bincount(program.children, minlength=program.num_nodes)
    nodes[:, M.N_START] = nodes[:, M.N_END] = nodes[:, M.N_CAUSE] = -1
    nodes[:, M.N_NUMBER] = -1
    nodes[:, M.N_SLOT] = _slots(program) if program.lane is None else slots_beside_lanes(program)
    groups = _Groups(program, num_ranks)
    _set_delays(program, system, nodes)
    num_servers = _set_accesses(program, system, nodes)
    # replayed, they take their recorded time as everything does
    num_keys = 0 if system.compute.replay_only else _set_messages(program, nodes)
    nodes, children, num_keys = _set_custom(program, system, nodes, custom, num_keys)
    shapes, recipes = _set_collectives(program, system, nodes, groups)
    counts, regions, rows = _mail(nodes, shapes, recipes, groups)
    return Tables(
        program, system, nodes, children, shapes, recipes, groups.members, counts, regions, rows,
        num_keys, num_servers, stands_for_all,
    )  # fmt: skip


def _slots(program: Program) -> Ints:
    slot = np.full(program.num_nodes, M.COMM, dtype=np.int64)
    slot[program.kind == _KIND["COMP"]] = M.COMP
    slot[program.kind == _KIND["COMM_RECV"]] = M.NO_SLOT
    slot[program.is_cpu] = M.CPU
    return slot


# what takes a time of its own


def _set_delays(program: Program, system: System, nodes: Ints) -> None:
    """Give computation its time, and everything its recorded one if it is only replayed."""
    duration = program.duration
    if system.compat:  # which reads microseconds
        duration = (duration + 500) // 1000 * 1000
    nodes[:, M.N_TIME] = np.maximum(duration, 1 if system.slots == "astra-sim" else 0)
    kind = program.kind
    nodes[:, M.N_KIND] = M.DELAY
    nodes[kind == _KIND["INVALID"], M.N_KIND] = M.INSTANT
    if system.compute.replay_only:
        return
    metadata = np.flatnonzero(kind == _KIND["METADATA"])
    if metadata.size:
        nodes[metadata, M.N_KIND] = M.INSTANT
        if system.compat:
            _refuse(program, metadata[0], "a METADATA node stops ASTRA-sim")
    if system.compute.roofline:
        _set_roofline(program, system, nodes)


def _refuse(program: Program, node: int, what: str, remedy: str = "") -> None:
    raise InputError(program.describe(int(node)), what, remedy)


def _set_roofline(program: Program, system: System, nodes: Ints) -> None:
    compute = system.compute
    chosen = np.flatnonzero((program.kind == _KIND["COMP"]) & ~program.is_cpu)
    if not chosen.size:
        return
    if compute.peak <= 0 or compute.memory_bandwidth <= 0:
        raise UsageError(
            "compute", "a roofline needs a peak and the bandwidth of the memory", "state both"
        )
    flops, size = program.flops[chosen], program.tensor_bytes[chosen]
    if (flops < 0).any():
        _refuse(
            program, chosen[int(np.argmax(flops < 0))],
            "it does not say how many operations it does (num_ops)",
            "take recorded times instead: no roofline",
        )  # fmt: skip
    instant = size <= 0
    if system.compat and ((flops == 0) & ~instant).any():
        _refuse(
            program, chosen[int(np.argmax((flops == 0) & ~instant))],
            "num_ops of 0 takes 292 years in ASTRA-sim", "use the right rules: compat = ''",
        )  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.minimum(compute.memory_bandwidth * (flops / size), compute.peak)
        seconds = np.where(flops > 0, flops / rate, size / compute.memory_bandwidth)
        time = np.where(instant, 0, seconds * 1e9)
    if not (time < _LONGEST).all():
        _refuse(program, chosen[int(np.argmax(time >= _LONGEST))], "it takes more than 146 years")
    nodes[chosen, M.N_TIME] = time.astype(np.int64)
    nodes[chosen[instant], M.N_KIND] = M.INSTANT


def _set_accesses(program: Program, system: System, nodes: Ints) -> int:
    """Give loads and stores their time and server; gives the number of servers."""
    memory = system.remote_memory
    is_access = (program.kind == _KIND["MEM_LOAD"]) | (program.kind == _KIND["MEM_STORE"])
    chosen = np.flatnonzero(is_access)
    if not chosen.size or system.compute.replay_only:
        return 1
    if memory.kind == "none":
        _refuse(
            program, chosen[0], "it uses remote memory, and the system has none",
            "describe one, or leave such nodes out",
        )  # fmt: skip
    size = np.maximum(program.tensor_bytes[chosen], 0)
    transfer = size // memory.bandwidth if memory.bandwidth else 0
    nodes[chosen, M.N_TIME] = memory.latency + transfer
    if memory.kind == "per-rank":
        return 1
    nodes[chosen, M.N_KIND] = M.ACCESS
    if memory.kind == "per-node":
        nodes[chosen, M.N_KEY] = program.rank[chosen] // memory.ranks_per_node
    return program.num_ranks


# messages


def _set_messages(program: Program, nodes: Ints) -> int:
    """Give sends and receives the number that they are matched by; gives how many there are."""
    replayed = nodes[:, M.N_KIND] == M.DELAY
    is_send = (program.kind == _KIND["COMM_SEND"]) & replayed
    is_receive = (program.kind == _KIND["COMM_RECV"]) & replayed
    chosen = np.flatnonzero(is_send | is_receive)
    if not chosen.size:
        return 0
    own = program.rank[chosen]
    sends = is_send[chosen]
    peer = np.where(sends, program.dst[chosen], program.src[chosen])
    wrong = (peer < 0) | (peer >= program.num_ranks)
    if wrong.any():
        _refuse(
            program, chosen[int(np.argmax(wrong))],
            f"its other rank is {int(peer[wrong][0])}, and the job has {program.num_ranks} ranks, "
            "from 0; see that the traces of all are there",
        )  # fmt: skip
    size = np.maximum(program.comm_bytes[chosen], 0)
    tag = np.maximum(program.tag[chosen], 0)
    src, dst = np.where(sends, own, peer), np.where(sends, peer, own)
    _, key = np.unique(np.stack([tag, src, dst, size]), axis=1, return_inverse=True)
    nodes[chosen, M.N_KIND] = np.where(sends, M.SEND, M.RECEIVE)
    nodes[chosen, M.N_PEER], nodes[chosen, M.N_SIZE] = peer, size
    nodes[chosen, M.N_KEY] = key.reshape(-1)
    return int(key.max()) + 1


# collectives


def _set_custom(
    program: Program,
    system: System,
    nodes: Ints,
    custom: Mapping[str, Program],
    num_keys: int,
) -> tuple[Ints, Ints, int]:
    """Add the nodes of collectives that are traces of their own.

    Returns
    -------
    numpy.ndarray
        All nodes.
    numpy.ndarray
        Who waits for each.
    int
        How many keys sends and receives have.
    """
    children = program.children
    for comm_type, own in sorted(custom.items()):
        chosen = (program.comm_type == COMM_TYPES.index(comm_type)) & (program.group < 0)
        chosen &= nodes[: program.num_nodes, M.N_KIND] == M.DELAY
        wholes = np.flatnonzero(chosen)
        if not wholes.size or system.compute.replay_only:
            continue
        rows, keys = _custom_rows(own, program.num_ranks, comm_type)
        rows[:, M.N_KEY] += num_keys
        num_keys += keys
        rank = program.rank[wholes]
        count = np.diff(own.first)[rank]
        start = nodes.shape[0] + np.cumsum(count) - count
        nodes[wholes, M.N_KIND], nodes[wholes, M.N_SIZE] = M.CUSTOM, start
        nodes[wholes, M.N_LEFT] = count
        row = np.arange(count.sum()) + np.repeat(own.first[rank] - start + nodes.shape[0], count)
        more = rows[row]
        more[:, M.N_PARENT] = np.repeat(wholes + 1, count)
        # the dependencies of each use are its own
        of_rank = own.first_child[own.first]
        edges = np.diff(of_rank)[rank]
        ends = np.cumsum(edges)
        entry = np.arange(ends[-1]) - np.repeat(ends - edges - of_rank[rank], edges)
        shift = np.repeat(start - own.first[rank], edges)
        moved = np.repeat(children.size + ends - edges - of_rank[rank], count)
        more[:, M.N_FIRST] += moved
        more[:, M.N_LAST] += moved
        children = np.concatenate([children, own.children[entry] + shift])
        nodes = np.concatenate([nodes, more])
    return nodes, children, num_keys


def _custom_rows(own: Program, num_ranks: int, comm_type: str) -> tuple[Ints, int]:
    """Give the nodes of a collective's traces, and how many keys they have."""
    if own.num_ranks != num_ranks:
        raise UsageError(
            comm_type, f"its own traces are of {own.num_ranks} ranks, and the job has {num_ranks}"
        )
    known = [_KIND[name] for name in ("COMP", "COMM_SEND", "COMM_RECV")]
    if not np.isin(own.kind, known).all():
        _refuse(
            own, int(np.argmin(np.isin(own.kind, known))),
            f"in the traces of {comm_type} there are computations, sends and receives only",
        )  # fmt: skip
    rows = np.zeros((own.num_nodes, M.NODE_FIELDS), dtype=np.int64)
    rows[:, M.N_RANK], rows[:, M.N_KIND], rows[:, M.N_SLOT] = own.rank, M.DELAY, M.NO_SLOT
    rows[:, M.N_TIME] = np.maximum(own.duration, 1)
    rows[:, M.N_FIRST], rows[:, M.N_LAST] = own.first_child[:-1], own.first_child[1:]
    rows[:, M.N_WAITS] = np.bincount(own.children, minlength=own.num_nodes)
    rows[:, M.N_START] = rows[:, M.N_END] = rows[:, M.N_CAUSE] = -1
    return rows, _set_messages(own, rows)


class _Groups:
    """The groups of a job; the first is all ranks."""

    def __init__(self, program: Program, num_ranks: int) -> None:
        self.members: list[Ints] = [np.arange(num_ranks)]
        self.program = program
        self.num_ranks = num_ranks
        self._number: dict[str, int] = {}
        self._place: list[dict[int, int]] = [{}]

    def number(self, code: int, node: int, system: System) -> int:
        """Give the number of a group of the program; -1 is all ranks."""
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
                self.program.describe(node), f"nobody says who is in {where}",
                "give a file that lists its members: --comm-group, or groups in the system's file",
            )  # fmt: skip
        num_ranks = self.num_ranks
        if len(set(members)) < len(members) or not all(0 <= r < num_ranks for r in members):
            raise InputError(
                where, f"its members {list(members)} are not ranks of this job of {num_ranks}, "
                "from 0, each once", "give the groups of this job, and the traces of all ranks",
            )  # fmt: skip
        if len(members) == num_ranks:
            return 0
        self.members.append(np.array(members, dtype=np.int64))
        self._place.append({rank: place for place, rank in enumerate(members)})
        return len(self.members) - 1

    def place(self, group: int, rank: int) -> int:
        """Give the place of a rank in a group, -1 if it is none of its members."""
        return self._place[group].get(rank, -1) if group else rank


def _set_collectives(
    program: Program, system: System, nodes: Ints, groups: _Groups
) -> tuple[Ints, tuple[Recipe, ...]]:
    """Say how each collective is done; gives their shapes and recipes."""
    replayed = nodes[: program.num_nodes, M.N_KIND] == M.DELAY
    chosen = np.flatnonzero((program.kind == _KIND["COMM_COLL"]) & replayed)
    if system.compute.replay_only or not chosen.size:
        return np.zeros((1, M.SHAPE_FIELDS), dtype=np.int64), ()
    if system.compat:  # which replays a broadcast
        broadcast = _COMM_TYPE["broadcast"]
        chosen = chosen[program.comm_type[chosen] != broadcast]
        if not chosen.size:
            return np.zeros((1, M.SHAPE_FIELDS), dtype=np.int64), ()
    _set_groups(program, system, nodes, groups, chosen)
    sizes = np.array([len(m) for m in groups.members], dtype=np.int64)
    if not system.compat:
        # what nobody else takes part in, or nobody whose trace is here, as long as recorded
        chosen = chosen[(sizes[nodes[chosen, M.N_PEER]] > 1) | (program.duration[chosen] <= 0)]
        if not chosen.size:
            return np.zeros((1, M.SHAPE_FIELDS), dtype=np.int64), ()
    group = nodes[chosen, M.N_PEER]
    is_barrier = program.comm_type[chosen] == _COMM_TYPE["barrier"]
    alike = np.stack([
        program.comm_type[chosen],
        np.where(is_barrier, 1, np.maximum(program.comm_bytes[chosen], 0)),
        program.involved[chosen],
        np.where(group == 0, 0, sizes[group]),
        _roots(program, nodes, groups, chosen),
    ])  # fmt: skip
    kinds, first, shape = np.unique(alike, axis=1, return_index=True, return_inverse=True)
    nodes[chosen, M.N_KIND], nodes[chosen, M.N_KEY] = M.COLLECTIVE, shape.reshape(-1)
    recipes: dict[Recipe, int] = {}
    # collectives of the host's slot may run beside others, and share queues with them
    may_meet = _nothing_contends(system) and system.collectives.queues == 1
    if program.lane is None:
        may_meet = may_meet and not program.is_cpu[chosen].any()
    else:
        nodes[chosen, M.N_NUMBER] = numbers_in_groups(program, nodes[chosen, M.N_PEER], chosen)
        may_meet = may_meet and is_one_at_a_time(program, chosen)
    shapes = np.zeros((kinds.shape[1], M.SHAPE_FIELDS), dtype=np.int64)
    for k, (code, size, involved, group_size, root) in enumerate(kinds.T.tolist()):
        comm_type = COMM_TYPES[code]
        where = program.describe(int(chosen[first[k]]))
        if comm_type not in (ASTRA_SIM_COLLECTIVES if system.compat else COLLECTIVES):
            raise UsageError(
                where, f"a collective of type {comm_type} is not simulated",
                "ASTRA-sim stops there" if system.compat else "",
            )  # fmt: skip
        recipe = recipe_of(system, comm_type, group_size, involved)
        count, chunk, rest = chunks_of(system, comm_type, size, groups.num_ranks, where)
        if recipe.goes_both_ways:
            count, (chunk, rest) = 2 * count, divmod(count * chunk + rest, 2 * count)
        number = recipes.setdefault(recipe, len(recipes))
        # with several under way at once, chunks of different sizes may pass each other
        trees = any(len(phase.steps) > 1 for phase in recipe.phases)
        in_order = (rest == 0 and not trees) or system.collectives.active_chunks == 1
        whole = may_meet and in_order and _is_whole(recipe)
        shapes[k] = number, count, chunk, int(whole), rest, root
    return shapes, tuple(recipes)


def _roots(program: Program, nodes: Ints, groups: _Groups, chosen: Ints) -> Ints:
    """Give the place of each collective's root in its group: the first, if none is stated."""
    comm_type = program.comm_type[chosen]
    outwards = np.isin(comm_type, [_COMM_TYPE["broadcast"], _COMM_TYPE["scatter"]])
    inwards = np.isin(comm_type, [_COMM_TYPE["reduce"], _COMM_TYPE["gather"]])
    stated = np.where(outwards, program.src[chosen], np.where(inwards, program.dst[chosen], -1))
    places = np.zeros(chosen.size, dtype=np.int64)
    for k in np.flatnonzero(stated >= 0).tolist():
        root = int(stated[k])
        places[k] = groups.place(int(nodes[chosen[k], M.N_PEER]), root)
        if places[k] < 0 or root >= program.num_ranks:
            _refuse(program, int(chosen[k]), f"its root, rank {root}, is not in its group")
    return places


def _nothing_contends(system: System) -> bool:
    return not (system.network.congestion or system.network.rendezvous or system.bus)


def _may_meet(tables: Tables, meet: bool) -> bool:
    return meet and _nothing_contends(tables.system) and not tables.stands_for_all


def _gathers(tables: Tables) -> bool:
    """Tell whether a phase has to wait for all its members before it stands in any queue.

    Ranks with lanes may begin collectives in orders of their own; and two halves that go both ways
    round may come to a queue at one time, at each rank in another order.
    """
    both = any(phase.both for recipe in tables.recipes for phase in recipe.phases)
    return both or tables.program.lane is not None


def _is_whole(recipe: Recipe) -> bool:
    """Tell whether a collective can be worked out as a whole, when its last member begins."""
    if len(recipe.phases) != 1 or recipe.phases[0].both:
        return False
    return _meets(recipe.phases[0])


def _meets(phase: Phase) -> bool:
    """Tell whether a phase can be worked out when its last member begins."""
    if phase.algorithm == M.DIRECT:
        all_at_once = phase.window < 0 or phase.window >= phase.size - 1
        return phase.comm != M.ALL_REDUCE and all_at_once
    if phase.algorithm == M.STEPS:
        return phase.comm not in ROOTED
    return phase.algorithm in (M.RING, M.HALVING_DOUBLING)


def _set_groups(
    program: Program, system: System, nodes: Ints, groups: _Groups, chosen: Ints
) -> None:
    """Find the group of each collective, and the place of its rank there."""
    keys = (program.group[chosen] + 1) * program.num_ranks + program.rank[chosen]
    pairs, first, of_node = np.unique(keys, return_index=True, return_inverse=True)
    numbers, places = [], []
    for key, at in zip(pairs.tolist(), first.tolist(), strict=True):
        code, rank = divmod(key, program.num_ranks)
        node = int(chosen[at])
        number = groups.number(code - 1, node, system)
        place = groups.place(number, rank)
        if place < 0:
            _refuse(
                program, node, f"its rank is not in its group {program.group_names[code - 1]!r}"
            )
        numbers.append(number)
        places.append(place)
    nodes[chosen, M.N_PEER] = np.array(numbers, dtype=np.int64)[of_node]
    nodes[chosen, M.N_MEMBER] = np.array(places, dtype=np.int64)[of_node]


def _mail(
    nodes: Ints, shapes: Ints, recipes: tuple[Recipe, ...], groups: _Groups
) -> tuple[Ints, Ints, Ints]:
    """Give how many collectives each group has, and how much mail and seats one of them needs."""
    chosen = nodes[:, M.N_KIND] == M.COLLECTIVE
    group, shape = nodes[chosen, M.N_PEER], nodes[chosen, M.N_KEY]
    sizes = np.array([len(m) for m in groups.members], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    of_member = np.bincount(first[group] + nodes[chosen, M.N_MEMBER], minlength=int(sizes.sum()))
    counts = np.maximum.reduceat(of_member, first)
    regions = np.zeros(sizes.size, dtype=np.int64)
    rows = np.zeros(sizes.size, dtype=np.int64)
    if not recipes:
        return counts, regions, rows
    phases = np.array([len(r.phases) for r in recipes], dtype=np.int64)[shapes[:, M.H_RECIPE]]
    slots = np.array([r.num_slots for r in recipes], dtype=np.int64)[shapes[:, M.H_RECIPE]]
    need = shapes[:, M.H_CHUNKS] * phases
    np.maximum.at(regions, group, (need * slots)[shape] * sizes[group])
    np.maximum.at(rows, group, shapes[:, M.H_CHUNKS][shape] * sizes[group])
    return counts, regions, rows


# arrays


def room_of(tables: Tables, *, meet: bool = True) -> int:
    """Estimate how many events may be under way at once.

    A rank works on so many chunks at once in each dimension, and sends as many packets of one as
    its algorithm lets it; it may also compute meanwhile.
    """
    system = tables.system
    meet = _may_meet(tables, meet)
    chunks = int(tables.shapes[:, M.H_CHUNKS].max(initial=0))
    active = min(chunks, system.collectives.active_chunks * len(system.network.dimensions))
    packets = 1
    for phase in (phase for recipe in tables.recipes for phase in recipe.phases):
        if phase.algorithm == M.DIRECT and not (meet and _meets(phase)):
            most = phase.size - 1
            packets = max(packets, most if phase.window < 0 else min(phase.window, most))
    return tables.program.num_ranks * max(active * packets, 1) + 64


def machine_of(
    tables: Tables,
    room: int,
    window: int = _MIN_WINDOW,
    *,
    meet: bool = True,
    nodes: Ints | None = None,
) -> Machine:
    """Make the arrays of a simulation.

    Parameters
    ----------
    tables
        What is to be simulated.
    room
        How many events, streams and messages may be under way at once.
    window
        How many collectives of a group may be.
    meet
        Work out collectives at once where nothing contends; else every message is an event,
        which gives the same times.
    nodes
        Nodes to work on; a copy of those of the tables if not given.
    """
    system = tables.system
    if nodes is None:
        nodes = tables.nodes.copy()
    num_ranks = tables.program.num_ranks
    if num_ranks > MOST_RANKS:
        raise UsageError("network", f"it has {num_ranks} ranks, and {MOST_RANKS} are the most")
    meet = _may_meet(tables, meet)
    shapes = tables.shapes.copy()
    if not meet:
        shapes[:, M.H_WHOLE] = 0
    dims, rates, num_links = _dimensions(system)
    num_queues = system.collectives.queues
    phases_of_all = [phase for recipe in tables.recipes for phase in recipe.phases]
    gather = _gathers(tables)  # by mail, as messages are
    by_message = gather or not meet or not all(_meets(phase) for phase in phases_of_all)
    groups, members, meetings, mail = _group_tables(tables, window, by_message=by_message)
    num_seats = int((groups[:, M.U_WINDOW] * groups[:, M.U_ROWS]).sum()) if meet else 1
    stream_fields = M.STREAM_FIELDS if by_message else M.MEETING_STREAM_FIELDS
    recipes, phases, num_phases = _recipe_tables(tables.recipes, num_queues)
    programs, starts, steps = _step_tables(tables.recipes, phases)
    world = np.zeros(M.WORLD_FIELDS, dtype=np.int64)
    world[M.W_RANKS], world[M.W_QUEUES] = system.network.num_ranks, num_queues
    world[M.W_ALIKE], world[M.W_MEET] = int(tables.stands_for_all), int(meet)
    world[M.W_LIMIT] = -(-system.collectives.active_chunks // num_queues)
    world[M.W_AWARE] = int(system.network.congestion)
    world[M.W_RENDEZVOUS] = int(system.network.rendezvous)
    world[M.W_COMPAT] = int(system.compat == "astra-sim")
    world[M.W_WAYS] = 2 if phases[:, :, M.P_BOTH].any() else 1
    world[M.W_GATHER] = int(gather)
    world[M.W_START] = 0 if system.compat else system.collectives.start_time
    world[M.W_ORDERED] = int(not system.compat and not gather)
    of_slots = nodes[nodes[:, M.N_KIND] == M.COLLECTIVE, M.N_SLOT]
    several = not system.compat and of_slots.size and (of_slots != of_slots[0]).any()
    several = several and not gather
    world[M.W_SETS] = M.NUM_SLOTS if several else 1
    ranks = np.zeros((num_ranks, M.RANK_FIELDS), dtype=np.int64)
    ranks[:, M.R_LEFT] = np.diff(tables.program.first)
    ranks[:, M.R_FINISH] = ranks[:, M.R_DEFERRED] = -1
    by_slot = nodes[:, M.N_RANK] * M.NUM_SLOTS + nodes[:, M.N_SLOT]
    of_slot = np.bincount(by_slot, minlength=num_ranks * M.NUM_SLOTS)
    base = np.cumsum(of_slot) - of_slot
    ranks[:, M.R_BASE : M.R_BASE + M.NUM_SLOTS] = base.reshape(num_ranks, M.NUM_SLOTS)
    if bus := system.bus:
        world[M.W_BUS], world[M.W_LATENCY], world[M.W_OVERHEAD] = 1, bus.latency, bus.overhead
        world[M.W_PAUSE], world[M.W_REDUCTION] = bus.pause, bus.reduction
        rates[-1, 1] = bus.gap
    sides = _empty(4 * num_ranks if bus else 1, M.SIDE_FIELDS, M.B_SENDS, M.B_RECEIVES)
    sides[:, M.B_REDUCTIONS] = -1
    messages = 1 if _nothing_contends(system) else room
    # a rank's next collective begins while the last stream of one is leaving; one at a time
    some = bool(shapes.size and (shapes[:, M.H_WHOLE] == 0).any() and tables.recipes)
    num_streams = num_ranks * int(shapes[:, M.H_CHUNKS].max()) + room // 16 if some else 1
    return Machine(
        agenda=agenda_of(room, num_ranks),
        world=world,
        rates=rates,
        dims=dims,
        ranks=ranks,
        nodes=nodes,
        children=np.append(tables.children, 0),
        ready=np.zeros(nodes.shape[0] + 1, dtype=np.int64),
        keys=_empty(max(tables.num_keys, 1), M.KEY_FIELDS, M.K_HEAD, M.K_TAIL, M.K_SENDS),
        shapes=shapes,
        groups=groups,
        members=members,
        meetings=meetings,
        recipes=recipes,
        phases=phases,
        streams=np.zeros((num_streams, stream_fields), dtype=np.int64),
        plans=np.zeros((num_streams, num_phases, 2), dtype=np.int32),
        queues=_empty(
            num_ranks * int(world[M.W_SETS] * world[M.W_WAYS]) * len(dims) * num_queues,
            M.QUEUE_FIELDS, M.Q_HEAD, M.Q_TAIL,
        ),
        turns=np.zeros((num_ranks, len(dims), 3), dtype=np.int64),
        trees=np.zeros((num_ranks, len(COLLECTIVES) * len(dims)), dtype=np.int64),
        mail=mail,
        seats=np.zeros((num_seats, M.SEAT_FIELDS), dtype=np.int64),
        here=np.zeros(num_seats * num_phases, dtype=np.int32),
        messages=np.zeros((messages, M.MESSAGE_FIELDS), dtype=np.int64),
        links=_empty(num_links, M.LINK_FIELDS, M.L_HEAD, M.L_TAIL),
        servers=_empty(tables.num_servers, 3, M.V_HEAD, M.V_TAIL),
        sides=sides,
        todo=np.zeros((M.DEEPEST, 3), dtype=np.int64),
        scratch=np.zeros((SCRATCH_ROWS, num_ranks), dtype=np.int64),
        programs=programs,
        starts=starts,
        steps=steps,
    )  # fmt: skip


def _empty(rows: int, columns: int, *heads: int) -> Ints:
    table = np.zeros((rows, columns), dtype=np.int64)
    table[:, list(heads)] = -1
    return table


def agenda_of(room: int, num_ranks: int) -> Agenda:
    """Make an agenda without events, for so many at once; what is not used takes no memory."""
    size = 1 << (2 * room - 1).bit_length()
    bits = (num_ranks - 1).bit_length()
    spread = max(size.bit_length() - 1 - bits, 2)
    counters = np.zeros(NUM_COUNTERS, dtype=np.int64)
    counters[[M.FREE_STREAM, M.FREE_MESSAGE]] = -1
    counters[LIST_BITS], counters[LIST_SPREAD] = bits, spread
    counters[TIMES] = min(size, _FEW_TIMES)
    return Agenda(
        entries=np.zeros((2 * room * BLOCK, 2), dtype=np.int64),
        times=np.zeros((2 * size, 3), dtype=np.int64),
        heap=np.zeros(size, dtype=np.int64),
        lists=np.zeros((1 << (bits + spread), 2), dtype=np.int64),
        more=np.zeros((2 * room, 4), dtype=np.int64),
        counters=counters,
    )


def _dimensions(system: System) -> tuple[Ints, npt.NDArray[np.float64], int]:
    dimensions = system.network.dimensions
    num_ranks = system.network.num_ranks
    dims = np.zeros((len(dimensions), M.DIM_FIELDS), dtype=np.int64)
    rates = np.zeros((len(dimensions) + 1, 2), dtype=np.float64)
    stride, links = 1, 0
    for d, dimension in enumerate(dimensions):
        dims[d] = _TOPOLOGY[dimension.topology], dimension.size, stride, links
        rates[d] = dimension.bandwidth, dimension.latency
        per_rank = dimension.size if dimension.topology == "fully-connected" else 2
        links += num_ranks * per_rank
        stride *= dimension.size
    rates[-1, 0] = system.compute.memory_bandwidth / 1e9
    return dims, rates, links if system.network.congestion else 1


def _group_tables(
    tables: Tables, window: int, *, by_message: bool
) -> tuple[Ints, Ints, Ints, Ints]:
    sizes = np.array([len(m) for m in tables.group_members], dtype=np.int64)
    windows = np.maximum(np.minimum(tables.group_counts, window), 1)
    regions = tables.group_regions
    if tables.stands_for_all:
        regions = regions // sizes
    need = windows * regions * int(by_message)
    groups = np.zeros((sizes.size, M.GROUP_FIELDS), dtype=np.int64)
    groups[:, M.U_MEMBERS] = np.cumsum(sizes) - sizes
    groups[:, M.U_SIZE], groups[:, M.U_REGION] = sizes, regions
    groups[:, M.U_WINDOW], groups[:, M.U_MAIL] = windows, np.cumsum(need) - need
    groups[:, M.U_MEETINGS] = np.cumsum(windows) - windows
    groups[:, M.U_ROWS] = tables.group_rows
    groups[:, M.U_SEATS] = np.cumsum(windows * tables.group_rows) - windows * tables.group_rows
    # of one rank that stands for all, only its own row is looked at
    members = np.zeros((1 if tables.stands_for_all else int(sizes.sum()), 4), dtype=np.int64)
    if not tables.stands_for_all:
        members[:, 0] = np.concatenate(tables.group_members)
    meetings = np.zeros((int(windows.sum()), M.MEETING_FIELDS), dtype=np.int64)
    meetings[:, M.T_NUMBER] = -1
    mail = _empty(int(need.sum()) + 1, M.MAIL_FIELDS, M.M_STREAM, M.M_SENDS)
    return groups, members, meetings, mail


def _recipe_tables(recipes: tuple[Recipe, ...], num_queues: int) -> tuple[Ints, Ints, int]:
    num_phases = max([1, *(len(recipe.phases) for recipe in recipes)])
    table = np.zeros((max(len(recipes), 1), M.RECIPE_FIELDS), dtype=np.int64)
    phases = np.zeros((max(len(recipes), 1), num_phases, M.PHASE_FIELDS), dtype=np.int64)
    for k, recipe in enumerate(recipes):
        table[k] = len(recipe.phases), recipe.num_slots, recipe.delay, int(recipe.is_group)
        for p, phase in enumerate(recipe.phases):
            # with several queues, the second half of an all-reduce has queues of its own
            before = [
                other for other in recipe.phases[:p] if max(other.dim, 0) == max(phase.dim, 0)
            ]
            phases[k, p, : M.P_STEPS] = (
                phase.dim, phase.comm, phase.half, phase.algorithm, phase.window, phase.tree,
                int(phase.share * M.WHOLE_LINK), int(phase.spread), int(phase.both),
            )  # fmt: skip
            phases[k, p, M.P_BEFORE] = len(before) if num_queues == 1 else 0
    return table, phases, num_phases


def _step_tables(recipes: tuple[Recipe, ...], phases: Ints) -> tuple[Ints, Ints, Ints]:
    """List the steps of all phases that have some, and say in the phases which are theirs."""
    places: dict[int, int] = {}
    found: list[Steps] = []
    for k, recipe in enumerate(recipes):
        for p, phase in enumerate(recipe.phases):
            steps = phase.steps
            if steps and id(steps[0]) not in places:
                places[id(steps[0])] = len(found)
                found += steps
            if steps:
                phases[k, p, M.P_STEPS] = places[id(steps[0])]
                phases[k, p, M.P_TREES] = len(steps)
    programs = np.zeros((max(len(found), 1), M.PROGRAM_FIELDS), dtype=np.int64)
    num_starts = num_rows = 0
    starts = [np.zeros((1, 2), dtype=np.int64)] if not found else []
    rows = [np.zeros((1, M.STEP_FIELDS), dtype=np.int64)] if not found else []
    for k, steps_of_one in enumerate(found):
        table, of_member = steps_of_one.rows.copy(), steps_of_one.starts.copy()
        for column in (table[:, M.E_FROM], table[:, M.E_NEXT], of_member[:, 0]):
            column[column >= 0] += num_rows
        programs[k] = num_starts, num_rows, num_rows + len(table), int(steps_of_one.is_piped)
        num_starts, num_rows = num_starts + len(of_member), num_rows + len(table)
        starts.append(of_member)
        rows.append(table)
    return programs, np.concatenate(starts), np.concatenate(rows)
