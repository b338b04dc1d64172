"""A simulation as a recording: a job with times, its event graph and critical path.

So everything that is asked of a measured job can be asked of a simulated one: what bounds it,
what comes next after that, and what changes would do.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.critical_paths import CriticalPath, walk_critical_path
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.graph.replay import replay_graph
from nadi.graph.windows import choose_window
from nadi.simulation.accounts.collective_accounts import (
    Messages,
    meetings_of,
    messages_of_nodes,
)
from nadi.simulation.engine.codes import NodeKind, Slot
from nadi.simulation.engine.machine_state import NUM_SLOTS, SHAPE
from nadi.simulation.simulation import Simulation
from nadi.simulation.work.program import Program
from nadi.trace.arrays import Bools, Ints
from nadi.trace.collectives import FROM_ROOT, TO_ROOT
from nadi.trace.schema import COMM_TYPES, DEVICE_WORK, ISSUES, MATCHES, NODE_KINDS
from nadi.trace.trace import Job, Trace

_BY_SLOT = ("host", "compute", "communication", "receive")


@checked
def simulated_job(simulation: Simulation) -> Job:
    """Return the traces of a simulated job with the simulated times.

    What is in a lane keeps its thread or stream. Other work of the host lies on a thread after
    those, 0 if there are none, and other computation, communication and receives, and loads and
    stores of each memory tier, each on such a stream of device 0. ``matches`` says which operations
    met, as in a recording. Of ranks that are alike only the one that stands for them is here.
    O(nodes).
    """
    program = simulation.program
    row_order = _op_of_node(simulation)
    columns = {
        "start": simulation.start,
        "duration": simulation.end - simulation.start,
        **_places(program),
    }
    by_row = {}
    for name, column in columns.items():
        by_row[name] = np.empty_like(column)
        by_row[name][row_order] = column
    world_size = simulation.cycles.size
    traces = []
    lowest = np.unique(simulation.like, return_index=True)[1]  # who stands for others
    for number, (trace, rank) in enumerate(zip(program.traces, lowest.tolist(), strict=True)):
        own = slice(int(program.first[number]), int(program.first[number + 1]))
        of_rank = {name: column[own] for name, column in by_row.items()}
        traces.append(_timed(trace, rank, world_size, of_rank))
    return Job(tuple(traces), _matches(simulation), ISSUES.empty())


def track_names(simulation: Simulation) -> dict[str, str]:
    """Return the names of threads and streams of a simulated job that are not lanes."""
    program = simulation.program
    thread, stream = _first_free(program)
    names = {f"device 0 stream {stream + k}": name for k, name in enumerate(_BY_SLOT[1:])}
    if program.lane is not None:
        engines = np.flatnonzero(_on_copy_engines(program))
        lane, first = np.unique(program.lane[engines], return_index=True)
        at = _places(program)["stream"][engines[first]]
        names |= {
            f"device 0 stream {number}": program.lane_names[own]
            for number, own in zip(at.tolist(), lane.tolist(), strict=True)
        }
    return names | {f"thread {thread}": _BY_SLOT[0]}


def _on_copy_engines(program: Program) -> Bools:
    """Return which nodes are in lanes that are neither streams nor threads: those of tiers."""
    if program.lane is None:
        return np.zeros(program.num_nodes, dtype=np.bool_)
    without = (program.column("stream") < 0) | program.is_cpu
    found: Bools = (program.lane >= 0) & without & (program.column("thread") < 0)
    return found


def _first_free(program: Program) -> tuple[int, int]:
    """Return the first thread and stream after those that are lanes."""
    if program.lane is None:
        return 0, 0
    in_lane = program.lane >= 0
    thread, stream = (
        int(program.column(name)[in_lane].max(initial=-1)) + 1 for name in ("thread", "stream")
    )
    return thread, stream


def _places(program: Program) -> dict[str, Ints]:
    """Return the thread, or device and stream, of each node."""
    slot, is_host = program.slot, program.is_cpu
    free_thread, free_stream = _first_free(program)
    thread = np.where(is_host, free_thread, -1)
    device = np.where(is_host, -1, 0)
    stream = np.where(is_host, -1, free_stream + slot - Slot.COMP)
    if program.lane is not None:
        own = program.column("stream")
        on_stream = (program.lane >= 0) & ~is_host & (own >= 0)
        on_engine = _on_copy_engines(program)
        on_thread = (program.lane >= 0) & ~on_stream & ~on_engine
        thread = np.where(on_thread, program.column("thread"), np.where(on_stream, -1, thread))
        device = np.where(on_stream, np.maximum(program.column("device"), 0), device)
        device, stream = np.where(on_thread, -1, device), np.where(on_thread, -1, stream)
        stream = np.where(on_stream, own, stream)
        engines = np.unique(program.lane[on_engine])  # lanes are numbered over all ranks
        names = [program.lane_names[lane] for lane in engines.tolist()]
        known = {name: k for k, name in enumerate(dict.fromkeys(sorted(names)))}
        number = np.zeros(len(program.lane_names) + 1, dtype=np.int64)
        number[engines] = [known[name] for name in names]
        after = free_stream + len(_BY_SLOT) - 1 + number[np.maximum(program.lane, 0)]
        stream = np.where(on_engine, after, stream)
        device, thread = np.where(on_engine, 0, device), np.where(on_engine, -1, thread)
    return {"thread": thread, "device": device, "stream": stream}


def _timed(trace: Trace, rank: int, world_size: int, columns: dict[str, Ints]) -> Trace:
    """Return a trace with other times and lanes; its rows do not change."""
    on_thread = columns["thread"] >= 0
    category = trace.nodes["category"].cast(pl.String)
    on_device = category.is_in(DEVICE_WORK).to_numpy()
    dtypes = trace.nodes.schema
    given = {name: pl.Series(column) for name, column in columns.items()} | {
        "exclusive": pl.Series(columns["duration"]),
        "is_cpu": pl.Series(on_thread),
        "category": pl.select(
            pl.when(pl.Series(on_thread & on_device)).then(pl.lit("operator"))
            .when(pl.Series(~on_thread & ~on_device)).then(pl.lit("kernel"))
            .otherwise(category)
        ).to_series(),
    }  # fmt: skip
    nodes = trace.nodes.with_columns(
        *(column.cast(dtypes[name]).alias(name) for name, column in given.items()),
        # nothing lies in another operation, and nothing is a recorded event
        parent=pl.lit(-1, dtype=pl.Int64),
        event=pl.lit(-1, dtype=pl.Int64),
    )
    return replace(trace, nodes=nodes, rank=rank, world_size=world_size)


def _matches(simulation: Simulation) -> pl.DataFrame:
    program = simulation.program
    member, number = meetings_of(simulation)
    messages = messages_of_nodes(simulation)
    count = int(number.max(initial=-1)) + 1
    transfer = count + np.arange(messages.send.size)
    node = np.concatenate([member, messages.send, messages.receive])
    if simulation.program.num_ranks < simulation.cycles.size or not node.size:
        return MATCHES.empty()  # the others that took part are not here
    number = np.concatenate([number, transfer, transfer])
    order = np.lexsort((node, number))
    columns = {
        "collective": number[order],
        "rank": program.rank[node][order],
        "node": program.row[node][order],
    }
    return MATCHES.build(node.size, columns)


@checked
def simulated_graph(simulation: Simulation) -> EventGraph:
    """Return the event graph of a simulated job: why each node started when it did.

    Its replay reproduces the simulated times to the nanosecond, without unexplained delays.
    An operation waits for: the node whose end let it be issued, what
    it depends on, what was in its slot before it; the end of a collective the last member to
    enter it; a receive its send, with rendezvous a send its receive too; an access to remote
    memory those that its server took before. Loads and stores of memory are of their own kind.

    Weights are the simulated durations: a change keeps what messages waited for each other
    on links, and the order of issue. Of ranks that are alike the graph has one, and its path
    is everybody's. O(nodes log nodes + dependencies).
    """
    program = simulation.program
    op = _op_of_node(simulation)
    size = program.num_nodes
    time = np.empty(2 * size, dtype=np.int64)
    time[2 * op], time[2 * op + 1] = simulation.start, simulation.end
    messages = messages_of_nodes(simulation)
    meeting_edges, entered, meeting = _meeting_edges(simulation, op, 2 * size)
    message_edges, asked, messaging = _message_edges(
        simulation, op, messages, 2 * size + entered.size
    )
    access_edges, accesses = _access_edges(simulation, op)
    alone = np.ones(size, dtype=np.bool_)
    alone[np.concatenate([meeting, messaging, accesses])] = False
    parts = [
        *_issue_edges(simulation, op), _duration_edges(simulation, op, np.flatnonzero(alone)),
        *meeting_edges, *message_edges, *access_edges,
    ]  # fmt: skip
    edges = Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    op_trace = np.repeat(np.arange(program.num_ranks), np.diff(program.first))
    op_row = np.arange(size) - np.repeat(program.first[:-1], np.diff(program.first))
    return EventGraph.build(
        simulated_job(simulation), op_trace, op_row, np.full(size, -1, dtype=np.int64),
        np.concatenate([time, entered, asked]), edges,
    )  # fmt: skip


@checked
def simulated_path(simulation: Simulation) -> CriticalPath:
    """Return the critical path of a simulated job, from its start to its last end."""
    graph = simulated_graph(simulation)
    return walk_critical_path(replay_graph(graph), choose_window(graph, []))


def _op_of_node(simulation: Simulation) -> Ints:
    """Return the number in the graph of each node: in order of rank and row."""
    program = simulation.program
    return program.first[program.rank] + program.row  # every row of a trace is a node


# what lets an operation begin


def _issue_edges(simulation: Simulation, op: Ints) -> list[Edges]:
    """Add an edge from what let each operation be issued; of equals the first."""
    program, cause = simulation.program, simulation.cause
    size = program.num_nodes
    parent = np.repeat(np.arange(size), np.diff(program.first_child))
    child = program.children
    caused = np.flatnonzero(cause >= 0)
    binding = cause[child] == parent
    is_given = np.zeros(size, dtype=np.bool_)
    is_given[child[binding]] = True
    before, after = _slot_order(simulation)
    others = cause[after] != before
    before, after = before[others], after[others]
    in_order = ~is_given[caused] | _in_one_lane(program, cause[caused], caused)
    others_parent, others_child = parent[~binding], child[~binding]
    kind = np.where(in_order, EdgeKind.STREAM, EdgeKind.GIVEN)
    return [
        make_edges(2 * op[a] + 1, 2 * op[b], 0, code, op[b])
        for a, b, code in (
            (cause[caused], caused, kind),
            (
                others_parent,
                others_child,
                np.where(
                    _in_one_lane(program, others_parent, others_child),
                    EdgeKind.STREAM,
                    EdgeKind.GIVEN,
                ),
            ),
            (before, after, EdgeKind.STREAM),
        )
    ]


def _in_one_lane(program: Program, before: Ints, after: Ints) -> Bools:
    """Return whether nodes follow each other on a thread or stream."""
    if program.lane is None:
        return np.zeros(before.size, dtype=np.bool_)
    lane = program.lane[before]
    same: Bools = (lane == program.lane[after]) & (lane >= 0)
    return same


def _slot_order(simulation: Simulation) -> tuple[Ints, Ints]:
    """Return the order of nodes in each slot of each rank.

    What takes no time is left out: its order among what begins at the same time is not known.
    """
    slot = simulation.trail.slot[: simulation.program.num_nodes]
    lasts = np.flatnonzero((simulation.end > simulation.start) & (slot != Slot.NONE))
    place = simulation.program.rank[lasts] * NUM_SLOTS + slot[lasts]
    order = np.lexsort((simulation.start[lasts], place))
    same = np.diff(place[order]) == 0
    return lasts[order[:-1][same]], lasts[order[1:][same]]


# what an operation takes


def _duration_edges(simulation: Simulation, op: Ints, nodes: Ints) -> Edges:
    """Add duration edges for nodes with a time of their own."""
    own = op[nodes]
    duration = simulation.end[nodes] - simulation.start[nodes]
    return make_edges(2 * own, 2 * own + 1, duration, _kinds(simulation, nodes), own)


def _kinds(simulation: Simulation, nodes: Ints) -> Ints:
    kind = simulation.program.kind[nodes]
    communication = [NODE_KINDS.index(f"COMM_{name}") for name in ("SEND", "RECV", "COLL")]
    memory = [NODE_KINDS.index(f"MEM_{name}") for name in ("LOAD", "STORE")]
    return np.select(
        [
            np.isin(kind, communication),
            np.isin(kind, memory),
            simulation.program.is_cpu[nodes],
        ],
        [EdgeKind.COMMUNICATION, EdgeKind.MEMORY, EdgeKind.HOST_OP],
        EdgeKind.KERNEL,
    ).astype(np.int64)


def _meeting_edges(
    simulation: Simulation, op: Ints, first_vertex: int
) -> tuple[list[Edges], Ints, Ints]:
    """Add edges from the last entry into each collective to its ends.

    Of those with a root, whose data goes from it waits for the root alone, and whose goes to it
    for nobody. Who left before those had entered did not wait, and keeps its own time.

    - Returns list of Edges, int64, int64: Also when all had entered, by collective, and the nodes
      that waited.
    """
    node, number = meetings_of(simulation)
    entered = np.full(int(number.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(entered, number, simulation.start[node])
    from_root, to_root, is_root = _roles(simulation, node)
    roots = np.full(entered.size, -1)
    roots[number[is_root & from_root]] = node[is_root & from_root]
    waits = (~from_root & ~to_root) | (to_root & is_root)
    waited = waits & (simulation.end[node] >= entered[number])
    hub, own = first_vertex + number, op[node]
    rest = simulation.end[node] - entered[number]
    edges = [
        make_edges(2 * own, hub, 0, EdgeKind.ARRIVAL, own),
        make_edges(
            hub[waited], 2 * own[waited] + 1, rest[waited], EdgeKind.COMMUNICATION, own[waited]
        ),
    ]
    follows = np.flatnonzero(from_root & ~is_root & (roots[number] >= 0))
    root, after = roots[number[follows]], own[follows]
    both = np.maximum(simulation.start[root], simulation.start[node[follows]])
    rest = simulation.end[node[follows]] - both
    follows, root, after, rest = (part[rest >= 0] for part in (follows, root, after, rest))
    edges += [
        make_edges(2 * source, 2 * after + 1, rest, EdgeKind.COMMUNICATION, after)
        for source in (op[root], after)
    ]
    waited[follows] = True
    return edges, entered, node[waited]


def _roles(simulation: Simulation, node: Ints) -> tuple[Bools, Bools, Bools]:
    """Return whether data goes from or to a root, and which nodes are the root."""
    trail, comm_type = simulation.trail, simulation.program.comm_type[node]
    met = trail.kind[node] == NodeKind.COLLECTIVE
    is_from, is_to = (
        met & np.isin(comm_type, [COMM_TYPES.index(name) for name in names])
        for names in (FROM_ROOT, TO_ROOT)
    )
    root = np.full(node.size, -1)
    for group, members in enumerate(trail.group_members):
        mine = np.flatnonzero(met & (trail.peer[node] == group))
        root[mine] = members[trail.shapes[trail.key[node[mine]], SHAPE.root]]
    return is_from, is_to, root == trail.rank[node]


def _message_edges(
    simulation: Simulation, op: Ints, messages: Messages, first_vertex: int
) -> tuple[list[Edges], Ints, Ints]:
    """Add edges from sends to receives; with rendezvous, also from receives to sends.

    - Returns list of Edges, int64, int64: Also when both had begun, by message, with rendezvous;
      and the nodes that waited.
    """
    send, receive = messages.send, messages.receive
    sends, receives = op[send], op[receive]
    edges = [
        make_edges(2 * receives, 2 * receives + 1, 0, EdgeKind.SYNC, receives),
        make_edges(2 * sends + 1, 2 * receives + 1, 0, EdgeKind.SYNC, receives),
    ]
    if not simulation.system.network.rendezvous:
        return edges, np.empty(0, dtype=np.int64), receive
    asked = np.maximum(simulation.start[send], simulation.start[receive])
    hub = first_vertex + np.arange(send.size)
    rest = simulation.end[send] - asked
    edges += [
        make_edges(2 * sends, hub, 0, EdgeKind.ARRIVAL, sends),
        make_edges(2 * receives, hub, 0, EdgeKind.ARRIVAL, receives),
        make_edges(hub, 2 * sends + 1, rest, EdgeKind.COMMUNICATION, sends),
    ]
    return edges, asked, np.concatenate([send, receive])


def _access_edges(simulation: Simulation, op: Ints) -> tuple[list[Edges], Ints]:
    """Add waits for the servers of remote memory; return the accessing nodes as well."""
    trail = simulation.trail
    nodes = np.flatnonzero(trail.kind[: simulation.program.num_nodes] == NodeKind.ACCESS)
    order = np.lexsort((simulation.start[nodes], simulation.end[nodes], trail.key[nodes]))
    nodes = nodes[order]
    own, time = op[nodes], trail.time[nodes]
    later = np.flatnonzero(np.diff(trail.key[nodes]) == 0) + 1
    edges = [
        make_edges(2 * own, 2 * own + 1, time, EdgeKind.MEMORY, own),
        make_edges(
            2 * own[later - 1] + 1, 2 * own[later] + 1, time[later], EdgeKind.MEMORY, own[later]
        ),
    ]
    return edges, nodes
