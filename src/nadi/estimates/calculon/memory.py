"""Moving tensors between the two memory tiers: bytes, seconds, and the bandwidth that it needs.

While a block computes, the tensors of the next one arrive, and those of the last one leave. That
never overlaps with the block's own memory accesses.

Bytes of each kind of tensor on a processor, and how they fill the two memory tiers.
"""

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.block_costs import BlockCosts, OptimizerCosts
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.execution import Executions, StepShape
from nadi.trace.arrays import Floats


class BlockTimes(NamedTuple):
    """Seconds of a base block and microbatch, and bytes that it could offload."""

    forward: Floats  # with what is exposed of communication
    forward_memory: Floats  # of this, memory accesses
    backward: Floats  # with what is computed and exchanged again
    backward_memory: Floats
    weights: Floats  # bytes
    activations: Floats  # bytes stored, or of a checkpoint
    optimizer: Floats  # bytes of its state
    gradient: Floats  # bytes of weight gradients
    forward_transfer: Floats  # seconds of an edge block to and from the next stage
    backward_transfer: Floats


class OffloadTimes(NamedTuple):
    """Seconds by which offloading extends blocks, and bandwidths, in bytes a second."""

    forward: tuple[Floats, Floats]  # of a base and of an edge block
    backward: tuple[Floats, Floats]
    weight_bandwidth: Floats  # that each kind of tensor would need, offloaded or not
    activation_bandwidth: Floats
    optimizer_bandwidth: Floats
    bandwidth: Floats  # that what is offloaded needs


def offload_times(
    machine: MachineDescription, executions: Executions, block: BlockTimes
) -> OffloadTimes:
    """Work out by how much offloading extends a block.

    Forward, the larger of what is offloaded counts; backward their sum, of the optimizer its
    state. The bandwidth that is needed is negative where a block has nothing but memory accesses.
    """
    training = executions.training == 1
    forward_free = block.forward - block.forward_memory
    backward_free = block.backward - block.backward_memory
    weights = block.weights * executions.weight_offload
    activations = block.activations * executions.activations_offload
    optimizer = block.optimizer * executions.optimizer_offload
    moved_forward = np.maximum(weights, activations)
    moved_backward = (weights + activations + optimizer) * training
    optimizers = (block.optimizer + block.gradient) * training
    return OffloadTimes(
        _extensions(machine, moved_forward, forward_free, block.forward_transfer),
        _extensions(machine, moved_backward, backward_free, block.backward_transfer),
        rate(block.weights, forward_free),
        rate(block.activations, forward_free),
        rate(optimizers, backward_free),
        np.maximum(rate(moved_forward, forward_free), rate(moved_backward, backward_free)),
    )


def rate(size: Floats, seconds: Floats) -> Floats:
    """Give the bytes a second that move so many bytes, infinite if there is no time for any."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(size == 0, 0.0, size / seconds)


def _extensions(
    machine: MachineDescription, moved: Floats, free: Floats, transfer: Floats
) -> tuple[Floats, Floats]:
    """Give by how much a base and an edge block are longer; the latter also waits for its peer."""
    late = np.where(moved > 0, machine.mem2.time(moved) - free, 0.0)
    base = np.maximum(late, 0.0)
    return base, np.where(moved > 0, np.maximum(late - transfer, 0.0), 0.0)


class TensorBytes(NamedTuple):
    """Bytes of each kind of tensor, float64 of shape (executions,)."""

    weights: Floats
    activations: Floats
    checkpoints: Floats
    activation_gradients: Floats
    weight_gradients: Floats
    optimizer: Floats
    keys_and_values: Floats = np.zeros(1)  # of inference, by the default rules


class MemoryUse(NamedTuple):
    """Bytes of a step on one processor."""

    whole: TensorBytes  # all that there is
    resident: TensorBytes  # what stays in the first tier if it is offloaded
    tier1: TensorBytes  # what is in each tier
    tier2: TensorBytes

    @property
    def tier1_bytes(self) -> Floats:
        """All bytes in the first tier."""
        return _sum(self.tier1)

    @property
    def tier2_bytes(self) -> Floats:
        """All bytes in the second tier."""
        return _sum(self.tier2)


def _sum(parts: TensorBytes) -> Floats:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def memory_use(
    executions: Executions, shape: StepShape, block: BlockCosts, optimizer: OptimizerCosts, *,
    gradients_move: bool,
) -> MemoryUse:  # fmt: skip
    """Sum the bytes of a step.

    As many microbatches are in flight as the pipeline has stages, and more where it is
    interleaved. What is offloaded is whole in the second tier; of it, two blocks are in the
    first one, of activations one. Gradients may be offloaded with the optimizer's state.
    """
    stages, blocks = shape.stages, shape.blocks
    interleaved = np.where(
        shape.chunks > 1, 1 + (stages - 1) / (shape.chunks * stages), 1.0
    )  # fmt: skip
    in_flight = blocks * np.minimum(shape.microbatches, stages) * interleaved
    training = executions.training == 1
    full = executions.is_named("activation_recompute", "full")
    keeps = training & ~full
    stored = np.where(keeps, block.stored * (in_flight - 1), 0.0)
    sharded = optimizer.weight_gradient
    whole = TensorBytes(
        blocks * block.weights,
        block.working + stored,
        in_flight * block.checkpoint * training,
        block.activation_gradient,
        block.whole_weight_gradient + sharded * (blocks - 1),
        blocks * optimizer.state,
    )
    resident = TensorBytes(
        2 * block.weights,
        block.working + block.stored,
        2 * block.checkpoint,
        block.activation_gradient,
        block.whole_weight_gradient + sharded,
        2 * optimizer.state,
    )
    weights, activations, states = (
        executions.weight_offload == 1,
        executions.activations_offload == 1,
        executions.optimizer_offload == 1,
    )
    never = np.zeros(1, dtype=bool)
    gradients = states if gradients_move else never
    moves = TensorBytes(weights, activations, activations, never, gradients, states)
    # the first tier reduces gradients of one block, unsharded; the second keeps them sharded.
    # With full recomputation only checkpoints are offloaded
    away = whole._replace(
        activations=np.where(full, 0.0, whole.activations), weight_gradients=blocks * sharded
    )
    return MemoryUse(
        whole,
        resident,
        TensorBytes(*map(np.where, moves, resident, whole)),
        TensorBytes(*(np.where(move, part, 0.0) for move, part in zip(moves, away, strict=True))),
    )
