"""Messages between nodes: sends and receives.

Those of one key (ranks, size and tag) are matched in order: the first to arrive is for the first
that waits.

The rendezvous protocol: a message leaves when its receiver has asked for it.

Requests and messages are matched at a row of the mail, or of the keys of sends and receives. It
has three columns side by side: requests that are there, the first and the last message that wait.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Event
from nadi.simulation.engine.event_queue import COUNTER, add_event
from nadi.simulation.engine.linked_queues import put_behind, take_queued
from nadi.simulation.engine.machine_state import HANDSHAKE, KEY, MESSAGE, NODE, RANK, WORLD, Machine
from nadi.simulation.engine.network_links import free_message, new_message, send_message
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
