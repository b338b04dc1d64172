"""Computations that read and write tensors where they live, rather than copies of them.

The time of an operation is split by a roofline: into what its arithmetic and what its memory takes,
both by the same factor longer than the device's peaks allow. What lies in a lower tier takes the
time of that tier instead. How that overlaps with the rest is unknown: the time is an interval.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.memory.placed_tensors import TraceTensors
from nadi.memory.placement_choice import TierRoom
from nadi.systems.device import Device
from nadi.systems.prices.traced_operations import operators_of, stated_operations
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.operations import DTYPE_NAMES, Operations
from nadi.trace.trace import Trace


class SlowedWork(NamedTuple):
    """Operations with tensors in lower tiers; arrays of shape (operations,).

    Attributes
    ----------
    row
        int64: the node that gets longer.
    duration
        int64 ns: of the operation where all is in the first tier.
    expected, low, high
        int64 ns: arithmetic overlaps with memory, and tiers follow each other; all overlap; what
        lies in lower tiers comes on top of all else.
    is_small
        bool: whether the latency of the tier is longer than its bytes take.
    """

    row: Ints
    duration: Ints
    expected: Ints
    low: Ints
    high: Ints
    is_small: Bools


def works_in_place(tensors: TraceTensors) -> Bools:
    """Return which accesses are of computations; bool, shape (accesses,). Others need copies."""
    found: Bools = (tensors.trace.nodes["kind"] == "COMP").to_numpy()[tensors.accesses.first]
    return found


def shared_rooms(system: System, rooms: Sequence[TierRoom]) -> tuple[TierRoom, ...]:
    """Return tiers with the rates that a rank has if all ranks access them at once."""
    found = [rooms[0]]
    for room, tier in zip(rooms[1:], system.tiers, strict=True):
        ranks = tier.shared_by or system.network.num_ranks
        rates = [
            min(alone, rate / ranks) if rate else alone
            for alone, rate in ((room.read_rate, tier.read_bandwidth),
                                (room.write_rate, tier.write_bandwidth))
        ]  # fmt: skip
        found.append(room._replace(read_rate=rates[0], write_rate=rates[1]))
    return tuple(found)


def slowed_work(
    tensors: TraceTensors, tier: Ints, rooms: Sequence[TierRoom], system: System
) -> SlowedWork:
    """Price operations whose tensors lie in lower tiers. O(accesses).

    Parameters
    ----------
    tier
        int64, shape (lives,).
    rooms
        All tiers.

    Raises
    ------
    UsageError
        If the system states neither a device nor peak and bandwidth, or all times are those of its
        own roofline.
    """
    device = _device_of(system)
    accesses, of_tier = tensors.accesses, tier[tensors.life]
    length = accesses.end - accesses.begin
    turns = int(tensors.turn.max(initial=-1)) + 1
    turn = tensors.turn[:, 0]

    def add_up(values: Ints) -> Floats:
        return np.bincount(turn, weights=values, minlength=turns).astype(np.float64)

    total = add_up(length * (accesses.reads + accesses.writes.astype(np.int64)))
    lower, wait, moved = np.zeros((3, turns))
    for number, room in enumerate(rooms):
        if number == 0:
            continue
        mine = (of_tier == number) & works_in_place(tensors)
        read, written = (
            add_up(length * (mine & flag)) for flag in (accesses.reads, accesses.writes)
        )
        moved += read / room.read_rate + written / room.write_rate
        lower += read + written
        wait += np.where(read + written > 0, room.latency, 0.0)
    chosen = np.flatnonzero(lower > 0)
    first, last = (np.zeros(turns, dtype=np.int64) for _ in range(2))
    first[turn], last[turn] = accesses.first, accesses.last
    row = last[chosen]
    duration = (tensors.end[row] - tensors.start[first[chosen]]).astype(np.float64)
    arithmetic, memory = _split(tensors, device, chosen, total, duration)
    share = lower[chosen] / total[chosen]
    in_tier = np.maximum(moved[chosen], memory * share) + wait[chosen]
    expected = np.maximum(duration, np.maximum(arithmetic, memory * (1 - share) + in_tier))
    low, high = np.maximum(duration, in_tier), duration + in_tier
    whole = [np.rint(one).astype(np.int64) for one in (duration, expected, low, high)]
    is_small = wait[chosen] > moved[chosen]
    return SlowedWork(row, whole[0], whole[1], whole[2], whole[3], is_small)


def _device_of(system: System) -> Device:
    """Return the device whose peaks split times; raise UsageError if there is none that may."""
    if system.compute.roofline:
        raise UsageError(
            "compute.time", "is roofline, which takes all memory for the first tier",
            ["leave it out of the system's file, or leave out ", Parameter("in_place", True)],
        )  # fmt: skip
    if system.compute.device is None:
        raise UsageError(
            "compute", "access in place needs a roofline", "state compute.device, or compute.peak "
            "and memory.bandwidth in the system's file",
        )  # fmt: skip
    return system.compute.device


def _split(
    tensors: TraceTensors, device: Device, chosen: Ints, total: Floats, duration: Floats
) -> tuple[Floats, Floats]:
    """Return the parts of durations that arithmetic and memory take: one of them takes all."""
    operations, row = _operations(tensors)
    of_turn = np.zeros(total.size, dtype=np.int64)
    of_turn[tensors.turn[:, 0]] = row
    known = operations.at(of_turn[chosen])
    peaks = np.array([device.peak_of(name) for name in DTYPE_NAMES])
    arithmetic = np.maximum(known.flops, 0) / peaks[known.dtype]
    memory = total[chosen] / device.bandwidth
    longest = np.maximum(np.maximum(arithmetic, memory), 1e-30)
    return duration * arithmetic / longest, duration * memory / longest


def _operations(tensors: TraceTensors) -> tuple[Operations, Ints]:
    """Return what operations do, and the row of each access in it."""
    stated = tensors.stated
    if stated is tensors.trace:
        return stated_operations(stated), tensors.accesses.row
    return operators_of(stated)[1], tensors.accesses.row


def in_place_trace(trace: Trace, work: SlowedWork, duration: Ints) -> Trace:
    """Return a trace in which operations are longer.

    - ``duration``: One of the times of ``work``.
    """
    time, own = trace.column("duration").copy(), trace.column("exclusive").copy()
    longer = duration - work.duration
    np.add.at(time, work.row, longer)
    has_own = own[work.row] >= 0
    np.add.at(own, work.row[has_own], longer[has_own])
    columns = {"duration": pl.Series(time), "exclusive": pl.Series(own)}
    return replace(trace, nodes=trace.nodes.with_columns(**columns))
