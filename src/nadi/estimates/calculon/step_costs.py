"""The seconds and bytes of a whole step, from the costs of a block."""

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.block_costs import BlockCosts, OptimizerCosts
from nadi.estimates.calculon.machine_description import MachineDescription, network_time
from nadi.estimates.calculon.memory import (
    BlockTimes,
    MemoryUse,
    OffloadTimes,
    memory_use,
    offload_times,
)
from nadi.estimates.calculon.overlap import BackwardBlock, DataParallel, bubble_time, data_parallel
from nadi.estimates.calculon.rules import EstimateRules
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import Executions, StepShape, shape_of
from nadi.trace.arrays import Floats


class StepSeconds(NamedTuple):
    """Seconds of a step, which add up to it: float64, shape (executions,) or (1,)."""

    forward: Floats
    backward: Floats
    optimizer: Floats
    forward_offload: Floats  # by which offloading extends it
    backward_offload: Floats
    update_offload: Floats
    computed_again: Floats
    exchanged_again: Floats  # what is exposed of it
    bubble: Floats
    tensor_parallel: Floats  # what is exposed
    pipeline_parallel: Floats
    data_parallel: Floats
    ends: Floats  # the embedding, the head and the loss, by which they extend the slowest stage

    @property
    def total(self) -> Floats:
        """The step."""
        total = self[0]
        for part in self[1:]:
            total = total + part
        return total


class StepCosts(NamedTuple):
    """All that is worked out of executions; each array has shape (executions,) or (1,)."""

    shape: StepShape
    block: BlockCosts
    optimizer: OptimizerCosts
    times: StepSeconds
    tensor_link: Floats  # seconds of communication, exposed or not
    pipeline_link: Floats
    link_again: Floats
    offload: OffloadTimes
    reduction: DataParallel
    memory: MemoryUse


def step_costs(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    block: BlockCosts, optimizer: OptimizerCosts, rules: EstimateRules,
) -> StepCosts:  # fmt: skip
    """Put a step together; ``block`` and ``optimizer`` have a value per execution."""
    shape = shape_of(model, executions)
    training = executions.training == 1
    transfers = _transfers(machine, executions, block, rules)
    alone = _block_times(executions, block, optimizer, transfers)
    offload = offload_times(machine, executions, alone)
    base, edge = (_block_time(block, offload, kind) for kind in range(2))
    times = (base[0] + base[1], edge[0] + edge[1] + sum(transfers))
    again = block.again
    reduction = data_parallel(
        machine, executions, shape,
        BackwardBlock(
            base[1], edge[1],
            block.activation.flops_time + block.weight.flops_time + again.flops_time,
            block.activation.memory_time + block.weight.memory_time + again.memory_time,
            optimizer.step.flops_time, transfers[0], block.weights,
        ),
        rules,
    )  # fmt: skip
    all_blocks = shape.microbatches * shape.blocks
    edges = shape.microbatches * shape.chunks
    bases = shape.microbatches * (shape.blocks - shape.chunks)

    def both(pair: tuple[Floats, Floats]) -> Floats:
        return bases * pair[0] + edges * pair[1]

    exchanges = (block.forward_exchange, block.backward_exchange, block.exchange_again)
    exposed = [both((one.exposed, other.exposed)) for one, other in exchanges]
    link = [both((one.time, other.time)) for one, other in exchanges]
    piped = np.where(shape.stages > 1, edges * transfers[0] * (1 + training), 0.0)
    return StepCosts(
        shape, block, optimizer,
        StepSeconds(
            all_blocks * block.forward.time,
            all_blocks * (block.activation.time + block.weight.time),
            shape.blocks * optimizer.step.time,
            both(offload.forward),
            both(offload.backward),
            np.zeros(1),
            all_blocks * again.time,
            exposed[2],
            bubble_time(shape, *times),
            exposed[0] + exposed[1],
            piped,
            reduction.exposed,
            np.zeros(1),
        ),
        link[0] + link[1], piped, link[2], offload, reduction,
        memory_use(executions, shape, block, optimizer, gradients_move=True),
    )  # fmt: skip


def _block_time(block: BlockCosts, offload: OffloadTimes, edge: int) -> tuple[Floats, Floats]:
    """Give the seconds of one kind of block, forward and backward, with all that is exposed."""
    return (
        block.forward.time + block.forward_exchange[edge].exposed + offload.forward[edge],
        _backward_time(block, edge) + offload.backward[edge],
    )


def _backward_time(block: BlockCosts, edge: int) -> Floats:
    """Give the seconds of a backward pass but for offloading."""
    return (
        block.activation.time + block.weight.time + block.again.time
        + block.backward_exchange[edge].exposed + block.exchange_again[edge].exposed
    )  # fmt: skip


def _transfers(
    machine: MachineDescription, executions: Executions, block: BlockCosts, rules: EstimateRules
) -> tuple[Floats, Floats]:
    """Give the seconds of an edge block's transfers, forward and backward."""
    piped = executions.pipeline_par > 1
    tier, stages = executions.pipeline_par_net, executions.pipeline_par
    forward = network_time(machine, tier, "p2p", np.where(piped, block.boundary, 0.0), stages)
    trained = piped & (executions.training == 1)
    backward = network_time(machine, tier, "p2p", np.where(trained, block.boundary, 0.0), stages)
    if rules.lone_stage_has_latency:
        return forward, backward
    return np.where(piped, forward, 0.0), np.where(trained, backward, 0.0)


def _block_times(
    executions: Executions, block: BlockCosts, optimizer: OptimizerCosts,
    transfers: tuple[Floats, Floats],
) -> BlockTimes:  # fmt: skip
    full = executions.is_named("activation_recompute", "full")
    return BlockTimes(
        block.forward.time + block.forward_exchange[0].exposed,
        block.forward.memory_time,
        _backward_time(block, 0),
        block.activation.memory_time + block.weight.memory_time,
        block.weights,
        np.where(full, block.checkpoint, block.stored),
        optimizer.state,
        optimizer.weight_gradient,
        *transfers,
    )
