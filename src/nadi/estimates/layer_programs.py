"""The programs of a model's parts on one rank: layers, embedding and head, as they are generated.

They are those of ``nadi generate llm``; so an estimate and a simulation of a generated job have
the same operations, FLOPs, bytes and collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from nadi.estimates.execution import (
    ATTENTION,
    COMMUNICATION,
    DATATYPES,
    RECOMPUTE,
    Execution,
    Executions,
    columns_of,
)
from nadi.estimates.part_structures import (
    Amounts,
    PartProgram,
    VisitedAgain,
    amounts_of,
    structure_of,
    visited_again,
)
from nadi.models.job_rows import Row
from nadi.models.llm.chunk_tensors import cache_width
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.layer_pieces import (
    Piece,
    embedding_piece,
    head_pieces,
    layer_pieces,
    model_flops,
)
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.product_tiles import tiled
from nadi.models.llm.stage_traces import message_bytes

_TORCH = {name: name for name in DATATYPES} | {"float8": "float8_e4m3fn"}
_RECOMPUTE = {"none": "none", "attn_only": "selective", "full": "full"}


class Variant(NamedTuple):
    """What programs depend on, by codes of ``Executions``."""

    tensor_par: int
    microbatch_size: int
    tensor_par_comm_type: int
    activation_recompute: int
    seq_par_ag_redo: int
    datatype: int
    attention_type: int
    fused_activation: int
    training: int
    flash_attention: int
    expert_par: int
    decoding: int
    context_par: int
    lora: int
    expert_tensor_par: int

    @property
    def of_sizes(self) -> Variant:
        """The same without what has no effect on sizes, but on what is kept of them."""
        return self._replace(activation_recompute=0, seq_par_ag_redo=0, fused_activation=0)

    @property
    def of_structure(self) -> Variant:
        """The smallest one with the same operations in the same order."""
        return self._replace(
            tensor_par=min(self.tensor_par, 2), expert_par=min(self.expert_par, 2),
            context_par=min(self.context_par, 2), microbatch_size=1, seq_par_ag_redo=0,
            fused_activation=0, lora=min(self.lora, 1),
            expert_tensor_par=min(self.expert_tensor_par, 2),
        )  # fmt: skip


class PartSizes(NamedTuple):
    """The sizes of a part of the model on one rank, for one micro-batch."""

    pieces: tuple[Piece, ...]  # its operations
    amounts: Amounts  # all of their sizes
    # weight, expert_weight: its parameters on this rank
    weight: int
    expert_weight: int
    # those of both that have gradients
    trained: int
    trained_experts: int
    summed: int  # those of which each tensor parallel rank has the gradient of its own tokens


class Sizes(NamedTuple):
    """The sizes of a model's parts."""

    # one for each kind of layer, in the order of ``layer_shares``; the embedding; and the last
    # norm, the head and the loss
    parts: tuple[PartSizes, ...]
    boundary: int  # bytes that a rank sends to the next stage
    element: int  # bytes of a weight
    cache: int  # bytes of the keys and values of a sequence in a layer; 0 in training


def variants_of(ways: Executions) -> list[Variant]:
    """Give the variant of each way."""
    num = ways.num_executions
    columns = [
        [int(column[0])] * num if column.size == 1 else column.tolist()
        for column in (getattr(ways, name) for name in Variant._fields)
    ]
    return [Variant(*values) for values in zip(*columns, strict=True)]


def layer_shares(model: LanguageModel) -> dict[str, float]:
    """Give the share of each kind among the layers."""
    kinds = model.layer_kinds
    return {kind: kinds.count(kind) / len(kinds) for kind in sorted(set(kinds))}


def sizes_of(model: LanguageModel, variant: Variant) -> Sizes:
    """Work out the sizes of a model's parts."""
    return _sizes(_with_keys(model, variant), variant.of_sizes)


def structures_of(
    model: LanguageModel, variant: Variant
) -> tuple[tuple[PartProgram, PartProgram], ...]:
    """Generate what each part does forward and backward, in the order of ``Sizes.parts``."""
    return _structures(_with_keys(model, variant), variant.of_structure)


class PartRows(NamedTuple):
    """The operations of a part, tile by tile where they overlap."""

    ways: tuple[tuple[Row, ...], tuple[Row, ...]]  # forward and backward
    again: VisitedAgain  # what leaves and comes back in the backward


def rows_of_parts(model: LanguageModel, variant: Variant, overlap: str) -> tuple[PartRows, ...]:
    """Give the operations of each part, which many variants share."""
    own = _with_keys(model, variant)
    return _rows(own, variant.of_structure, overlap, variant.tensor_par)


@lru_cache(maxsize=1024)
def _rows(
    model: LanguageModel, variant: Variant, overlap: str, tiles: int
) -> tuple[PartRows, ...]:  # fmt: skip
    found = []
    for there, back in _structures(model, variant):
        both = tiled(there.rows, overlap, tiles), tiled(back.rows, overlap, tiles)
        again = back.again if both[1] is back.rows else visited_again(both[1])
        found.append(PartRows(both, again))
    return tuple(found)


def _with_keys(model: LanguageModel, variant: Variant) -> LanguageModel:
    """Put the kind of attention into the model."""
    if ATTENTION[variant.attention_type] == "multiquery" and model.mla is None:
        return msgspec.structs.replace(model, kv_heads=1)
    return model


@lru_cache(maxsize=4096)
def _sizes(model: LanguageModel, variant: Variant) -> Sizes:
    plan = _plan(model, variant)
    parts = tuple(
        PartSizes(
            pieces, amounts_of(model, plan, pieces), sum(piece.weight for piece in pieces),
            sum(piece.expert_weight for piece in pieces), sum(piece.trained for piece in pieces),
            sum(piece.trained_experts for piece in pieces),
            sum(piece.summed for piece in pieces),
        )
        for _, pieces in _parts(model, plan)
    )  # fmt: skip
    cache = (
        plan.sequence // plan.cp * cache_width(model, plan) * plan.itemsize if plan.inference else 0
    )
    return Sizes(parts, message_bytes(model, plan), plan.itemsize, cache)


@lru_cache(maxsize=1024)
def _structures(
    model: LanguageModel, variant: Variant
) -> tuple[tuple[PartProgram, PartProgram], ...]:
    plan = _plan(model, variant)
    parts = _parts(model, plan)
    if plan.recompute == "none":
        return tuple(structure_of(model, plan, *part) for part in parts)
    plain = _structures(model, variant._replace(activation_recompute=0))
    return tuple(  # only the backward of layers computes anew
        (one[0], structure_of(model, plan, layer, pieces)[1]) if layer >= 0 else one
        for one, (layer, pieces) in zip(plain, parts, strict=True)
    )


def _parts(
    model: LanguageModel, plan: ParallelPlan
) -> list[tuple[int, tuple[Piece, ...]]]:  # fmt: skip
    """Give the number of a layer, or -1, and the pieces of each part."""
    kinds = sorted(set(model.layer_kinds))
    return [
        *((0, tuple(layer_pieces(model, plan, kind))) for kind in kinds),
        (-1, (embedding_piece(model, plan),)),
        (-1, tuple(head_pieces(model, plan, has_table=False))),
    ]


def _plan(model: LanguageModel, variant: Variant) -> ParallelPlan:
    """Give a plan of one replica and one stage, on whose sizes parts depend."""
    tp, ep = variant.tensor_par, variant.expert_par
    splits = COMMUNICATION[variant.tensor_par_comm_type] == "rs_ag"
    return ParallelPlan(
        tp=tp,
        cp=variant.context_par,
        ep=ep,
        expert_tp=variant.expert_tensor_par or (1 if ep > 1 or tp == 1 else tp),
        zero=0,
        sequence_parallel=splits and tp > 1,
        micro_batch=variant.microbatch_size,
        global_batch=variant.microbatch_size,
        sequence=model.sequence,
        recompute=_RECOMPUTE[RECOMPUTE[variant.activation_recompute]],  # type: ignore[arg-type]
        attention="flash" if variant.flash_attention else "unfused",
        dtype=_TORCH[DATATYPES[variant.datatype]],
        lora=variant.lora,
        inference="" if variant.training else "decode" if variant.decoding else "prefill",
    )


def step_flops(model: LanguageModel, execution: Execution) -> int:
    """Return the model FLOPs of a step (:func:`~nadi.models.llm.layer_pieces.model_flops`)."""
    (variant,) = variants_of(columns_of([execution]))
    plan = msgspec.structs.replace(_plan(model, variant), global_batch=execution.batch_size)
    return model_flops(_with_keys(model, variant), plan)


def kept_of(pieces: Sequence[Piece], variant: Variant) -> tuple[int, ...]:
    """Give the bytes that a part keeps while it works, and until its backward.

    Of the latter, after them those of the first quarter of its pieces, of the first half, and of
    the first three quarters.
    """
    recompute = RECOMPUTE[variant.activation_recompute]
    kept = stored = 0
    until = [0] * 3
    for place, piece in enumerate(pieces):
        of_piece = piece.kept
        if piece.gathered_again and not variant.seq_par_ag_redo:
            of_piece = piece.gathered_again  # the whole input stays
        if variant.fused_activation and piece.name.endswith("activation"):
            of_piece = 0
        kept += of_piece
        again = piece.made_again if recompute == "attn_only" else 0
        stored += 0 if recompute == "full" else of_piece - again
        for quarter in range(4 * place // len(pieces), 3):
            until[quarter] = stored
    return kept, stored, *until


def moved_again(pieces: Sequence[Piece], again: VisitedAgain) -> tuple[int, int]:
    """Give the bytes that a part stores, and loads, between uses in one backward."""
    sizes = {piece.name: piece.kept for piece in pieces}
    of_stored = sum(sizes[name] for name in again.stored)
    return of_stored, of_stored + sum(sizes[name] for name in again.loaded - again.stored)
