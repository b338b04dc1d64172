"""The end of a training step: the last reductions, the optimizer, and new weights for all."""

from __future__ import annotations

from collections.abc import Sequence

from nadi.generate.adam_update import adam_work
from nadi.generate.job_rows import Row, RowList, Work
from nadi.generate.llm.chunk_rows import Chunk, group_size, weights_by_role
from nadi.generate.llm.model_description import LanguageModel
from nadi.generate.llm.parallel_plan import ParallelPlan

__all__ = ["optimizer_rows"]

_NORM = 4  # bytes of the gradients' norm


def optimizer_rows(model: LanguageModel, plan: ParallelPlan, chunks: Sequence[Chunk]) -> list[Row]:
    """Return what a rank does after the last backward of a step.

    Gradients that several ranks of a stage compute in parts are summed, the norm of all gradients
    is computed, Adam updates the weights that the rank has the state of, and sharded weights
    are gathered.
    """
    rows = RowList("optimizer")
    _sum_gradients(model, plan, chunks, rows)
    for role in ("dp", "tp", "pp"):
        if role in plan.groups() and (role != "dp" or plan.zero):
            rows.collective(f"gradient_norm.{role}.all_reduce", -1, role, "all_reduce", _NORM)
    rows.compute("optimizer", -1, _adam(plan, chunks))
    if plan.zero in (1, 2):
        for chunk in chunks:
            for layer, pieces in chunk.layers:
                _gather(plan, layer, weights_by_role(plan, pieces), rows)
    return rows.rows


def _sum_gradients(
    model: LanguageModel, plan: ParallelPlan, chunks: Sequence[Chunk], rows: RowList
) -> None:
    size = plan.gradient_itemsize
    if summed := sum(piece.summed for chunk in chunks for piece in chunk.pieces):
        # of norms, biases and routers each rank has the gradients of its part of the sequence
        rows.collective("whole.gradients.all_reduce", -1, "tp", "all_reduce", summed * size)
    table = -(-model.vocab // plan.tp) * model.hidden * size
    if model.tied_embeddings and _has_one_end(chunks):
        rows.collective("embedding.gradients.all_reduce", -1, "embedding", "all_reduce", table)
    if plan.schedule == "dualpipe":
        weights = sum(chunk.weight + chunk.expert_weight for chunk in chunks)
        shards = group_size(plan, "dp") if plan.zero else 1
        part = -(-weights * size // shards)
        rows.collective("mirror.gradients.all_reduce", -1, "mirror", "all_reduce", part)


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


def _gather(plan: ParallelPlan, layer: int, weights: dict[str, int], rows: RowList) -> None:
    for role, count in weights.items():
        part = -(-count * plan.itemsize // group_size(plan, role))
        where = "weights" if layer < 0 else f"layers.{layer}.weights"
        rows.collective(f"{where}.all_gather", layer, role, "all_gather", part,
                        after=rows.computed, is_awaited=False)  # fmt: skip
