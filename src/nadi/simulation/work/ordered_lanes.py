"""Order of work on the threads and streams of a rank, as dependencies.

Under ``slots = "device"`` a rank is what it is: threads and streams that each do one thing after
the other, in the order in which it was given to them, and all of them at once. So each node that
says of its thread or stream depends on the one before it there; no slot is needed for them.
"""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from nadi.errors import InputError
from nadi.kernels.paths import edges_by_vertex, topological_order
from nadi.simulation.engine.codes import QueuePolicy, Slot
from nadi.simulation.work.program import Program, shared_out
from nadi.simulation.work.recorded_work import NO_TIER, STORE, engines_of, tiers_of_nodes
from nadi.systems.system import System
from nadi.trace.arrays import Ints, Ints32
from nadi.trace.rows import number_rows
from nadi.trace.schema import NODE_KINDS

_IN_ORDER = ("COMP", "COMM_COLL", "MEM_LOAD", "MEM_STORE")  # not messages of two ranks
_THREAD, _STREAM, _TIER = range(3)


def in_lanes(program: Program, system: System | None = None) -> Program:
    """Make the nodes of each thread and stream depend on their predecessor. O(nodes log nodes).

    They come in the order of their recorded starts where all of a lane have one, else of their
    ids. Nodes without a stream or a thread are in no lane, nor are sends and receives:
    several of them may be under way, as a group of them is in one kernel. Loads of a memory tier
    of the system without a stream are in a lane of their own, and its stores in another, as engines
    that copy are.

    - Returns: With these dependencies as well, and the lane of each node.
    - Raises InputError if the order of a lane contradicts its dependencies; the message names two
      nodes.
    """
    if program.lane is not None:
        return program
    if program.shared is not None:
        own, which = program.shared
        with suppress(InputError):  # which all ranks together tell by their own names
            return shared_out(in_lanes(own, system), program.traces, which)
    lane, names = _lanes(program, system)
    order = _order(program, lane)
    same = lane[order[1:]] == lane[order[:-1]]
    before, after = order[:-1][same], order[1:][same]
    waited = np.repeat(np.arange(program.num_nodes), np.diff(program.first_child))
    src, dst = np.concatenate([waited, before]), np.concatenate([program.children, after])
    first_child = np.zeros(program.num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(src, minlength=program.num_nodes), out=first_child[1:])
    found = replace(
        program,
        first_child=first_child,
        children=dst[np.argsort(src, kind="stable")],
        lane=lane,
        lane_names=names,
    )
    _check_order(found, src, dst, waited.size)
    return found


def is_one_at_a_time(program: Program, chosen: Ints) -> bool:
    """Return whether lanes prevent two chosen nodes of a rank from running at once."""
    rank = program.rank[chosen]
    if np.bincount(rank, minlength=1).max() < 2:
        return True
    if program.lane is None or (program.lane[chosen] < 0).any():
        return False
    # a lane is of one rank
    return bool(np.unique(program.lane[chosen]).size == np.unique(rank).size)


def slots_beside_lanes(program: Program) -> Ints:
    """Assign a slot to nodes without a lane, except communication, which needs none."""
    slot = np.full(program.num_nodes, Slot.NONE, dtype=np.int64)
    without = program.lane == -1
    computes = without & (program.kind == NODE_KINDS.index("COMP"))
    slot[computes & program.is_cpu] = Slot.CPU
    slot[computes & ~program.is_cpu] = Slot.COMP
    accesses = [NODE_KINDS.index(name) for name in ("MEM_LOAD", "MEM_STORE")]
    slot[without & np.isin(program.kind, accesses)] = Slot.COMM
    return slot


def numbers_in_groups(program: Program, group: Ints, chosen: Ints) -> Ints:
    """Count the collectives of each group member by id; equal numbers match.

    The order in which they start does not matter; with devices it may differ between ranks.
    """
    key = group * program.num_ranks + program.rank[chosen]
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    number = np.empty(order.size, dtype=np.int64)
    number[order] = np.arange(order.size) - np.repeat(
        begins, np.diff(np.append(begins, order.size))
    )
    return number


def policy_of(system: System) -> int:
    """Return the queue order; with slots, nothing of a rank competes there."""
    of_devices = {
        "fifo": QueuePolicy.FIFO,
        "lifo": QueuePolicy.LIFO,
        "explicit": QueuePolicy.EXPLICIT,
    }
    return of_devices[system.collectives.policy] if system.slots == "device" else QueuePolicy.FIFO


def _lanes(program: Program, system: System | None) -> tuple[Ints, tuple[str, ...]]:
    """Return the lane of each node, -1 for none, and the name of each lane."""
    thread, stream = program.column("thread"), program.column("stream")
    device = program.column("device")
    in_order = np.isin(program.kind, [NODE_KINDS.index(name) for name in _IN_ORDER])
    on_stream = in_order & ~program.is_cpu & (stream >= 0)
    on_thread = in_order & ~on_stream & (thread >= 0)
    tier = tiers_of_nodes(program, system) if system else np.full(program.num_nodes, NO_TIER)
    of_tier = (tier >= 0) & ~on_stream & ~on_thread
    chosen = np.flatnonzero(on_stream | on_thread | of_tier)
    what = np.select([on_stream, on_thread], [_STREAM, _THREAD], _TIER)[chosen]
    direction = 2 * tier + (program.kind == STORE)
    one = np.select([on_stream, on_thread], [stream, thread], direction)[chosen]
    of_device = np.where(on_stream, np.maximum(device, 0), 0)[chosen]
    lane = np.full(program.num_nodes, -1, dtype=np.int64)
    lane[chosen], first = number_rows([program.rank[chosen], what, of_device, one])
    names = tuple(
        _lane_name(kind, number, system)
        for kind, number in zip(what[first].tolist(), one[first].tolist(), strict=True)
    )
    return lane, names


def _lane_name(kind: int, number: int, system: System | None) -> str:
    if kind == _TIER and system:
        return engines_of(system)[number]
    return f"{'stream' if kind == _STREAM else 'thread'} {number}"


def _order(program: Program, lane: Ints) -> Ints:
    """Return the nodes in lanes, lane by lane, in their order."""
    start = program.column("start")
    chosen = np.flatnonzero(lane >= 0)
    unknown = np.bincount(lane[chosen], start[chosen] < 0) > 0
    when = np.where(unknown[lane[chosen]], 0, start[chosen])
    return chosen[np.lexsort((chosen, when, lane[chosen]))]


def _check_order(program: Program, src: Ints, dst: Ints, num_stated: int) -> None:
    """Raise InputError if a node waits for one that comes after it in its lane."""
    in_ptr, in_src, edge = edges_by_vertex(src, dst, program.num_nodes)
    found = topological_order(in_ptr, in_src, np.empty(program.num_nodes, dtype=np.int32))
    if found < 0:
        return
    at = found
    for at, by in _circle(in_ptr, in_src, found):
        if edge[by] >= num_stated:
            earlier = int(in_src[by])
            assert program.lane is not None
            raise InputError(
                program.describe(at),
                f"it is queued after {program.describe(earlier)} on "
                f"{program.lane_names[program.lane[at]]}, which waits for it",
                'correct the program that wrote it, or set slots = "astra-sim"',
            )
    raise InputError(program.describe(at), "it is part of a dependency cycle")


def _circle(in_ptr: Ints32, in_src: Ints32, node: int) -> list[tuple[int, int]]:
    """Return the cycle through a node: the waiting nodes and their edges."""
    came_by: dict[int, tuple[int, int]] = {}
    found, here = [node], 0
    while here < len(found):
        at = found[here]
        here += 1
        for by in range(int(in_ptr[at]), int(in_ptr[at + 1])):
            before = int(in_src[by])
            if before not in came_by:
                came_by[before] = at, by
                found.append(before)
            if before == node:
                return _traced(came_by, node)
    return []


def _traced(came_by: dict[int, tuple[int, int]], node: int) -> list[tuple[int, int]]:
    way = [came_by[node]]
    while way[-1][0] != node:
        way.append(came_by[way[-1][0]])
    return way
