"""The rows of a part of a model, generated anew for one way; nothing of it is shared."""

from __future__ import annotations

from nadi.estimates.execution import COMMUNICATION, DATATYPES, RECOMPUTE
from nadi.estimates.layer_programs import Variant
from nadi.models.job_rows import Row
from nadi.models.llm.chunk_tensors import ChunkTensors, LastingTensors
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.layer_pieces import embedding_piece, head_pieces, layer_pieces
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.stage_traces import (
    BackwardKind,
    Chunk,
    ChunkLinks,
    backward_rows,
    forward_rows,
)

__all__ = ["generated_parts"]


def generated_parts(model: LanguageModel, variant: Variant) -> list[tuple[list[Row], list[Row]]]:
    """Generate each kind of layer, the embedding and the head, forward and backward."""
    tp, ep = variant.tensor_par, variant.expert_par
    splits = COMMUNICATION[variant.tensor_par_comm_type] == "rs_ag"
    recompute = {"none": "none", "attn_only": "selective", "full": "full"}
    plan = ParallelPlan(
        tp=tp, cp=variant.context_par, ep=ep,
        expert_tp=variant.expert_tensor_par or (1 if ep > 1 or tp == 1 else tp), zero=0,
        sequence_parallel=splits and tp > 1, micro_batch=variant.microbatch_size,
        global_batch=variant.microbatch_size, sequence=model.sequence,
        recompute=recompute[RECOMPUTE[variant.activation_recompute]],  # type: ignore[arg-type]
        attention="flash" if variant.flash_attention else "unfused",
        dtype={"float8": "float8_e4m3fn"}.get(*(2 * (DATATYPES[variant.datatype],))),
        lora=variant.lora,
        inference="" if variant.training else "decode" if variant.decoding else "prefill",
    )  # fmt: skip
    kinds = sorted(set(model.layer_kinds))
    parts = [(0, tuple(layer_pieces(model, plan, kind))) for kind in kinds]
    parts.append((-1, (embedding_piece(model, plan),)))
    parts.append((-1, tuple(head_pieces(model, plan, has_table=False))))
    found = []
    for part in parts:
        chunk = Chunk((part,), first=False, last=False)
        lasting = LastingTensors(model, plan, chunk.layers)
        tensors = ChunkTensors(model, plan, chunk.layers, lasting)
        forward = forward_rows(model, plan, chunk, ChunkLinks(), tensors)
        both = BackwardKind(True, True, False)
        backward = []
        if variant.training:
            backward = backward_rows(model, plan, chunk, ChunkLinks(), tensors, both)
        found.append((forward, backward))
    return found
