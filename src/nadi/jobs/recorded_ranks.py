"""A recorded rank: its parts of steps, and the operators that do its work with their tensors.

A part is the forward of a micro-batch, its backward, or the end of a step. Which part an operation
is in follows from its time: autograd's nodes begin and end the backward, and an operator of the
forward that they name begins the next forward. What a device does is in the part of its launch.

How many bytes of tensors a recorded rank has at once, and one of several that share its work.

A storage lives from the operator that gives it to the last one that reads it; what is read and was
not given in the step (weights, states of the optimizer) lives all the time. What operators use
within themselves, and what an allocator keeps, is not counted.

A job of one rank, whose process groups have one member each.
"""

from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.files.communication_names import comm_type_of_host, comm_type_of_kernel
from nadi.graph.event_graph import EventGraph
from nadi.graph.module_tree import backward_nodes
from nadi.simulation.workload.simulator_nodes import PlayedRank
from nadi.systems.prices.traced_operations import launching_operators, operators_of
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.groups import RankGroups
from nadi.trace.operations import Operations
from nadi.trace.rows import nearest
from nadi.trace.schema import GROUPS
from nadi.trace.trace import Trace

_STEP = r"^ProfilerStep#"
_OPTIMIZER = r"^Optimizer\.step#"
_OVERWRITE = [
    f"aten::{name}_"
    for name in ("bernoulli", "copy", "exponential", "fill", "normal", "random", "uniform", "zero")
]


class Direction(IntEnum):
    """What a part of a step does."""

    FORWARD = 0
    BACKWARD = 1
    END = 2


class Parts(NamedTuple):
    """The parts of all steps, in order of time; arrays of shape (parts,)."""

    begin: Ints  # int64 ns: each lasts until the next one begins
    # step, micro_batch: int64: counted from 0, micro-batches in each step; -1 for the end of a step
    step: Ints
    micro_batch: Ints
    direction: Ints  # int64: values of ``Direction``

    def at(self, time: Ints) -> Ints:
        """Return the part at each time; int64, shape (times,)."""
        return np.maximum(np.searchsorted(self.begin, time, side="right") - 1, 0)


class TensorUse(NamedTuple):
    """A tensor as an operator reads or gives it; ``item`` is its place in a list, or -1."""

    storage: int
    shape: tuple[int, ...]
    elements: int
    itemsize: int
    item: int


class Operators(NamedTuple):
    """The operators that do work, in order of their begin.

    Attributes
    ----------
    row
        int64, shape (operators,): in the recorded trace.
    name
        Of each.
    work
        What they compute, of all rows of the recorded trace.
    inputs, outputs
        The tensors of each.
    part
        int64, shape (operators,): position in :class:`Parts`.
    origin
        int64, shape (operators,): of those in the backward, the row of the operator of the forward
        whose gradient they compute; -1 if it is not known.
    makes_gradients
        bool, shape (operators,): operators of the forward that have a backward.

    Storages are numbered as in the recording, which gives numbers again that are free. What an
    operator only overwrites is not among its inputs.
    """

    row: Ints
    name: tuple[str, ...]
    work: Operations
    inputs: tuple[tuple[TensorUse, ...], ...]
    outputs: tuple[tuple[TensorUse, ...], ...]
    part: Ints
    origin: Ints
    makes_gradients: Bools


class KnownRank(NamedTuple):
    """What is known of a recorded rank, and of the nodes that a simulation has of it."""

    trace: Trace  # the recording
    # parts, operators: its parts and operators
    parts: Parts
    operators: Operators
    # int64, shape (nodes,): position in ``operators`` of the one that each node is in, or that
    # launched it; -1 if none did
    operator: Ints
    time: Ints  # int64 ns, shape (nodes,): when it began, on a device when it was launched
    # backward, made_by: int64: begins of autograd's nodes in ns, ascending, and the begin of the
    # operator of the forward that each belongs to; -1 if it is not known
    backward: Ints
    made_by: Ints
    is_update: Bools  # bool, shape (nodes,): whether it is in a step of an optimizer
    # gradient_times, gradient_bytes: int64: when gradients were accumulated in ns, ascending, and
    # their bytes
    gradient_times: Ints
    gradient_bytes: Ints


def recorded_rank(graph: EventGraph, number: int, played: PlayedRank) -> KnownRank:
    """Describe a rank. O(nodes log nodes).

    - ``graph``: Of the recorded job.
    - ``number``: Position of the rank in the job.
    """
    trace = played.recorded
    found = backward_nodes(graph)
    own = graph.op_trace[found.ops] == number
    origin = found.origin[own]
    # autograd's outermost nodes, and the operators that made them, or -1
    backward = graph.op_row[found.ops[own]]
    origin = np.where(origin >= 0, graph.op_row[np.maximum(origin, 0)], -1)
    parts = _parts(trace, backward, origin)
    start, parent = trace.column("start"), trace.column("parent")
    stands, work = operators_of(trace)
    stands &= start >= 0
    operators = _operators(trace, stands, work, parts, backward, origin)
    call = _launchers(trace)
    known = np.maximum(played.node, 0)
    time = played.trace.column("start").copy()
    launched = (played.node >= 0) & (call[known] >= 0)
    time[launched] = start[call[known[launched]]]
    around = nearest(played.node, parent, stands)
    around[launched] = launching_operators(trace, played.node[launched], stands)
    place = np.full(trace.nodes.height + 1, -1, dtype=np.int64)
    place[operators.row] = np.arange(operators.row.size)
    inside = nearest(np.where(launched, call[known], played.node), parent,
                     trace.name_mask(_OPTIMIZER))  # fmt: skip
    made_by = np.where(origin >= 0, start[np.maximum(origin, 0)], -1)
    gradients = np.sort(graph.op_row[found.ops[own & found.is_gradient]])
    return KnownRank(
        trace, parts, operators, place[around], time, start[backward], made_by, inside >= 0,
        *_gradients(trace, gradients),
    )  # fmt: skip


def _gradients(trace: Trace, row: Ints) -> tuple[Ints, Ints]:
    """Return when gradients were accumulated, and their bytes: of the largest tensor there."""
    start, parent = trace.column("start"), trace.column("parent")
    row = row[np.argsort(start[row], kind="stable")]
    is_one = np.zeros(trace.nodes.height, dtype=np.bool_)
    is_one[row] = True
    node, tensor = (trace.operands[name].to_numpy() for name in ("node", "tensor"))
    around = nearest(node, parent, is_one)
    known = (around >= 0) & (tensor >= 0)
    sizes = trace.tensors["elements"].to_numpy() * trace.tensors["itemsize"].to_numpy()
    of_row = np.zeros(trace.nodes.height, dtype=np.int64)
    np.maximum.at(of_row, around[known], sizes[tensor[known]])
    return start[row], of_row[row]


def _launchers(trace: Trace) -> Ints:
    launch = trace.deps.filter(pl.col("kind") == "launch")
    call = np.full(trace.nodes.height, -1, dtype=np.int64)
    call[launch["dst"].to_numpy()] = launch["src"].to_numpy()
    return call


def _parts(trace: Trace, backward: Ints, origin: Ints) -> Parts:
    """Find the parts of each step."""
    start, end = trace.column("start"), trace.column("start") + trace.column("duration")
    marks = np.flatnonzero(trace.name_mask(_STEP) & (start >= 0) & trace.nodes["is_cpu"].to_numpy())
    begins = np.unique(start[marks]) if marks.size else start[start >= 0][:1]
    began = start[backward]
    forward = np.unique(start[origin[origin >= 0]])
    rows: list[tuple[int, int, int, int]] = []
    for step, first in enumerate(begins.tolist()):
        last = int(begins[step + 1]) if step + 1 < begins.size else np.iinfo(np.int64).max
        own = np.flatnonzero((began >= first) & (began < last))
        moments = [(int(t), Direction.FORWARD) for t in forward[(forward >= first)
                                                                & (forward < last)]]  # fmt: skip
        moments += [(int(t), Direction.BACKWARD) for t in began[own]]
        rows.append((first, step, 0, Direction.FORWARD))
        for time, direction in sorted(moments):
            _, _, micro_batch, before = rows[-1]
            if direction != before:
                number = micro_batch + (direction == Direction.FORWARD)
                rows.append((time, step, number, direction))
        if own.size:
            rows.append((int(end[backward[own]].max()), step, -1, Direction.END))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Parts(*(np.ascontiguousarray(column) for column in columns))


def _operators(
    trace: Trace, stands: Bools, work: Operations, parts: Parts, backward: Ints, origin: Ints
) -> Operators:
    start, parent = trace.column("start"), trace.column("parent")
    row = np.flatnonzero(stands)
    row = row[np.argsort(start[row], kind="stable")]
    inputs, outputs = _uses(trace, row)
    origin_of = np.full(trace.nodes.height, -1, dtype=np.int64)
    origin_of[backward] = origin
    is_node = np.zeros(trace.nodes.height, dtype=np.bool_)
    is_node[backward] = True
    around = nearest(row, parent, is_node)
    is_operator = trace.category_mask("operator")
    outer = _outermost(parent, is_operator)
    made = np.zeros(trace.nodes.height, dtype=np.bool_)
    made[outer[origin[origin >= 0]]] = True
    names = trace.nodes["name"].cast(pl.String).gather(row.astype(np.uint32)).to_list()
    return Operators(
        row, tuple(names), work, inputs, outputs, parts.at(start[row]),
        np.where(around >= 0, origin_of[around], -1), made[outer[row]] & (around < 0),
    )  # fmt: skip


def _outermost(parent: Ints, is_operator: Bools) -> Ints:
    """Return the outermost operator around each row, itself if none is."""
    found = np.arange(parent.size)
    above = nearest(parent, parent, is_operator)
    while (inside := above[found] >= 0).any():
        found[inside] = above[found[inside]]
    return found


def _uses(trace: Trace, row: Ints) -> tuple[tuple[tuple[TensorUse, ...], ...], ...]:
    """Return the tensors that operators read, and those that they give."""
    place = np.full(trace.nodes.height, -1, dtype=np.int64)
    place[row] = np.arange(row.size)
    uses = trace.operands.filter(
        (pl.col("tensor") >= 0) & pl.Series(place[trace.operands["node"].to_numpy()] >= 0)
    ).select("node", "is_output", "position", "item", "tensor")
    tensors = [
        TensorUse(storage, tuple(shape), elements, itemsize, -1)
        for storage, shape, elements, itemsize in trace.tensors.select(
            "storage_id", "shape", "elements", "itemsize"
        ).iter_rows()
    ]
    overwrites = trace.nodes["name"].cast(pl.String).is_in(_OVERWRITE).to_numpy()
    found: tuple[list[list[TensorUse]], list[list[TensorUse]]] = (
        [[] for _ in range(row.size)], [[] for _ in range(row.size)],
    )  # fmt: skip
    for node, is_output, position, item, tensor in uses.iter_rows():
        if position == 0 and not is_output and overwrites[node]:
            continue
        found[is_output][place[node]].append(tensors[tensor]._replace(item=item))
    return tuple(tuple(tuple(one) for one in side) for side in found)


class Sharing(NamedTuple):
    """What a rank has of tensors."""

    given: Floats  # float64, shape (operators,): of what each operator gives
    lasting: dict[int, float]  # of storages that were not given in the step; others are whole


class RecordedLives(NamedTuple):
    """The lives of storages in one step; arrays of shape (lives,)."""

    # first, last: int64: positions of the operators between which each lives, the last one included
    first: Ints
    last: Ints
    bytes: Ints  # int64
    giver: Ints  # int64: the operator that gives it; -1 for one that lasts
    storage: Ints  # int64


def find_lives(operators: Operators, parts: Parts) -> RecordedLives:
    """Return the lives of storages in the last step that has an end. O(operands)."""
    ended = parts.step[parts.direction == Direction.END]
    step = int(ended[-1]) if ended.size else int(parts.step[-1])
    rows: list[tuple[int, int, int, int, int]] = []
    live: dict[int, tuple[int, int, int, int]] = {}  # first, last, bytes, giver
    own = np.flatnonzero(parts.step[operators.part] == step)
    end = int(own[-1]) if own.size else 0
    for number in own.tolist():
        read = {use.storage for use in operators.inputs[number]}
        for use in operators.inputs[number]:
            size = use.elements * use.itemsize
            if use.storage not in live:
                live[use.storage] = int(own[0]), number, size, -1
            else:
                first, last, before, giver = live[use.storage]
                live[use.storage] = first, max(last, number), max(before, size), giver
        for use in operators.outputs[number]:
            if use.storage in read:
                continue
            if use.storage in live:
                rows.append((*live[use.storage], use.storage))
            live[use.storage] = number, number, use.elements * use.itemsize, number
    for storage, (first, last, size, giver) in live.items():
        rows.append((first, end if giver < 0 else last, size, giver, storage))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return RecordedLives(*(np.ascontiguousarray(column) for column in columns))


def peak_bytes(
    lives: RecordedLives, sharing: Sharing | None = None, chosen: Bools | None = None
) -> int:
    """Return the most bytes that live at once.

    - ``sharing``: What the rank has of tensors; all without it.
    - ``chosen``: bool, shape (lives,): those that it has.
    """
    size = lives.bytes.astype(np.float64)
    if sharing is not None:
        lasting = [sharing.lasting.get(one, 1.0) for one in lives.storage.tolist()]
        size = size * np.where(lives.giver >= 0, sharing.given[lives.giver], lasting)
    if chosen is not None:
        size = np.where(chosen, size, 0.0)
    change = np.zeros(int(lives.last.max(initial=-1)) + 2)
    np.add.at(change, lives.first, size)
    np.add.at(change, lives.last + 1, -size)
    return round(float(np.cumsum(change).max(initial=0.0)))


_ALONE = "broadcast"  # what collectives of a recording become that no other rank takes part in


def with_own_roles(trace: Trace) -> tuple[Trace, RankGroups]:
    """Return the trace of the only rank, in which each of its groups is a role.

    Collectives of a recording get the types that their names say.
    """
    nodes = trace.nodes
    names = [
        about or name or f"group-{number}"
        for number, (name, about) in enumerate(
            trace.groups.select("name", "description").iter_rows()
        )
    ]
    names = [name if names.count(name) == 1 else f"{name}-{k}" for k, name in enumerate(names)]
    types = nodes["comm_type"].cast(pl.String).to_list()
    text = nodes["name"].cast(pl.String).to_list()
    for row in np.flatnonzero((nodes["comm_type"] == _ALONE).to_numpy()).tolist():
        said = {comm_type_of_host(text[row]), comm_type_of_kernel(text[row])} - {"none", "other"}
        types[row] = next(iter(said), types[row])
    groups = GROUPS.build(len(names), {
        "name": names, "ranks": [[] for _ in names], "backend": trace.groups["backend"],
    })  # fmt: skip
    nodes = nodes.with_columns(pl.Series("comm_type", types, dtype=nodes.schema["comm_type"]))
    one = np.zeros((1, 1), dtype=np.int64)
    roles = RankGroups(dict.fromkeys(names, one), 1)
    return replace(trace, nodes=nodes, groups=groups, rank=-1, process=-1), roles
