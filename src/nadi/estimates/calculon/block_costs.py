"""What one block costs in each stage: time, operations, communication and memory.

Everything here depends on a few fields of executions, so it is worked out once for each of
their distinct values ("ways"), and executions take it by index.
"""

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.layer_sizes import (
    LayerSizes,
    dimensions_of,
    distinct_rows,
    layer_sizes,
    matrix_engine,
    presence_of,
    weights_of,
)
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.overlap import activation_collectives
from nadi.estimates.calculon.rules import BLOCK, EstimateRules, Kept, Kind
from nadi.estimates.calculon.tensor_exchanges import (
    LayerTimes,
    TensorExchange,
    exchanges_of,
    scaled_exchanges,
)
from nadi.estimates.described_columns import columns_in, rows_of
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import ELEMENT_BYTES, Executions
from nadi.trace.arrays import Bools, Floats, Ints

_BLOCK_FIELDS = (
    "tensor_par", "microbatch_size", "tensor_par_comm_type", "tensor_par_overlap",
    "activation_recompute", "seq_par_ag_redo", "fused_activation", "attention_type", "datatype",
    "tensor_par_net", "training",
)  # fmt: skip
_OPTIMIZER_FIELDS = (
    "tensor_par", "tensor_par_overlap", "attention_type", "datatype", "data_par",
    "optimizer_sharding", "training",
)  # fmt: skip
_IS_MATRIX = matrix_engine(BLOCK)
_ADAM_FLOPS = 11.0  # per weight
_ADAM_STATE = 8.0  # bytes of the two moments of a weight
_MASTER_COPY = 4.0  # bytes of a weight's copy, where weights themselves are smaller


class StageCosts(NamedTuple):
    """One stage of one block and microbatch, float64 of shape (ways,)."""

    flops: Floats
    flops_time: Floats  # seconds
    bytes: Floats
    memory_time: Floats
    time: Floats  # of both together


class BlockCosts(NamedTuple):
    """One block and microbatch, float64 of shape (ways,); of exchanges base and edge block."""

    forward: StageCosts
    activation: StageCosts  # gradients of activations
    weight: StageCosts  # gradients of weights
    again: StageCosts  # forward work that the backward pass repeats
    forward_exchange: tuple[TensorExchange, TensorExchange]
    backward_exchange: tuple[TensorExchange, TensorExchange]
    exchange_again: tuple[TensorExchange, TensorExchange]
    required_bandwidth: Floats  # of tensor parallelism, to expose nothing
    weights: Floats  # bytes
    working: Floats  # activations while the block works
    stored: Floats  # activations that wait for the backward pass
    checkpoint: Floats  # the input, with full recomputation
    whole_weight_gradient: Floats  # in 4 bytes
    activation_gradient: Floats
    boundary: Floats  # bytes that the next stage of a pipeline takes


class OptimizerCosts(NamedTuple):
    """The optimizer's step of one block, float64 of shape (ways,)."""

    step: StageCosts
    weight_gradient: Floats  # bytes of a replica's share
    state: Floats


def block_costs(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    rules: EstimateRules,
) -> tuple[Ints, BlockCosts]:  # fmt: skip
    """Give each execution's way, and the costs of a block in each."""
    parts = (machine.matrix, machine.vector, machine.mem1, machine.networks)
    number, first = distinct_rows(executions, _BLOCK_FIELDS, columns_in(model, *parts))
    ways = executions.part(first)
    model, machine = rows_of(model, first), rows_of(machine, first)
    dimensions = dimensions_of(model, ways)
    present = presence_of(BLOCK, _spread(ways))
    sizes = layer_sizes(BLOCK, dimensions, present)
    flops = (sizes.forward_flops, sizes.activation_flops, sizes.weight_flops)
    moved = (sizes.forward_bytes, sizes.activation_bytes, sizes.weight_bytes)
    times = (
        _times_of(machine, ways, flops[0], moved[0]),
        _times_of(machine, ways, flops[1], moved[1]),
        _times_of(machine, ways, flops[2], moved[2]),
    )
    collectives = activation_collectives(
        machine, ways, dimensions.by_name["whole"], dimensions.element
    )
    exchanges = exchanges_of(machine, ways, collectives, present, times, rules)
    stages = [_summed(*one) for one in zip(flops, moved, times, exchanges.layer_times, strict=True)]
    repeated = _is_computed_again(ways, present)
    again = _computed_again(sizes, times[0], exchanges.layer_times[0], repeated, rules)
    training = (ways.training == 1).astype(float)
    working, stored = _activations(ways, sizes)
    full = ways.is_named("activation_recompute", "full")
    boundary = dimensions.by_name["whole"] * dimensions.element
    local = dimensions.by_name["local"] * dimensions.element
    splits = ways.is_named("tensor_par_comm_type", "rs_ag", "p2p_rs_ag")
    weights = sizes.weights.sum(0)
    return number, BlockCosts(
        stages[0],
        _scaled(stages[1], training),
        _scaled(stages[2], training),
        _scaled(again, training),
        exchanges.forward,
        scaled_exchanges(exchanges.backward, training),
        scaled_exchanges(exchanges.again, training),
        exchanges.required_bandwidth,
        weights,
        working,
        np.where(full, 0.0, stored),
        np.where(full, boundary if rules.checkpoints_are_whole else local, 0.0),
        weights / dimensions.element * 4 * training,
        sizes.gradient.sum(0) * training,
        np.where(splits, boundary / ways.tensor_par, boundary),
    )


def optimizer_costs(
    model: ModelDescription, machine: MachineDescription, executions: Executions
) -> tuple[Ints, OptimizerCosts]:
    """Give each execution's way, and the costs of Adam's step of a block in each."""
    columns = columns_in(model, machine.vector, machine.mem1)
    number, first = distinct_rows(executions, _OPTIMIZER_FIELDS, columns)
    ways = executions.part(first)
    model, machine = rows_of(model, first), rows_of(machine, first)
    present = presence_of(BLOCK, _spread(ways))
    dimensions = dimensions_of(model, ways)
    shards = np.where(ways.optimizer_sharding == 1, ways.data_par, 1)
    trained = present & (ways.training == 1)
    weights = weights_of(BLOCK, dimensions, present.shape[1]) * trained / shards
    element = ELEMENT_BYTES[ways.datatype]
    state = weights * (_ADAM_STATE + np.where(element < 4, _MASTER_COPY, 0.0))
    flops = weights * _ADAM_FLOPS
    compute = machine.compute_time("vector", ways.datatype, flops)
    memory = machine.mem1.time(state)
    total = machine.processing_time(compute, memory)
    step = StageCosts(*(one.sum(0) for one in (flops, compute, state, memory, total)))
    return number, OptimizerCosts(step, (weights * element).sum(0), state.sum(0))


def _spread(ways: Executions) -> Executions:
    """Give a field that all ways have a value each, which sets how many there are."""
    spread = np.broadcast_to(ways.tensor_par, ways.num_executions)
    return ways._replace(tensor_par=spread)


def _times_of(
    machine: MachineDescription, ways: Executions, flops: Floats, moved: Floats
) -> LayerTimes:
    compute = np.empty_like(flops)
    compute[_IS_MATRIX] = machine.compute_time("matrix", ways.datatype, flops[_IS_MATRIX])
    compute[~_IS_MATRIX] = machine.compute_time("vector", ways.datatype, flops[~_IS_MATRIX])
    memory = machine.mem1.time(moved)
    return LayerTimes(compute, memory, machine.processing_time(compute, memory))


def _summed(flops: Floats, moved: Floats, times: LayerTimes, took: Floats) -> StageCosts:
    return StageCosts(
        flops.sum(0), times.compute.sum(0), moved.sum(0), times.memory.sum(0), took.sum(0)
    )


def _scaled(costs: StageCosts, factor: Floats) -> StageCosts:
    return StageCosts(*(one * factor for one in costs))


def _is_computed_again(ways: Executions, present: Bools) -> Bools:
    """Tell which layers the backward pass repeats: the attention's, or all but communication."""
    full = ways.is_named("activation_recompute", "full")
    attention = ways.is_named("activation_recompute", "attn_only")
    redo = ways.seq_par_ag_redo == 1
    again = np.zeros_like(present)
    for row, layer in enumerate(BLOCK):
        if layer.kind not in (Kind.GATHER, Kind.SCATTER):
            again[row] = full
        if layer.again:
            again[row] = full | attention | (redo & (layer.kept is Kept.GATHERED_ATTENTION))
    return again & present


def _computed_again(
    sizes: LayerSizes, times: LayerTimes, took: Floats, again: Bools, rules: EstimateRules
) -> StageCosts:
    """Sum what the backward pass computes again."""
    done = [sizes.forward_flops, times.compute, sizes.forward_bytes, times.memory]
    if rules.recomputed_sums_are_cumulative:
        done = [np.cumsum(one, axis=0) for one in done]
    return StageCosts(*((one * again).sum(0) for one in (*done, took)))


def _activations(ways: Executions, sizes: LayerSizes) -> tuple[Floats, Floats]:
    """Give the bytes of activations while a block works, and until its backward pass."""
    attention = ways.is_named("activation_recompute", "attn_only")
    redo = ways.seq_par_ag_redo == 1
    is_stored = {
        Kept.YES: np.ones(1, dtype=bool),
        Kept.ATTENTION: ~attention,
        Kept.GATHERED: ~redo,
        Kept.GATHERED_ATTENTION: ~(redo | attention),
    }
    working = np.zeros(sizes.kept.shape[1])
    stored = np.zeros_like(working)
    for layer, kept, output in zip(BLOCK, sizes.kept, sizes.outputs, strict=True):
        if layer.kept is Kept.SHARED:
            continue
        working += kept
        if layer.kept is Kept.ATTENTION_INPUT:
            stored += np.where(attention, output, kept)
        elif layer.kept is not Kept.WORKING:
            stored += np.where(is_stored[layer.kept], kept, 0.0)
    # inference counts what every layer has, although nothing waits for a backward pass
    return working, np.where(ways.training == 1, stored, sizes.kept.sum(0))
