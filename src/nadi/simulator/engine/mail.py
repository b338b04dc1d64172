"""Mail: what the members of a collective's phase send each other, and what it costs to take it in.

A place holds the messages of one kind that a member gets in a phase. Those that are there are
counted; the stream that asked for one that is not there yet goes on when it comes.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.event_queue import NOW, add_event, after
from nadi.simulator.engine.machine_state import Machine
from nadi.simulator.engine.memory_bus import request_bus
from nadi.simulator.engine.network_links import (
    free_message,
    new_message,
    send_message,
    send_shared,
    travel_time,
)

__all__ = [
    "arrive",
    "later",
    "mail_of",
    "pass_memory",
    "rank_of",
    "receive",
    "request_arrives",
    "send",
    "send_now",
]


@inner
def later(machine: Machine, stream: int, delay: int, kind: int, a: int, b: int) -> None:
    """Let something happen on a stream's rank after a time, in ns."""
    agenda = machine.agenda
    rank = machine.streams[stream, M.S_RANK]
    after(
        agenda, rank, machine.world[M.W_RANKS], agenda.counters[NOW] + delay, kind, a, b
    )  # fmt: skip


@inner
def pass_memory(
    machine: Machine, stream: int, size: int, reduces: bool, kind: int, outwards: bool, back: bool
) -> None:
    """Spend the endpoint delay, or go over the bus; then reduce; then let ``kind`` happen."""
    s, code = machine.streams[stream], kind
    if reduces:
        rate = machine.rates[machine.dims.shape[0], 0]
        cost = 3 * np.int64(size / rate) if rate > 0.0 else 0
        code = cost * M.KINDS + kind
    if machine.world[M.W_BUS] != 0:
        code = 2 * code + (1 if reduces else 0)
        request_bus(
            machine, s[M.S_RANK], size, 1 if reduces else 0, 1 if back else 0,
            1 if outwards else 0, stream, code,
        )  # fmt: skip
    elif reduces:
        later(machine, stream, s[M.S_DELAY], M.CHARGE, stream, code)
    else:
        later(machine, stream, s[M.S_DELAY], kind, stream, 0)


@inner
def rank_of(machine: Machine, stream: int, index: int) -> int:
    """Give the rank of a member of a stream's phase."""
    s = machine.streams[stream]
    place = s[M.S_LINE] + index * s[M.S_STRIDE]
    if s[M.S_GROUP] == 0:  # all ranks
        return place
    return machine.members[machine.groups[s[M.S_GROUP], M.U_MEMBERS] + place, 0]


@inner
def mail_of(machine: Machine, stream: int, index: int, place: int) -> int:
    """Give where mail lies that a member gets in a stream's phase."""
    s = machine.streams[stream]
    member = s[M.S_LINE] + index * s[M.S_STRIDE]
    if machine.world[M.W_ALIKE] != 0:
        member = 0
    return s[M.S_MAIL] + member * s[M.S_SLOTS] + place


@inner
def send(machine: Machine, stream: int, index: int, size: int, place: int) -> None:
    """Send to a member, into a place of its mail."""
    rank = machine.streams[stream, M.S_RANK]
    dst = rank_of(machine, stream, index)
    slot = mail_of(machine, stream, index, place)
    if machine.world[M.W_RENDEZVOUS] == 0:
        s = machine.streams[stream]
        if s[M.S_ALGORITHM] == M.RING and machine.world[M.W_AWARE] == 0:
            # a smaller message is not there before the larger one that was sent before it
            time = machine.agenda.counters[NOW] + travel_time(
                machine, rank, dst, size, s[M.S_SHARE], s[M.S_PACE]
            )
            s[M.S_BUSY] = max(time, s[M.S_BUSY])
            add_event(machine.agenda, s[M.S_BUSY], M.ARRIVE, slot, 0)
            return
        send_shared(
            machine, rank, dst, size, M.ARRIVE, slot, 0, s[M.S_SHARE], s[M.S_PACE]
        )  # fmt: skip
        return
    message = new_message(machine, rank, dst, size, M.ARRIVE, slot, 0)
    if message < 0:
        return
    mail = machine.mail
    if mail[slot, M.M_ASKED] > 0:
        mail[slot, M.M_ASKED] -= 1
        add_event(machine.agenda, machine.agenda.counters[NOW], M.REAL_SEND, message, 0)
    else:
        if mail[slot, M.M_SENDS] < 0:
            mail[slot, M.M_SENDS] = message
        else:
            machine.messages[mail[slot, M.M_LAST], M.G_NEXT] = message
        mail[slot, M.M_LAST] = message


@inner
def send_now(machine: Machine, message: int) -> None:
    """Send a message that has waited for its receiver to ask."""
    row = machine.messages[message]
    src, dst, size = row[M.G_AT], row[M.G_DST], row[M.G_SIZE]
    kind, a, b = row[M.G_KIND], row[M.G_A], row[M.G_B]
    free_message(machine, message)
    send_message(machine, src, dst, size, kind, a, b)


@inner
def request_arrives(machine: Machine, slot: int, stream: int) -> None:
    """Take a receiver's request: it waits for the message now, which may be sent."""
    mail = machine.mail
    _wait_for(machine, slot, stream)
    message = mail[slot, M.M_SENDS]
    if message < 0:
        mail[slot, M.M_ASKED] += 1
    else:
        mail[slot, M.M_SENDS] = machine.messages[message, M.G_NEXT]
        send_now(machine, message)


@inner
def _wait_for(machine: Machine, slot: int, stream: int) -> None:
    mail = machine.mail
    mail[slot, M.M_STREAM] = stream
    mail[slot, M.M_BALANCE] -= 1
    if mail[slot, M.M_BALANCE] >= 0:  # it is there already
        add_event(machine.agenda, machine.agenda.counters[NOW], M.RECEIVED, stream, 0)


@inner
def receive(machine: Machine, stream: int, index: int, place: int) -> None:
    """Wait for what a member sends into a place of this rank's mail."""
    streams = machine.streams
    rank = streams[stream, M.S_RANK]
    own = streams[stream, M.S_INDEX]
    slot = mail_of(machine, stream, own, place)
    if machine.world[M.W_RENDEZVOUS] == 0:
        _wait_for(machine, slot, stream)
    else:
        send_message(
            machine, rank, rank_of(machine, stream, index), M.HANDSHAKE, M.REQUEST, slot, stream
        )


@inner
def arrive(machine: Machine, slot: int) -> int:
    """Put a message into the mail; gives the stream that waits for it, or -1."""
    mail = machine.mail
    mail[slot, M.M_BALANCE] += 1
    return mail[slot, M.M_STREAM] if mail[slot, M.M_BALANCE] <= 0 else -1
