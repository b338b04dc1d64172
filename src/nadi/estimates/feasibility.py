"""Whether an execution can be, and what each that cannot lacks."""

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.memory import MemoryUse
from nadi.estimates.calculon.rules import EstimateRules
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import DATATYPES, Execution, Executions
from nadi.trace.arrays import Bools, Ints

_OFFLOAD_BLOCKS = 3


class Reason(NamedTuple):
    """A rule that an execution breaks."""

    name: str
    rule: str  # what it lacks, as a clause


REASONS: tuple[Reason, ...] = (
    Reason("", ""),
    Reason("ranks", "the degrees of parallelism do not multiply to the number of ranks"),
    Reason("replicas", "the batch does not divide by the degree of data parallelism"),
    Reason("microbatches", "the batch of a replica does not divide by the micro-batch"),
    Reason("heads", "the attention's heads do not divide by the degree of tensor parallelism"),
    Reason("width", "the widths do not divide by the degree of tensor parallelism"),
    Reason(
        "sequence", "the sequence does not divide by the degrees of tensor and context parallelism"
    ),
    Reason("interleaving", "the blocks of a stage cannot be cut into so many chunks"),
    Reason("lone-stage", "one stage cannot be interleaved"),
    Reason("adapters", "inference and latent attention have no adapters (lora)"),
    Reason("sharding", "one replica cannot shard the optimizer"),
    Reason("further-sharding", "gradients and weights are sharded with the optimizer's state"),
    Reason(
        "gathered-moves",
        "with ZeRO 3, moves of weights and activations are simulated (nadi memory place) "
        "and not estimated",
    ),
    Reason("reduction", "one replica has no reduction to overlap"),
    Reason("gather", "only sequence parallelism (rs_ag) gathers again"),
    Reason("inference", "inference has no backward pass to compute again, shard or offload for"),
    Reason("decoding", "decoding is inference, and one token has no sequence to split (rs_ag)"),
    Reason("datatype", "the machine has no engine for the datatype"),
    Reason("tier", "the machine has no such network tier"),
    Reason("network", "a network tier is too small for the degrees of parallelism on it"),
    Reason("filled", "a network tier that must be filled is not"),
    Reason("offload-blocks", "offloading needs three blocks on a stage"),
    Reason(
        "calculon-kernels",
        "Calculon's rules have no fused attention, experts, decoding, context "
        "parallelism, ZeRO 2 and 3, ends that count as layers, or adapters",
    ),
    Reason("calculon-layers", "Calculon's rules have blocks of equal heads and one dense MLP"),
    Reason("p2p-rs-ag", "p2p_rs_ag is a variant of Calculon's; use ar or rs_ag"),
    Reason("tiles", "products have too few tokens to be cut into a tile for each rank"),
    Reason("keys", "the heads of keys and the degree of tensor parallelism do not divide"),
    Reason("experts", "experts cannot be spread over so many ranks"),
    Reason("tier1", "the first memory tier is too small"),
    Reason("tier2", "the second memory tier is too small"),
)
_CODES = {reason.name: code for code, reason in enumerate(REASONS)}


def shape_reasons(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules,
) -> Ints:  # fmt: skip
    """Give the first rule that each execution breaks, apart from capacity: codes of ``REASONS``."""
    e = executions
    degree, stages, replicas, parts = e.tensor_par, e.pipeline_par, e.data_par, e.context_par
    places = model.num_blocks + 2 * e.ends_as_layers
    blocks, chunks = -(-places // stages), e.pipeline_interleaving
    training = e.training == 1
    offloads = (e.weight_offload | e.activations_offload | e.optimizer_offload) == 1
    split = e.is_named("tensor_par_comm_type", "rs_ag")
    backward = (e.optimizer_sharding | e.data_par_overlap | e.seq_par_ag_redo) == 1
    backward = backward | ~e.is_named("activation_recompute", "none")
    further = (e.gradient_sharding | e.weight_sharding) == 1
    local = e.batch_size // replicas
    own = not rules.blocks_of_calculon
    alone = e.replicas == 1
    if own and model.language_model.moe is not None:  # tensor parallel ranks can share experts
        alone = alone & (degree <= e.expert_par * e.expert_shares)
    has_tier, is_large, is_filled = _network_rules(machine, e, own)
    broken = {
        "ranks": degree * stages * e.replicas != e.num_procs,
        "replicas": local * replicas != e.batch_size,
        "microbatches": local % e.microbatch_size != 0,
        "heads": model.attn_heads % degree != 0,
        "width": (model.hidden % degree != 0) | (model.feedforward % degree != 0),
        "sequence": (e.decoding == 0)
        & (model.seq_size % (parts * np.where(split, degree, 1)) != 0),
        "interleaving": (chunks > 1) & (chunks * stages > places) if own else blocks % chunks != 0,
        "lone-stage": (stages == 1) & (chunks > 1),
        "adapters": (e.lora > 0) & (~training | bool(own and model.language_model.mla)),
        "sharding": alone & (e.optimizer_sharding == 1),
        "further-sharding": further & (e.optimizer_sharding == 0),
        "gathered-moves": ((e.weight_offload | e.activations_offload) & e.weight_sharding) == 1,
        "reduction": alone & (e.data_par_overlap == 1),
        "gather": ~split & (e.seq_par_ag_redo == 1),
        "inference": ~training & (backward | (e.optimizer_offload == 1)),
        "decoding": (e.decoding == 1) & (training | (split & (degree > 1)) | (parts > 1)),
        "datatype": ~_has_engines(machine)[e.datatype],
        "tier": ~has_tier,
        "network": ~is_large,
        "filled": ~is_filled,
        "offload-blocks": offloads & (blocks < _OFFLOAD_BLOCKS),
        **(_default_rules(model, e) if own else _rules_of_calculon(model, e)),
    }
    found = np.zeros(e.num_executions, dtype=np.int64)
    for name, breaks in reversed(broken.items()):
        found = np.where(breaks, _CODES[name], found)
    return found


def _rules_of_calculon(model: ModelDescription, executions: Executions) -> dict[str, Bools]:
    e, language = executions, model.language
    further = e.gradient_sharding | e.weight_sharding | e.ends_as_layers | (e.lora > 0)
    plain = language is None or (
        language.moe is None
        and language.mla is None
        and not language.gated
        and (language.kv_heads == language.heads)
    )
    return {
        "calculon-kernels": ((e.flash_attention | e.decoding | further) == 1)
        | (e.expert_par > 1)
        | (e.expert_tensor_par > 0)
        | (e.context_par > 1),
        "calculon-layers": np.full(1, not plain),
    }


def _default_rules(model: ModelDescription, executions: Executions) -> dict[str, Bools]:
    e, language = executions, model.language_model
    degree, spread = e.tensor_par, e.expert_par
    keys = np.where(e.is_named("attention_type", "multiquery"), 1, language.kv_heads)
    experts = 1 if language.moe is None else language.moe.experts
    # ranks that have a part of the tokens each can send them to experts
    together = (degree > 1) & ~e.is_named("tensor_par_comm_type", "rs_ag") & (e.expert_shares == 1)
    uneven = (experts % spread != 0) | (degree * e.replicas % (spread * e.expert_shares) != 0)
    partly = (e.expert_shares != 1) & (e.expert_shares != degree)
    tokens = e.microbatch_size * np.where(e.decoding == 1, 1, model.seq_size // e.context_par)
    return {
        "tiles": ~e.is_named("tensor_par_overlap", "none") & (tokens % degree != 0),
        "p2p-rs-ag": e.is_named("tensor_par_comm_type", "p2p_rs_ag") & (degree > 1),
        "keys": (keys % degree != 0) & (degree % keys != 0),
        "experts": ((spread > 1) | (e.expert_tensor_par > 0)) & (uneven | partly | together),
    }


def capacity_reasons(
    machine: MachineDescription, memory: MemoryUse, reasons: Ints, executions: Executions
) -> Ints:
    """Give the reasons again, with the tiers that are too small for executions without one."""
    first = memory.tier1_bytes > machine.mem1.capacity
    second = memory.tier2_bytes > machine.mem2.share(executions.num_procs)
    full = np.where(first, _CODES["tier1"], np.where(second, _CODES["tier2"], 0))
    return np.where(reasons == 0, full, reasons)


def _has_engines(machine: MachineDescription) -> Bools:
    return np.array([name in machine.matrix and name in machine.vector for name in DATATYPES])


def _network_rules(
    machine: MachineDescription, executions: Executions, own: bool
) -> tuple[Bools, Bools, Bools]:
    """Tell whether all tiers exist, are large enough, and filled where they must be."""
    e = executions
    if own and machine.nested is not None:
        size = np.prod([float(one.size) for one in machine.nested.dimensions])
        yes = np.ones(1, dtype=bool)
        return yes, np.asarray(e.num_procs <= size), yes
    pairs = (
        (e.tensor_par_net, e.tensor_par),
        (e.pipeline_par_net, e.pipeline_par),
        (e.data_par_net, e.replicas),
    )
    there = np.ones(1, dtype=bool)
    for tier, _ in pairs:
        there = there & (tier < len(machine.networks))
    large = np.ones(1, dtype=bool)
    filled = np.ones(1, dtype=bool)
    for number, network in enumerate(machine.networks):
        on_it: Ints = np.ones(1, dtype=np.int64)
        for tier, degree in pairs:
            on_it = on_it * np.where(tier == number, degree, 1)
        large = large & (on_it <= network.size)
        if network.must_be_filled:
            filled = filled & (network.size % on_it == 0)
    return there, large, filled


def reason_text(
    code: int, machine: MachineDescription, model: ModelDescription, execution: Execution,
    bytes_needed: tuple[float, float],
) -> str:  # fmt: skip
    """Say what one execution lacks, with its numbers; empty if it lacks nothing."""
    e = execution
    reason = REASONS[code]
    numbers = {
        "ranks": f"{e.tensor_par} x {e.pipeline_par} x {e.data_par * e.context_par} is not "
        f"{e.num_procs}",
        "replicas": f"{e.batch_size} over {e.data_par}",
        "microbatches": f"{e.batch_size // e.data_par} over {e.microbatch_size}",
        "heads": f"{model.attn_heads} over {e.tensor_par}",
        "width": f"{model.hidden} and {model.feedforward} over {e.tensor_par}",
        "sequence": f"{model.seq_size} over {e.tensor_par} x {e.context_par}",
        "interleaving": f"{-(-(model.num_blocks + 2 * e.ends_as_layers) // e.pipeline_par)} over "
        f"{e.pipeline_interleaving}",
        "datatype": e.datatype,
        "tier1": _needs(bytes_needed[0], machine.mem1.capacity),
        "tier2": _needs(bytes_needed[1], float(machine.mem2.share(np.array(e.num_procs)))),
        "keys": f"{model.language_model.kv_heads} and {e.tensor_par}",
        "experts": f"{e.expert_par}",
    }
    return f"{reason.rule}: {numbers[reason.name]}" if reason.name in numbers else reason.rule


def _needs(needed: float, capacity: float) -> str:
    return f"{needed / 2**30:.3f} GiB, of which it has {capacity / 2**30:.3f}"
