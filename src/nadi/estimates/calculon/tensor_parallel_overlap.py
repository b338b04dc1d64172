"""Communication of tensor parallelism: alone, or tile by tile beside a matrix product.

A block of a chunk is a base block, or the edge block at the chunk's end: under ``p2p_rs_ag`` the
two communicate differently.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.network_times import network_time, processor_usage
from nadi.estimates.execution import Executions
from nadi.trace.arrays import Bools, Floats

__all__ = ["Collectives", "Overlapped", "collectives_of", "operation_of", "overlapped"]

_MODES = ("ar", "p2p_rs_ag", "rs_ag")
# of a gather forward and a scatter backward, and the other way round: base and edge block
_INTO = {"ar": ("", ""), "p2p_rs_ag": ("", "all_gather"), "rs_ag": ("all_gather",) * 2}
_OUT = {
    "ar": ("all_reduce",) * 2,
    "p2p_rs_ag": ("all_reduce", "reduce_scatter"),
    "rs_ag": ("reduce_scatter",) * 2,
}


class Collectives(NamedTuple):
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


def collectives_of(
    machine: MachineDescription, ways: Executions, whole: Floats, element: Floats
) -> Collectives:
    """Give the seconds of each collective of a whole activation of so many elements."""
    degree = ways.tensor_par
    size = whole * element * (degree > 1)
    tier = ways.tensor_par_net
    sums = (degree - 1) / degree * whole
    return Collectives(
        network_time(machine, tier, "all_gather", size, degree),
        network_time(machine, tier, "reduce_scatter", size, degree),
        network_time(machine, tier, "all_reduce", size, degree),
        machine.compute_time("vector", ways.datatype, sums),
        size,
    )


def operation_of(
    ways: Executions, collectives: Collectives, into: bool, edge: bool
) -> tuple[Floats, Floats, Bools]:
    """Give what a gather or a scatter does.

    Parameters
    ----------
    into
        Whether it leads into the part that tensors split: a gather forward, a scatter backward.
    edge
        Whether of the edge block, or of a base block.

    Returns
    -------
    seconds, sums, is_done
        Of the network; of computing sums; and whether there is an operation at all.
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

    Parameters
    ----------
    compute, memory
        Seconds of the whole product, and of its memory accesses.
    network
        Seconds of the whole collective.
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
