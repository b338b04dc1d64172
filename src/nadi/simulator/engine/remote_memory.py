"""Remote memory: servers, each of which serves one access after the other."""

from __future__ import annotations

from nadi.kernels.jit import inner
from nadi.simulator.engine import machine_state as M
from nadi.simulator.engine.event_queue import NOW, after
from nadi.simulator.engine.machine_state import Machine

__all__ = ["access_memory", "free_memory"]


@inner
def _serve_memory(machine: Machine, node: int) -> None:
    nodes, agenda = machine.nodes, machine.agenda
    time = agenda.counters[NOW] + nodes[node, M.N_TIME]
    after(agenda, nodes[node, M.N_RANK], machine.world[M.W_RANKS], time, M.MEMORY, node, 0)


@inner
def access_memory(machine: Machine, node: int) -> None:
    """Ask a server: it begins now, or when it is done with those before."""
    nodes, servers = machine.nodes, machine.servers
    server = nodes[node, M.N_KEY]
    if servers[server, M.V_BUSY] == 0:
        servers[server, M.V_BUSY] = 1
        _serve_memory(machine, node)
        return
    nodes[node, M.N_NEXT] = -1
    if servers[server, M.V_HEAD] < 0:
        servers[server, M.V_HEAD] = node
    else:
        nodes[servers[server, M.V_TAIL], M.N_NEXT] = node
    servers[server, M.V_TAIL] = node


@inner
def free_memory(machine: Machine, server: int) -> None:
    """End an access of a server, which goes on to the next."""
    servers = machine.servers
    node = servers[server, M.V_HEAD]
    if node < 0:
        servers[server, M.V_BUSY] = 0
    else:
        servers[server, M.V_HEAD] = machine.nodes[node, M.N_NEXT]
        _serve_memory(machine, node)
