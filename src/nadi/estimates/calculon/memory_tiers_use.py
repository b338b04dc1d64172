"""Bytes of each kind of tensor on a processor, and how they fill the two memory tiers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.block_costs import BlockCosts, OptimizerCosts
from nadi.estimates.execution import Executions
from nadi.estimates.step_shape import StepShape
from nadi.trace.arrays import Floats

__all__ = ["MemoryUse", "TensorBytes", "memory_use"]


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
