"""The nodes of one piece of a schedule: a chunk of layers forward or backward, once.

A chunk does the same for each micro-batch; so its nodes are made once, as rows, and are repeated
where the schedule has them. Waits of a row are rows before it in the same piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nadi.models.job_rows import BEFORE, Layout, Link, Row, RowList, exchange
from nadi.models.llm.chunk_tensors import ChunkTensors, Layers, between
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.lasting_tensors import group_size, layer_name
from nadi.models.llm.layer_pieces import Piece, embedding_piece, head_pieces, layer_pieces
from nadi.models.llm.parallel_plan import ParallelPlan


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
    def weight(self) -> int:
        """Parameters on this rank, without experts."""
        return sum(piece.weight for piece in self.pieces)

    @property
    def expert_weight(self) -> int:
        """Parameters of experts on this rank."""
        return sum(piece.expert_weight for piece in self.pieces)


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
    found = {
        "dp": sum(piece.weight for piece in listed),
        "edp": sum(piece.expert_weight for piece in listed),
    }
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
    for role, weights in weights_by_role(plan, pieces).items():
        size = weights * plan.gradient_itemsize
        found = exchange(Layout.PARTIAL, needed, size, group_size(plan, role))
        if found is not None:
            layer_of = layer_name(layer, pieces)
            name = f"{layer_of}.gradients.{found.comm_type}"
            operands = tensors.lasting.reduce(layer_of, role)
            rows.collective(
                name, layer, role, *found, operands, after=rows.computed, is_awaited=False
            )
