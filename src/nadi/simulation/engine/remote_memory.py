"""Remote memory: servers, each of which serves one access after the other; and memory tiers."""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.simulation.engine.codes import Event
from nadi.simulation.engine.event_queue import COUNTER, after
from nadi.simulation.engine.linked_queues import put_behind, take_queued
from nadi.simulation.engine.machine_state import NODE, SERVER, WORLD, Machine
from nadi.simulation.engine.parts import MESSAGES, belongs_to
from nadi.simulation.engine.shared_transfers import begin_message


@inner
def _serve_memory(machine: Machine, node: int) -> None:
    nodes, agenda = machine.nodes, machine.agenda
    time = agenda.counters[COUNTER.now] + nodes[node, NODE.time]
    after(agenda, nodes[node, NODE.rank], time, Event.MEMORY, node, 0)


@belongs_to(MESSAGES)
@inner
def access_memory(machine: Machine, node: int) -> None:
    """Ask a server: it begins now, or when it is done with those before."""
    nodes, servers = machine.nodes, machine.servers
    server = nodes[node, NODE.key]
    if servers[server, SERVER.busy] == 0:
        servers[server, SERVER.busy] = 1
        _serve_memory(machine, node)
        return
    put_behind(servers, server, SERVER.head, nodes, NODE.next, node)


@belongs_to(MESSAGES)
@inner
def free_memory(machine: Machine, server: int) -> None:
    """End an access of a server, which goes on to the next."""
    servers = machine.servers
    node = take_queued(servers, server, SERVER.head, machine.nodes, NODE.next)
    if node < 0:
        servers[server, SERVER.busy] = 0
    else:
        _serve_memory(machine, node)


@called
def access_tier(machine: Machine, rank: int, node: int) -> None:
    """Read or write a memory tier: it takes its time alone, or longer where links are shared."""
    nodes, agenda = machine.nodes, machine.agenda
    time, latency = nodes[node, NODE.time], nodes[node, NODE.left]
    if machine.world[WORLD.flows] != 0:
        way, size = nodes[node, NODE.key], nodes[node, NODE.size]
        alone = float(time - latency)
        if begin_message(machine, way, size, alone, time, Event.COMPLETE, node, 0):
            return
    after(agenda, rank, agenda.counters[COUNTER.now] + time, Event.COMPLETE, node, 0)
