"""Parts of steps of inference, priced once for many sizes: what a server's steps consist of.

A step of any mix of prompts and generated tokens is the sum of four parts: what goes by its tokens,
the logits of those requests that get a token, attention of each chunk of a prompt, and attention of
the requests that generate. They are the operations of ``inference`` in :class:`ParallelPlan`,
priced as an estimate prices them, so that a server's step and the estimate of one are one number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.described_systems import machine_of_system, model_of_language_model
from nadi.estimates.execution import columns_of
from nadi.estimates.generated_blocks import generated_costs, role_groups
from nadi.estimates.layer_programs import layer_shares, sizes_of, structures_of, variants_of
from nadi.estimates.part_structures import amounts_of_works
from nadi.estimates.plan_execution import execution_of_plan
from nadi.estimates.rings import RankGroup, link_seconds, message_seconds
from nadi.estimates.row_prices import PRICED_COLLECTIVES, contributed_bytes, kernel_seconds
from nadi.models.llm.chunk_tensors import cache_width
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.layer_pieces import core_works, layer_pieces
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.systems.system import System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.operations import ITEMSIZE

_MANY = 16  # prompts that fill any device
# of the peak, what grouped products reach that unpack weights of 4 bits: 1.09 and 0.54 TFLOP in
# 3.47 and 1.64 ms, in a recording of vLLM's prefill of gpt-oss-20b on MI300X (TraceLens's
# examples, matmul_ogs)
_UNPACKED = 0.245
_TILES = (8, 16, 32, 48, 64)  # rows of a tile of these
_EXPERTS = "mlp.experts."


class InferenceParts(NamedTuple):
    """Seconds of parts of steps, float64."""

    # all layers but the core of attention, the embedding, and messages between stages: by tokens
    dense: Floats
    # of these: kernels that the device's memory bounds, and collectives: shape (2, tokens)
    bound: Floats
    # of these: experts that several ranks share, and what of them the device's memory bounds
    experts: Floats
    heads: Floats  # the last norm and the logits: by requests
    # the core of attention for a chunk of a prompt: shape (chunks, tokens before it)
    chunks: Floats
    # the same where many prompts are in one kernel, which fill the device: each one's share
    crowded: Floats
    decodes: Floats  # for requests that generate: shape (requests, tokens before each)


def inference_parts(
    model: LanguageModel, system: System, plan: ParallelPlan, tokens: Ints,
    chunks: tuple[Ints, Ints], decodes: tuple[Ints, Ints], kv_dtype: str = "",
    weight_bits: int = 0,
) -> InferenceParts:  # fmt: skip
    """Price the parts of steps.

    - ``plan``: Its degrees and its type of numbers count; what its step is does not.
    - ``tokens``: Of steps, or requests that get a token: 1 or more.
    - ``chunks``: Tokens of chunks of prompts, 1 or more, and tokens before them.
    - ``decodes``: Requests that generate, and tokens before each, both 1 or more.
    - ``kv_dtype``: Of keys and values; by default as activations.
    - ``weight_bits``: Of a weight of the layers: 4 or 8, which products read and turn into their
      own type; 0: as activations.
    - Raises UsageError if the plan does not fit the model, or the system lacks what prices need.
    """
    machine = machine_of_system(system)
    core = partial(_core_seconds, model, machine, kv_dtype)
    described = model_of_language_model(model, 1)
    plans = [_decoding(model, plan, int(many), 1) for many in tokens]
    has_experts = model.moe is not None
    columns = columns_of([
        execution_of_plan(one, machine, has_experts=has_experts) for one in plans
    ])  # fmt: skip
    number, costs = generated_costs(described, machine, columns)
    forward = costs.block.forward.time + costs.block.forward_exchange[0].exposed
    dense = (model.layers * forward + costs.first.seconds)[number]
    if plan.pp > 1:
        group = RankGroup(np.array([2]), np.array([plan.tp * plan.dp]), np.array([0]))
        hop = message_seconds(machine, costs.block.boundary[number], group)
        dense = dense + (plan.pp - 1) * hop
    dense = dense - core(plans)
    whole, memory, experts, expert_memory = _layer_seconds(model, system, machine, plans)
    first = costs.first.seconds[number]
    network = np.maximum(dense - whole - first, 0.0)
    saved, expert_saved = np.zeros((2, tokens.size))
    if weight_bits:
        saved, expert_saved = _saved_seconds(model, system, machine, plans, weight_bits)
    # what narrow weights take longer goes to computation
    bound = np.stack([np.maximum(memory - np.maximum(saved, 0.0), 0.0) + first, network])
    expert_memory = np.maximum(expert_memory - np.maximum(expert_saved, 0.0), 0.0)
    is_shared = plan.ep > 1
    return InferenceParts(
        dense - saved, bound, is_shared * np.stack([experts - expert_saved, expert_memory]),
        costs.last.seconds[number],
        _of_chunks(core, model, plan, chunks),
        _of_chunks(core, model, plan, chunks, _MANY) / _MANY,
        core([
            _decoding(model, plan, int(many), int(before))
            for many in decodes[0] for before in decodes[1]
        ]).reshape(decodes[0].size, -1),
    )  # fmt: skip


def wire_seconds(model: LanguageModel, system: System, plan: ParallelPlan, tokens: Ints) -> Floats:
    """Give the seconds of steps for which bytes of collectives and messages keep a rank's links.

    - ``tokens``: Of steps: 1 or more.
    - Returns: float64, shape (dimensions of the network, steps): of the part that goes by tokens,
      over all stages.
    """
    machine = machine_of_system(system)
    network = machine.nested
    assert network is not None  # of a system
    plans = [_decoding(model, plan, int(many), 1) for many in tokens]
    columns = columns_of([
        execution_of_plan(one, machine, has_experts=model.moe is not None) for one in plans
    ])  # fmt: skip
    variants, groups = variants_of(columns), role_groups(columns)
    sizes = [sizes_of(model, one) for one in variants]
    found = np.zeros((len(network.dimensions), tokens.size))
    times = [round(share * model.layers) for share in layer_shares(model).values()]
    # tokens change sizes alone; behind layers of each kind comes the embedding
    for part, (program, _) in enumerate(structures_of(model, variants[0])[: len(times) + 1]):
        for row, slot in zip(program.rows, program.slots.tolist(), strict=True):
            if row.role not in groups or row.comm_type not in PRICED_COLLECTIVES:
                continue
            whole = np.array([one.parts[part].amounts.whole[slot] for one in sizes])
            size = contributed_bytes(row.comm_type, whole, groups[row.role])
            once = link_seconds(network, row.comm_type, size, groups[row.role])
            found += (*times, 1)[part] * once
    if plan.pp > 1:
        hop = RankGroup(np.array([2]), np.array([plan.tp * plan.dp]), np.array([0]))
        boundary = np.array([float(one.boundary) for one in sizes])
        # half of an all-to-all of two goes to the other one
        found += (plan.pp - 1) * link_seconds(network, "all_to_all", 2 * boundary, hop)
    return found


def _core_seconds(
    model: LanguageModel, machine: MachineDescription, kv_dtype: str,
    plans: Sequence[ParallelPlan],
) -> Floats:  # fmt: skip
    """Price the core of attention of all layers, in each of some plans."""
    works = [work for plan in plans for work in core_works(model, plan)]  # of all layers alike
    amounts = amounts_of_works(works)
    if kv_dtype:  # what is read of each sequence is smaller
        read = [
            one.micro_batch * one.sequence * cache_width(model, one)
            * (one.itemsize - ITEMSIZE[kv_dtype]) for one in plans
        ]  # fmt: skip
        less = np.repeat(np.array(read, dtype=np.int64), len(works) // len(plans))
        amounts = amounts._replace(bytes=np.maximum(amounts.bytes - less, 0))
    datatype = np.zeros(amounts.flops.size, dtype=np.int64)  # the device's curves know the type
    seconds = kernel_seconds(machine, amounts.operations, datatype)
    summed: Floats = model.layers * seconds.reshape(len(plans), -1).sum(axis=1)
    return summed


def _layer_seconds(
    model: LanguageModel, system: System, machine: MachineDescription,
    plans: Sequence[ParallelPlan],
) -> Floats:  # fmt: skip
    """Price kernels of all layers but the core of attention.

    Memory bounds a kernel whose bytes take longer than its operations, both at the device's peak.

    - Returns: Of each plan, all and those that memory bounds, and the same of experts: shape
      (4, plans).
    """
    found = np.zeros((4, len(plans)))
    peak = max(system.compute.peak_of(plans[0].dtype), 1.0)
    for kind in set(model.layer_kinds):
        pieces = [
            one for plan in plans for one in layer_pieces(model, plan, kind)
            if one.forward and not one.is_core
        ]  # fmt: skip
        amounts = amounts_of_works([one.forward for one in pieces])
        datatype = np.zeros(amounts.flops.size, dtype=np.int64)
        seconds = kernel_seconds(machine, amounts.operations, datatype)
        waits = amounts.bytes / (machine.mem1.GBps * 1e9) >= amounts.flops / peak
        is_expert = np.array([one.name.startswith(_EXPERTS) for one in pieces])
        which = np.stack([np.ones_like(waits), waits, is_expert, is_expert & waits])
        found += model.layer_kinds.count(kind) * (
            (seconds * which).reshape(4, len(plans), -1).sum(axis=2)
        )
    return found


def _saved_seconds(
    model: LanguageModel, system: System, machine: MachineDescription,
    plans: Sequence[ParallelPlan], bits: int,
) -> Floats:  # fmt: skip
    """Price what products of all layers save if their weights are narrower, in each plan.

    Experts whose weights are unpacked while they compute save less, or take longer.

    - Returns: Of each plan, what all save, and what experts do: shape (2, plans).
    """
    saved = np.zeros((2, len(plans)))
    peak = max(system.compute.peak_of(plans[0].dtype), 1.0)
    for kind in set(model.layer_kinds):
        pieces = [
            one for plan in plans for one in layer_pieces(model, plan, kind)
            if one.weight + one.expert_weight and one.forward and one.forward.op_class == "gemm"
        ]  # fmt: skip
        wide = amounts_of_works([one.forward for one in pieces])
        weights = wide.shape[:, 0] * wide.shape[:, 2] * wide.shape[:, 3]
        narrower = weights * ITEMSIZE[plans[0].dtype] - weight_bytes(weights, bits)
        datatype = np.zeros(wide.flops.size, dtype=np.int64)
        before, after = (
            kernel_seconds(machine, one.operations, datatype)
            for one in (wide, wide._replace(bytes=wide.bytes - narrower))
        )
        is_expert = np.array([one.expert_weight > 0 for one in pieces])
        if bits == 4:
            rows = np.maximum(wide.shape[:, 1], 1)
            flops = wide.flops * tile_rows(rows) / rows
            after = np.maximum(after, is_expert * flops / (_UNPACKED * peak))
        less = (before - after) * np.stack([np.ones_like(is_expert), is_expert])
        saved += model.layer_kinds.count(kind) * less.reshape(2, len(plans), -1).sum(axis=2)
    return saved


def tile_rows(rows: Ints) -> Floats:
    """Give the rows that grouped products compute for those of an expert: whole tiles.

    A tile is the first that the rows of an expert in the mean, 1 or more, fill to less than nine
    tenths, as in vLLM's kernel for weights of 4 bits. Rows differ from expert to expert, as drawn.
    """
    tiles = np.array(_TILES)[np.searchsorted(0.9 * np.array(_TILES[:-1]), rows, side="right")]
    more = np.arange(1, rows.max() // _TILES[0] + 4)[:, None]
    # how likely the drawn rows fill so many tiles, and need another one
    beyond = (more * tiles + 0.5 - rows) / np.sqrt(rows)
    found: Floats = tiles * (1 + (0.5 - 0.5 * np.tanh(0.851 * beyond)).sum(axis=0))
    return found


def launched_operations(model: LanguageModel) -> int:
    """Return how many operations of all layers a step launches, without collectives."""
    plan, kinds = _decoding(model, ParallelPlan(), 1, 1), model.layer_kinds
    return sum(
        kinds.count(kind) * len([one for one in layer_pieces(model, plan, kind) if one.forward])
        for kind in set(kinds)
    )


def weight_bytes(weights: Ints, bits: int) -> Ints:
    """Give the bytes of narrow weights: 32 of 4 bits have a scale of 8 bits, as in MXFP4."""
    return -(-weights * 17 // 32) if bits == 4 else weights


def _of_chunks(
    core: Callable[[Sequence[ParallelPlan]], Floats], model: LanguageModel, plan: ParallelPlan,
    chunks: tuple[Ints, Ints], prompts: int = 1,
) -> Floats:  # fmt: skip
    """Price attention of chunks: tokens of so many prompts behind those that were computed.

    Latent attention has its keys and values compressed, which plans with a prefix lack; there a
    chunk is what the whole costs beyond what is before it.
    """

    def read(tokens: int, prefix: int = 0) -> ParallelPlan:
        return msgspec.structs.replace(
            plan, inference="prefill", micro_batch=prompts, global_batch=plan.dp * prompts,
            sequence=tokens,
            prefix=prefix, sequence_parallel=False, expert_tp=plan.tp,
        ).of(model)  # fmt: skip

    cells = [(int(chunk), int(before)) for chunk in chunks[0] for before in chunks[1]]
    if model.mla is None:
        found = core([read(before + chunk, before) for chunk, before in cells])
    else:
        whole, part = (
            core([read(max(tokens, 1)) for tokens in sizes])
            for sizes in ([sum(cell) for cell in cells], [before for _, before in cells])
        )
        found = whole - part * np.array([before > 0 for _, before in cells])
    return found.reshape(chunks[0].size, -1)


def inference_bytes(
    model: LanguageModel, plan: ParallelPlan, kv_dtype: str = "", weight_bits: int = 0
) -> tuple[int, int]:
    """Give the bytes of weights, and of a token's keys and values, on a rank of the first stage.

    Stages have equal parts of the layers; the fullest is counted, with all of the embedding.
    """
    whole = _decoding(model, plan, 1, 1)
    kinds, element = model.layer_kinds, ITEMSIZE[plan.dtype]
    layers = 0
    for kind in set(kinds):
        pieces = layer_pieces(model, whole, kind)
        layers += kinds.count(kind) * sum(one.weight + one.expert_weight for one in pieces)
    tables = -(-model.vocab // plan.tp) * model.hidden * (1 if model.tied_embeddings else 2)
    of_layers = layers * element
    if weight_bits:
        of_layers = int(weight_bytes(np.array(layers), weight_bits))
    weights = -(-of_layers // plan.pp) + tables * whole.itemsize
    element = ITEMSIZE[kv_dtype] if kv_dtype else whole.itemsize
    token = cache_width(model, whole) * element * -(-model.layers // plan.pp)
    return weights, token


def _decoding(model: LanguageModel, plan: ParallelPlan, requests: int, before: int) -> ParallelPlan:
    """Give the plan of a step in which so many requests of each replica get a token."""
    return msgspec.structs.replace(
        plan, inference="decode", micro_batch=requests, global_batch=requests * plan.dp,
        sequence=before, prefix=0, sequence_parallel=None,
    ).of(model)  # fmt: skip
