"""Which node of a rank is next: heaps of those that are ready, one for each slot."""

from __future__ import annotations

from nadi.kernels import machine as M
from nadi.kernels._jit import inner
from nadi.kernels.machine import Machine

__all__ = ["next_to_issue", "push_ready"]


@inner
def push_ready(machine: Machine, rank: int, node: int) -> None:
    """Put a node among those of its slot that are ready."""
    ready, r = machine.ready, machine.ranks[rank]
    slot = machine.nodes[node, M.N_SLOT]
    base, at = r[M.R_BASE + slot], r[M.R_READY + slot]
    r[M.R_READY + slot] = at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if ready[base + parent] <= node:
            break
        ready[base + at] = ready[base + parent]
        at = parent
    ready[base + at] = node


@inner
def _pop_ready(machine: Machine, rank: int, slot: int) -> int:
    ready, r = machine.ready, machine.ranks[rank]
    base, size = r[M.R_BASE + slot], r[M.R_READY + slot] - 1
    r[M.R_READY + slot] = size
    first, node = ready[base], ready[base + size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and ready[base + child + 1] < ready[base + child]:
            child += 1
        if ready[base + child] >= node:
            break
        ready[base + at] = ready[base + child]
        at = child
    ready[base + at] = node
    return first


@inner
def next_to_issue(machine: Machine, rank: int) -> int:
    """Take the lowest ready node whose slot is free; -1 if there is none."""
    r = machine.ranks[rank]
    best, lowest = -1, 0
    for slot in range(M.NUM_SLOTS):
        if r[M.R_READY + slot] > 0 and r[M.R_BUSY + slot] == 0:
            node = machine.ready[r[M.R_BASE + slot]]
            if best < 0 or node < lowest:
                best, lowest = slot, node
    return _pop_ready(machine, rank, best) if best >= 0 else -1
