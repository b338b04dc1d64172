"""Convert the activities of a rank to nodes of a Chakra trace, with the attributes of these."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from nadi.files.chakra.et_decode import COLLECTIVES
from nadi.graph.event_graph import EventGraph
from nadi.simulation.workload.activities import Activities
from nadi.simulation.workload.simulator_communication import Groups, Transfer
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import (
    CODES,
    AttributeBuilder,
    Attributes,
    Part as PartOfAttributes,
    combined,
)
from nadi.trace.schema import COMM_TYPES, DEPS, GROUPS, ISSUES, NODE_KINDS, NODES
from nadi.trace.trace import Trace

_NO_OPERATION = "(no operation)"
_BEFORE_RANK = "(before the recording)"
_HAND_OVER = "(hand-over to communication)"
_MICRO = 1000  # ns
_SCHEMA = "0.0.4"
# columns of nodes, and their attribute names and types in a Chakra trace
_OF_OPERATIONS = (
    ("stream", "stream", "int64"),
    ("flops", "num_ops", "int64"),
    ("bytes", "tensor_size", "uint64"),
)


_OF_TRANSFERS = ("comm_bytes", "group", "src", "dst", "tag")


class TransferPart(NamedTuple):
    """The part of one rank in a transfer."""

    op: int  # operation of the event graph
    transfer: Transfer  # the transfer that it is part of
    kind: str  # Chakra's type of the node
    # ns from the time when all members had entered, and had ended the transfer before, to the end
    # of this transfer: the transfer time without wait time
    measured: int


class PlayedRank(NamedTuple):
    """A rank's trace for a simulator, and the recorded operations behind its nodes."""

    trace: Trace  # the trace for the simulator
    recorded: Trace  # the recorded trace
    # first, last: int64, shape (recorded nodes,): the rows of the first and the last node of each
    # recorded operation; -1 for operations that are not simulated
    first: Ints
    last: Ints
    # int64, shape (nodes,): the row of the recorded operation of each node; -1 for time between
    # operations
    node: Ints


def parts_of_ranks(
    activities: Activities, transfers: Sequence[Transfer], activity_of_op: Ints
) -> dict[int, list[TransferPart]]:
    """Collect the parts of each rank in transfers, by position of the rank. O(transfers).

    - ``activities``: With durations in ns, and communication in turns.
    """
    begun = np.maximum(activities.end - activities.duration, activities.start)
    parts: dict[int, list[TransferPart]] = defaultdict(list)
    for transfer in transfers:
        own = activity_of_op[list(transfer.ops)]
        measured = np.maximum(activities.end[own] - begun[own].max(), 0)
        kinds = ["COMM_COLL"] * own.size
        if transfer.comm_type == "send":
            kinds = ["COMM_SEND", "COMM_RECV"]
        columns = (transfer.ranks, transfer.ops, kinds, measured.tolist())
        for rank, op, kind, time in zip(*columns, strict=True):
            parts[rank].append(TransferPart(op, transfer, kind, time))
    return parts


def rank_traces(
    graph: EventGraph,
    activities: Activities,
    position: Ints,
    parts: Mapping[int, Sequence[TransferPart]],
    groups: Groups,
    unit: int = _MICRO,
) -> Iterator[PlayedRank]:
    """Yield each rank's trace, as if it had been read from an ``.et``.

    Its nodes are in order of their ids, from 0. All dependencies are data dependencies: ASTRA-sim
    also waits for control dependencies, but Chakra's own feeder does not. O(activities log
    activities).

    - ``activities``: With durations in ``unit`` ns.
    - ``position``: int64, shape (activities,): the order of the activities.
    - ``parts``: From :func:`parts_of_ranks`.
    - ``groups``: The groups of
      :class:`nadi.simulation.workload.simulator_communication.Communication`.
    """
    row = np.empty(activities.op.size, dtype=np.int64)
    row_of_op = np.full(graph.num_ops + 3, -1, dtype=np.int64)  # three without operation
    for number, trace in enumerate(graph.job.traces):
        own = np.flatnonzero(activities.trace == number)
        own = own[np.argsort(position[own])]
        row[own] = np.arange(own.size)
        row_of_op[activities.op[own]] = row[own]
        within = activities.trace[activities.dst] == number
        src, dst = row[activities.src[within]], row[activities.dst[within]]
        order = np.lexsort((src, dst))
        mine = [(int(row_of_op[part.op]), part) for part in parts.get(number, ())]
        named = {str(one): list(ranks) for one, (_, ranks) in groups.items()}
        of_groups = {"name": list(named), "ranks": list(named.values())}
        played = Trace(
            nodes=_nodes(graph, activities, own, mine, list(groups), unit),
            deps=DEPS.build(order.size, {"src": src[order], "dst": dst[order], "kind": "data"}),
            groups=GROUPS.build(len(named), of_groups),
            issues=ISSUES.empty(),
            provenance=trace.provenance,
            rank=number,
            world_size=len(graph.job.traces),
            given_attributes=_attributes(graph, activities, own, mine, groups),
        )
        ops = np.flatnonzero(graph.op_trace == number)
        first, last = np.full((2, trace.nodes.height), -1, dtype=np.int64)
        first[graph.op_row[ops]] = _rows(row, activities.first_of_op[ops])
        last[graph.op_row[ops]] = _rows(row, activities.last_of_op[ops])
        op = activities.op[own]
        node = np.where(op >= 0, graph.op_row[np.maximum(op, 0)], -1)
        yield PlayedRank(played, trace, first, last, node)


def idle_rank(trace: Trace, rank: int) -> Trace:
    """Return a rank beside that of a trace that does nothing: one computation without time."""
    builder = AttributeBuilder()
    builder.add(-1, "version", "operand", _SCHEMA)
    builder.add(0, "is_cpu_op", "bool", value=True)
    columns = {
        "id": 0, "name": "(idle rank)", "kind": "COMP", "category": "operator", "is_cpu": True,
        "duration": 0,
    }  # fmt: skip
    return Trace(
        nodes=NODES.build(1, {name: [value] for name, value in columns.items()}),
        deps=DEPS.empty(),
        groups=trace.groups,
        issues=ISSUES.empty(),
        provenance=trace.provenance,
        rank=rank,
        world_size=rank + 1,
        given_attributes=builder.build(),
    )


def _rows(row: Ints, activity: Ints) -> Ints:
    return np.where(activity >= 0, row[activity], -1)


def _nodes(
    graph: EventGraph,
    activities: Activities,
    own: Ints,
    parts: list[tuple[int, TransferPart]],
    groups: list[int],
    unit: int,
) -> pl.DataFrame:
    op = activities.op[own]
    special = pl.Series([_HAND_OVER, _BEFORE_RANK, _NO_OPERATION])
    names = pl.concat([graph.op_names, special])
    kind = np.full(own.size, NODE_KINDS.index("COMP"))
    comm_type = np.full(own.size, COMM_TYPES.index("none"))
    numbers = {name: np.full(own.size, -1, dtype=np.int64) for name in _OF_TRANSFERS}
    for row, part in parts:
        kind[row] = NODE_KINDS.index(part.kind)
        received = part.kind == "COMM_RECV"
        comm_type[row] = COMM_TYPES.index("recv" if received else part.transfer.comm_type)
        for name, value in _columns_of(part, groups).items():
            numbers[name][row] = value
    work = np.where(numbers["comm_bytes"] < 0, op, -1)  # only operations that do not communicate
    is_cpu = _is_cpu(activities)[own]
    columns = {
        "id": np.arange(own.size),
        "name": names.gather(np.where(op >= 0, op, op + len(names))),
        "kind": NODES.coded("kind", kind),
        "start": activities.start[own] + graph.job.origin,
        "duration": activities.duration[own] * unit,
        "thread": _threads(graph, activities)[own],
        "comm_type": NODES.coded("comm_type", comm_type),
        **numbers,
        **{name: _of_ops(graph, name, work) for name in ("flops", "bytes")},
        **{name: _of_ops(graph, name, op) for name in ("stream", "device")},
        "is_cpu": is_cpu,
        "category": NODES.coded("category", is_cpu, ("kernel", "operator")),
    }
    return NODES.build(own.size, columns)


def _columns_of(part: TransferPart, groups: list[int]) -> dict[str, int]:
    transfer = part.transfer
    if part.kind == "COMM_COLL":
        return {"comm_bytes": transfer.size, "group": groups.index(transfer.group)}
    src, dst = transfer.ranks
    return {"comm_bytes": transfer.size, "src": src, "dst": dst, "tag": transfer.tag}


def _of_ops(graph: EventGraph, column: str, op: Ints) -> Ints:
    return np.where(op < 0, -1, graph.gather(column).to_numpy()[np.maximum(op, 0)])


def _threads(graph: EventGraph, activities: Activities) -> Ints:
    """Return the thread of each activity; for idle time, the thread of the activities around it."""
    thread = _of_ops(graph, "thread", activities.op)
    resource = activities.resource
    of_resource = np.full(int(resource.max(initial=-1)) + 1, -1, dtype=np.int64)
    of_resource[resource[activities.op >= 0]] = thread[activities.op >= 0]
    return of_resource[resource]


def _is_cpu(activities: Activities) -> Bools:
    """Return which activities run on the CPU; ASTRA-sim supports no communication that does."""
    return activities.on_thread & ~activities.is_comm


def _attributes(
    graph: EventGraph,
    activities: Activities,
    own: Ints,
    parts: list[tuple[int, TransferPart]],
    stated: Groups,
) -> Attributes:
    builder = AttributeBuilder()
    builder.add(-1, "version", "operand", _SCHEMA)
    groups = [
        {"pg_name": str(number), "recorded_name": name, "ranks": ranks}
        for number, (name, ranks) in stated.items()
    ]
    builder.add(-1, "process_groups", "string", msgspec.json.encode(groups).decode())
    of_transfers = np.zeros(own.size, dtype=np.bool_)
    for row, part in parts:
        of_transfers[row] = True
        builder.add_all(row, _comm_attributes(part))
    op = activities.op[own]
    every = np.arange(own.size)
    found = [builder.build(), _numbers("is_cpu_op", "bool", every, _is_cpu(activities)[own])]
    columns = [("thread", "int64", _threads(graph, activities)[own])]
    for column, name, type_name in _OF_OPERATIONS:
        columns.append((name, type_name, _of_ops(graph, column, np.where(of_transfers, -1, op))))
    for name, type_name, value in columns:
        rows = np.flatnonzero(value >= 0)
        found.append(_numbers(name, type_name, rows, value[rows]))
    return combined([PartOfAttributes(one) for one in found])


def _numbers(name: str, type_name: str, rows: Ints, value: Ints | Bools) -> Attributes:
    return Attributes(
        node=rows.astype(np.int32),
        name=np.zeros(rows.size, dtype=np.int32),
        type=np.full(rows.size, CODES[type_name], dtype=np.uint8),
        value=value.astype(np.int64),
        length=np.zeros(rows.size, dtype=np.int32),
        names=(name,),
        buffers=(),
    )


def _comm_attributes(part: TransferPart) -> dict[str, tuple[str, Any]]:
    transfer = part.transfer
    found: dict[str, tuple[str, Any]] = {
        "comm_size": ("int64", transfer.size),
        "comm_priority": ("int32", 0),
        "measured_transfer_ns": ("int64", part.measured),
    }
    if transfer.recorded_type != transfer.comm_type:
        found["recorded_comm_type"] = ("string", transfer.recorded_type)
    if part.kind == "COMM_COLL":
        found["comm_type"] = ("int64", COLLECTIVES.index(transfer.comm_type))
        found["pg_name"] = ("string", str(transfer.group))
    else:
        sender, receiver = transfer.ranks
        found["comm_src"] = ("int32", sender)
        found["comm_dst"] = ("int32", receiver)
        found["comm_tag"] = ("int32", transfer.tag)
    return found
