"""Loads and stores of memory tiers: how long each takes alone, and whether any share links."""

from __future__ import annotations

import numpy as np

from nadi.errors import UsageError
from nadi.simulation.engine.codes import NodeKind
from nadi.simulation.engine.machine_state import NODE
from nadi.simulation.flows.memory_links import MemoryLinks, access_number
from nadi.simulation.rules import rules_of
from nadi.simulation.work.program import Program
from nadi.simulation.work.recorded_work import OWN_MEMORY, STORE, Representatives
from nadi.systems.memory_tiers import loaded_latency_ns, rate_alone
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.distinct_rows import number_rows


def set_tier_accesses(
    program: Program, system: System, nodes: Ints, stand_ins: Representatives, tier: Ints
) -> None:
    """Set what loads and stores of tiers do; the device's own memory is there at once.

    ``tier`` is that of each node, as ``tiers_of_nodes`` has it.

    Raises
    ------
    UsageError
        If the system's rules know no tiers.
    """
    nodes[tier == OWN_MEMORY, NODE.kind] = NodeKind.INSTANT
    used = np.unique(tier[tier >= 0]).tolist()
    shares = rules_of(system).links_are_shared
    if used and (system.network.congestion or not shares):
        what = "network.congestion" if shares else "ASTRA-sim's rules"
        raise UsageError(
            "memory tiers", f"{what} cannot simulate them",
            "leave out compat and network.congestion, or describe memory.remote",
        )  # fmt: skip
    size = np.maximum(program.tensor_bytes, 0)
    for number in used:
        of_system = system.tiers[number]
        path = system.path_of(of_system)
        for store in (False, True):
            chosen = np.flatnonzero((tier == number) & ((program.kind == STORE) == store))
            rate = rate_alone(of_system, path, store=store)
            latency = round(loaded_latency_ns(of_system, rate, reads=0.0 if store else 1.0))
            nodes[chosen, NODE.time] = latency
            if not rate:
                continue
            nodes[chosen, NODE.kind] = NodeKind.TRANSFER
            nodes[chosen, NODE.time] += (size[chosen] / rate).astype(np.int64)
            nodes[chosen, NODE.left], nodes[chosen, NODE.size] = latency, size[chosen]
            rank = stand_ins.rank[program.rank[chosen]]
            nodes[chosen, NODE.key] = access_number(system, rank, number, store=store)


def accesses_share_links(program: Program, system: System, nodes: Ints) -> bool:
    """Return whether accesses of tiers may slow down others, or communication.

    What is in one lane waits for each other; so no link may be used from two.
    """
    chosen = np.flatnonzero(nodes[: program.num_nodes, NODE.kind] == NodeKind.TRANSFER)
    if not chosen.size:
        return False
    communicates = np.isin(nodes[:, NODE.kind], (NodeKind.SEND, NodeKind.COLLECTIVE)).any()
    if communicates and any(path.dimensions for path in system.memory_paths):
        return True
    lane = -1 - program.rank if program.lane is None else program.lane
    _, first = number_rows([lane[chosen], nodes[chosen, NODE.key]])
    use, link, _ = MemoryLinks(system).hops(nodes[chosen[first], NODE.key])
    of_lane = lane[chosen[first]][use]
    _, distinct = number_rows([link, of_lane])
    return bool(np.unique(link).size < distinct.size)
