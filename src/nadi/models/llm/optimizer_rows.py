"""The end of a training step: the last reductions, the optimizer, and new weights for all."""

from __future__ import annotations

from collections.abc import Sequence

from nadi.models.adam_update import adam_work
from nadi.models.job_rows import Row, RowList
from nadi.models.llm.chunk_rows import Chunk, weights_by_role
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.lasting_tensors import LastingTensors, group_size, layer_name
from nadi.models.llm.layer_pieces import Piece
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.row_operands import Operand, Operands
from nadi.trace.work import Work

__all__ = ["optimizer_rows"]

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
                Operands(before, (norm,)),
            )  # fmt: skip
            before = (norm,)
    weights, reduced = zip(*lasting.updated(), strict=True)
    changed = (*weights, *lasting.state())
    operands = Operands((*before, *reduced, *changed), changed)
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
            Operands(gradients, (copied, *gradients)),
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
