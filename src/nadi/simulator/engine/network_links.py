"""Messages between ranks: how long they take, and through which links they go.

Without contention a message takes the latency of its hops and the time of its bytes. With
it, every link sends one whole message after the other, and a device passes on what it has got.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import inner
from nadi.simulator.engine.codes import Event, Problem, Topology
from nadi.simulator.engine.event_queue import COUNTER, add_event
from nadi.simulator.engine.machine_state import (
    BY_HOPS,
    DIM,
    LINK,
    MESSAGE,
    NS_PER_BYTE,
    RATE,
    WHOLE_LINK,
    WORLD,
    Machine,
)

__all__ = [
    "free_link",
    "free_message",
    "leaving_time",
    "new_message",
    "part_of",
    "put_on_link",
    "send_message",
    "send_shared",
    "travel_time",
]


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


@inner
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


@inner
def leaving_time(machine: Machine, src: int, dst: int, size: int, share: int, pace: int) -> int:
    """Give how long a message that waits for no other is leaving its sender, in ns.

    That is its time without latencies. Where links contend, they see to it themselves: 0.
    """
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
    if rate == 0.0 or machine.world[WORLD.aware] != 0:
        return 0
    return np.int64(_time_of_bytes(size, share, pace, rate, most))


@inner
def part_of(machine: Machine, size: int, n: int) -> int:
    """Give the n-th part of a number of bytes, rounded up."""
    return size // n if machine.world[WORLD.rounds_down] != 0 else -(-size // n)


@inner
def _route(machine: Machine, message: int) -> None:
    """Choose the next link of a message: lower dimensions first, in a ring the shorter way."""
    messages, dims = machine.messages, machine.dims
    at, dst = messages[message, MESSAGE.at], messages[message, MESSAGE.dst]
    if messages[message, MESSAGE.switch] != 0:  # at a switch: down to where it goes
        dim = messages[message, MESSAGE.dim]
        n, stride = dims[dim, DIM.n], dims[dim, DIM.stride]
        target = at + (dst // stride % n - at // stride % n) * stride
        messages[message, MESSAGE.link] = dims[dim, DIM.links] + 2 * target + 1
        messages[message, MESSAGE.at] = target
        messages[message, MESSAGE.switch] = 0
        return
    dim = 0
    while at // dims[dim, DIM.stride] % dims[dim, DIM.n] == (
        dst // dims[dim, DIM.stride] % dims[dim, DIM.n]
    ):
        dim += 1
    n, stride, base = dims[dim, DIM.n], dims[dim, DIM.stride], dims[dim, DIM.links]
    a, b = at // stride % n, dst // stride % n
    messages[message, MESSAGE.dim] = dim
    topology = dims[dim, DIM.topology]
    if topology == Topology.SWITCH:
        messages[message, MESSAGE.link] = base + 2 * at
        messages[message, MESSAGE.switch] = 1
    elif topology == Topology.FULLY_CONNECTED:
        messages[message, MESSAGE.link] = base + at * n + b
        messages[message, MESSAGE.at] = at + (b - a) * stride
    else:
        forward = (b - a) % n
        backward = forward > n - forward
        if topology == Topology.MESH:
            backward = b < a
        c = (a - 1) % n if backward else (a + 1) % n
        messages[message, MESSAGE.link] = base + 2 * at + (1 if backward else 0)
        messages[message, MESSAGE.at] = at + (c - a) * stride


@inner
def _serve(machine: Machine, link: int, message: int) -> None:
    agenda, links = machine.agenda, machine.links
    dim, size = machine.messages[message, MESSAGE.dim], machine.messages[message, MESSAGE.size]
    now, busy = agenda.counters[COUNTER.now], size / machine.rates[dim, RATE.bandwidth]
    links[link, LINK.busy] = 1
    links[link, LINK.bytes] += size
    links[link, LINK.time] += np.int64(busy)
    add_event(
        agenda, now + np.int64(machine.rates[dim, RATE.latency] + busy), Event.HOP, message, 0
    )
    add_event(agenda, now + np.int64(busy), Event.LINK_FREE, link, 0)


@inner
def put_on_link(machine: Machine, message: int) -> None:
    """Hand a message to its next link, behind those that wait there."""
    _route(machine, message)
    links, messages = machine.links, machine.messages
    link = messages[message, MESSAGE.link]
    if links[link, LINK.busy] == 0:
        _serve(machine, link, message)
        return
    messages[message, MESSAGE.next] = -1
    if links[link, LINK.head] < 0:
        links[link, LINK.head] = message
    else:
        messages[links[link, LINK.tail], MESSAGE.next] = message
    links[link, LINK.tail] = message
    links[link, LINK.waiting] += 1
    links[link, LINK.peak] = max(links[link, LINK.peak], links[link, LINK.waiting])


@inner
def free_link(machine: Machine, link: int) -> None:
    """Let a link that has sent a message take the next."""
    links = machine.links
    links[link, LINK.busy] = 0
    message = links[link, LINK.head]
    if message >= 0:
        links[link, LINK.head] = machine.messages[message, MESSAGE.next]
        links[link, LINK.waiting] -= 1
        _serve(machine, link, message)


@inner
def new_message(machine: Machine, src: int, dst: int, size: int, kind: int, a: int, b: int) -> int:
    """Make a message; when it is there, ``kind`` happens to ``a`` and ``b``."""
    messages, counters = machine.messages, machine.agenda.counters
    new = counters[COUNTER.free_message]
    if new >= 0:
        counters[COUNTER.free_message] = messages[new, MESSAGE.next]
    else:
        new = counters[COUNTER.used_message]
        if new == messages.shape[0]:
            counters[COUNTER.problem] = Problem.TOO_SMALL
            return -1
        counters[COUNTER.used_message] = new + 1
    messages[new, MESSAGE.next] = -1
    messages[new, MESSAGE.size] = size
    messages[new, MESSAGE.at] = src
    messages[new, MESSAGE.dst] = dst
    messages[new, MESSAGE.kind] = kind
    messages[new, MESSAGE.a] = a
    messages[new, MESSAGE.b] = b
    messages[new, MESSAGE.switch] = 0
    return new


@inner
def free_message(machine: Machine, message: int) -> None:
    """Forget a message."""
    machine.messages[message, MESSAGE.next] = machine.agenda.counters[COUNTER.free_message]
    machine.agenda.counters[COUNTER.free_message] = message


@inner
def send_shared(
    machine: Machine, src: int, dst: int, size: int, kind: int, a: int, b: int, share: int,
    pace: int,
) -> None:  # fmt: skip
    """Send bytes over links that others use at the same time."""
    if machine.world[WORLD.aware] != 0 and src != dst:
        message = new_message(machine, src, dst, size, kind, a, b)
        if message >= 0:
            put_on_link(machine, message)
    else:
        time = machine.agenda.counters[COUNTER.now] + travel_time(
            machine, src, dst, size, share, pace
        )
        add_event(machine.agenda, time, kind, a, b)


@inner
def send_message(
    machine: Machine, src: int, dst: int, size: int, kind: int, a: int, b: int
) -> None:
    """Send bytes from a rank to another; when they are there, ``kind`` happens."""
    send_shared(machine, src, dst, size, kind, a, b, WHOLE_LINK, 0)
