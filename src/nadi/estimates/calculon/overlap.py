"""Reducing gradients among replicas, beside the backward pass or after it.

Gradients of a chunk travel while the chunk before it computes; of the last chunk, each block's
while the block before it computes, so that the first block's are exposed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.estimate_rules import EstimateRules
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.network_times import network_time, processor_usage, traffic
from nadi.estimates.execution import Executions
from nadi.estimates.step_shape import StepShape
from nadi.trace.arrays import Floats

__all__ = ["BackwardBlock", "DataParallel", "data_parallel"]

_OPERATIONS = ("reduce_scatter", "all_gather", "all_reduce")


class BackwardBlock(NamedTuple):
    """Seconds of the backward pass of a block and microbatch, with what it does again."""

    base: Floats  # with what is exposed of tensor parallelism and offloading
    edge: Floats
    flops: Floats  # of this, computing
    memory: Floats  # of this, memory accesses
    optimizer: Floats  # computing of the optimizer's step of a block
    transfer: Floats  # of an edge block, to the next stage
    weights: Floats  # bytes of gradients that replicas reduce


class DataParallel(NamedTuple):
    """Seconds of a step, and bandwidths in bytes a second that would expose nothing."""

    size: Floats  # bytes of a block
    time: Floats
    exposed: Floats
    chunk_bandwidth: Floats
    tail_bandwidth: Floats


def data_parallel(
    machine: MachineDescription, executions: Executions, shape: StepShape, block: BackwardBlock,
    rules: EstimateRules,
) -> DataParallel:  # fmt: skip
    """Work out what reducing gradients costs.

    With a sharded optimizer it is a reduce-scatter and an all-gather of the weights, else an
    all-reduce, after which each replica also computes the whole step.
    """
    tier, replicas = executions.data_par_net, executions.data_par
    reduces = (replicas > 1) & (executions.training == 1)
    size = np.where(reduces, block.weights, 0.0)
    sharded = executions.optimizer_sharding == 1
    time = [network_time(machine, tier, name, size, replicas) for name in _OPERATIONS]
    one = np.where(sharded, time[0] + time[1], time[2])
    whole = shape.blocks * one
    overlaps = reduces & (executions.data_par_overlap == 1)
    if not overlaps.any():
        none = np.zeros(1)
        return DataParallel(size, whole, whole, none, none)
    usage = processor_usage(machine, tier)
    optimizer = np.where(sharded, 0.0, block.optimizer)
    late, tail = _last_chunk(shape, block, one, usage, optimizer, rules)
    between, chunk = _other_chunks(shape, block, one, usage, optimizer)
    exposed = one + late + (shape.chunks - 1) * between
    scatter, gather, reduce = (traffic(machine, tier, name) for name in _OPERATIONS)
    moved = size * shape.chunk_blocks * np.where(sharded, scatter + gather, reduce)
    return DataParallel(
        size, whole, np.where(overlaps, exposed, whole),
        _rate(moved, np.where(overlaps, (shape.chunks - 1) * chunk, 0.0)),
        _rate(moved, np.where(overlaps, tail, 0.0)),
    )  # fmt: skip


def _last_chunk(
    shape: StepShape, block: BackwardBlock, one: Floats, usage: Floats, optimizer: Floats,
    rules: EstimateRules,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Give what the last chunk exposes but for one block, and its window for communication.

    The window is the time of all blocks but one, without the memory accesses of all of them, and
    without half of a transfer to the next stage.
    """
    blocks = shape.chunk_blocks
    window = (
        (blocks - 1) * block.base
        + (block.edge - block.base - block.transfer) / 2
        - blocks * block.memory
        + (blocks + 1) * optimizer
    )
    moving = (blocks - 1) * one
    slowed = usage * (block.flops + optimizer)
    if not rules.compute_slows_once:
        slowed = slowed * (blocks - 1)
    exposed = np.maximum(moving - window + slowed, usage * moving)
    return exposed, window + usage * moving


def _other_chunks(
    shape: StepShape, block: BackwardBlock, one: Floats, usage: Floats, optimizer: Floats
) -> tuple[Floats, Floats]:
    """Give what each other chunk exposes, and its window for communication.

    Between two chunks, as many microbatches pass as there are stages. Each transfer to the next
    stage is more time for communication, but for those that fall into it themselves.
    """
    blocks = shape.chunk_blocks
    moving = blocks * one
    chunk = (blocks - 1) * block.base + block.edge
    work = shape.stages * (chunk + blocks * (optimizer - block.memory))
    slowed = usage * shape.stages * blocks * (block.flops + optimizer)
    with np.errstate(divide="ignore", invalid="ignore"):
        met = moving // (chunk + blocks * optimizer + block.transfer)
    met = np.minimum(met, shape.stages)
    window = work - slowed + (shape.stages - met) * block.transfer
    exposed = np.maximum(moving - window, usage * moving)
    return exposed, work + slowed + (shape.stages - 1) * block.transfer


def _rate(size: Floats, window: Floats) -> Floats:
    """Give the bytes a second that fill a window, 0 where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(window > 0, size / window, 0.0)
