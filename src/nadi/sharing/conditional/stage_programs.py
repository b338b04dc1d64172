"""What a stage of a job does: segments of its schedule, their layers, and what operations are.

A segment is what belongs to one micro-batch and direction: what comes before the layers, each
layer, and what comes after them. A layer of a segment, or what is before or after, is a visit.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.sharing.conditional.stage_values import (
    AXES,
    Conditions,
    StageValues,
    group_ways,
    members_of,
)
from nadi.systems.prices.traced_operations import stated_operations
from nadi.trace.arrays import Ints
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from nadi.trace.schema import GIVEN_DEPS
from nadi.trace.trace import Job, Trace

BEFORE, LAYER, AFTER = range(3)
"""Slots of a segment."""
_EXPERTS = ".experts."  # in names of their operations
_GROUP = "edp["
_QUANTITIES = ("flops", "bytes", "comm_bytes")
_REMEDY = "give jobs as nadi generate llm makes them, or learn a model of them without conditions"


class OperationKey(NamedTuple):
    """What is equal for all operations of a template.

    Attributes
    ----------
    kind, slot
        Of the segment, and where in it.
    name
        With ``#`` for the number of the layer.
    phase, stream, node_kind, comm_type, op_class, dtype
        As the columns and attributes of nodes state them.
    turn
        How many equal ones are before it in a visit.
    of_experts
        Whether its group is called one of ranks that have the same experts. Of one rank for each
        expert such a group has the ranks of a data parallel one.
    """

    kind: str
    slot: int
    name: str
    phase: str
    stream: int
    node_kind: str
    comm_type: str
    op_class: str
    dtype: str
    turn: int
    of_experts: bool = False


class Segment(NamedTuple):
    """A direction, such as ``forward``, and the micro-batch; -1 for none."""

    kind: str
    micro_batch: int


class Visit(NamedTuple):
    """One layer in a segment, or what is before or after the layers: ``layer`` is then -1."""

    segment: int
    slot: int
    layer: int
    rows: range


class StageProgram(NamedTuple):
    """What a stage does.

    Attributes
    ----------
    values
        What its conditions amount to.
    segments, visits
        In order.
    keys
        Of each operation.
    sizes
        int64, shape (operations, 3): FLOPs, bytes and bytes sent; -1 for none.
    sides
        int64, shape (operations, 4): of a product; -1 for none.
    ways
        For each operation, in which ways its group can lie; none if it has no group.
    peers
        int64, shape (operations,): how many stages further the other end of a message is.
    src, dst
        int64, shape (dependencies,).
    """

    values: StageValues
    segments: list[Segment]
    visits: list[Visit]
    keys: list[OperationKey]
    sizes: Ints
    sides: Ints
    ways: list[frozenset[str]]
    peers: Ints
    src: Ints
    dst: Ints


def visit_facts(
    segment: Segment, slot: int, layer: int, values: StageValues
) -> tuple[tuple[str, float], ...]:
    """Return what holds of a visit alone, besides what holds of its stage."""
    last = values.micro_batches - 1
    found = {
        "first_micro_batch": segment.micro_batch == 0,
        "last_micro_batch": segment.micro_batch == last,
        "first_layer": slot == LAYER and layer == values.layers[0],
        "last_layer": slot == LAYER and layer == values.layers[-1],
    }
    return tuple((name, 1.0) for name, holds in found.items() if holds)


def read_stage(
    job: Job | Sequence[Trace], known: Conditions, values: StageValues, where: str
) -> StageProgram:
    """Read what a stage of a job does, from the trace of its first rank.

    - Raises InputError if operations state no phase, or the layers are not those of the conditions.
    """
    inner = int(known["tp"]) * int(known["cp"]) * int(known["dp"])
    ranks = len(job.traces if isinstance(job, Job) else job)
    if ranks != inner * values.stages:
        what = f"it has {ranks} ranks, but {inner * values.stages} follow from tp, cp, dp and pp"
        raise InputError(where, what, "correct the conditions")
    rank = values.stage * inner
    trace = job.own_trace(rank) if isinstance(job, Job) else job[rank]
    nodes = trace.nodes
    phase = nodes["phase"].cast(pl.String).fill_null("").to_list()
    layer, batch = trace.column("layer").tolist(), trace.column("micro_batch").tolist()
    if not phase or "" in phase:
        what = "operations state no phase, so that no layer or micro-batch can be told apart"
        raise InputError(where, what, _REMEDY)
    kinds = ["backward" if one == "recompute" else one for one in phase]
    segments, visits = _visits(kinds, batch, layer, values, where)
    sizes = [trace.column(name) for name in _QUANTITIES]
    operations = stated_operations(trace)
    first = range(sum(len(one.rows) for one in visits if one.segment == 0))
    names = nodes["name"][: len(first)].cast(pl.String).to_list()
    of_layers = trace.column("layer")[first]
    values.sizes.update(sums_of_products(operations.shape[first], of_layers, names, values.sizes))
    deps = trace.deps.filter(pl.col("kind").cast(pl.String).is_in(GIVEN_DEPS))
    peer = np.maximum(trace.column("src"), trace.column("dst"))
    return StageProgram(
        values, segments, visits, _keys(trace, segments, visits, phase, layer),
        np.stack(sizes, axis=1), operations.shape.astype(np.int64),
        _ways(trace, known, rank, where),
        np.where(peer >= 0, peer // inner - values.stage, 0),
        deps["src"].to_numpy(), deps["dst"].to_numpy(),
    )  # fmt: skip


def sums_of_products(
    sides: Ints, layer: Ints, names: Sequence[str], sizes: Mapping[str, float]
) -> dict[str, float]:
    """Return what matrices of a stage's first segment amount to: its weights, and a layer's.

    - ``sides``: int64, shape (operations, 4): of products; those that are no product of two
      matrices are left out, such as attention. One product of several experts counts as the weights
      of all that the rank has.
    - ``layer``: int64, shape (operations,): -1 for none.
    - ``names``: Of the operations.
    - ``sizes``: Of the stage.
    """
    matrices = sides[:, 0]
    of_experts = np.array([_EXPERTS in one for one in names], dtype=np.bool_) & (matrices > 0)
    counted = np.where(of_experts, sizes.get("own_experts", 0), matrices == 1)
    weights = (counted * sides[:, 2] * sides[:, 3]).astype(np.float64)
    own = layer == layer.max()
    found = {
        "products": weights, "dense_products": weights[~of_experts],
        "expert_products": weights[of_experts], "layer_products": weights[own],
        "layer_dense": weights[own & ~of_experts], "layer_experts": weights[own & of_experts],
    }  # fmt: skip
    return {name: float(one.sum()) for name, one in found.items()}


def _visits(
    kinds: Sequence[str], batch: Sequence[int], layer: Sequence[int], values: StageValues,
    where: str,
) -> tuple[list[Segment], list[Visit]]:  # fmt: skip
    segments: list[Segment] = []
    visits: list[Visit] = []
    for row, (kind, number, at) in enumerate(zip(kinds, batch, layer, strict=True)):
        segment = Segment(kind, number)
        if not segments or segments[-1] != segment:
            segments.append(segment)
            slot = BEFORE
        if at >= 0 and slot == AFTER:
            what = f"operations of no layer stand between the layers of a {kind}"
            raise InputError(where, what, _REMEDY)
        slot = LAYER if at >= 0 else AFTER if slot == LAYER else slot
        if visits and visits[-1][:3] == (len(segments) - 1, slot, at):
            visits[-1] = visits[-1]._replace(rows=range(visits[-1].rows.start, row + 1))
        else:
            visits.append(Visit(len(segments) - 1, slot, at, range(row, row + 1)))
    seen = sorted({one.layer for one in visits if one.slot == LAYER})
    if seen != list(values.layers):
        what = (
            f"stage {values.stage} has {len(seen)} layers, but {len(values.layers)} follow from "
            "layers and pp"
        )
        raise InputError(where, what, "correct the conditions")
    return segments, visits


def _keys(
    trace: Trace, segments: Sequence[Segment], visits: Sequence[Visit], phase: Sequence[str],
    layer: Sequence[int],
) -> list[OperationKey]:  # fmt: skip
    nodes = trace.nodes
    columns = [
        nodes[name].cast(pl.String).to_list() for name in ("name", "kind", "comm_type")
    ]  # fmt: skip
    stream, group = trace.column("stream").tolist(), trace.column("group").tolist()
    called = [name.startswith(_GROUP) for name in trace.groups["name"].cast(pl.String)]
    operations = stated_operations(trace)
    classes = [OP_CLASSES[one] if one < len(OP_CLASSES) else "" for one in operations.op_class]
    dtypes = [DTYPE_NAMES[one] if one < len(DTYPE_NAMES) else "" for one in operations.dtype]
    found: list[OperationKey] = []
    for visit in visits:
        kind = segments[visit.segment].kind
        often: dict[OperationKey, int] = {}
        for row in visit.rows:
            name = re.sub(rf"\b{layer[row]}\b", "#", columns[0][row], count=1)
            key = OperationKey(
                kind, visit.slot, name, phase[row], stream[row], columns[1][row],
                columns[2][row], classes[row], dtypes[row], 0,
                group[row] >= 0 and called[group[row]],
            )  # fmt: skip
            often[key] = often.get(key, -1) + 1
            found.append(key._replace(turn=often[key]))
    return found


def _ways(trace: Trace, known: Conditions, rank: int, where: str) -> list[frozenset[str]]:
    """Return for each operation the ways in which its group may lie."""
    ranks = trace.groups["ranks"].to_list()
    own = {
        way: tuple(members[(members == rank).any(axis=1)][0].tolist())
        for way in group_ways()
        if (members := members_of(way, known)).size and (members == rank).any()
    }
    of_group = []
    for members in ranks:
        found = frozenset(way for way, these in own.items() if these == tuple(members))
        if not found:
            what = f"the process group {members} lies along no axes of tp, cp, dp and pp"
            raise InputError(where, what, "number ranks tensor, context, data, pipeline parallel")
        of_group.append(found)
    world = int(np.prod([int(known[axis]) for axis in AXES]))
    everyone = frozenset(way for way, these in own.items() if len(these) == world)
    talks = trace.nodes["kind"].cast(pl.String).str.starts_with("COMM").to_list()
    group = trace.column("group").tolist()
    return [
        frozenset() if not talking else of_group[one] if one >= 0 else everyone
        for talking, one in zip(talks, group, strict=True)
    ]
