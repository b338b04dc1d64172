"""Messages between nodes: sends and receives.

Those of one key (ranks, size and tag) are matched in order: the first to arrive is for the first
that waits.
"""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Event
from nadi.simulation.engine.event_queue import COUNTER, add_event
from nadi.simulation.engine.linked_queues import put_behind, take_first
from nadi.simulation.engine.machine_state import HANDSHAKE, KEY, NODE, RANK, WORLD, Machine
from nadi.simulation.engine.network_links import new_message, send_message
from nadi.simulation.engine.parts import COLLECTIVES, MESSAGES, belongs_to
from nadi.simulation.engine.rendezvous import send_when_asked, take_request

__all__ = ["issue_receive", "issue_send", "receiver_of", "request_of_node_arrives"]


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
    waiting = take_first(keys, key, KEY.head, machine.nodes, NODE.next)
    if waiting < 0:
        keys[key, KEY.arrived] += 1
    return waiting


@belongs_to(MESSAGES)
@inner
def request_of_node_arrives(machine: Machine, node: int) -> None:
    """Take the request of a receive: it waits for a message, which may be sent now."""
    _wait_for_key(machine, node)
    take_request(machine, machine.keys, machine.nodes[node, NODE.key], KEY.asked)
