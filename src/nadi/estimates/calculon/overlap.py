"""Reducing gradients among replicas, beside the backward pass or after it.

Gradients of a chunk travel while the chunk before it computes; of the last chunk, each block's
while the block before it computes, so that the first block's are exposed.

Time that stages of a pipeline wait for each other, at the begin and end of a step.

Communication of tensor parallelism: alone, or tile by tile beside a matrix product.

A block of a chunk is a base block, or the edge block at the chunk's end: under ``p2p_rs_ag`` the
two communicate differently.
"""

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.machine_description import (
    MachineDescription,
    network_time,
    processor_usage,
    traffic,
)
from nadi.estimates.calculon.rules import EstimateRules
from nadi.estimates.execution import Executions, StepShape
from nadi.trace.arrays import Bools, Floats

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


def bubble_time(shape: StepShape, base: Floats, edge: Floats) -> Floats:
    """Give the seconds of the bubble.

    Parameters
    ----------
    base, edge
        Seconds of a base and of an edge block of one microbatch: forward, backward, and all that
        is exposed.

    Notes
    -----
    Each further stage waits for a chunk. Where microbatches do not fill the stages, each chunk
    but one waits for those that lack. Stages that have a block less shorten it, by the mean of
    both kinds of block, or by an edge block where chunks have no other.
    """
    stages = shape.stages
    chunk = (shape.chunk_blocks - 1) * base + edge
    rest = shape.microbatches % stages
    lacking = np.where(rest > 0, (shape.chunks - 1) * (stages - rest), 0.0)
    saved = shape.missing * np.where(shape.chunk_blocks > 1, (base + edge) / 2, edge)
    return (stages - 1 + lacking) * chunk - saved


_MODES = ("ar", "p2p_rs_ag", "rs_ag")
# of a gather forward and a scatter backward, and the other way round: base and edge block
_INTO = {"ar": ("", ""), "p2p_rs_ag": ("", "all_gather"), "rs_ag": ("all_gather",) * 2}
_OUT = {
    "ar": ("all_reduce",) * 2,
    "p2p_rs_ag": ("all_reduce", "reduce_scatter"),
    "rs_ag": ("reduce_scatter",) * 2,
}


class CollectiveSeconds(NamedTuple):
    """Seconds of the collectives of one activation, float64 of shape (ways,)."""

    all_gather: Floats
    reduce_scatter: Floats  # without the sums
    all_reduce: Floats
    sums: Floats  # computing the sums of a reduction
    size: Floats  # bytes of the activation


class Overlapped(NamedTuple):
    """A product beside communication."""

    seconds: Floats  # of both together, without what is exposed
    exposed: Floats
    required: Floats  # bytes a second with which nothing would be exposed, per byte


def activation_collectives(
    machine: MachineDescription, ways: Executions, whole: Floats, element: Floats
) -> CollectiveSeconds:
    """Give the seconds of each collective of a whole activation of so many elements."""
    degree = ways.tensor_par
    size = whole * element * (degree > 1)
    tier = ways.tensor_par_net
    sums = (degree - 1) / degree * whole
    return CollectiveSeconds(
        network_time(machine, tier, "all_gather", size, degree),
        network_time(machine, tier, "reduce_scatter", size, degree),
        network_time(machine, tier, "all_reduce", size, degree),
        machine.compute_time("vector", ways.datatype, sums),
        size,
    )


def operation_of(
    ways: Executions, collectives: CollectiveSeconds, into: bool, edge: bool
) -> tuple[Floats, Floats, Bools]:
    """Give what a gather or a scatter does.

    - ``into``: Whether it leads into the part that tensors split: a gather forward, a scatter
      backward.
    - ``edge``: Whether of the edge block, or of a base block.
    - Returns seconds, sums, is_done: Of the network; of computing sums; and whether there is an
      operation at all.
    """
    seconds = np.zeros(1)
    sums = np.zeros(1)
    is_done = np.zeros(1, dtype=bool)
    for name in _MODES:
        operation = (_INTO if into else _OUT)[name][edge]
        if operation:
            is_it = ways.is_named("tensor_par_comm_type", name) & (ways.tensor_par > 1)
            seconds = np.where(is_it, getattr(collectives, operation), seconds)
            reduces = operation != "all_gather"
            sums = np.where(is_it & reduces, collectives.sums, sums)
            is_done = is_it | is_done
    return seconds, sums, is_done


def overlapped(
    machine: MachineDescription, ways: Executions, compute: Floats, memory: Floats, network: Floats
) -> Overlapped:
    """Let a product and a collective run tile by tile, as many tiles as members.

    While one tile travels, the next is computed, slowed by what the network takes of the
    processor. Of a ring nothing is exposed if tiles are computed for longer than they travel; a
    pipe exposes one tile more.

    - ``compute``, ``memory``: Seconds of the whole product, and of its memory accesses.
    - ``network``: Seconds of the whole collective.
    """
    tiles = ways.tensor_par
    usage = processor_usage(machine, ways.tensor_par_net)
    whole = machine.processing_time(compute, memory)
    slow_compute = compute / (1 - usage)
    tile = network / tiles
    slowed = machine.processing_time(slow_compute, memory) / tiles
    excess = tile - slow_compute / tiles
    seconds = np.where(
        excess > 0, whole / tiles + (tiles - 1) * slowed, whole + (tiles - 1) * tile * usage
    )
    exposed = np.where(excess > 0, (tiles - 1) * excess, 0.0)
    last = np.where(ways.is_named("tensor_par_overlap", "pipe"), tile, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        required = np.where(slow_compute > 0, 1 / slow_compute, 0.0)
    return Overlapped(seconds + last, exposed + last, required)
