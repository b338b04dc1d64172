"""The nodes of one piece of a schedule: a chunk of layers forward or backward, once.

A chunk does the same for each micro-batch; so its nodes are made once, as rows, and are repeated
where the schedule has them. Waits of a row are rows before it in the same piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nadi.generate.job_rows import BEFORE, Link, Row, RowList
from nadi.generate.layout_rules import Layout, exchange
from nadi.generate.llm.layer_pieces import Piece, embedding_piece, head_pieces, layer_pieces
from nadi.generate.llm.model_description import LanguageModel
from nadi.generate.llm.parallel_plan import ParallelPlan

__all__ = [
    "BackwardKind", "Chunk", "Links", "backward_rows", "chunk_of", "forward_rows", "group_size",
    "message_bytes", "weights_by_role",
]  # fmt: skip


class Links(NamedTuple):
    """The links of a chunk to those before and after it; None at the ends of the model.

    Attributes
    ----------
    source, destination
        Of activations.
    gradient_source, gradient_destination
        Of gradients, which go the other way.
    """

    source: Link | None = None
    destination: Link | None = None
    gradient_source: Link | None = None
    gradient_destination: Link | None = None


class Chunk(NamedTuple):
    """A chunk of the model's layers on a stage.

    Attributes
    ----------
    layers
        Each layer's number and pieces; the embedding and the head are those of layer -1.
    first, last
        Whether it has the embedding, the head.
    """

    layers: tuple[tuple[int, tuple[Piece, ...]], ...]
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


class _Exchanges:
    """Puts in the collectives between pieces, from their layouts."""

    def __init__(self, rows: RowList, plan: ParallelPlan) -> None:
        self.rows = rows
        self.state = {"tp": _between(plan), "cp": Layout.TOKENS, "ep": Layout.TOKENS}
        self.size = {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep}

    def forward(self, name: str, layer: int, piece: Piece) -> None:
        for way in piece.ways:
            self._bring(name, layer, way.axis, way.needs, way.size)
            self.state[way.axis] = way.gives

    def backward(self, name: str, layer: int, piece: Piece) -> None:
        for way in piece.ways:
            self._bring(name, layer, way.axis, way.gradient_needs, way.gradient_size)
            self.state[way.axis] = way.gradient_gives

    def _bring(self, name: str, layer: int, axis: str, needed: Layout, size: int) -> None:
        found = exchange(self.state[axis], needed, size, self.size[axis])
        if found is not None:
            self.rows.collective(f"{name}.{found.comm_type}", layer, axis, *found)

    def end(self, name: str, layer: int, layout: Layout, size: int) -> None:
        """Bring what leaves the chunk into the layout of the residual stream."""
        self._bring(name, layer, "tp", layout, size)
        self.state["tp"] = layout


def _between(plan: ParallelPlan) -> Layout:
    return Layout.TOKENS if plan.sequence_parallel and plan.tp > 1 else Layout.WHOLE


def _name(layer: int, piece: Piece) -> str:
    return piece.name if layer < 0 else f"layers.{layer}.{piece.name}"


def residual_bytes(model: LanguageModel, plan: ParallelPlan) -> int:
    """Return the bytes of the whole residual stream of a micro-batch."""
    return plan.tokens * model.hidden * plan.itemsize


def message_bytes(model: LanguageModel, plan: ParallelPlan) -> int:
    """Return the bytes that a rank sends to the next stage: its part of the residual stream."""
    parts = plan.tp if _between(plan) is Layout.TOKENS else 1
    return residual_bytes(model, plan) // parts


def forward_rows(model: LanguageModel, plan: ParallelPlan, chunk: Chunk, links: Links) -> list[Row]:
    """Return the forward of a chunk for one micro-batch."""
    rows = RowList("forward")
    size = message_bytes(model, plan)
    if links.source is not None:
        rows.receive("receive_activations", links.source, size)
    _forward(model, plan, chunk.layers, rows)
    if links.destination is not None:
        rows.send("send_activations", links.destination, size)
    return rows.rows


def _forward(
    model: LanguageModel, plan: ParallelPlan,
    layers: Sequence[tuple[int, tuple[Piece, ...]]], rows: RowList, only_core: bool = False,
) -> None:  # fmt: skip
    """Add the forward of layers; also where it is computed anew for the backward."""
    exchanges = _Exchanges(rows, plan)
    gathered = BEFORE  # the layer whose weights were gathered before waits for this computation
    for layer, pieces in layers:
        if plan.zero == 3 and rows.phase == "forward":
            _gather_weights(plan, layer, pieces, rows, gathered)
        for piece in pieces:
            if only_core and not piece.is_core:
                continue
            name = _name(layer, piece)
            if not only_core:
                exchanges.forward(name, layer, piece)
            if piece.forward is not None:
                number = rows.compute(name, layer, piece.forward)
                gathered = number if piece is pieces[0] else gathered
        if layer < 0 and pieces[0].name == "embedding":
            exchanges.end("embedding", layer, _between(plan), residual_bytes(model, plan))
        if any(piece.name == "head.loss" for piece in pieces) and plan.tp > 1:
            _loss_sums(plan, layer, rows)


def _loss_sums(plan: ParallelPlan, layer: int, rows: RowList) -> None:
    """Add the sums of the loss over the vocabulary: largest logit, sum, and the label's logit."""
    for what in ("largest", "label", "sum"):
        rows.collective(f"head.loss.{what}.all_reduce", layer, "tp", "all_reduce", 4 * plan.tokens)


def _gather_weights(
    plan: ParallelPlan, layer: int, pieces: tuple[Piece, ...], rows: RowList, after: int
) -> None:
    """Gather the sharded weights of a layer, while the layer before it is computed."""
    for role, size in weights_by_role(plan, pieces).items():
        part = -(-size * plan.itemsize // group_size(plan, role))
        rows.collective(
            f"{_layer_name(layer, pieces)}.weights.all_gather", layer, role, "all_gather", part,
            after=after,
        )  # fmt: skip


def _layer_name(layer: int, pieces: tuple[Piece, ...]) -> str:
    return f"layers.{layer}" if layer >= 0 else pieces[0].name.partition(".")[0]


def weights_by_role(plan: ParallelPlan, pieces: Iterable[Piece]) -> dict[str, int]:
    """Return the parameters of pieces on this rank by the role that shares their gradients."""
    listed = list(pieces)
    found = {
        "dp": sum(piece.weight for piece in listed),
        "edp": sum(piece.expert_weight for piece in listed),
    }
    return {role: size for role, size in found.items() if size and group_size(plan, role) > 1}


def group_size(plan: ParallelPlan, role: str) -> int:
    """Return the number of ranks that share gradients: of dense weights, or of experts."""
    if role == "dp":
        return plan.dp * plan.cp
    return plan.tp * plan.cp * plan.dp // (plan.ep * plan.expert_tp)


class BackwardKind(NamedTuple):
    """Which backward of a chunk.

    Attributes
    ----------
    of_inputs, of_weights
        Which gradients; both in one pass, or one after the other where a schedule splits them.
    reduces
        Whether it is that of the last micro-batch, whose gradients are reduced.
    """

    of_inputs: bool
    of_weights: bool
    reduces: bool


def backward_rows(
    model: LanguageModel, plan: ParallelPlan, chunk: Chunk, links: Links, kind: BackwardKind
) -> list[Row]:
    """Return the backward of a chunk for one micro-batch."""
    rows = RowList("backward")
    size = message_bytes(model, plan)
    if kind.of_inputs and links.gradient_source is not None:
        rows.receive("receive_gradients", links.gradient_source, size)
    exchanges = _Exchanges(rows, plan)
    after = BEFORE
    for layer, pieces in reversed(chunk.layers):
        start = len(rows.rows)
        if plan.zero == 3 and kind.of_inputs:
            _gather_weights(plan, layer, pieces, rows, after)
        if kind.of_inputs and plan.recompute != "none" and layer >= 0:
            _recompute(model, plan, layer, pieces, rows)
        for piece in reversed(pieces):
            _backward_of_piece(rows, exchanges, layer, piece, kind)
        computed = [n for n in range(start, len(rows.rows)) if rows.rows[n].work is not None]
        after = computed[0] if computed else after
        if kind.of_weights and (kind.reduces or plan.zero == 3):
            _reduce_gradients(plan, layer, pieces, rows)
    if kind.of_inputs and links.gradient_destination is not None:
        exchanges.end("gradients", -1, _between(plan), residual_bytes(model, plan))
        rows.send("send_gradients", links.gradient_destination, size)
    return rows.rows


def _recompute(
    model: LanguageModel, plan: ParallelPlan, layer: int, pieces: tuple[Piece, ...], rows: RowList
) -> None:
    """Add the forward of a layer once more, or that of attention's core."""
    rows.phase = "recompute"
    _forward(model, plan, [(layer, pieces)], rows, only_core=plan.recompute == "selective")
    rows.phase = "backward"


def _backward_of_piece(
    rows: RowList, exchanges: _Exchanges, layer: int, piece: Piece, kind: BackwardKind
) -> None:
    name = _name(layer, piece)
    gathered = []
    if kind.of_weights and piece.gathered_again:
        part = piece.gathered_again // exchanges.size["tp"]
        gathered.append(
            rows.collective(
                f"{name}.input.all_gather", layer, "tp", "all_gather", part, is_awaited=False
            )
        )
    if kind.of_inputs:
        exchanges.backward(name, layer, piece)
        if piece.input_gradient is not None:
            rows.compute(f"{name}.input_gradient", layer, piece.input_gradient)
    if kind.of_weights and piece.weight_gradient is not None:
        rows.await_all(gathered)
        rows.compute(
            f"{name}.weight_gradient", layer, piece.weight_gradient,
            is_passed_on=not kind.of_inputs,
        )  # fmt: skip


def _reduce_gradients(
    plan: ParallelPlan, layer: int, pieces: tuple[Piece, ...], rows: RowList
) -> None:
    """Reduce the gradients of a layer, while the layers before it are computed."""
    needed = Layout.WHOLE if plan.zero == 0 else Layout.PARTS
    for role, weights in weights_by_role(plan, pieces).items():
        size = weights * plan.gradient_itemsize
        found = exchange(Layout.PARTIAL, needed, size, group_size(plan, role))
        if found is not None:
            name = f"{_layer_name(layer, pieces)}.gradients.{found.comm_type}"
            rows.collective(name, layer, role, *found, after=rows.computed, is_awaited=False)
