"""What tensor parallelism exchanges in a block: sizes, seconds, and what stays exposed."""

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.layer_sizes import MERGED_KINDS
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.overlap import CollectiveSeconds, operation_of, overlapped
from nadi.estimates.calculon.rules import BLOCK, EstimateRules, Kind, Layer
from nadi.estimates.execution import Executions
from nadi.trace.arrays import Bools, Floats

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
