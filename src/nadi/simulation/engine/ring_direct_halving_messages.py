"""Rings, direct exchanges and halving: packets, as many of them at once as have slots.

All members do the same, and so the next packet follows from how many were sent. What differs
between members is a table of steps (:mod:`nadi.simulation.engine.stepwise_algorithms`).
"""

from __future__ import annotations

from nadi.kernels.jit import called
from nadi.simulation.engine.codes import Comm, Event, PhaseKind
from nadi.simulation.engine.machine_state import STREAM, WORLD, Machine
from nadi.simulation.engine.mailboxes import is_alike, pass_memory, receive, send
from nadi.simulation.engine.message_times import part_of
from nadi.simulation.engine.parts import MESSAGES, belongs_to


@called
def halving_size(machine: Machine, comm: int, size: int, levels: int, step: int) -> int:
    """Give the bytes of a step's messages in halving and doubling; after the last a next one.

    ASTRA-sim halves once more before an all-reduce doubles, and what is cut off stays lost. Only
    its bus asks for a size after the last step: it goes on halving or doubling.
    """
    if machine.world[WORLD.rounds_down] != 0:
        if comm == Comm.ALL_GATHER:
            return size << step
        if comm == Comm.ALL_REDUCE and step >= levels:
            return size >> (levels + 1) << (step - levels + 1)
        return size >> (step + 1)
    step = min(step, (2 * levels if comm == Comm.ALL_REDUCE else levels) - 1)
    if comm == Comm.ALL_GATHER:
        return size << step
    return part_of(machine, size, 2 << (step if step < levels else 2 * levels - step - 1))


@called
def _message_size(machine: Machine, stream: int) -> int:
    """Give the size of the next message of a stream's phase."""
    s = machine.streams[stream]
    comm, size, n = s[STREAM.comm], s[STREAM.size], s[STREAM.n]
    if s[STREAM.algorithm] == PhaseKind.HALVING_DOUBLING:
        return halving_size(machine, comm, size, s[STREAM.block] + 1, s[STREAM.sends])
    if comm == Comm.ALL_GATHER:
        return size
    part = part_of(machine, size, n)
    if comm == Comm.ALL_TO_ALL and s[STREAM.algorithm] == PhaseKind.RING and s[STREAM.max] == n - 1:
        return max(n - 1 - s[STREAM.sends], 1) * part  # what is there stays there
    return part


@belongs_to(MESSAGES)
@called
def insert(machine: Machine, stream: int) -> None:
    """Take in a packet: inserts come in blocks, first a free one, then one that may reduce."""
    s = machine.streams[stream]
    window, block = s[STREAM.window], s[STREAM.block]
    place = s[STREAM.inserted] % (window + block)
    pair = s[STREAM.inserted] // (window + block)
    s[STREAM.inserted] += 1
    reduces = place >= window and (
        s[STREAM.comm] == Comm.REDUCE_SCATTER
        or (s[STREAM.comm] == Comm.ALL_REDUCE and pair % 2 == 0)
    )
    pass_memory(
        machine, stream, _message_size(machine, stream), reduces, Event.GENERAL, place < window,
        window <= place < block,
    )  # fmt: skip


@called
def _ready(machine: Machine, stream: int) -> None:
    """Send the next packet, if there is one and a slot for it is free."""
    s = machine.streams[stream]
    sends, n, index = s[STREAM.sends], s[STREAM.n], s[STREAM.index]
    if sends == s[STREAM.max] or s[STREAM.free] == 0 or sends >= s[STREAM.inserted]:
        return
    size = _message_size(machine, stream)
    algorithm = s[STREAM.algorithm]
    place = 0
    if algorithm == PhaseKind.HALVING_DOUBLING:
        levels = s[STREAM.block] + 1
        if s[STREAM.comm] == Comm.ALL_GATHER:
            distance = n >> (sends + 1)
            place = levels - 1 - sends
        else:
            place = sends if sends < levels else 2 * levels - 1 - sends
            distance = 1 << place
        to = index + (distance if index // distance % 2 == 0 else -distance)
        by = to
        there = place
    else:
        distance = s[STREAM.step]
        if algorithm == PhaseKind.DIRECT:
            distance *= sends % (n - 1) + 1
        to = (index + distance) % n
        by = (index - distance) % n
        there = 0
        if algorithm == PhaseKind.DIRECT:
            place = by
            # of ranks that are all alike, this one gets what it sends itself
            there = by if is_alike(machine, stream) else index
    send(machine, stream, to, size, there)
    receive(machine, stream, by, place)
    s[STREAM.sends] = sends + 1
    s[STREAM.free] -= 1


@belongs_to(MESSAGES)
@called
def general(machine: Machine, stream: int) -> bool:
    """Free the slot of a packet that has passed the memory; tells whether the phase is over."""
    s = machine.streams[stream]
    s[STREAM.free] += 1
    n = s[STREAM.n]
    if (
        s[STREAM.algorithm] == PhaseKind.DIRECT
        and s[STREAM.comm] == Comm.ALL_REDUCE
        and s[STREAM.sends] >= n - 1
    ):
        if s[STREAM.taken] < n - 1:
            return False  # the second half waits for all of the first
        # as often as that does something: tried for every slot, all packets are n squared tries
        left = min(s[STREAM.max], s[STREAM.inserted]) - s[STREAM.sends]
        for _ in range(min(left, s[STREAM.free], s[STREAM.window])):
            _ready(machine, stream)
    else:
        _ready(machine, stream)
    return s[STREAM.sends] == s[STREAM.max] and s[STREAM.free] == s[STREAM.window]
