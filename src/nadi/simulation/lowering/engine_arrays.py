"""The arrays of the event engine, created from the tables of a simulation."""

from math import ceil
from typing import Any

import numpy as np

from nadi.errors import UsageError
from nadi.simulation.collectives.phases import Recipe, meets
from nadi.simulation.collectives.step_tables import Steps
from nadi.simulation.engine.codes import NodeKind, PhaseKind, QueuePolicy, Topology
from nadi.simulation.engine.event_queue import (
    BLOCK,
    CALLBACK,
    CALLBACKS,
    COUNTER,
    ENTRY,
    MOST_RANKS,
    TIME,
    Agenda,
)
from nadi.simulation.engine.machine_state import (
    BY_HOPS,
    DEEPEST,
    DIM,
    GROUP,
    KEY,
    LINE,
    LINK,
    MAIL,
    MEETING,
    MEMBER,
    MESSAGE,
    NODE,
    NS_PER_BYTE,
    NUM_SLOTS,
    PHASE,
    PLAN,
    PROGRAM,
    QUEUE,
    RANK,
    RATE,
    RECIPE,
    SCRATCH,
    SEAT,
    SERVER,
    SHAPE,
    SIDE,
    START,
    STEP,
    STREAM,
    TODO,
    TRANSFER,
    TURN,
    WAITER,
    WHOLE_LINK,
    WORLD,
    Machine,
)
from nadi.simulation.lowering.shared_routes import (
    SharedRoutes,
    flows_over,
    no_routes,
    routes_of,
    shares_links,
)
from nadi.simulation.lowering.task_tables import Tables
from nadi.simulation.rules import rules_of
from nadi.simulation.work.ordered_lanes import policy_of
from nadi.systems.collective_times import nothing_contends
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.collectives import COLLECTIVES

_TOPOLOGY = {
    "fully-connected": Topology.FULLY_CONNECTED,
    "switch": Topology.SWITCH,
    "ring": Topology.RING,
    "mesh": Topology.MESH,
}
_FEW_TIMES = 16  # initial capacity of an agenda, which grows


def room_of(tables: Tables, *, meet: bool = True) -> int:
    """Estimate how many events can be pending at once.

    A rank works on so many chunks at once in each dimension, and sends as many packets of one as
    its algorithm lets it; it may also compute meanwhile.
    """
    system = tables.system
    meet = _may_meet(tables, meet)
    chunks = int(tables.shapes[:, SHAPE.chunks].max(initial=0))
    active = min(chunks, system.collectives.active_chunks * len(system.network.dimensions))
    packets = 1
    for phase in (phase for recipe in tables.recipes for phase in recipe.phases):
        if phase.algorithm == PhaseKind.DIRECT and not (meet and meets(phase)):
            most = phase.size - 1
            packets = max(packets, most if phase.window < 0 else min(phase.window, most))
    return tables.program.num_ranks * max(active * packets, 1) + 64


def machine_of(
    tables: Tables,
    room: int,
    window: int,
    *,
    meet: bool = True,
    flows: bool = True,
    nodes: Ints | None = None,
) -> Machine:
    """Create the arrays of a simulation.

    - ``tables``: What is to be simulated.
    - ``room``: How many events, streams and messages may be under way at once.
    - ``window``: How many collectives of a group may be.
    - ``meet``: Work out collectives at once where nothing contends; else every message is an event,
      which gives the same times.
    - ``flows``: Let transfers that share links slow each other down; else each is as fast as alone.
    - ``nodes``: Nodes to work on; a copy of those of the tables if not given.
    """
    num_ranks = tables.program.num_ranks
    if num_ranks > MOST_RANKS:
        raise UsageError("network", f"it has {num_ranks} ranks; at most {MOST_RANKS} are supported")
    meet = _may_meet(tables, meet)
    shapes = tables.shapes.copy()
    if not meet:
        shapes[:, SHAPE.whole] = 0
    if nodes is None:
        nodes = tables.nodes.copy()
    shared = no_routes()
    if flows and shares_links(tables):
        shared = routes_of(tables)
        # chunks that take two trees in turn load other links in turn
        trees = [any(len(p.steps) > 1 for p in recipe.phases) for recipe in tables.recipes]
        if any(trees):
            shapes[np.array(trees)[shapes[:, SHAPE.recipe]], SHAPE.whole] = 0
    return _machine(tables, room, window, nodes, shapes, shared, meet=meet)


def _machine(
    tables: Tables, room: int, window: int, nodes: Ints, shapes: Ints, shared: SharedRoutes, *,
    meet: bool,
) -> Machine:  # fmt: skip
    """Create the arrays of a simulation once the closed-form parts are known."""
    system, num_ranks = tables.system, tables.program.num_ranks
    dims, rates, num_links = _dimensions(system)
    phases_of_all = [phase for recipe in tables.recipes for phase in recipe.phases]
    gather = _gathers(tables)  # by mail, as messages are
    by_message = gather or not meet or not all(meets(phase) for phase in phases_of_all)
    groups, members, meetings, mail = _group_tables(tables, window, by_message=by_message)
    sits = meet or shared.units > 0 or any(p.algorithm == PhaseKind.TIMED for p in phases_of_all)
    num_seats = int((groups[:, GROUP.window] * groups[:, GROUP.rows]).sum()) if sits else 1
    stream_fields = len(STREAM) if by_message else STREAM.mail
    num_streams = _most_streams(tables, room, shapes)
    recipes, phases, num_phases = _recipe_tables(tables.recipes, system.collectives.queues)
    programs, starts, step_rows = _step_tables(tables.recipes, phases)
    world = _world(tables, nodes, phases, shared, meet=meet, gather=gather)
    queues_of_rank = int(world[WORLD.sets] * world[WORLD.ways] * world[WORLD.queues]) * len(dims)
    messages = 1 if nothing_contends(system) else room
    has_lines = int(world[WORLD.policy] != QueuePolicy.FIFO)
    num_lines = int(groups[:, GROUP.size].sum()) * queues_of_rank * has_lines
    return Machine(
        agenda=agenda_of(room, num_ranks),
        world=world,
        rates=rates,
        dims=dims,
        ranks=_ranks(tables, nodes),
        nodes=nodes,
        children=np.append(tables.children, 0),
        ready=np.zeros(nodes.shape[0] + 1, dtype=np.int64),
        keys=_empty(max(tables.num_keys, 1), len(KEY), KEY.head, KEY.tail, KEY.sends),
        shapes=shapes,
        groups=groups,
        members=members,
        meetings=meetings,
        recipes=recipes,
        phases=phases,
        streams=np.zeros((num_streams, stream_fields), dtype=np.int64),
        plans=np.zeros((num_streams, num_phases, len(PLAN)), dtype=np.int32),
        queues=_empty(num_ranks * queues_of_rank, len(QUEUE), QUEUE.head, QUEUE.tail),
        lines=_empty(max(num_lines, 1), len(LINE), LINE.first, LINE.full, LINE.next),
        waiting=np.zeros((max(num_streams * has_lines, 1), len(WAITER)), dtype=np.int64),
        turns=np.zeros((num_ranks, len(dims), len(TURN)), dtype=np.int64),
        trees=np.zeros((num_ranks, len(COLLECTIVES) * len(dims)), dtype=np.int64),
        mail=mail,
        seats=np.zeros((num_seats, len(SEAT)), dtype=np.int64),
        here=np.zeros(num_seats * num_phases, dtype=np.int32),
        messages=np.zeros((messages, len(MESSAGE)), dtype=np.int64),
        links=_empty(num_links, len(LINK), LINK.head, LINK.tail),
        **_of_flows(shared, room),
        servers=_empty(tables.num_servers, len(SERVER), SERVER.head, SERVER.tail),
        sides=_sides(system, num_ranks),
        todo=np.zeros((DEEPEST, len(TODO)), dtype=np.int64),
        scratch=np.zeros((len(SCRATCH), tables.representatives.num_ranks), dtype=np.int64),
        programs=programs,
        starts=starts,
        step_rows=step_rows,
    )


def _of_flows(shared: SharedRoutes, room: int) -> dict[str, Any]:
    """Create the arrays of transfers that share links."""
    return {
        "flows": flows_over(shared, room),
        "transfers": np.zeros((2 * room if shared.units else 1, len(TRANSFER)), dtype=np.int64),
        "ways": shared.ways,
        "pairs": shared.pairs,
        "shares": shared.shares,
    }


def _most_streams(tables: Tables, room: int, shapes: Ints) -> int:
    """Count the chunks that can be in flight, without collectives in closed form.

    A rank's next collective begins while the last stream of one is leaving; one at a time.
    """
    some = bool(shapes.size and (shapes[:, SHAPE.whole] == 0).any() and tables.recipes)
    return tables.program.num_ranks * int(shapes[:, SHAPE.chunks].max()) + room // 16 if some else 1


def _sides(system: System, num_ranks: int) -> Ints:
    """Return the sides of each rank's two buses, if they are simulated."""
    sides = _empty(4 * num_ranks if system.bus else 1, len(SIDE), SIDE.sends, SIDE.receives)
    sides[:, SIDE.reductions] = -1
    return sides


def _may_meet(tables: Tables, meet: bool) -> bool:
    return meet and nothing_contends(tables.system)


def _gathers(tables: Tables) -> bool:
    """Return whether a phase waits for all its members before it enters a queue.

    Ranks with lanes may begin collectives in orders of their own; and two halves that go both ways
    round may come to a queue at one time, at each rank in another order.
    """
    both = any(phase.both for recipe in tables.recipes for phase in recipe.phases)
    return both or tables.program.lane is not None


def _world(
    tables: Tables, nodes: Ints, phases: Ints, shared: SharedRoutes, *, meet: bool, gather: bool
) -> Ints:
    """Return the values that are global to a simulation."""
    system, world = tables.system, np.zeros(len(WORLD), dtype=np.int64)
    world[WORLD.ranks], world[WORLD.queues] = tables.program.num_ranks, system.collectives.queues
    world[WORLD.meet] = int(meet)
    world[WORLD.flows], world[WORLD.units] = int(shared.units > 0), shared.units
    world[WORLD.limit] = -(-system.collectives.active_chunks // system.collectives.queues)
    world[WORLD.aware] = int(system.network.congestion)
    world[WORLD.rendezvous] = int(system.network.rendezvous)
    world[WORLD.ways] = 2 if phases[:, :, PHASE.both].any() else 1
    world[WORLD.gather], world[WORLD.policy] = int(gather), policy_of(system)
    of_slots = nodes[nodes[:, NODE.kind] == NodeKind.COLLECTIVE, NODE.slot]
    rules_of(system).set_world(world, system, of_slots, gather=gather)
    if bus := system.bus:
        world[WORLD.bus], world[WORLD.latency], world[WORLD.overhead] = 1, bus.latency, bus.overhead
        world[WORLD.pause], world[WORLD.reduction] = bus.pause, bus.reduction
    return world


def _ranks(tables: Tables, nodes: Ints) -> Ints:
    """Return the ranks, and the ready queues of each slot."""
    num_ranks = tables.program.num_ranks
    ranks = np.zeros((num_ranks, len(RANK)), dtype=np.int64)
    ranks[:, RANK.left] = np.diff(tables.program.first)
    ranks[:, RANK.finish] = ranks[:, RANK.deferred] = -1
    ranks[:, RANK.place] = tables.representatives.rank
    by_slot = nodes[:, NODE.rank] * NUM_SLOTS + nodes[:, NODE.slot]
    of_slot = np.bincount(by_slot, minlength=num_ranks * NUM_SLOTS)
    base = np.cumsum(of_slot) - of_slot
    ranks[:, RANK.base : RANK.base + NUM_SLOTS] = base.reshape(num_ranks, NUM_SLOTS)
    return ranks


def _empty(rows: int, columns: int, *heads: int) -> Ints:
    table = np.zeros((rows, columns), dtype=np.int64)
    table[:, list(heads)] = -1
    return table


def agenda_of(room: int, num_ranks: int) -> Agenda:
    """Create an empty agenda with a capacity; unused entries take no memory."""
    size = 1 << (2 * room - 1).bit_length()
    bits = (num_ranks - 1).bit_length()
    spread = max(size.bit_length() - 1 - bits, 2)
    counters = np.zeros(len(COUNTER), dtype=np.int64)
    counters[[COUNTER.free_stream, COUNTER.free_message, COUNTER.free_transfer]] = -1
    counters[COUNTER.list_bits], counters[COUNTER.list_spread] = bits, spread
    counters[COUNTER.times] = min(size, _FEW_TIMES)
    return Agenda(
        entries=np.zeros((2 * room * BLOCK, len(ENTRY)), dtype=np.int64),
        times=np.zeros((2 * size, len(TIME)), dtype=np.int64),
        heap=np.zeros(size, dtype=np.int64),
        lists=np.zeros((1 << (bits + spread), len(CALLBACKS)), dtype=np.int64),
        more=np.zeros((2 * room, len(CALLBACK)), dtype=np.int64),
        counters=counters,
    )


def _dimensions(system: System) -> tuple[Ints, Floats, int]:
    dimensions = system.network.dimensions
    num_ranks = system.network.num_ranks
    dims = np.zeros((len(dimensions), len(DIM)), dtype=np.int64)
    rates = np.zeros((len(dimensions) + 1, len(RATE)), dtype=np.float64)
    stride, links = 1, 0
    for d, dimension in enumerate(dimensions):
        dims[d] = _TOPOLOGY[dimension.topology], dimension.size, stride, links
        rates[d] = dimension.bandwidth, dimension.latency
        per_rank = dimension.size if dimension.topology == "fully-connected" else 2
        links += num_ranks * per_rank
        stride *= dimension.size
    rates[-1, RATE.bandwidth] = system.compute.memory_bandwidth / 1e9
    if system.bus:
        rates[-1, RATE.latency] = rules_of(system).time_of_byte(system.bus)
    return dims, rates, links if system.network.congestion else 1


def _group_tables(
    tables: Tables, window: int, *, by_message: bool
) -> tuple[Ints, Ints, Ints, Ints]:
    sizes = np.array([len(m) for m in tables.group_members], dtype=np.int64)
    windows = np.maximum(np.minimum(tables.group_counts, window), 1)
    alike = np.array(tables.group_is_alike)
    regions = np.where(alike, tables.group_regions // sizes, tables.group_regions)
    need = windows * regions * int(by_message)
    groups = np.zeros((sizes.size, len(GROUP)), dtype=np.int64)
    # of one rank that stands for all of the job, only its own row is looked at
    rows = np.where(alike & (np.arange(sizes.size) == 0), 1, sizes)
    seats = np.where(alike, 1, tables.group_rows)
    groups[:, GROUP.members], groups[:, GROUP.alike] = np.cumsum(rows) - rows, alike
    groups[:, GROUP.size], groups[:, GROUP.region] = sizes, regions
    groups[:, GROUP.window], groups[:, GROUP.mail] = windows, np.cumsum(need) - need
    groups[:, GROUP.meetings] = np.cumsum(windows) - windows
    groups[:, GROUP.rows] = seats
    groups[:, GROUP.seats] = np.cumsum(windows * seats) - windows * seats
    members = np.zeros((int(rows.sum()), len(MEMBER)), dtype=np.int64)
    places = [ranks[:count] for ranks, count in zip(tables.group_members, rows, strict=True)]
    members[:, MEMBER.place] = np.concatenate(places)
    members[:, MEMBER.rank] = tables.representatives.of[members[:, MEMBER.place]]
    meetings = np.zeros((int(windows.sum()), len(MEETING)), dtype=np.int64)
    meetings[:, MEETING.number] = -1
    mail = _empty(int(need.sum()) + 1, len(MAIL), MAIL.stream, MAIL.sends)
    return groups, members, meetings, mail


def _recipe_tables(recipes: tuple[Recipe, ...], num_queues: int) -> tuple[Ints, Ints, int]:
    num_phases = max([1, *(len(recipe.phases) for recipe in recipes)])
    table = np.zeros((max(len(recipes), 1), len(RECIPE)), dtype=np.int64)
    phases = np.zeros((max(len(recipes), 1), num_phases, len(PHASE)), dtype=np.int64)
    for k, recipe in enumerate(recipes):
        table[k] = len(recipe.phases), recipe.num_slots, recipe.delay, int(recipe.is_group)
        for p, phase in enumerate(recipe.phases):
            # with several queues, the second half of an all-reduce has queues of its own
            before = [
                other for other in recipe.phases[:p] if max(other.dim, 0) == max(phase.dim, 0)
            ]
            phases[k, p, : PHASE.steps] = (
                max(phase.dim, phase.queue), phase.comm, phase.half, phase.algorithm,
                phase.window, phase.tree, phase.size, phase.stride, int(phase.share * WHOLE_LINK),
                BY_HOPS if phase.far else ceil(phase.pace * NS_PER_BYTE), int(phase.both),
            )  # fmt: skip
            phases[k, p, PHASE.before] = len(before) if num_queues == 1 else 0
            phases[k, p, PHASE.beside] = phase.beside
    return table, phases, num_phases


def _step_tables(recipes: tuple[Recipe, ...], phases: Ints) -> tuple[Ints, Ints, Ints]:
    """List the steps of all phases, and store in each phase where its steps are."""
    places: dict[int, int] = {}
    found: list[Steps] = []
    for k, recipe in enumerate(recipes):
        for p, phase in enumerate(recipe.phases):
            steps = phase.steps
            if steps and id(steps[0]) not in places:
                places[id(steps[0])] = len(found)
                found += steps
            if steps:
                phases[k, p, PHASE.steps] = places[id(steps[0])]
                phases[k, p, PHASE.trees] = len(steps)
    programs = np.zeros((max(len(found), 1), len(PROGRAM)), dtype=np.int64)
    num_starts = num_rows = 0
    starts = [np.zeros((1, len(START)), dtype=np.int64)] if not found else []
    rows = [np.zeros((1, len(STEP)), dtype=np.int64)] if not found else []
    for k, steps_of_one in enumerate(found):
        table, of_member = steps_of_one.rows.copy(), steps_of_one.starts.copy()
        for column in (table[:, STEP.source], table[:, STEP.next], of_member[:, START.first]):
            column[column >= 0] += num_rows
        programs[k] = num_starts, num_rows, num_rows + len(table), int(steps_of_one.is_piped)
        num_starts, num_rows = num_starts + len(of_member), num_rows + len(table)
        starts.append(of_member)
        rows.append(table)
    return programs, np.concatenate(starts), np.concatenate(rows)
