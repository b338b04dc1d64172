"""How long a message takes that waits for no other: its hops' latency and the time of its bytes."""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Topology
from nadi.simulation.engine.machine_state import (
    BY_HOPS,
    DIM,
    NS_PER_BYTE,
    RATE,
    WHOLE_LINK,
    WORLD,
    Machine,
)


@inner
def _hops(topology: int, n: int, a: int, b: int) -> int:
    if topology == Topology.FULLY_CONNECTED:
        return 1
    if topology == Topology.SWITCH:
        return 2
    if topology == Topology.MESH:
        return abs(a - b)
    forward = (b - a) % n
    return min(forward, n - forward)


@inner
def _time_of_bytes(size: int, share: int, pace: int, rate: float, hops: int) -> float:
    shared = size * (share / WHOLE_LINK)
    if pace == BY_HOPS:
        shared *= hops
    return max(shared / rate, shared * (pace / NS_PER_BYTE))


@called
def travel_time(machine: Machine, src: int, dst: int, size: int, share: int, pace: int) -> int:
    """Give the time of a message that waits for no other, in ns.

    ``share`` messages, in parts of WHOLE_LINK, share each link at once, and no byte of one alone
    is faster than ``pace``; if that is BY_HOPS, so many share it for each hop in a ring. The
    latencies of all dimensions in which the two differ add up, and the slowest of these sets the
    time of the bytes.
    """
    dims, rates = machine.dims, machine.rates
    latency, rate, most = 0.0, 0.0, 1
    for d in range(dims.shape[0]):
        n, stride = dims[d, DIM.n], dims[d, DIM.stride]
        a, b = src // stride % n, dst // stride % n
        if a != b:
            topology = dims[d, DIM.topology]
            hops = _hops(topology, n, a, b)
            latency += hops * rates[d, RATE.latency]
            if topology == Topology.RING or topology == Topology.MESH:
                most = max(most, hops)
            if rate == 0.0 or rates[d, RATE.bandwidth] < rate:
                rate = rates[d, RATE.bandwidth]
            if machine.world[WORLD.lowest_only] != 0:
                break
    if rate == 0.0:
        return 0  # to itself
    return np.int64(latency + _time_of_bytes(size, share, pace, rate, most))


@called
def time_of_bytes(machine: Machine, src: int, dst: int, size: int, share: int, pace: int) -> float:
    """Give the time of a message that waits for no other without latencies, in ns."""
    dims, rates = machine.dims, machine.rates
    rate, most = 0.0, 1
    for d in range(dims.shape[0]):
        n, stride = dims[d, DIM.n], dims[d, DIM.stride]
        a, b = src // stride % n, dst // stride % n
        if a != b:
            topology = dims[d, DIM.topology]
            if topology == Topology.RING or topology == Topology.MESH:
                most = max(most, _hops(topology, n, a, b))
            if rate == 0.0 or rates[d, RATE.bandwidth] < rate:
                rate = rates[d, RATE.bandwidth]
    return _time_of_bytes(size, share, pace, rate, most) if rate > 0.0 else 0.0


@inner
def leaving_time(machine: Machine, src: int, dst: int, size: int, share: int, pace: int) -> int:
    """Give how long a message that waits for no other is leaving its sender, in ns.

    That is its time without latencies. Where links contend, they see to it themselves: 0.
    """
    if machine.world[WORLD.aware] != 0:
        return 0
    return np.int64(time_of_bytes(machine, src, dst, size, share, pace))


@inner
def part_of(machine: Machine, size: int, n: int) -> int:
    """Give the n-th part of a number of bytes, rounded up."""
    return size // n if machine.world[WORLD.rounds_down] != 0 else -(-size // n)


@inner
def reduction_time(machine: Machine, size: int) -> int:
    """Give how long bytes take to reduce: two are read and one is written, in ns."""
    rate = machine.rates[machine.dims.shape[0], RATE.bandwidth]
    return 3 * np.int64(size / rate) if rate > 0.0 else 0
