"""What one block costs in each stage: time, operations, communication and memory.

Everything here depends on a few fields of executions, so it is worked out once for each of
their distinct values ("ways"), and executions take it by index.

What tensor parallelism exchanges in a block: sizes, seconds, and what stays exposed.
"""

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.layer_sizes import (
    MERGED_KINDS,
    LayerSizes,
    dimensions_of,
    distinct_rows,
    layer_sizes,
    matrix_engine,
    presence_of,
    weights_of,
)
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.overlap import (
    CollectiveSeconds,
    activation_collectives,
    operation_of,
    overlapped,
)
from nadi.estimates.calculon.rules import BLOCK, EstimateRules, Kept, Kind, Layer
from nadi.estimates.described_columns import columns_in, rows_of
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import ELEMENT_BYTES, Executions
from nadi.trace.arrays import Bools, Floats, Ints

_GATHERS = (Kind.GATHER, Kind.GATHER_LINEAR)
_ROWS = [
    (row, layer)
    for row, layer in enumerate(BLOCK)
    if layer.kind in (*_GATHERS, Kind.SCATTER, Kind.LINEAR_SCATTER)
]


class LayerTimes(NamedTuple):
    """Seconds of each layer alone in one stage, float64 of shape (layers, ways)."""

    compute: Floats
    memory: Floats
    total: Floats


class TensorExchange(NamedTuple):
    """Communication of tensor parallelism of one stage of one block, shape (ways,)."""

    size: Floats  # bytes
    time: Floats
    exposed: Floats


class Exchanges(NamedTuple):
    """All exchanges of a block, of its base and edge kind, and its layers beside them."""

    forward: tuple[TensorExchange, TensorExchange]
    backward: tuple[TensorExchange, TensorExchange]
    again: tuple[
        TensorExchange, TensorExchange
    ]  # all-gathers and reductions that the backward pass repeats
    required_bandwidth: Floats  # bytes a second, so that overlapping exposes nothing
    layer_times: tuple[Floats, Floats, Floats]  # of each stage: (layers, ways)


class _Pair(NamedTuple):
    """What one layer does in one stage of a base or an edge block."""

    size: Floats
    time: Floats
    exposed: Floats
    took: Floats  # seconds of the layer itself
    alone: Floats  # seconds of the network
    is_done: Bools
    required: Floats


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


def exchanges_of(
    machine: MachineDescription, ways: Executions, collectives: CollectiveSeconds, present: Bools,
    times: tuple[LayerTimes, LayerTimes, LayerTimes], rules: EstimateRules,
) -> Exchanges:  # fmt: skip
    """Work out all exchanges of a block.

    - ``present``: Which layers are part of the block, shape (layers, ways).
    - ``times``: Of the forward pass, and of the gradients of activations and of weights.
    """
    num = present.shape[1]
    took = [one.total.copy() for one in times]
    sums = np.zeros((3, 2, 3, num))  # stage, block, field of an exchange
    required = np.zeros(num)
    for row, layer in _ROWS:
        there = present[row]
        again = _is_done_again(layer, ways) & there
        for stage in range(2):
            pairs = [
                _exchange(machine, ways, collectives, layer, times[stage], row, (stage, edge))
                for edge in (False, True)
            ]
            if layer.kind in MERGED_KINDS and rules.exposed_time_is_of_base_block:
                pairs[1] = pairs[1]._replace(exposed=pairs[0].exposed)
            took[stage][row] = pairs[0].took * there
            for block, pair in enumerate(pairs):
                for field in range(3):
                    sums[stage, block, field] += pair[field] * there
                required = np.maximum(required, pair.required * there)
                if stage == 0:
                    repeated = _repeated(layer, pair)
                    for field in range(3):
                        sums[2, block, field] += repeated[field] * again
            if stage == 0 and layer.kind in MERGED_KINDS:
                gathered_beside = overlapped(
                    machine, ways, times[2].compute[row], times[2].memory[row], pairs[0].alone
                ).seconds
                took[2][row] = np.where(again & pairs[0].is_done, gathered_beside, took[2][row])
    pairs_of = [(TensorExchange(*sums[k, 0]), TensorExchange(*sums[k, 1])) for k in range(3)]
    return Exchanges(pairs_of[0], pairs_of[1], pairs_of[2], required, (took[0], took[1], took[2]))


def scaled_exchanges(
    exchanges: tuple[TensorExchange, TensorExchange], factor: Floats
) -> tuple[TensorExchange, TensorExchange]:
    """Multiply base and edge block by a factor."""
    base, edge = (TensorExchange(*(one * factor for one in exchange)) for exchange in exchanges)
    return base, edge


def _is_done_again(layer: Layer, ways: Executions) -> Bools:
    """Tell where the backward pass repeats a layer's communication."""
    again = ways.is_named("activation_recompute", "full")
    if layer.kind in _GATHERS:
        again = again | (ways.seq_par_ag_redo == 1)
    if layer.gathers_again:
        again = again | ways.is_named("activation_recompute", "attn_only")
    return again


def _exchange(
    machine: MachineDescription, ways: Executions, collectives: CollectiveSeconds, layer: Layer,
    times: LayerTimes, row: int, which: tuple[int, bool],
) -> _Pair:  # fmt: skip
    """Work out what a layer exchanges in a stage (0 forward, 1 backward) of a kind of block."""
    stage, edge = which
    into = (layer.kind in _GATHERS) == (stage == 0)
    network, sums, is_done = operation_of(ways, collectives, into, edge)
    size = np.where(is_done, collectives.size, 0.0)
    if layer.kind in MERGED_KINDS:
        time = network + sums
        beside = overlapped(machine, ways, times.compute[row], times.memory[row], time)
        return _Pair(
            size, time, np.where(is_done, beside.exposed, 0.0),
            np.where(is_done, beside.seconds, times.total[row]), network, is_done,
            size * beside.required,
        )  # fmt: skip
    time = np.where(is_done, network + times.total[row], 0.0)
    none = np.zeros(1)
    return _Pair(size, time, time, none, network, is_done, none)


def _repeated(layer: Layer, pair: _Pair) -> tuple[Floats, Floats, Floats]:
    """Give size, seconds and exposed seconds of communication that is done again."""
    exposed = pair.exposed if layer.kind in MERGED_KINDS else pair.alone
    return pair.size, pair.alone, exposed
