"""What a simulated job reads from memory tiers and writes there, and who waits for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.kernels.sequences import union_length
from nadi.simulation.engine.codes import NodeKind
from nadi.simulation.simulation import Simulation
from nadi.simulation.work.recorded_work import STORE, tiers_of_nodes
from nadi.systems.memory_tiers import MemoryTier, loaded_latency_ns
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.distinct_rows import number_rows
from nadi.trace.schema import TIER_TRAFFIC, TIER_USE, TIER_WAITS


class _Accesses(NamedTuple):
    """The loads and stores of tiers, of all ranks; int64, shape (accesses,).

    ``memory`` is which of its tier's memories each uses, ``end`` when its last byte has moved,
    and ``waiting`` how much longer it took than alone.
    """

    tier: Ints
    memory: Ints
    store: Bools
    size: Ints
    start: Ints
    end: Ints
    waiting: Ints


def _accesses(simulation: Simulation) -> _Accesses:
    program, system, trail = simulation.program, simulation.system, simulation.trail
    tier = tiers_of_nodes(program, system)
    rank = node = np.zeros(0, dtype=np.int64)
    if (tier >= 0).any():  # else nodes of thousands of alike ranks would be listed for nothing
        rank, node = simulation.nodes_of_ranks()
        chosen = tier[node] >= 0
        rank, node = rank[chosen], node[chosen]
    of_tier = tier[node]
    shared = np.array([one.shared_by for one in system.tiers], dtype=np.int64)[of_tier]
    memory = np.where(shared > 0, rank // np.maximum(shared, 1), 0)
    start, end = simulation.start[node], simulation.end[node]
    moves = trail.kind[node] == NodeKind.TRANSFER
    alone = np.where(moves, trail.time[node], end - start)
    latency = np.where(moves, trail.latency[node], 0)
    return _Accesses(
        of_tier, memory, program.kind[node] == STORE, np.maximum(program.tensor_bytes[node], 0),
        start, np.maximum(end - latency, start), end - start - alone,
    )  # fmt: skip


@checked
def tier_traffic(simulation: Simulation) -> pl.DataFrame | None:
    """Add up what each memory of each tier served.

    Returns
    -------
    polars.DataFrame or None
        ``schema.TIER_TRAFFIC``, a row per memory that is used; None if no node uses a tier.
        O(accesses log accesses).
    """
    found = _accesses(simulation)
    if not found.tier.size:
        return None
    number, first = number_rows([found.tier, found.memory])
    tiers = [simulation.system.tiers[k] for k in found.tier[first].tolist()]

    def add_up(values: Ints) -> Ints:
        sums = np.zeros(first.size, dtype=np.int64)
        np.add.at(sums, number, values)
        return sums

    read, written = add_up(found.size * ~found.store), add_up(found.size * found.store)
    order = np.argsort(number, kind="stable")
    parts = np.split(order, np.searchsorted(number[order], np.arange(1, first.size)))
    columns = {
        "tier": [tier.name for tier in tiers],
        "memory": found.memory[first],
        "loads": add_up((~found.store).astype(np.int64)),
        "stores": add_up(found.store.astype(np.int64)),
        "bytes_read": read,
        "bytes_written": written,
        "busy": [union_length(found.start[part], found.end[part]) for part in parts],
        "waiting": add_up(found.waiting),
        "utilization": [
            _utilization(tier, one, other, max(simulation.makespan, 1))
            for tier, one, other in zip(tiers, read.tolist(), written.tolist(), strict=True)
        ],
    }
    return TIER_TRAFFIC.build(first.size, columns)


@checked
def tier_use(simulation: Simulation, intervals: int = 10) -> pl.DataFrame | None:
    """Divide the time of a job into equal parts: what each memory of each tier served in them.

    The bytes of an access move evenly from its start to its end less the latency.

    Returns
    -------
    polars.DataFrame or None
        ``schema.TIER_USE``, a row per interval and memory that is used; None if no node uses a
        tier. O(accesses x intervals).
    """
    found = _accesses(simulation)
    if not found.tier.size:
        return None
    number, first = number_rows([found.tier, found.memory])
    edges = np.arange(intervals + 1) * simulation.makespan // intervals
    moved = np.zeros((2, intervals + 1, first.size), dtype=np.int64)
    for k, edge in enumerate(edges[1:-1].tolist(), 1):
        until = np.floor(found.size * _share_until(found, edge)).astype(np.int64)
        np.add.at(moved[:, k], (found.store.astype(np.int64), number), until)
    np.add.at(moved[:, -1], (found.store.astype(np.int64), number), found.size)
    read, written = np.diff(moved, axis=1)
    rows = []
    for row in range(first.size):
        tier = simulation.system.tiers[int(found.tier[first[row]])]
        for k in range(intervals):
            one, other, length = int(read[k, row]), int(written[k, row]), int(np.diff(edges)[k])
            rate = (one + other) / max(length, 1)
            share = one / (one + other) if one + other else 1.0
            rows.append((
                tier.name, int(found.memory[first[row]]), int(edges[k]), int(edges[k + 1]), one,
                other, _utilization(tier, one, other, max(length, 1)),
                loaded_latency_ns(tier, rate, reads=share),
            ))  # fmt: skip
    names = TIER_USE.dtypes
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return TIER_USE.build(len(rows), columns)


def _share_until(found: _Accesses, edge: int) -> Floats:
    """Return the share of its bytes that each access has moved at a time."""
    length = found.end - found.start
    done = np.clip(edge - found.start, 0, length)
    share: Floats = np.where(length > 0, done / np.maximum(length, 1), edge > found.start)
    return share


def _utilization(tier: MemoryTier, read: int, written: int, time: int) -> float:
    """Return the share of a time that a tier's devices take for bytes; -1 without a limit."""
    rates = tier.read_bandwidth, tier.write_bandwidth
    if not all(rates):
        return -1.0
    parts = [size / rate / time for size, rate in zip((read, written), rates, strict=True)]
    return max(parts) if tier.duplex else sum(parts)


@checked
def tier_waits(simulation: Simulation) -> pl.DataFrame | None:
    """Find the operations that wait for memory, and how long.

    An operation waits for a load or store if everything else that it waits for, its thread or
    stream too, has ended before.

    Returns
    -------
    polars.DataFrame or None
        ``schema.TIER_WAITS``, a row per operation, the longest wait first; None if no node uses a
        tier. Accesses themselves are left out. Of ranks that are alike the one that stands for
        them is there. O(dependencies).
    """
    program, end = simulation.program, simulation.end
    tier = tiers_of_nodes(program, simulation.system)
    uses = tier >= 0
    if not uses.any():
        return None
    parent = np.repeat(np.arange(program.num_nodes), np.diff(program.first_child))
    of_memory = uses[parent]
    ready, accessed = np.zeros((2, program.num_nodes), dtype=np.int64)
    np.maximum.at(ready, program.children[~of_memory], end[parent[~of_memory]])
    np.maximum.at(accessed, program.children[of_memory], end[parent[of_memory]])
    waits = np.flatnonzero((accessed > ready) & ~uses)
    last = np.zeros(program.num_nodes, dtype=np.int64)
    binds = of_memory & (end[parent] == accessed[program.children])
    last[program.children[binds]] = parent[binds]
    waiting = accessed[waits] - ready[waits]
    order = np.argsort(-waiting, kind="stable")
    waits, waiting = waits[order], waiting[order]
    tiers = pl.Series([one.name for one in simulation.system.tiers])
    lowest = np.unique(simulation.like, return_index=True)[1]
    heights = np.array([trace.nodes.height for trace in program.traces])
    shift = np.cumsum(heights) - heights
    names = pl.concat([trace.nodes["name"] for trace in program.traces])
    columns = {
        "rank": lowest[program.rank[waits]],
        "node": program.row[waits],
        "name": names.gather(shift[program.rank[waits]] + program.row[waits]),
        "tier": tiers.gather(tier[last[waits]]),
        "waiting": waiting,
    }
    return TIER_WAITS.build(waits.size, columns)
