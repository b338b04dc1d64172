"""How a model is run on a machine: one execution by name, and many as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
import numpy as np
from msgspec import Meta

from nadi.estimates.estimated_model import ModelDescription
from nadi.models.llm.parallel_plan import Overlap
from nadi.trace.arrays import Bools, Floats, Ints

_Datatype = Literal["float8", "float16", "bfloat16", "float32"]
_Attention = Literal["multihead", "multiquery"]
_Recompute = Literal["none", "attn_only", "full"]
_Communication = Literal["ar", "p2p_rs_ag", "rs_ag"]
_Positive = Annotated[int, Meta(ge=1, le=2**31)]
_Tier = Annotated[int, Meta(ge=0, le=2**15)]

DATATYPES: tuple[str, ...] = get_args(_Datatype)
ELEMENT_BYTES = np.array([1.0, 2.0, 2.0, 4.0])  # of each datatype
ATTENTION: tuple[str, ...] = get_args(_Attention)
RECOMPUTE: tuple[str, ...] = get_args(_Recompute)
COMMUNICATION: tuple[str, ...] = get_args(_Communication)
OVERLAP: tuple[str, ...] = get_args(Overlap)


class Execution(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One way to run a model, by the names of Calculon's execution files.

    Attributes
    ----------
    num_procs
        Processors: the product of the three degrees that follow, and of ``context_par``.
    tensor_par, pipeline_par, data_par
        Degrees of tensor, pipeline and data parallelism.
    tensor_par_net, pipeline_par_net, data_par_net
        The network tier of each, by number from 0.
    batch_size, microbatch_size
        Sequences of a step, over all processors; of a microbatch, of one replica.
    datatype
        Of weights and activations.
    fused_activation
        Whether the activation function is part of the layer before it, and keeps nothing.
    attention_type
        Whether each head has its own key and value, or all share one.
    activation_recompute
        What the backward pass computes again: ``none``, what is between the attention's
        projections (``attn_only``), or everything (``full``).
    pipeline_interleaving
        Chunks of blocks on each stage of the pipeline.
    optimizer_sharding
        Whether replicas share the optimizer's state.
    tensor_par_comm_type
        All-reduces (``ar``), reduce-scatters and all-gathers with sequence parallelism between
        them (``rs_ag``), or all-reduces but for the last block of a chunk (``p2p_rs_ag``).
    tensor_par_overlap
        Whether communication of tensor parallelism overlaps with matrix products, tile by tile:
        ``none``, ``ring`` or ``pipe``.
    seq_par_ag_redo
        Whether what all-gathers deliver is not kept, and gathered again in the backward pass.
    data_par_overlap
        Whether communication of data parallelism overlaps with the backward pass.
    weight_offload, activations_offload, optimizer_offload
        What lives in the second memory tier.
    training
        Training, or inference: the forward pass alone.
    flash_attention
        Whether attention is one kernel that keeps no scores; Calculon's rules have none.
    expert_par
        Ranks that share the experts of a layer; Calculon's rules have no experts.
    decoding
        Of inference, whether each sequence gets one more token; Calculon's rules have none.
    context_par
        Ranks that share the tokens of a sequence, and the gradients of all weights with those of
        ``data_par``; Calculon's rules have none.
    gradient_sharding, weight_sharding
        Whether replicas that share the optimizer's state share gradients, too (ZeRO 2); and
        weights, which are gathered for each forward and backward (ZeRO 3). Calculon's rules have
        none.
    ends_as_layers
        Whether embedding and head count as a layer each where blocks are spread over stages;
        Calculon's rules have neither.
    lora
        Rank of adapters, which alone are trained; 0 if all weights are. Calculon's rules have none.
    expert_tensor_par
        Tensor parallel ranks that share the products of an expert: one, or all of them; 0 for one
        where ``expert_par`` exceeds one, and for all where not. Calculon's rules have no experts.
    """

    num_procs: _Positive
    tensor_par: _Positive
    pipeline_par: _Positive
    data_par: _Positive
    tensor_par_net: _Tier
    pipeline_par_net: _Tier
    data_par_net: _Tier
    batch_size: _Positive
    microbatch_size: _Positive
    datatype: _Datatype
    fused_activation: bool
    attention_type: _Attention
    activation_recompute: _Recompute
    pipeline_interleaving: _Positive
    optimizer_sharding: bool
    tensor_par_comm_type: _Communication
    tensor_par_overlap: Overlap
    seq_par_ag_redo: bool
    data_par_overlap: bool
    weight_offload: bool
    activations_offload: bool
    optimizer_offload: bool
    training: bool
    flash_attention: bool = False
    expert_par: _Positive = 1
    decoding: bool = False
    context_par: _Positive = 1
    gradient_sharding: bool = False
    weight_sharding: bool = False
    ends_as_layers: bool = False
    lora: Annotated[int, Meta(ge=0, le=2**24)] = 0
    expert_tensor_par: Annotated[int, Meta(ge=0, le=2**31)] = 0


class Executions(NamedTuple):
    """Executions as columns: int64, shape (executions,), or (1,) if all have the same value.

    Names are codes, positions in ``DATATYPES`` and the like; booleans are 0 and 1.
    """

    num_procs: Ints
    tensor_par: Ints
    pipeline_par: Ints
    data_par: Ints
    tensor_par_net: Ints
    pipeline_par_net: Ints
    data_par_net: Ints
    batch_size: Ints
    microbatch_size: Ints
    datatype: Ints
    fused_activation: Ints
    attention_type: Ints
    activation_recompute: Ints
    pipeline_interleaving: Ints
    optimizer_sharding: Ints
    tensor_par_comm_type: Ints
    tensor_par_overlap: Ints
    seq_par_ag_redo: Ints
    data_par_overlap: Ints
    weight_offload: Ints
    activations_offload: Ints
    optimizer_offload: Ints
    training: Ints
    flash_attention: Ints = np.zeros(1, dtype=np.int64)
    expert_par: Ints = np.ones(1, dtype=np.int64)
    decoding: Ints = np.zeros(1, dtype=np.int64)
    context_par: Ints = np.ones(1, dtype=np.int64)
    gradient_sharding: Ints = np.zeros(1, dtype=np.int64)
    weight_sharding: Ints = np.zeros(1, dtype=np.int64)
    ends_as_layers: Ints = np.zeros(1, dtype=np.int64)
    lora: Ints = np.zeros(1, dtype=np.int64)
    expert_tensor_par: Ints = np.zeros(1, dtype=np.int64)

    @property
    def expert_shares(self) -> Ints:
        """How many tensor parallel ranks share the products of an expert."""
        usual = np.where(self.expert_par > 1, 1, self.tensor_par)
        found: Ints = np.where(self.expert_tensor_par > 0, self.expert_tensor_par, usual)
        return found

    @property
    def replicas(self) -> Ints:
        """How many ranks share the gradients of the same dense weights."""
        return self.data_par * self.context_par

    @property
    def procs_of_stage(self) -> Ints:
        """How many processors a stage of the pipeline has."""
        return self.tensor_par * self.replicas

    @property
    def num_executions(self) -> int:
        """How many there are."""
        return max(column.size for column in self)

    def part(self, rows: slice | Bools | Ints) -> Executions:
        """Give some of them; columns of one value stay so."""
        return Executions(*(column if column.size == 1 else column[rows] for column in self))

    def is_named(self, field: str, *names: str) -> Bools:
        """Tell whether a field has one of these names."""
        codes = [CODES[field].index(name) for name in names]
        column: Ints = getattr(self, field)
        is_one: Bools = column == codes[0]
        for code in codes[1:]:
            is_one = is_one | (column == code)
        return is_one


CODES = {
    "datatype": DATATYPES,
    "attention_type": ATTENTION,
    "activation_recompute": RECOMPUTE,
    "tensor_par_comm_type": COMMUNICATION,
    "tensor_par_overlap": OVERLAP,
}
BOOLEAN = {
    "fused_activation", "optimizer_sharding", "seq_par_ag_redo", "data_par_overlap",
    "weight_offload", "activations_offload", "optimizer_offload", "training", "flash_attention",
    "decoding", "gradient_sharding", "weight_sharding", "ends_as_layers",
}  # fmt: skip


def columns_of(executions: Sequence[Execution]) -> Executions:
    """Give executions as columns, each with a value per execution."""
    return Executions(*(
        np.array([
            CODES[field].index(getattr(one, field)) if field in CODES else int(getattr(one, field))
            for one in executions
        ], dtype=np.int64)
        for field in Executions._fields
    ))  # fmt: skip


def execution_at(executions: Executions, row: int) -> Execution:
    """Give one execution of many by name."""
    values: dict[str, Any] = {}
    for field, column in zip(Executions._fields, executions, strict=True):
        number = int(column[row if column.size > 1 else 0])
        values[field] = number
        if field in CODES:
            values[field] = CODES[field][number]
        elif field in BOOLEAN:
            values[field] = bool(number)
    return Execution(**values)


def moved_tensors(execution: Execution) -> tuple[str, ...]:
    """Name what lives in the second memory tier."""
    kinds = {
        "weights": execution.weight_offload, "activations": execution.activations_offload,
        "optimizer": execution.optimizer_offload,
    }  # fmt: skip
    return tuple(name for name, is_moved in kinds.items() if is_moved)


class StepShape(NamedTuple):
    """Whole numbers as float64, shape (executions,) or (1,)."""

    stages: Floats  # of the pipeline
    # blocks on a stage, of which embedding and head can count as one each; where they do not
    # divide, some stages have one less
    blocks: Floats
    missing: Floats  # how many stages have one less
    chunks: Floats  # on a stage, each of consecutive blocks; the last block is its edge block
    chunk_blocks: Floats
    microbatches: Floats  # of one replica
    # first, last: blocks of the first and of the last stage, without embedding and head
    first: Floats
    last: Floats

    @property
    def num_blocks(self) -> Floats:
        """Blocks of all stages, without embedding and head."""
        ends = (self.blocks - self.first) * np.where(self.stages > 1, 2.0, 0.0)
        found: Floats = self.blocks * self.stages - self.missing - ends
        return found


def shape_of(model: ModelDescription, executions: Executions) -> StepShape:
    """Cut a step; what does not divide is rounded as Calculon does, and refused elsewhere."""
    stages = executions.pipeline_par
    ends = executions.ends_as_layers
    places = model.num_blocks + 2 * ends
    blocks = -(-places // stages)
    chunks = executions.pipeline_interleaving
    local_batch = executions.batch_size // executions.data_par
    microbatches = local_batch // executions.microbatch_size
    return StepShape(*(
        np.asarray(column, dtype=float)
        for column in (
            stages, blocks, -places % stages, chunks, -(-blocks // chunks), microbatches,
            blocks - ends, blocks - ends - (places % stages > 0),
        )
    ))  # fmt: skip
