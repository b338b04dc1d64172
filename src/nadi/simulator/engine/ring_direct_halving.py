"""Rings, direct exchanges and halving: packets, as many of them at once as have slots.

All members do the same, and so the next packet follows from how many were sent. What differs
between members is a table of steps (:mod:`nadi.simulator.engine.stepwise_algorithms`).
"""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.machine_state import Machine
from nadi.simulator.engine.mail import pass_memory, receive, send
from nadi.simulator.engine.network_links import part_of

__all__ = ["general", "insert"]


@inner
def _message_size(machine: Machine, stream: int) -> int:
    """Give the size of the next message of a stream's phase."""
    s = machine.streams[stream]
    comm, size, n = s[M.S_COMM], s[M.S_SIZE], s[M.S_N]
    if s[M.S_ALGORITHM] == M.HALVING_DOUBLING:
        step = min(s[M.S_SENDS], s[M.S_MAX] - 1)
        if comm == M.ALL_GATHER:
            return size << step
        levels = s[M.S_BLOCK] + 1
        return part_of(machine, size, 2 << (step if step < levels else 2 * levels - step - 1))
    if comm == M.ALL_GATHER:
        return size
    part = part_of(machine, size, n)
    if comm == M.ALL_TO_ALL and s[M.S_ALGORITHM] == M.RING and s[M.S_MAX] == n - 1:
        return max(n - 1 - s[M.S_SENDS], 1) * part  # what is there stays there
    return part


@inner
def insert(machine: Machine, stream: int) -> None:
    """Take in a packet: inserts come in blocks, first a free one, then one that may reduce."""
    s = machine.streams[stream]
    window, block = s[M.S_WINDOW], s[M.S_BLOCK]
    place = s[M.S_INSERTED] % (window + block)
    pair = s[M.S_INSERTED] // (window + block)
    s[M.S_INSERTED] += 1
    reduces = place >= window and (
        s[M.S_COMM] == M.REDUCE_SCATTER or (s[M.S_COMM] == M.ALL_REDUCE and pair % 2 == 0)
    )
    pass_memory(
        machine, stream, _message_size(machine, stream), reduces, M.GENERAL, place < window,
        window <= place < block,
    )  # fmt: skip


@inner
def _ready(machine: Machine, stream: int) -> None:
    """Send the next packet, if there is one and a slot for it is free."""
    s = machine.streams[stream]
    sends, n, index = s[M.S_SENDS], s[M.S_N], s[M.S_INDEX]
    if sends == s[M.S_MAX] or s[M.S_FREE] == 0 or sends >= s[M.S_INSERTED]:
        return
    size = _message_size(machine, stream)
    algorithm = s[M.S_ALGORITHM]
    place = 0
    if algorithm == M.HALVING_DOUBLING:
        levels = s[M.S_BLOCK] + 1
        if s[M.S_COMM] == M.ALL_GATHER:
            distance = n >> (sends + 1)
            place = levels - 1 - sends
        else:
            place = sends if sends < levels else 2 * levels - 1 - sends
            distance = 1 << place
        to = index + (distance if index // distance % 2 == 0 else -distance)
        by = to
        there = place
    else:
        distance = s[M.S_STEP]
        if algorithm == M.DIRECT:
            distance *= sends % (n - 1) + 1
        to = (index + distance) % n
        by = (index - distance) % n
        there = 0
        if algorithm == M.DIRECT:
            place = by
            # of ranks that are all alike, this one gets what it sends itself
            there = index if machine.world[M.W_ALIKE] == 0 else by
    send(machine, stream, to, size, there)
    receive(machine, stream, by, place)
    s[M.S_SENDS] = sends + 1
    s[M.S_FREE] -= 1


@called
def general(machine: Machine, stream: int) -> bool:
    """Free the slot of a packet that has passed the memory; tells whether the phase is over."""
    s = machine.streams[stream]
    s[M.S_FREE] += 1
    n = s[M.S_N]
    if s[M.S_ALGORITHM] == M.DIRECT and s[M.S_COMM] == M.ALL_REDUCE and s[M.S_SENDS] >= n - 1:
        if s[M.S_TAKEN] < n - 1:
            return False  # the second half waits for all of the first
        # as often as that does something: tried for every slot, all packets are n squared tries
        left = min(s[M.S_MAX], s[M.S_INSERTED]) - s[M.S_SENDS]
        for _ in range(min(left, s[M.S_FREE], s[M.S_WINDOW])):
            _ready(machine, stream)
    else:
        _ready(machine, stream)
    return s[M.S_SENDS] == s[M.S_MAX] and s[M.S_FREE] == s[M.S_WINDOW]
