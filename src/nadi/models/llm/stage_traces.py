"""The trace of a stage of the pipeline: its chunks, in the order of the schedule.

A chunk of layers does the same for each micro-batch; so its nodes, forward or backward, are made
once, as rows, and are repeated where the schedule has them. Waits of a row are rows before it in
the same piece. At the end of a training step stand the last reductions, the optimizer, and new
weights for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.models.job_rows import (
    BEFORE,
    Layout,
    Link,
    Operand,
    Row,
    RowList,
    RowOperands,
    adam_work,
    exchange,
)
from nadi.models.llm.chunk_tensors import (
    ChunkTensors,
    LastingTensors,
    Layers,
    between,
    group_size,
    layer_name,
)
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.layer_pieces import Piece, embedding_piece, head_pieces, layer_pieces
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    StageOrder,
    neighbors,
)
from nadi.models.llm.product_tiles import tiled
from nadi.models.row_traces import StepOrder, trace_of_rows
from nadi.trace.arrays import Bools, Ints
from nadi.trace.trace import Trace
from nadi.trace.work import Work
from nadi.units import lowered


class ChunkLinks(NamedTuple):
    """The links of a chunk to those before and after it; None at the ends of the model."""

    # source, destination: of activations
    source: Link | None = None
    destination: Link | None = None
    # gradient_source, gradient_destination: of gradients, which go the other way
    gradient_source: Link | None = None
    gradient_destination: Link | None = None


class Chunk(NamedTuple):
    """A chunk of the model's layers on a stage."""

    # each layer's number and pieces; the embedding and the head are those of layer -1
    layers: Layers
    # first, last: whether it has the embedding, the head
    first: bool
    last: bool

    @property
    def pieces(self) -> Iterator[Piece]:
        """All pieces, in the order of the forward."""
        for _, pieces in self.layers:
            yield from pieces

    @property
    def trained(self) -> int:
        """Parameters with gradients on this rank, without experts."""
        return sum(piece.trained for piece in self.pieces)

    @property
    def trained_experts(self) -> int:
        """Those of experts on this rank."""
        return sum(piece.trained_experts for piece in self.pieces)


def chunk_of(model: LanguageModel, plan: ParallelPlan, position: int, *, has_table: bool) -> Chunk:
    """Return the chunk at a position along the pipeline.

    ``has_table`` tells whether the rank has the embedding's table, in this chunk or another.
    """
    kinds = model.layer_kinds
    of_kind = {kind: tuple(layer_pieces(model, plan, kind)) for kind in sorted(set(kinds))}
    layers = [(number, of_kind[kinds[number]]) for number in plan.layers_at(model, position)]
    first, last = position == 0, position == plan.positions - 1
    before = [(-1, (embedding_piece(model, plan),))] if first else []
    after = [(-1, tuple(head_pieces(model, plan, has_table=has_table)))] if last else []
    return Chunk((*before, *layers, *after), first, last)


def residual_bytes(model: LanguageModel, plan: ParallelPlan) -> int:
    """Return the bytes of the whole residual stream of a micro-batch."""
    return plan.tokens * model.hidden * plan.itemsize


def message_bytes(model: LanguageModel, plan: ParallelPlan) -> int:
    """Return the bytes that a rank sends to the next stage: its part of the residual stream."""
    parts = plan.tp if between(plan) is Layout.TOKENS else 1
    return residual_bytes(model, plan) // parts


def forward_rows(
    model: LanguageModel, plan: ParallelPlan, chunk: Chunk, links: ChunkLinks, tensors: ChunkTensors
) -> list[Row]:
    """Return the forward of a chunk for one micro-batch."""
    rows = RowList("forward")
    size = message_bytes(model, plan)
    tensors.begin_forward(rows, links.source, size)
    _forward(model, plan, chunk.layers, rows, tensors)
    tensors.end_forward(rows, links.destination, size)
    return rows.rows


def _forward(
    model: LanguageModel, plan: ParallelPlan, layers: Layers, rows: RowList,
    tensors: ChunkTensors, only_core: bool = False,
) -> None:  # fmt: skip
    """Add the forward of layers; also where it is computed anew for the backward."""
    gathered = BEFORE  # the layer whose weights were gathered before waits for this computation
    for layer, pieces in layers:
        if plan.zero == 3 and rows.phase == "forward":
            _gather_weights(plan, layer, pieces, rows, tensors, gathered)
        for piece in pieces:
            if only_core and not piece.is_core:
                continue
            number = tensors.forward(rows, layer, piece, exchanges=not only_core)
            gathered = number if piece is pieces[0] and number >= 0 else gathered
        if layer < 0 and pieces[0].name == "embedding":
            tensors.end_embedding(rows, residual_bytes(model, plan))
        if any(piece.name == "head.loss" for piece in pieces) and plan.tp > 1:
            tensors.sum_loss(rows, layer)


def _gather_weights(
    plan: ParallelPlan, layer: int, pieces: tuple[Piece, ...], rows: RowList,
    tensors: ChunkTensors, after: int,
) -> None:  # fmt: skip
    """Gather the sharded weights of a layer, while the layer before it is computed."""
    name = layer_name(layer, pieces)
    for role, size in weights_by_role(plan, pieces).items():
        part = -(-size * plan.itemsize // group_size(plan, role))
        rows.collective(
            f"{name}.weights.all_gather", layer, role, "all_gather", part,
            tensors.lasting.gather(name, role, rows.phase), after=after,
        )  # fmt: skip


def weights_by_role(plan: ParallelPlan, pieces: Iterable[Piece]) -> dict[str, int]:
    """Return the parameters of pieces on this rank by the role that shares their gradients."""
    listed = list(pieces)
    return _shared(plan, sum(piece.weight for piece in listed),
                   sum(piece.expert_weight for piece in listed))  # fmt: skip


def _trained_by_role(plan: ParallelPlan, pieces: Iterable[Piece]) -> dict[str, int]:
    """Return those of :func:`weights_by_role` that have gradients."""
    listed = list(pieces)
    return _shared(plan, sum(piece.trained for piece in listed),
                   sum(piece.trained_experts for piece in listed))  # fmt: skip


def _shared(plan: ParallelPlan, dense: int, experts: int) -> dict[str, int]:
    found = {"dp": dense, "edp": experts}
    return {role: size for role, size in found.items() if size and group_size(plan, role) > 1}


class BackwardKind(NamedTuple):
    """Which backward of a chunk."""

    # of_inputs, of_weights: which gradients; both in one pass, or one after the other where a
    # schedule splits them
    of_inputs: bool
    of_weights: bool
    reduces: bool  # whether it is that of the last micro-batch, whose gradients are reduced


def backward_rows(
    model: LanguageModel, plan: ParallelPlan, chunk: Chunk, links: ChunkLinks,
    tensors: ChunkTensors, kind: BackwardKind,
) -> list[Row]:  # fmt: skip
    """Return the backward of a chunk for one micro-batch."""
    rows = RowList("backward")
    size = message_bytes(model, plan)
    if kind.of_inputs:
        tensors.begin_backward(rows, links.gradient_source, size, is_last=chunk.last)
    else:
        tensors.begin_weight_gradients()
    after = BEFORE
    for layer, pieces in reversed(chunk.layers):
        start = len(rows.rows)
        if plan.zero == 3 and kind.of_inputs:
            _gather_weights(plan, layer, pieces, rows, tensors, after)
        if kind.of_inputs and plan.recompute != "none" and layer >= 0:
            _recompute(model, plan, layer, pieces, rows, tensors)
        for piece in reversed(pieces):
            _backward_of_piece(rows, tensors, layer, piece, kind)
        computed = [n for n in range(start, len(rows.rows)) if rows.rows[n].work is not None]
        after = computed[0] if computed else after
        if kind.of_weights and (kind.reduces or plan.zero == 3):
            _reduce_gradients(plan, layer, pieces, rows, tensors)
    if kind.of_inputs:
        tensors.end_backward(
            rows, links.gradient_destination, size, residual_bytes(model, plan)
        )  # fmt: skip
    return rows.rows


def _recompute(
    model: LanguageModel, plan: ParallelPlan, layer: int, pieces: tuple[Piece, ...],
    rows: RowList, tensors: ChunkTensors,
) -> None:  # fmt: skip
    """Add the forward of a layer once more, or that of attention's core."""
    rows.phase = "recompute"
    is_core = plan.recompute == "selective"
    _forward(model, plan, ((layer, pieces),), rows, tensors, only_core=is_core)
    rows.phase = "backward"


def _backward_of_piece(
    rows: RowList, tensors: ChunkTensors, layer: int, piece: Piece, kind: BackwardKind
) -> None:
    gathered = []
    if kind.of_weights and piece.gathered_again:
        gathered.append(tensors.gather_input(rows, layer, piece))
    if kind.of_inputs:
        tensors.input_gradient(rows, layer, piece)
    if kind.of_weights and piece.weight_gradient is not None:
        rows.await_all(gathered)
        tensors.weight_gradient(rows, layer, piece, is_passed_on=not kind.of_inputs)


def _reduce_gradients(
    plan: ParallelPlan, layer: int, pieces: tuple[Piece, ...], rows: RowList,
    tensors: ChunkTensors,
) -> None:  # fmt: skip
    """Reduce the gradients of a layer, while the layers before it are computed."""
    needed = Layout.WHOLE if plan.zero == 0 else Layout.PARTS
    for role, weights in _trained_by_role(plan, pieces).items():
        size = weights * plan.gradient_itemsize
        found = exchange(Layout.PARTIAL, needed, size, group_size(plan, role))
        if found is not None:
            layer_of = layer_name(layer, pieces)
            name = f"{layer_of}.gradients.{found.comm_type}"
            operands = tensors.lasting.reduce(layer_of, role)
            rows.collective(
                name, layer, role, *found, operands, after=rows.computed, is_awaited=False
            )


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
    updated = list(lasting.updated())
    weights, reduced = ([pair[k] for pair in updated] for k in range(2))
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
    if model.tied_embeddings and _has_one_end(chunks) and not plan.lora:
        add("embedding", "embedding", -(-model.vocab // plan.tp) * model.hidden)
    if plan.schedule == "dualpipe":
        weights = sum(chunk.trained + chunk.trained_experts for chunk in chunks)
        add("mirror", "mirror", -(-weights // (group_size(plan, "dp") if plan.zero else 1)))


def _has_one_end(chunks: Sequence[Chunk]) -> bool:
    """Return whether a stage has the embedding or the head, but not both."""
    first, last = any(chunk.first for chunk in chunks), any(chunk.last for chunk in chunks)
    return first != last


def _adam(plan: ParallelPlan, chunks: Sequence[Chunk]) -> Work:
    dense = sum(chunk.trained for chunk in chunks)
    experts = sum(chunk.trained_experts for chunk in chunks)
    if plan.zero:
        dense = -(-dense // group_size(plan, "dp"))
        experts = -(-experts // group_size(plan, "edp"))
    return adam_work(dense + experts, plan.gradient_itemsize, plan.itemsize)


def _gather(
    plan: ParallelPlan, layer: int, pieces: tuple[Piece, ...], rows: RowList,
    lasting: LastingTensors,
) -> None:  # fmt: skip
    name = layer_name(layer, pieces)
    for role, count in _trained_by_role(plan, pieces).items():
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
        _step(model, plan, stage, order), list(plan.groups(model)), plan.world_size, plan.pp
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
    made: list[Sequence[Row]] = []
    # all forwards come first, then those gradients of inputs that are apart
    for of_phase, of_chunk, is_last in different.T.tolist():
        own, links, flow = chunks[of_chunk], places[of_chunk].links, tensors[of_chunk]
        if of_phase == FORWARD:
            rows = forward_rows(model, plan, own, links, flow)
        else:
            kind = BackwardKind(*_BACKWARDS[of_phase], bool(is_last))
            rows = backward_rows(model, plan, own, links, flow, kind)
        made.append(tiled(rows, plan.overlap, plan.tp))
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
