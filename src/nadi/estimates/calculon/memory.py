"""Moving tensors between the two memory tiers: bytes, seconds, and the bandwidth that it needs.

While a block computes, the tensors of the next one arrive, and those of the last one leave. That
never overlaps with the block's own memory accesses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.block_costs import BlockCosts
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.execution import Executions
from nadi.trace.arrays import Floats

__all__ = ["BlockTimes", "OffloadTimes", "late_end", "offload_beside", "offload_times"]


_BLOCKS_AHEAD = 2.0  # a load begins at most some 32 operations before its use


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
        _rate(block.weights, forward_free),
        _rate(block.activations, forward_free),
        _rate(optimizers, backward_free),
        np.maximum(_rate(moved_forward, forward_free), _rate(moved_backward, backward_free)),
    )


def offload_beside(
    machine: MachineDescription, executions: Executions, block: BlockCosts, update: Floats,
    share: Floats,
) -> OffloadTimes:  # fmt: skip
    """Work out by how much offloading extends a block, beside whose work tensors move.

    What moves goes through the memory of the processor, too: a block takes as long as its own work,
    as its moves to and from the second tier, or as its memory accesses and its moves together take
    in the first tier. ``update`` is the bandwidth that hides the moves of the optimizer's state,
    which have their time at the end of a step. ``share`` of the blocks of a pass move.
    """
    training = executions.training == 1
    keeps = np.where(
        executions.is_named("activation_recompute", "full"), block.checkpoint, block.stored
    )
    forward = block.forward.time + block.forward_exchange[0].exposed
    backward = (
        block.activation.time + block.weight.time + block.again.time
        + block.backward_exchange[0].exposed + block.exchange_again[0].exposed
    )  # fmt: skip
    weights = block.weights * executions.weight_offload
    activations = keeps * executions.activations_offload * training
    moved = weights + activations
    accessed = block.activation.memory_time + block.weight.memory_time + block.again.memory_time
    late = [
        _beside(machine, executions, one, moved, read)
        for one, moved, read in (
            ((forward, block.forward.memory_time), share * moved, share * weights),
            ((backward, accessed), share * moved * training, share * moved * training),
        )
    ]
    hidden = np.maximum(_rate(moved, forward), _rate(moved * training, backward))
    return OffloadTimes(
        (late[0], late[0]), (late[1], late[1]),
        _rate(block.weights, forward), _rate(keeps * training, forward),
        update * training,
        np.maximum(hidden, update * training * executions.optimizer_offload),
    )  # fmt: skip


def late_end(
    machine: MachineDescription, executions: Executions, block: BlockCosts, seconds: Floats,
    weights: Floats,
) -> Floats:  # fmt: skip
    """Give by how much loading its weights once extends the head of a micro-batch.

    Its backward follows its forward. The load begins beside the blocks before, while the link is
    free. Of the embedding, what is looked up is little.
    """
    moved = weights * executions.weight_offload
    forward = block.forward.time + block.forward_exchange[0].exposed
    of_block = machine.mem2.moving_time(block.weights, np.zeros(1), executions.num_procs)
    free = _BLOCKS_AHEAD * np.maximum(forward - of_block, 0.0)
    return _beside(machine, executions, (seconds + free, np.zeros(1)), moved, moved)


def _beside(
    machine: MachineDescription, executions: Executions, times: tuple[Floats, Floats],
    moved: Floats, read: Floats,
) -> Floats:  # fmt: skip
    """Give by how much moves extend a block of so many seconds, of which memory accesses."""
    block, accesses = times
    link = machine.mem2.moving_time(read, moved - read, executions.num_procs)
    through = accesses + moved / (machine.mem1.GBps * 1e9)
    longest = np.maximum(block, np.maximum(link, through))
    return np.where(moved > 0, longest - block, 0.0)


def _rate(size: Floats, seconds: Floats) -> Floats:
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
