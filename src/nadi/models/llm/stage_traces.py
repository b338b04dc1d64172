"""The trace of a stage of the pipeline: its chunks, in the order of the schedule.

The end of a training step: the last reductions, the optimizer, and new weights for all.

Plans of generated jobs from fields that users state by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.models.job_rows import Link, Operand, Row, RowList, RowOperands, adam_work
from nadi.models.llm.chunk_rows import (
    BackwardKind,
    Chunk,
    ChunkLinks,
    backward_rows,
    chunk_of,
    forward_rows,
    weights_by_role,
)
from nadi.models.llm.chunk_tensors import ChunkTensors
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.lasting_tensors import LastingTensors, group_size, layer_name
from nadi.models.llm.layer_pieces import Piece
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    StageOrder,
    neighbors,
)
from nadi.models.row_traces import StepOrder, trace_of_rows
from nadi.trace.arrays import Bools, Ints
from nadi.trace.trace import Trace
from nadi.trace.work import Work
from nadi.units import lowered

_NORM = 4  # bytes of the gradients' norm


def optimizer_rows(
    model: LanguageModel, plan: ParallelPlan, chunks: Sequence[Chunk], lasting: LastingTensors
) -> list[Row]:
    """Return what a rank does after the last backward of a step.

    Gradients that several ranks of a stage compute in parts are summed, the norm of all gradients
    is computed, Adam updates the weights that the rank has the state of, and sharded weights
    are gathered.
    """
    rows = RowList("optimizer")
    buffers = list(lasting.buffers())
    gradients = tuple(gradient for _, gradient in buffers)
    _sum_gradients(model, plan, chunks, gradients, rows)
    norm = Operand("gradient_norm", (1,), "float32")
    before: tuple[Operand, ...] = ()
    for role in ("dp", "tp", "pp"):
        if role in plan.groups(model) and (role != "dp" or plan.zero):
            rows.collective(
                f"gradient_norm.{role}.all_reduce", -1, role, "all_reduce", _NORM,
                RowOperands(before, (norm,)),
            )  # fmt: skip
            before = (norm,)
    weights, reduced = zip(*lasting.updated(), strict=True)
    changed = (*weights, *lasting.state())
    operands = RowOperands((*before, *reduced, *changed), changed)
    rows.compute("optimizer", -1, _adam(plan, chunks), operands)
    if plan.zero in (1, 2):
        for chunk in chunks:
            for layer, pieces in chunk.layers:
                _gather(plan, layer, pieces, rows, lasting)
    return rows.rows


def _sum_gradients(
    model: LanguageModel, plan: ParallelPlan, chunks: Sequence[Chunk],
    gradients: tuple[Operand, ...], rows: RowList,
) -> None:  # fmt: skip
    itemsize = plan.gradient_itemsize

    def add(name: str, role: str, parameters: int) -> None:
        """Add an all-reduce of gradients, which are copied into a buffer and back."""
        copied = Operand(f"{name}.gradients", (parameters,), plan.gradient_dtype)
        rows.collective(
            f"{name}.gradients.all_reduce", -1, role, "all_reduce", parameters * itemsize,
            RowOperands(gradients, (copied, *gradients)),
        )  # fmt: skip

    if summed := sum(piece.summed for chunk in chunks for piece in chunk.pieces):
        # of norms, biases and routers each rank has the gradients of its part of the sequence
        add("whole", "tp", summed)
    if copied := sum(piece.copied for chunk in chunks for piece in chunk.pieces):
        add("key_value", "kv", copied)
    if model.tied_embeddings and _has_one_end(chunks):
        add("embedding", "embedding", -(-model.vocab // plan.tp) * model.hidden)
    if plan.schedule == "dualpipe":
        weights = sum(chunk.weight + chunk.expert_weight for chunk in chunks)
        add("mirror", "mirror", -(-weights // (group_size(plan, "dp") if plan.zero else 1)))


def _has_one_end(chunks: Sequence[Chunk]) -> bool:
    """Return whether a stage has the embedding or the head, but not both."""
    first, last = any(chunk.first for chunk in chunks), any(chunk.last for chunk in chunks)
    return first != last


def _adam(plan: ParallelPlan, chunks: Sequence[Chunk]) -> Work:
    dense = sum(chunk.weight for chunk in chunks)
    experts = sum(chunk.expert_weight for chunk in chunks)
    if plan.zero:
        dense = -(-dense // group_size(plan, "dp"))
        experts = -(-experts // group_size(plan, "edp"))
    return adam_work(dense + experts, plan.gradient_itemsize, plan.itemsize)


def _gather(
    plan: ParallelPlan, layer: int, pieces: tuple[Piece, ...], rows: RowList,
    lasting: LastingTensors,
) -> None:  # fmt: skip
    name = layer_name(layer, pieces)
    for role, count in weights_by_role(plan, pieces).items():
        part = -(-count * plan.itemsize // group_size(plan, role))
        where = "weights" if layer < 0 else f"layers.{layer}.weights"
        operands = lasting.gather(name, role, "optimizer")
        rows.collective(f"{where}.all_gather", layer, role, "all_gather", part, operands,
                        after=rows.computed, is_awaited=False)  # fmt: skip


def stage_chunks(model: LanguageModel, plan: ParallelPlan, stage: int) -> list[Chunk]:
    """Return the chunks of the model's layers that a stage holds."""
    positions = [place.position for place in _places(plan, stage)]
    return [chunk_of(model, plan, one, has_table=0 in positions) for one in positions]


def stage_trace(model: LanguageModel, plan: ParallelPlan, stage: int, order: StageOrder) -> Trace:
    """Make the trace that all ranks of a stage share, whose groups are roles.

    Computations have no durations. O(nodes).
    """
    return trace_of_rows(
        _step(model, plan, stage, order), list(plan.groups(model)), plan.world_size
    )


def _places(plan: ParallelPlan, stage: int) -> list[_Place]:
    v = plan.chunks if plan.schedule == "interleaved" else 1
    found = []
    for chunk in range(plan.stage_chunks):
        position, source, destination = neighbors(plan.schedule, stage, chunk, plan.pp, v)
        before = None if source is None or source[0] == stage else source[0]
        after = None if destination is None or destination[0] == stage else destination[0]
        # messages of a micro-batch are numbered by the place where they cross, and their direction
        links = ChunkLinks(
            None if before is None else Link(before, 2 * position - 2),
            None if after is None else Link(after, 2 * position),
            None if after is None else Link(after, 2 * position + 1),
            None if before is None else Link(before, 2 * position - 1),
        )
        found.append(_Place(position, links))
    return found


class _Place(NamedTuple):
    """Where a chunk stands along the pipeline, and its links."""

    position: int
    links: ChunkLinks


_BACKWARDS = {
    BACKWARD: (True, True), INPUT_GRADIENT: (True, False), WEIGHT_GRADIENT: (False, True),
}  # fmt: skip


def _step(model: LanguageModel, plan: ParallelPlan, stage: int, order: StageOrder) -> StepOrder:
    """Return which piece comes when, of which micro-batch, and the rows of the pieces."""
    phase, chunk = order.phase, order.chunk
    reduces = _is_last(np.isin(phase, (BACKWARD, WEIGHT_GRADIENT)), chunk)
    keys = np.stack([phase, chunk, reduces.astype(np.int64)])
    different, number = np.unique(keys, axis=1, return_inverse=True)
    places, chunks = _places(plan, stage), stage_chunks(model, plan, stage)
    lasting = LastingTensors(model, plan, [one for chunk in chunks for one in chunk.layers])
    tensors = _tensors(model, plan, stage, chunks, lasting)
    made = []
    # all forwards come first, then those gradients of inputs that are apart
    for of_phase, of_chunk, is_last in different.T.tolist():
        own, links, flow = chunks[of_chunk], places[of_chunk].links, tensors[of_chunk]
        if of_phase == FORWARD:
            made.append(forward_rows(model, plan, own, links, flow))
            continue
        kind = BackwardKind(*_BACKWARDS[of_phase], bool(is_last))
        made.append(backward_rows(model, plan, own, links, flow, kind))
    pieces, micro_batches = number.reshape(-1), order.micro_batch
    if not plan.inference:
        made.append(optimizer_rows(model, plan, chunks, lasting))
        pieces = np.append(pieces, len(made) - 1)
        micro_batches = np.append(micro_batches, -1)
    return StepOrder(made, pieces, micro_batches, 2 * plan.positions)


def _tensors(
    model: LanguageModel, plan: ParallelPlan, stage: int, chunks: list[Chunk],
    lasting: LastingTensors,
) -> list[ChunkTensors]:  # fmt: skip
    """Return the tensors of each chunk; one after another on the same stage gets what it gives."""
    v = plan.chunks if plan.schedule == "interleaved" else 1
    found: list[ChunkTensors] = []
    for number, chunk in enumerate(chunks):
        source = neighbors(plan.schedule, stage, number, plan.pp, v).source
        before = found[source[1]] if source is not None and source[0] == stage else None
        found.append(ChunkTensors(model, plan, chunk.layers, lasting, before))
    return found


def _is_last(chosen: Bools, chunk: Ints) -> Bools:
    """Return which are the last chosen ones of their chunk."""
    found = np.zeros(chosen.size, dtype=np.bool_)
    for number in np.unique(chunk[chosen]).tolist():
        found[np.flatnonzero(chosen & (chunk == number))[-1]] = True
    return found


_Plan = TypeVar("_Plan", bound=msgspec.Struct)


def plan_from(kind: type[_Plan], fields: Mapping[str, Any]) -> _Plan:
    """Make a plan from its fields.

    - Raises UsageError if there is no such field, or its value is of another type or range.
    """
    known = kind.__struct_fields__
    for name, value in fields.items():
        if name not in known:
            remedy = f"known are {', '.join(known)}"
            raise UsageError([Parameter(name)], "a plan has no such field", remedy)
        try:
            msgspec.convert({name: value}, kind)
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at ")[0]
            of_field = get_type_hints(kind)[name]
            values = (
                [one for one in get_args(of_field) if one != ""]
                if get_origin(of_field) is Literal
                else []
            )
            if values:
                what = "there is no such value"
            remedy = f"use one of {', '.join(map(str, values))}" if values else "give another value"
            raise UsageError([Parameter(name, value)], lowered(what), remedy) from None
    return kind(**fields)
