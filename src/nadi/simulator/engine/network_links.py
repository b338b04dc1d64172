"""Messages between ranks: how long they take, and through which links they go.

Without contention a message takes the latency of its hops and the time of its bytes. With
it, every link sends one whole message after the other, and a device passes on what it has got.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.event_queue import NOW, PROBLEM, add_event
from nadi.simulator.engine.machine_state import Machine

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
    if topology == M.FULLY_CONNECTED:
        return 1
    if topology == M.SWITCH:
        return 2
    if topology == M.MESH:
        return abs(a - b)
    forward = (b - a) % n
    return min(forward, n - forward)


@inner
def _time_of_bytes(size: int, share: int, pace: int, rate: float, hops: int) -> float:
    shared = size * (share / M.WHOLE_LINK)
    if pace == M.BY_HOPS:
        shared *= hops
    return max(shared / rate, shared * (pace / M.NS_PER_BYTE))


@inner
def travel_time(machine: Machine, src: int, dst: int, size: int, share: int, pace: int) -> int:
    """Give the time of a message that waits for no other, in ns.

    ``share`` messages, in parts of WHOLE_LINK, share each link at once, and no byte of one alone
    is faster than ``pace``; if that is BY_HOPS, so many share it for each hop in a ring. As
    ASTRA-sim has it, only the lowest dimension counts in which the two differ; else the latencies
    of all of them add up, and the slowest sets the time of the bytes.
    """
    dims, rates = machine.dims, machine.rates
    latency, rate, most = 0.0, 0.0, 1
    for d in range(dims.shape[0]):
        n, stride = dims[d, M.D_N], dims[d, M.D_STRIDE]
        a, b = src // stride % n, dst // stride % n
        if a != b:
            topology = dims[d, M.D_TOPOLOGY]
            hops = _hops(topology, n, a, b)
            latency += hops * rates[d, 1]
            if topology == M.RING_LINKS or topology == M.MESH:
                most = max(most, hops)
            if rate == 0.0 or rates[d, 0] < rate:
                rate = rates[d, 0]
            if machine.world[M.W_COMPAT] != 0:
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
        n, stride = dims[d, M.D_N], dims[d, M.D_STRIDE]
        a, b = src // stride % n, dst // stride % n
        if a != b:
            topology = dims[d, M.D_TOPOLOGY]
            if topology == M.RING_LINKS or topology == M.MESH:
                most = max(most, _hops(topology, n, a, b))
            if rate == 0.0 or rates[d, 0] < rate:
                rate = rates[d, 0]
    if rate == 0.0 or machine.world[M.W_AWARE] != 0:
        return 0
    return np.int64(_time_of_bytes(size, share, pace, rate, most))


@inner
def part_of(machine: Machine, size: int, n: int) -> int:
    """Give the n-th part of a number of bytes; what remains is lost as ASTRA-sim has it."""
    return size // n if machine.world[M.W_COMPAT] != 0 else -(-size // n)


@inner
def _route(machine: Machine, message: int) -> None:
    """Choose the next link of a message: lower dimensions first, in a ring the shorter way."""
    messages, dims = machine.messages, machine.dims
    at, dst = messages[message, M.G_AT], messages[message, M.G_DST]
    if messages[message, M.G_SWITCH] != 0:  # at a switch: down to where it goes
        dim = messages[message, M.G_DIM]
        n, stride = dims[dim, M.D_N], dims[dim, M.D_STRIDE]
        target = at + (dst // stride % n - at // stride % n) * stride
        messages[message, M.G_LINK] = dims[dim, M.D_LINKS] + 2 * target + 1
        messages[message, M.G_AT] = target
        messages[message, M.G_SWITCH] = 0
        return
    dim = 0
    while at // dims[dim, M.D_STRIDE] % dims[dim, M.D_N] == (
        dst // dims[dim, M.D_STRIDE] % dims[dim, M.D_N]
    ):
        dim += 1
    n, stride, base = dims[dim, M.D_N], dims[dim, M.D_STRIDE], dims[dim, M.D_LINKS]
    a, b = at // stride % n, dst // stride % n
    messages[message, M.G_DIM] = dim
    topology = dims[dim, M.D_TOPOLOGY]
    if topology == M.SWITCH:
        messages[message, M.G_LINK] = base + 2 * at
        messages[message, M.G_SWITCH] = 1
    elif topology == M.FULLY_CONNECTED:
        messages[message, M.G_LINK] = base + at * n + b
        messages[message, M.G_AT] = at + (b - a) * stride
    else:
        forward = (b - a) % n
        backward = forward > n - forward
        if topology == M.MESH:
            backward = b < a
        c = (a - 1) % n if backward else (a + 1) % n
        messages[message, M.G_LINK] = base + 2 * at + (1 if backward else 0)
        messages[message, M.G_AT] = at + (c - a) * stride


@inner
def _serve(machine: Machine, link: int, message: int) -> None:
    agenda, links = machine.agenda, machine.links
    dim, size = machine.messages[message, M.G_DIM], machine.messages[message, M.G_SIZE]
    now, busy = agenda.counters[NOW], size / machine.rates[dim, 0]
    links[link, M.L_BUSY] = 1
    links[link, M.L_BYTES] += size
    links[link, M.L_TIME] += np.int64(busy)
    add_event(agenda, now + np.int64(machine.rates[dim, 1] + busy), M.HOP, message, 0)
    add_event(agenda, now + np.int64(busy), M.LINK_FREE, link, 0)


@inner
def put_on_link(machine: Machine, message: int) -> None:
    """Hand a message to its next link, behind those that wait there."""
    _route(machine, message)
    links, messages = machine.links, machine.messages
    link = messages[message, M.G_LINK]
    if links[link, M.L_BUSY] == 0:
        _serve(machine, link, message)
        return
    messages[message, M.G_NEXT] = -1
    if links[link, M.L_HEAD] < 0:
        links[link, M.L_HEAD] = message
    else:
        messages[links[link, M.L_TAIL], M.G_NEXT] = message
    links[link, M.L_TAIL] = message
    links[link, M.L_WAITING] += 1
    links[link, M.L_PEAK] = max(links[link, M.L_PEAK], links[link, M.L_WAITING])


@inner
def free_link(machine: Machine, link: int) -> None:
    """Let a link that has sent a message take the next."""
    links = machine.links
    links[link, M.L_BUSY] = 0
    message = links[link, M.L_HEAD]
    if message >= 0:
        links[link, M.L_HEAD] = machine.messages[message, M.G_NEXT]
        links[link, M.L_WAITING] -= 1
        _serve(machine, link, message)


@inner
def new_message(machine: Machine, src: int, dst: int, size: int, kind: int, a: int, b: int) -> int:
    """Make a message; when it is there, ``kind`` happens to ``a`` and ``b``."""
    messages, counters = machine.messages, machine.agenda.counters
    new = counters[M.FREE_MESSAGE]
    if new >= 0:
        counters[M.FREE_MESSAGE] = messages[new, M.G_NEXT]
    else:
        new = counters[M.USED_MESSAGE]
        if new == messages.shape[0]:
            counters[PROBLEM] = M.TOO_SMALL
            return -1
        counters[M.USED_MESSAGE] = new + 1
    messages[new, M.G_NEXT] = -1
    messages[new, M.G_SIZE] = size
    messages[new, M.G_AT] = src
    messages[new, M.G_DST] = dst
    messages[new, M.G_KIND] = kind
    messages[new, M.G_A] = a
    messages[new, M.G_B] = b
    messages[new, M.G_SWITCH] = 0
    return new


@inner
def free_message(machine: Machine, message: int) -> None:
    """Forget a message."""
    machine.messages[message, M.G_NEXT] = machine.agenda.counters[M.FREE_MESSAGE]
    machine.agenda.counters[M.FREE_MESSAGE] = message


@inner
def send_shared(
    machine: Machine, src: int, dst: int, size: int, kind: int, a: int, b: int, share: int,
    pace: int,
) -> None:  # fmt: skip
    """Send bytes over links that others use at the same time."""
    if machine.world[M.W_AWARE] != 0 and src != dst:
        message = new_message(machine, src, dst, size, kind, a, b)
        if message >= 0:
            put_on_link(machine, message)
    else:
        time = machine.agenda.counters[NOW] + travel_time(machine, src, dst, size, share, pace)
        add_event(machine.agenda, time, kind, a, b)


@inner
def send_message(
    machine: Machine, src: int, dst: int, size: int, kind: int, a: int, b: int
) -> None:
    """Send bytes from a rank to another; when they are there, ``kind`` happens."""
    send_shared(machine, src, dst, size, kind, a, b, M.WHOLE_LINK, 0)
