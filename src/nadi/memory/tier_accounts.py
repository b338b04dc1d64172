"""What a placed job does with its tiers: live bytes over time, traffic, queueing, and waits.

Jobs whose tensors live in several tiers: what is simulated then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.memory.in_place_access import SlowedWork, in_place_trace, shared_rooms, slowed_work
from nadi.memory.placed_tensors import JobTensors
from nadi.memory.placement_choice import TierRoom, rooms_of
from nadi.memory.staged_moves import Moves, Staging, staged_moves, staged_trace
from nadi.simulation.accounts.memory_accounts import row_times, tier_traffic
from nadi.simulation.simulation import Simulation
from nadi.systems.system import System
from nadi.trace.arrays import Ints
from nadi.trace.schema import NODE_KINDS, TENSOR_ROLES
from nadi.trace.trace import Job, Trace


@dataclass(frozen=True, eq=False)
class TieredJob:
    """A job with the moves of its tensors between tiers.

    Attributes
    ----------
    job
        As it is simulated.
    tensors
        Of the job without tiers.
    tier
        For each of ``tensors.traces``, int64, shape (lives,): where they live; 0 is the first tier.
    moves
        For each of ``tensors.traces``.
    slowed
        For each of ``tensors.traces``, computations that access tensors in place; empty without.
    """

    job: Job | Sequence[Trace]
    tensors: JobTensors
    tier: tuple[Ints, ...]
    moves: tuple[Moves, ...]
    slowed: tuple[SlowedWork, ...] = ()

    def at(self, which: str) -> TieredJob:
        """Return the job where work in place takes its time ``low`` or ``high``."""
        made = [
            in_place_trace(
                self.traces[int(one.ranks[0])],
                work,
                getattr(work, which) - work.expected + work.duration,
            )
            for one, work in zip(self.tensors.traces, self.slowed, strict=True)
        ]
        return replace(self, job=_with_traces(self.job, self.tensors, made))

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Of all ranks."""
        return self.job.traces if isinstance(self.job, Job) else tuple(self.job)


@checked
def tiered_job(
    job: Job | Sequence[Trace], tensors: JobTensors, tier: Sequence[Ints], staging: Staging,
    system: System,
) -> TieredJob:  # fmt: skip
    """Add the moves of tensors to a job. O(accesses log accesses) for each different trace.

    Parameters
    ----------
    job
        As it was simulated for ``tensors``.
    tier
        As in :class:`TieredJob`.
    system
        With its lower tiers.
    """
    moves = tuple(
        staged_moves(one, of_lives, staging)
        for one, of_lives in zip(tensors.traces, tier, strict=True)
    )
    made = [
        staged_trace(one.trace, moved, [tier.name for tier in system.tiers])
        for one, moved in zip(tensors.traces, moves, strict=True)
    ]
    slowed: tuple[SlowedWork, ...] = ()
    if staging.in_place:
        rooms = shared_rooms(system, rooms_of(system))
        slowed = tuple(
            slowed_work(one, of_lives, rooms, system)
            for one, of_lives in zip(tensors.traces, tier, strict=True)
        )
        made = [
            in_place_trace(trace, work, work.expected)
            for trace, work in zip(made, slowed, strict=True)
        ]
    return TieredJob(_with_traces(job, tensors, made), tensors, tuple(tier), moves, slowed)


def _with_traces(
    job: Job | Sequence[Trace], tensors: JobTensors, made: Sequence[Trace]
) -> Job | Sequence[Trace]:
    """Return a job with others in the place of its different traces."""
    traces = list(tensors.simulation.traces)
    for one, trace in zip(tensors.traces, made, strict=True):
        for rank in one.ranks.tolist():
            traces[rank] = trace
    if isinstance(job, Job) and job.rank_groups is not None:
        return replace(job, traces=tuple(traces))
    return tuple(traces)


_LAYER = (r"\blayers\.\d+\.", "layers.*.")
_MOVES = [NODE_KINDS.index(name) for name in ("MEM_LOAD", "MEM_STORE")]


class LiveBytes(NamedTuple):
    """Bytes that are live in a tier over time: from each moment to the next one.

    Attributes
    ----------
    time
        int64 ns, shape (moments,), ascending.
    bytes
        int64, shape (moments, roles + 1): of tensors by role, and of buffers.
    """

    time: Ints
    bytes: Ints

    @property
    def total(self) -> Ints:
        """All bytes; int64, shape (moments,)."""
        found: Ints = self.bytes.sum(axis=1)
        return found

    @property
    def peak(self) -> tuple[int, int]:
        """The most bytes, and when they are first there, in ns."""
        if not self.time.size:
            return 0, 0
        at = int(np.argmax(self.total))
        return int(self.total[at]), int(self.time[at])


class TierUse(NamedTuple):
    """What a tier has and does.

    Attributes
    ----------
    name
        Of the tier.
    capacity
        Bytes of a rank; infinite if unknown.
    peak, at, rank
        The most bytes that are live on any rank, when, and on which.
    by_role
        int64, shape (roles + 1,): of what the peak is, buffers last.
    read, written
        int64, shape (roles,): bytes that all ranks load from it and store to it.
    busy
        ns in which a move is under way in the memory of the tier that is busy for longest.
    queued
        ns in which moves of all ranks are ready and wait for others before them.
    slowed
        ns by which moves of all ranks take longer than alone.
    replicas
        How many replicas of a model have one copy of a prefix there.
    """

    name: str
    capacity: float
    peak: int
    at: int
    rank: int
    by_role: Ints
    read: Ints
    written: Ints
    busy: int = 0
    queued: int = 0
    slowed: int = 0
    replicas: int = 1

    @property
    def excess(self) -> int:
        """Bytes beyond its capacity."""
        return max(int(self.peak - self.capacity), 0) if np.isfinite(self.capacity) else 0


@dataclass(frozen=True, eq=False)
class TierAccounts:
    """What a placed job does with its tiers.

    Attributes
    ----------
    tiers
        The first one first.
    waits
        Operations that wait for moves: ``name``, ``role`` of what comes last, ``count`` and ``ns``
        of all ranks, the longest first.
    live
        Of each different trace and tier.
    """

    tiers: tuple[TierUse, ...]
    waits: pl.DataFrame
    live: tuple[tuple[LiveBytes, ...], ...]


def live_bytes(
    placed: TieredJob, number: int, times: tuple[Ints, Ints], sharings: Sequence[int]
) -> tuple[LiveBytes, ...]:
    """Return what is live in each tier on a rank, or its share of it. O(lives log lives).

    A tensor takes its bytes where it lives, from the start of the operation that makes it, or from
    the beginning, to the end of its last use; and those of a buffer in the first tier from the
    start of a load to the end of the use or of its store.

    Parameters
    ----------
    number
        Which of the different traces.
    times
        Start and end of each row of the placed trace, in ns.
    sharings
        Of each tier, the neighboring ranks that have it together; 0 for all.
    """
    tensors, moves, tier = placed.tensors.traces[number], placed.moves[number], placed.tier[number]
    start, end = times
    table = tensors.table
    first, last = tensors.column("first_use"), tensors.column("last_use")
    begin = np.where(table["is_before"].to_numpy(), 0, start[moves.first_part[first]])
    role = table["role"].to_physical().to_numpy().astype(np.int64)
    buffers = len(TENSOR_ROLES)
    found = []
    for one, shared_by in enumerate(sharings):
        mine = np.flatnonzero(tier == one)
        taken = placed.tensors.share_of_rank(tensors, shared_by)[mine]
        parts = [(begin[mine], end[last[mine]], taken, role[mine])]
        if one == 0:
            shared = np.full(moves.life.size, buffers)
            parts.append((start[moves.begin], end[moves.end], moves.size, shared))
        low, high, size, what = (np.concatenate(column) for column in zip(*parts, strict=True))
        time = np.concatenate([low, high])
        moments, at = np.unique(time, return_inverse=True)
        change = np.zeros((moments.size, buffers + 1), dtype=np.int64)
        np.add.at(change, (at.reshape(-1), np.tile(what, 2)), np.concatenate([size, -size]))
        found.append(LiveBytes(moments, np.cumsum(change, axis=0)))
    return tuple(found)


def accounts_of(
    placed: TieredJob, simulation: Simulation, rooms: Sequence[TierRoom]
) -> TierAccounts:
    """Compute what a simulated placed job does with its tiers. O(nodes log nodes).

    Parameters
    ----------
    rooms
        All tiers.
    """
    live, ranks = [], []
    sharings = [room.shared_by for room in rooms]
    for number, tensors in enumerate(placed.tensors.traces):
        like = int(simulation.like[tensors.ranks[0]])
        live.append(live_bytes(placed, number, row_times(simulation, like), sharings))
        ranks.append(int(tensors.ranks[0]))
    uses = []
    for tier, room in enumerate(rooms):
        peaks = [of_trace[tier].peak for of_trace in live]
        most = int(np.argmax([peak for peak, _ in peaks]))
        peak, at = peaks[most]
        of_tier = live[most][tier]
        by_role = of_tier.bytes[int(np.argmax(of_tier.total))] if of_tier.time.size else (
            np.zeros(len(TENSOR_ROLES) + 1, dtype=np.int64)
        )  # fmt: skip
        read, written = (_moved(placed, tier, stores=stores) for stores in (False, True))
        use = TierUse(room.name, room.capacity, peak, at, ranks[most], by_role, read, written)
        if room.shared_by != 1 and by_role[TENSOR_ROLES.index("prefix")]:
            one = placed.tensors.traces[most]
            use = use._replace(replicas=placed.tensors.replicas_of(one, room.shared_by))
        uses.append(use)
    waits, queued = _waits(placed, simulation, len(rooms))
    traffic = tier_traffic(simulation)
    tiers = []
    for use, waited in zip(uses, queued, strict=True):
        own = pl.DataFrame() if traffic is None else traffic.filter(pl.col("tier") == use.name)
        if own.height:
            busy, slowed = own.select(pl.col("busy").max(), pl.col("waiting").sum()).row(0)
            use = use._replace(busy=int(busy), queued=waited, slowed=int(slowed))
        tiers.append(use)
    return TierAccounts(tuple(tiers), waits, tuple(live))


def _moved(placed: TieredJob, tier: int, *, stores: bool) -> Ints:
    """Return the bytes of moves of a tier by role, over all ranks."""
    total = np.zeros(len(TENSOR_ROLES), dtype=np.int64)
    for tensors, moves in zip(placed.tensors.traces, placed.moves, strict=True):
        chosen = (moves.tier == tier) & (moves.is_store == stores)
        total += moves.bytes[chosen].sum(axis=0) * tensors.ranks.size
    return total


def _waits(placed: TieredJob, simulation: Simulation, tiers: int) -> tuple[pl.DataFrame, list[int]]:
    """Return which operations wait for moves, and how long moves of each tier wait for others."""
    program = simulation.program
    src = np.repeat(np.arange(program.num_nodes), np.diff(program.first_child))
    dst, end = program.children, simulation.end
    is_move = np.isin(program.kind, _MOVES)
    by_move, by_other = np.zeros((2, program.num_nodes), dtype=np.int64)
    last = np.full(program.num_nodes, -1, dtype=np.int64)
    from_move = is_move[src]
    order = np.argsort(end[src[from_move]], kind="stable")
    last[dst[from_move][order]] = src[from_move][order]
    np.maximum.at(by_move, dst[from_move], end[src[from_move]])
    np.maximum.at(by_other, dst[~from_move], end[src[~from_move]])
    count = np.bincount(simulation.like, minlength=program.num_ranks)[program.rank]
    waited = np.where(is_move, 0, np.maximum(by_move - by_other, 0))
    frames, queued = [], [0] * tiers
    for number, (tensors, moves) in enumerate(
        zip(placed.tensors.traces, placed.moves, strict=True)
    ):
        ranks = np.unique(simulation.like[tensors.ranks])
        for rank in ranks.tolist():
            first, until = program.first[rank : rank + 2].tolist()
            node = np.arange(first, until)
            row = program.row[first:until]
            move = row - moves.first_move
            mine = node[is_move[node]]
            which = move[is_move[node]]
            tier = moves.tier[which]
            # the move before it on its lane is a move as well: what it waits for apart from it
            late = np.maximum(by_move[mine] - by_other[mine], 0) * count[mine]
            for one in range(1, tiers):
                queued[one] += int(late[tier == one].sum())
            chosen = node[waited[node] > 0]
            if chosen.size:
                cause = program.row[last[chosen]] - moves.first_move
                roles = np.argmax(moves.bytes[cause], axis=1)
                # the same operation of all layers is one row
                names = tensors.trace.nodes["name"].cast(pl.String).str.replace(*_LAYER)
                rows = _own_rows(program.row[chosen], placed, number)
                frames.append(pl.DataFrame({
                    "name": names.gather(rows).to_list(),
                    "role": [TENSOR_ROLES[role] for role in roles.tolist()],
                    "count": count[chosen], "ns": waited[chosen] * count[chosen],
                }))  # fmt: skip
    empty = {"name": pl.String, "role": pl.String, "count": pl.Int64, "ns": pl.Int64}
    if not frames:
        return pl.DataFrame(schema=empty), queued
    table = (
        pl.concat(frames).group_by("name", "role").agg(pl.col("count", "ns").sum())
        .sort("ns", "name", "role", descending=[True, False, False])
    )  # fmt: skip
    return table, queued


def _own_rows(row: Ints, placed: TieredJob, number: int) -> Ints:
    """Return the node that each row is or is a part of."""
    parts = placed.moves[number].parts
    spread = np.flatnonzero(parts > 1)
    of = np.concatenate([np.arange(parts.size), np.repeat(spread, parts[spread] - 1)])
    return of[row]
