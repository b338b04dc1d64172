"""Mail: what ranks send each other, by collectives and by nodes, and what it costs to take it in.

A place holds the messages of one kind that a member of a collective gets in a phase. Those that
are there are counted; the stream that asked for one that is not there yet goes on when it comes.

Sends and receives of nodes that have one key (ranks, size and tag) are matched in order: the first
to arrive is for the first that waits. By rendezvous a message leaves when its receiver has asked
for it. Requests and messages are matched at a row of the mail, or of the keys. It has three columns
side by side: requests that are there, the first and the last message that wait.
"""

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Event, PhaseKind
from nadi.simulation.engine.event_queue import COUNTER, add_event, after, put_behind, take_queued
from nadi.simulation.engine.machine_state import (
    GROUP,
    HANDSHAKE,
    KEY,
    KINDS,
    MAIL,
    MEMBER,
    MESSAGE,
    NODE,
    RANK,
    RECIPE,
    STREAM,
    WORLD,
    Machine,
)
from nadi.simulation.engine.memory_bus import request_bus
from nadi.simulation.engine.message_times import reduction_time, travel_time
from nadi.simulation.engine.network_links import (
    arrive_after,
    free_message,
    new_message,
    send_message,
    send_to_mail,
)
from nadi.simulation.engine.parts import COLLECTIVES, MESSAGES, belongs_to


@inner
def send_when_asked(
    machine: Machine, table: np.ndarray, row: int, asked: int, message: int
) -> None:
    """Send a message when its request is there, which may be so already."""
    if table[row, asked] > 0:
        table[row, asked] -= 1
        now = machine.agenda.counters[COUNTER.now]
        add_event(machine.agenda, now, Event.REAL_SEND, message, 0)
    else:
        put_behind(table, row, asked + 1, machine.messages, MESSAGE.next, message)


@inner
def take_request(machine: Machine, table: np.ndarray, row: int, asked: int) -> None:
    """Take a request: it is for the first message that waits, or for one to come."""
    message = take_queued(table, row, asked + 1, machine.messages, MESSAGE.next)
    if message < 0:
        table[row, asked] += 1
    else:
        send_now(machine, message)


@belongs_to(MESSAGES)
@inner
def send_now(machine: Machine, message: int) -> None:
    """Send a message that has waited for its receiver to ask."""
    row = machine.messages[message]
    src, dst, size = row[MESSAGE.at], row[MESSAGE.dst], row[MESSAGE.size]
    kind, a, b = row[MESSAGE.kind], row[MESSAGE.a], row[MESSAGE.b]
    free_message(machine, message)
    send_message(machine, src, dst, size, kind, a, b)


@inner
def _wait_for_key(machine: Machine, node: int) -> None:
    keys, nodes = machine.keys, machine.nodes
    key = nodes[node, NODE.key]
    if keys[key, KEY.arrived] > 0:
        keys[key, KEY.arrived] -= 1
        add_event(machine.agenda, machine.agenda.counters[COUNTER.now], Event.COMPLETE, node, 0)
        return
    put_behind(keys, key, KEY.head, nodes, NODE.next, node)


@belongs_to(COLLECTIVES)
@called
def issue_send(machine: Machine, rank: int, node: int) -> None:
    """Send a node's message; by rendezvous, when its receiver has asked for it."""
    nodes = machine.nodes
    peer, size = nodes[node, NODE.peer], nodes[node, NODE.size]
    src = machine.ranks[rank, RANK.place]
    if machine.world[WORLD.rendezvous] == 0:
        send_message(machine, src, peer, size, Event.SENT, node, 0)
        return
    key = nodes[node, NODE.key]
    message = new_message(machine, src, peer, size, Event.SENT, node, 0)
    if message >= 0:
        send_when_asked(machine, machine.keys, key, KEY.asked, message)


@belongs_to(COLLECTIVES)
@inner
def issue_receive(machine: Machine, rank: int, node: int) -> None:
    """Wait for a message; by rendezvous, ask for it first."""
    if machine.world[WORLD.rendezvous] == 0:
        _wait_for_key(machine, node)
    else:
        peer = machine.nodes[node, NODE.peer]
        src = machine.ranks[rank, RANK.place]
        send_message(machine, src, peer, HANDSHAKE, Event.REQUESTED, node, 0)


@inner
def receiver_of(machine: Machine, send: int) -> int:
    """Give the receive that takes a message that is there; -1 if none waits for it yet."""
    keys = machine.keys
    key = machine.nodes[send, NODE.key]
    waiting = take_queued(keys, key, KEY.head, machine.nodes, NODE.next)
    if waiting < 0:
        keys[key, KEY.arrived] += 1
    return waiting


@belongs_to(MESSAGES)
@inner
def request_of_node_arrives(machine: Machine, node: int) -> None:
    """Take the request of a receive: it waits for a message, which may be sent now."""
    _wait_for_key(machine, node)
    take_request(machine, machine.keys, machine.nodes[node, NODE.key], KEY.asked)


@inner
def later(machine: Machine, stream: int, delay: int, kind: int, a: int, b: int) -> None:
    """Let something happen on a stream's rank after a time, in ns."""
    agenda = machine.agenda
    rank = machine.streams[stream, STREAM.rank]
    after(agenda, rank, agenda.counters[COUNTER.now] + delay, kind, a, b
    )  # fmt: skip


@called
def pass_memory(
    machine: Machine, stream: int, size: int, reduces: bool, kind: int, outwards: bool, back: bool
) -> None:
    """Spend the endpoint delay, or go over the bus; then reduce; then let ``kind`` happen."""
    s, code = machine.streams[stream], kind
    if reduces:
        code = reduction_time(machine, size) * KINDS + kind
    # no group has a bus in ASTRA-sim, and only there a recipe says that it is of one
    if machine.world[WORLD.bus] != 0 and machine.recipes[s[STREAM.recipe], RECIPE.group] == 0:
        code = 2 * code + (1 if reduces else 0)
        request_bus(
            machine, s[STREAM.rank], size, 1 if reduces else 0, 1 if back else 0,
            1 if outwards else 0, stream, code,
        )  # fmt: skip
    elif reduces:
        later(machine, stream, s[STREAM.delay], Event.CHARGE, stream, code)
    else:
        later(machine, stream, s[STREAM.delay], kind, stream, 0)


@inner
def is_alike(machine: Machine, stream: int) -> bool:
    """Tell whether one rank stands for all members of a stream's group."""
    return machine.groups[machine.streams[stream, STREAM.group], GROUP.alike] != 0


@inner
def rank_of(machine: Machine, stream: int, index: int) -> int:
    """Give the rank of a member of a stream's phase, or who stands for it."""
    s = machine.streams[stream]
    number = s[STREAM.line] + index * s[STREAM.stride]
    if s[STREAM.group] == 0:  # all ranks
        return number
    return machine.members[machine.groups[s[STREAM.group], GROUP.members] + number, MEMBER.rank]


@inner
def place_of(machine: Machine, stream: int, index: int) -> int:
    """Give where a member of a stream's phase is in the network."""
    s = machine.streams[stream]
    return place_at(machine, s[STREAM.group], s[STREAM.line] + index * s[STREAM.stride])


@inner
def place_at(machine: Machine, group: int, number: int) -> int:
    """Give where the member of a group is in the network that has a place in it."""
    if group == 0:  # all ranks
        return number
    return machine.members[machine.groups[group, GROUP.members] + number, MEMBER.place]


@inner
def mail_of(machine: Machine, stream: int, index: int, place: int) -> int:
    """Give where mail lies that a member gets in a stream's phase."""
    s = machine.streams[stream]
    member = s[STREAM.line] + index * s[STREAM.stride]
    if is_alike(machine, stream):
        member = 0
    return s[STREAM.mail] + member * s[STREAM.slots] + place


@called
def send(machine: Machine, stream: int, index: int, size: int, place: int) -> None:
    """Send to a member, into a place of its mail."""
    src = machine.streams[stream, STREAM.place]
    dst = place_of(machine, stream, index)
    slot = mail_of(machine, stream, index, place)
    if machine.world[WORLD.rendezvous] == 0:
        s = machine.streams[stream]
        if s[STREAM.algorithm] == PhaseKind.RING and machine.world[WORLD.aware] == 0:
            # a smaller message is not there before the larger one that was sent before it
            now, share, pace = machine.agenda.counters[COUNTER.now], s[STREAM.share], s[STREAM.pace]
            time = now + travel_time(machine, src, dst, size, share, pace)
            s[STREAM.leaving] = max(time, s[STREAM.leaving])
            time = s[STREAM.leaving] - now
            arrive_after(machine, src, dst, size, slot, share, pace, time)
            return
        send_to_mail(machine, src, dst, size, slot, s[STREAM.share], s[STREAM.pace])
        return
    message = new_message(machine, src, dst, size, Event.ARRIVE, slot, 0)
    if message >= 0:
        send_when_asked(machine, machine.mail, slot, MAIL.asked, message)


@belongs_to(MESSAGES)
@inner
def request_arrives(machine: Machine, slot: int, stream: int) -> None:
    """Take a receiver's request: it waits for the message now, which may be sent."""
    _wait_for(machine, slot, stream)
    take_request(machine, machine.mail, slot, MAIL.asked)


@inner
def _wait_for(machine: Machine, slot: int, stream: int) -> None:
    mail = machine.mail
    mail[slot, MAIL.stream] = stream
    mail[slot, MAIL.balance] -= 1
    if mail[slot, MAIL.balance] >= 0:  # it is there already
        add_event(machine.agenda, machine.agenda.counters[COUNTER.now], Event.RECEIVED, stream, 0)


@called
def receive(machine: Machine, stream: int, index: int, place: int) -> None:
    """Wait for what a member sends into a place of this rank's mail."""
    streams = machine.streams
    place_here = streams[stream, STREAM.place]
    own = streams[stream, STREAM.index]
    slot = mail_of(machine, stream, own, place)
    if machine.world[WORLD.rendezvous] == 0:
        _wait_for(machine, slot, stream)
    else:
        send_message(
            machine, place_here, place_of(machine, stream, index), HANDSHAKE, Event.REQUEST, slot,
            stream,
        )  # fmt: skip


@belongs_to(MESSAGES)
@inner
def arrive(machine: Machine, slot: int) -> int:
    """Put a message into the mail; gives the stream that waits for it, or -1."""
    mail = machine.mail
    mail[slot, MAIL.balance] += 1
    return mail[slot, MAIL.stream] if mail[slot, MAIL.balance] <= 0 else -1
