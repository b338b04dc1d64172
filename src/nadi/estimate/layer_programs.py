"""The programs of a model's parts on one rank: layers, embedding and head, as they are generated.

They are those of ``nadi generate llm``; so an estimate and a simulation of a generated job have
the same operations, FLOPs, bytes and collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from nadi.estimate.execution import ATTENTION, COMMUNICATION, DATATYPES, RECOMPUTE, Executions
from nadi.generate.job_rows import Row
from nadi.generate.llm.chunk_rows import (
    BackwardKind,
    Chunk,
    Links,
    backward_rows,
    forward_rows,
    message_bytes,
)
from nadi.generate.llm.chunk_tensors import ChunkTensors
from nadi.generate.llm.lasting_tensors import LastingTensors
from nadi.generate.llm.layer_pieces import Piece, embedding_piece, head_pieces, layer_pieces
from nadi.generate.llm.model_description import LanguageModel
from nadi.generate.llm.parallel_plan import ParallelPlan

__all__ = ["PartProgram", "Programs", "Variant", "layer_shares", "programs_of", "variants_of"]

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

    @property
    def gathers_again(self) -> bool:
        """Whether inputs of products are gathered once more for the gradients of weights."""
        return bool(self.seq_par_ag_redo)


class PartProgram(NamedTuple):
    """A part of the model on one rank, for one micro-batch.

    Attributes
    ----------
    forward, backward
        What it does.
    weight, expert_weight
        Its parameters on this rank.
    summed
        Those of which each tensor parallel rank has the gradient of its own tokens.
    kept, stored
        Bytes that it keeps while it works, and until its backward.
    """

    forward: tuple[Row, ...]
    backward: tuple[Row, ...]
    weight: int
    expert_weight: int
    summed: int
    kept: int
    stored: int


class Programs(NamedTuple):
    """The parts of a model.

    Attributes
    ----------
    layers
        One for each kind of layer, in the order of :func:`layer_shares`.
    first, last
        The embedding; the last norm, the head and the loss.
    boundary
        Bytes that a rank sends to the next stage.
    element
        Bytes of a weight.
    checkpoints
        Whether a layer keeps nothing but its input until its backward.
    """

    layers: tuple[PartProgram, ...]
    first: PartProgram
    last: PartProgram
    boundary: int
    element: int
    checkpoints: bool


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


def programs_of(model: LanguageModel, variant: Variant) -> Programs:
    """Make the programs of a model's parts."""
    if ATTENTION[variant.attention_type] == "multiquery" and model.mla is None:
        model = msgspec.structs.replace(model, kv_heads=1)
    return _programs(model, variant)


@lru_cache(maxsize=4096)
def _programs(model: LanguageModel, variant: Variant) -> Programs:
    plan = _plan(model, variant)
    layers = tuple(
        _part(model, plan, variant, 0, tuple(layer_pieces(model, plan, kind)))
        for kind in sorted(set(model.layer_kinds))
    )
    return Programs(
        layers,
        _part(model, plan, variant, -1, (embedding_piece(model, plan),)),
        _part(model, plan, variant, -1, tuple(head_pieces(model, plan, has_table=False))),
        message_bytes(model, plan),
        plan.itemsize,
        plan.recompute == "full",
    )


def _plan(model: LanguageModel, variant: Variant) -> ParallelPlan:
    """Give a plan of one replica and one stage, on whose sizes parts depend."""
    tp, ep = variant.tensor_par, variant.expert_par
    splits = COMMUNICATION[variant.tensor_par_comm_type] == "rs_ag"
    return ParallelPlan(
        tp=tp,
        ep=ep,
        expert_tp=1 if ep > 1 or tp == 1 else tp,
        zero=0,
        sequence_parallel=splits and tp > 1,
        micro_batch=variant.microbatch_size,
        global_batch=variant.microbatch_size,
        sequence=model.sequence,
        recompute=_RECOMPUTE[RECOMPUTE[variant.activation_recompute]],  # type: ignore[arg-type]
        attention="flash" if variant.flash_attention else "unfused",
        dtype=_TORCH[DATATYPES[variant.datatype]],
        inference="" if variant.training else "prefill",
    )


def _part(
    model: LanguageModel, plan: ParallelPlan, variant: Variant, layer: int,
    pieces: tuple[Piece, ...],
) -> PartProgram:  # fmt: skip
    chunk = Chunk(((layer, pieces),), first=False, last=False)
    lasting = LastingTensors(model, plan, chunk.layers)
    tensors = ChunkTensors(model, plan, chunk.layers, lasting)
    forward = forward_rows(model, plan, chunk, Links(), tensors)
    backward: Sequence[Row] = ()
    if variant.training:
        both = BackwardKind(True, True, False)
        backward = backward_rows(model, plan, chunk, Links(), tensors, both)
    kept = stored = 0
    for piece in pieces:
        of_piece = piece.kept
        if piece.gathered_again and not variant.gathers_again:
            of_piece = piece.gathered_again  # the whole input stays
        if variant.fused_activation and piece.name.endswith("activation"):
            of_piece = 0
        kept += of_piece
        again = piece.made_again if plan.recompute == "selective" else 0
        stored += 0 if plan.recompute == "full" else of_piece - again
    return PartProgram(
        tuple(forward), tuple(backward),
        sum(piece.weight for piece in pieces), sum(piece.expert_weight for piece in pieces),
        sum(piece.summed for piece in pieces), kept, stored,
    )  # fmt: skip
