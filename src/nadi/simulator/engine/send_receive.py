"""Messages between nodes: sends and receives.

Those of one key (ranks, size and tag) are matched in order: the first to arrive is for the first
that waits.
"""

from __future__ import annotations

from nadi.kernels.jit import inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.event_queue import NOW, add_event
from nadi.simulator.engine.machine_state import Machine
from nadi.simulator.engine.mail import send_now
from nadi.simulator.engine.network_links import new_message, send_message

__all__ = ["issue_receive", "issue_send", "receiver_of", "request_of_node_arrives"]


@inner
def _wait_for_key(machine: Machine, node: int) -> None:
    keys, nodes = machine.keys, machine.nodes
    key = nodes[node, M.N_KEY]
    if keys[key, M.K_ARRIVED] > 0:
        keys[key, M.K_ARRIVED] -= 1
        add_event(machine.agenda, machine.agenda.counters[NOW], M.COMPLETE, node, 0)
        return
    nodes[node, M.N_NEXT] = -1
    if keys[key, M.K_HEAD] < 0:
        keys[key, M.K_HEAD] = node
    else:
        nodes[keys[key, M.K_TAIL], M.N_NEXT] = node
    keys[key, M.K_TAIL] = node


@inner
def issue_send(machine: Machine, rank: int, node: int) -> None:
    """Send a node's message; by rendezvous, when its receiver has asked for it."""
    nodes, keys, agenda = machine.nodes, machine.keys, machine.agenda
    peer, size = nodes[node, M.N_PEER], nodes[node, M.N_SIZE]
    if machine.world[M.W_RENDEZVOUS] == 0:
        send_message(machine, rank, peer, size, M.SENT, node, 0)
        return
    key = nodes[node, M.N_KEY]
    message = new_message(machine, rank, peer, size, M.SENT, node, 0)
    if message < 0:
        return
    if keys[key, M.K_ASKED] > 0:
        keys[key, M.K_ASKED] -= 1
        add_event(agenda, agenda.counters[NOW], M.REAL_SEND, message, 0)
    else:
        if keys[key, M.K_SENDS] < 0:
            keys[key, M.K_SENDS] = message
        else:
            machine.messages[keys[key, M.K_LAST], M.G_NEXT] = message
        keys[key, M.K_LAST] = message


@inner
def issue_receive(machine: Machine, rank: int, node: int) -> None:
    """Wait for a message; by rendezvous, ask for it first."""
    if machine.world[M.W_RENDEZVOUS] == 0:
        _wait_for_key(machine, node)
    else:
        peer = machine.nodes[node, M.N_PEER]
        send_message(machine, rank, peer, M.HANDSHAKE, M.REQUESTED, node, 0)


@inner
def receiver_of(machine: Machine, send: int) -> int:
    """Give the receive that takes a message that is there; -1 if none waits for it yet."""
    keys = machine.keys
    key = machine.nodes[send, M.N_KEY]
    waiting = keys[key, M.K_HEAD]
    if waiting < 0:
        keys[key, M.K_ARRIVED] += 1
    else:
        keys[key, M.K_HEAD] = machine.nodes[waiting, M.N_NEXT]
    return waiting


@inner
def request_of_node_arrives(machine: Machine, node: int) -> None:
    """Take the request of a receive: it waits for a message, which may be sent now."""
    keys = machine.keys
    key = machine.nodes[node, M.N_KEY]
    _wait_for_key(machine, node)
    message = keys[key, M.K_SENDS]
    if message < 0:
        keys[key, M.K_ASKED] += 1
    else:
        keys[key, M.K_SENDS] = machine.messages[message, M.G_NEXT]
        send_now(machine, message)
