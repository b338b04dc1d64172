"""Messages between ranks on their way: at once where nothing contends, else link by link.

With contention every link sends one whole message after the other, and a device passes on what
it has got.
"""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Event, Topology
from nadi.simulation.engine.event_queue import (
    COUNTER,
    add_event,
    free_row,
    new_row,
    put_behind,
    take_queued,
)
from nadi.simulation.engine.machine_state import (
    DIM,
    LINK,
    MESSAGE,
    RATE,
    WHOLE_LINK,
    WORLD,
    Machine,
)
from nadi.simulation.engine.message_times import time_of_bytes, travel_time
from nadi.simulation.engine.parts import MESSAGES, belongs_to
from nadi.simulation.engine.shared_transfers import begin_message, pair_of


@called
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


@called
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


@belongs_to(MESSAGES)
@called
def put_on_link(machine: Machine, message: int) -> None:
    """Hand a message to its next link, behind those that wait there."""
    _route(machine, message)
    links, messages = machine.links, machine.messages
    link = messages[message, MESSAGE.link]
    if links[link, LINK.busy] == 0:
        _serve(machine, link, message)
        return
    put_behind(links, link, LINK.head, messages, MESSAGE.next, message)
    links[link, LINK.waiting] += 1
    links[link, LINK.peak] = max(links[link, LINK.peak], links[link, LINK.waiting])


@belongs_to(MESSAGES)
@inner
def free_link(machine: Machine, link: int) -> None:
    """Let a link that has sent a message take the next."""
    links = machine.links
    links[link, LINK.busy] = 0
    message = take_queued(links, link, LINK.head, machine.messages, MESSAGE.next)
    if message >= 0:
        links[link, LINK.waiting] -= 1
        _serve(machine, link, message)


@called
def new_message(machine: Machine, src: int, dst: int, size: int, kind: int, a: int, b: int) -> int:
    """Make a message; when it is there, ``kind`` happens to ``a`` and ``b``."""
    messages, counters = machine.messages, machine.agenda.counters
    new = new_row(counters, COUNTER.free_message, messages, MESSAGE.next)
    if new < 0:
        return -1
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
    counters = machine.agenda.counters
    free_row(counters, COUNTER.free_message, machine.messages, MESSAGE.next, message)


@inner
def _send_over_links(
    machine: Machine, src: int, dst: int, size: int, kind: int, a: int, b: int
) -> bool:
    """Send bytes where links contend; tells whether they do."""
    if machine.world[WORLD.aware] == 0 or src == dst:
        return False
    message = new_message(machine, src, dst, size, kind, a, b)
    if message >= 0:
        put_on_link(machine, message)
    return True


@inner
def send_to_mail(
    machine: Machine, src: int, dst: int, size: int, slot: int, share: int, pace: int
) -> None:
    """Send bytes of a collective, over links that ``share`` messages use at the same time."""
    if not _send_over_links(machine, src, dst, size, Event.ARRIVE, slot, 0):
        time = travel_time(machine, src, dst, size, share, pace)
        arrive_after(machine, src, dst, size, slot, share, pace, time)


@called
def arrive_after(
    machine: Machine, src: int, dst: int, size: int, slot: int, share: int, pace: int, time: int
) -> None:
    """Put bytes of a collective into a mail after a time, if nothing slows them."""
    now = machine.agenda.counters[COUNTER.now]
    add_event(machine.agenda, now + time, Event.ARRIVE, slot, 0)


@called
def send_message(
    machine: Machine, src: int, dst: int, size: int, kind: int, a: int, b: int
) -> None:
    """Send bytes from a rank to another; when they are there, ``kind`` happens."""
    if _send_over_links(machine, src, dst, size, kind, a, b):
        return
    time = travel_time(machine, src, dst, size, WHOLE_LINK, 0)
    # those of a collective are not, but all of its phase
    is_flow = machine.world[WORLD.flows] != 0 and (kind == Event.SENT or kind == Event.REQUESTED)
    if is_flow:
        alone = time_of_bytes(machine, src, dst, size, WHOLE_LINK, 0)
        is_flow = begin_message(machine, pair_of(machine, src, dst), size, alone, time, kind, a, b)
    if not is_flow:
        add_event(machine.agenda, machine.agenda.counters[COUNTER.now] + time, kind, a, b)
