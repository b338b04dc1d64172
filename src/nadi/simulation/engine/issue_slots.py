"""Which node of a rank is next: heaps of those that are ready, one for each slot."""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.kernels.sequences import put_in, take_first
from nadi.simulation.engine.machine_state import NODE, NUM_SLOTS, RANK, Machine


@inner
def push_ready(machine: Machine, rank: int, node: int) -> None:
    """Put a node among those of its slot that are ready."""
    r, slot = machine.ranks[rank], machine.nodes[node, NODE.slot]
    put_in(machine.ready, r[RANK.base + slot], r[RANK.ready + slot], node)
    r[RANK.ready + slot] += 1


@called
def next_to_issue(machine: Machine, rank: int) -> int:
    """Take the lowest ready node whose slot is free; -1 if there is none."""
    r = machine.ranks[rank]
    best, lowest = -1, 0
    for slot in range(NUM_SLOTS):
        if r[RANK.ready + slot] > 0 and r[RANK.busy + slot] == 0:
            node = machine.ready[r[RANK.base + slot]]
            if best < 0 or node < lowest:
                best, lowest = slot, node
    if best < 0:
        return -1
    r[RANK.ready + best] -= 1
    return take_first(machine.ready, r[RANK.base + best], r[RANK.ready + best])
