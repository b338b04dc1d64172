"""Live memory of a simulated job: its peaks, and what its tiers serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.kernels.sequences import union_length
from nadi.simulation.engine.codes import NodeKind
from nadi.simulation.simulation import Simulation
from nadi.simulation.work.recorded_work import STORE, tiers_of_nodes
from nadi.systems.memory_tiers import MemoryTier, loaded_latency_ns
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.attributes import Attributes
from nadi.trace.operands import OPERAND_NAMES, TensorUses, tensor_uses
from nadi.trace.rows import number_rows
from nadi.trace.schema import LIVE_MEMORY, TIER_TRAFFIC, TIER_USE, TIER_WAITS
from nadi.trace.trace import Trace

if TYPE_CHECKING:
    from nadi.simulation.workload.simulator_nodes import PlayedRank


_HOST = "cpu"


def beyond_capacity(live: pl.DataFrame | None, capacity: int) -> pl.DataFrame:
    """Return the rows of ``live_memory`` whose peak exceeds a rank's device memory.

    None if ``capacity`` is 0, which means that the system does not state it.
    """
    if live is None or not capacity:
        return LIVE_MEMORY.empty()
    return live.filter((live["peak"] > capacity) & are_of_device(live))


def are_of_device(live: pl.DataFrame) -> pl.Series:
    """Return which rows of ``live_memory`` belong to memory with a known capacity.

    Not that of the host, unless all are: then it was recorded without another device, and
    stands for the system's.
    """
    on_device = live["device"].cast(pl.String) != _HOST
    return on_device if on_device.any() else ~on_device


class StorageUses(NamedTuple):
    """Each node's uses of each storage, once; arrays of shape (uses,)."""

    row: Ints  # int64: row of the node in its trace
    storage: Ints  # int64: as ``TensorUses`` numbers them
    size: Ints  # int64: up to which byte of the storage the node uses it
    makes: Bools  # bool: whether the node gave it and was not given it
    device: Ints  # int64: which of ``devices``
    devices: list[str]  # names of the devices

    def of_device(self, device: int) -> StorageUses:
        """Return the uses of storages on a device, by its position in ``devices``."""
        own = self.device == device
        return StorageUses(
            self.row[own], self.storage[own], self.size[own], self.makes[own], self.device[own],
            self.devices,
        )  # fmt: skip


class Lives(NamedTuple):
    """From when to when storages are live; arrays of shape (lives,), but for ``of_use``."""

    # begin, end: int64 ns; ``begin`` is 0 of what was there before
    begin: Ints
    end: Ints
    bytes: Ints  # int64
    device: Ints  # int64: which of the devices of the uses
    is_made: Bools  # bool: whether a node made it, so that it was not there before
    of_use: Ints  # int64, shape (uses,): the life that each use belongs to


@checked
def live_memory(simulation: Simulation) -> pl.DataFrame | None:
    """Compute the live memory of the operands of nodes at the simulated times.

    A storage is live from the start of the node that gives it first, or from 0 if it was there
    before; until the end of the last node that uses it. A node that gives a storage and was not
    given it makes new memory once all uses of it before have ended: recorders give ids of freed
    memory again. How large it is, the tensors in it tell.

    Of a recording the operators recorded use tensors, each from the start of the node that it
    begins with to the end of that which it ends with; so those nested in an operator use what
    it uses while it does.

    Returns
    -------
    polars.DataFrame or None
        ``schema.LIVE_MEMORY``, a row per rank and device; ranks whose trace has no tensors
        have none. None if no trace has tensors. O(operands log operands) of each rank.
    """
    known: dict[int, StorageUses | None] = {}
    peaks: dict[tuple[int, int], list[tuple[str, int, int, int]]] = {}
    rows = []
    traces = [one.recorded for one in simulation.recorded] or simulation.traces
    for rank, (trace, like) in enumerate(zip(traces, simulation.like.tolist(), strict=True)):
        if id(trace) not in known:
            known[id(trace)] = storage_uses(trace)
        uses, key = known[id(trace)], (id(trace), like)
        if uses is not None:
            if key not in peaks:
                played = simulation.recorded[rank] if simulation.recorded else None
                peaks[key] = _peaks(*row_times(simulation, like, played), uses)
            rows += [(rank, *peak) for peak in peaks[key]]
    if not rows:
        return None
    names = [column.name for column in LIVE_MEMORY.columns]
    return LIVE_MEMORY.build(len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)))


def has_operands(trace: Trace) -> bool:
    """Return whether a trace states operands. O(attributes) at most."""
    return trace.operand_columns is not None or _saying_of_operands(trace)[0] is not None


def storage_uses(trace: Trace, found: TensorUses | None = None) -> StorageUses | None:
    """Read which node uses which storage; None without tensor operands.

    ``found`` are the uses of tensors by the rows of the trace, where they are known already.
    O(bytes of operands).
    """
    columns, new_row = trace.operand_columns, None
    if found is not None:
        pass
    elif columns is None:
        said, new_row = _saying_of_operands(trace)
        if said is None:
            return None  # an early exit: traces without tensors need no arrays
        found = tensor_uses(said)
    else:
        found = columns.uses()
    has_memory = found.end > found.begin
    used = np.flatnonzero(np.bincount(found.device[has_memory], minlength=1))
    if not used.size:
        return None
    number = {found.devices[device]: device for device in used.tolist()}
    devices = sorted(number)
    code_of_device = np.zeros(len(found.devices), dtype=np.int64)
    code_of_device[[number[name] for name in devices]] = np.arange(len(devices))
    code_of_storage = np.zeros(found.num_storages, dtype=np.int64)
    code_of_storage[found.storage[has_memory]] = code_of_device[found.device[has_memory]]
    node = found.node if new_row is None else new_row[found.node]
    chosen = np.flatnonzero(has_memory[found.tensor] & (node >= 0))
    tensor = found.tensor[chosen]
    once = (
        pl.LazyFrame({
            "node": node[chosen],
            "storage": found.storage[tensor],
            "end": found.end[tensor],
            "is_output": found.is_output[chosen],
        })
        .group_by("node", "storage")
        .agg(pl.col("end").max(), makes=pl.col("is_output").all())
        .sort("node", "storage")  # else the order of uses of a node would differ from run to run
        .collect()
    )  # fmt: skip
    storage = once["storage"].to_numpy()
    return StorageUses(
        once["node"].to_numpy(), storage, once["end"].to_numpy(), once["makes"].to_numpy(),
        code_of_storage[storage], devices,
    )  # fmt: skip


def _saying_of_operands(trace: Trace) -> tuple[Attributes | None, Ints | None]:
    """Return the operand attributes and the rows of their nodes; None without any.

    Of a recording only the host's do: those of both traces need not be put together.
    """
    parts = [
        part for part in trace.attribute_parts if set(part.attributes.names) & set(OPERAND_NAMES)
    ]
    if not parts:
        return None, None
    if len(parts) > 1 or parts[0].is_kept is not None:
        return trace.attributes, None
    return parts[0].attributes, parts[0].new_row


def row_times(
    simulation: Simulation, rank: int, played: PlayedRank | None = None
) -> tuple[Ints, Ints]:
    """Return the start and end of each row of a trace, in ns; rows that do not run get no time.

    - ``rank``: One of the program.
    - ``played``: Of a recording, what its nodes come from: then rows are those recorded.
    """
    first, last = simulation.program.first[rank : rank + 2]
    row = simulation.program.row[first:last]
    start, end = np.empty((2, row.size), dtype=np.int64)
    start[row], end[row] = simulation.start[first:last], simulation.end[first:last]
    if played is None:
        return start, end
    known = played.first >= 0
    return np.where(known, start[played.first], 0), np.where(known, end[played.last], 0)


def lives_of(start: Ints, end: Ints, uses: StorageUses) -> Lives:
    """Find the lives of storages, by the times of the nodes that use them. O(uses log uses).

    - ``start``, ``end``: int64 ns, shape (rows of the trace,).
    """
    order = np.lexsort((uses.row, start[uses.row], uses.storage))
    storage, node = uses.storage[order], uses.row[order]
    made = uses.makes[order] & _is_over(storage, start[node], end[node])
    begins = (np.diff(storage, prepend=-1) > 0) | made
    at = np.flatnonzero(begins)
    of_use = np.empty(order.size, dtype=np.int64)
    of_use[order] = np.cumsum(begins) - 1
    is_made = uses.makes[order][at]
    return Lives(
        begin=np.where(is_made, start[node[at]], 0),
        end=np.maximum.reduceat(end[node], at),
        bytes=np.maximum.reduceat(uses.size[order], at),
        device=uses.device[order][at],
        is_made=is_made,
        of_use=of_use,
    )


def _peaks(start: Ints, end: Ints, uses: StorageUses) -> list[tuple[str, int, int, int]]:
    """Return device, peak, time of the peak and number of storages, for each device."""
    lives = lives_of(start, end, uses)
    found = []
    for code, name in enumerate(uses.devices):
        mine = np.flatnonzero((lives.device == code) & (lives.end > lives.begin))
        time = np.concatenate([lives.begin[mine], lives.end[mine]])
        change = np.concatenate([lives.bytes[mine], -lives.bytes[mine]])
        # at equal times, memory is freed before it is allocated
        by_time = np.lexsort((change, time))
        live = np.cumsum(change[by_time])
        best = int(np.argmax(live)) if live.size else 0
        peak, when = (int(live[best]), int(time[by_time[best]])) if live.size else (0, 0)
        found.append((name, peak, when, int(mine.size)))
    return found


def _is_over(storage: Ints, start: Ints, end: Ints) -> Bools:
    """Return whether all earlier uses of the storage had ended before each use."""
    moments, number = np.unique(end, return_inverse=True)
    latest = np.maximum.accumulate(storage * moments.size + number.reshape(-1)) % moments.size
    over = np.ones(storage.size, dtype=np.bool_)
    over[1:] = moments[latest[:-1]] <= start[1:]
    return over


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
