"""Loads and stores of a rank whose tensors live in several tiers: which, when, and what waits.

Before an operation, what it reads from a lower tier is loaded into a buffer of the first tier;
after the last operation of a visit, what was written is stored. A load begins at most so many
operations before its use, and once buffers have room: others have to be done with theirs. An
operation whose tensors fill more than half of all buffers works on one part after the other, and
so does an update of the optimizer's state (:mod:`nadi.systems.memory_tiers`).

Whatever waits, waits for something that ends before it begins where nothing has to move, so there
is no circle.

Traces in which tensors move between tiers: the nodes of a trace, and loads and stores.
"""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.memory.in_place_access import works_in_place
from nadi.memory.placed_tensors import TraceTensors, Visits, visits_of
from nadi.systems.memory_tiers import DISTANCE, update_parts
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEPS, NODES, TENSOR_ROLES
from nadi.trace.trace import Trace

_MOST_PARTS = 1024
_LOAD, _WORK, _STORE, _PHASES = 0, 1, 2, 3  # of a part of an operation


class Staging(NamedTuple):
    """How tensors come to the first tier.

    Attributes
    ----------
    buffers
        Bytes of all buffers in the first tier, of which one half is filled while the other one is
        used.
    distance
        Operations before a use that its load may begin.
    in_place
        Whether computations access tensors where they live; then communication alone needs copies.
    """

    buffers: int
    distance: int = DISTANCE
    in_place: bool = False


class Moves(NamedTuple):
    """Moves, what waits for what, and what is in buffers.

    Items are rows of the placed trace: first the nodes of the trace as it was, of which one that
    works in parts is the last part; then all other parts; then the moves.

    Attributes
    ----------
    parts
        int64, shape (nodes of the trace,): in how many parts each node works.
    is_store
        bool, shape (moves,): in the order in which they are issued.
    tier
        int64, shape (moves,): from 1.
    bytes
        int64, shape (moves, roles).
    waits
        int64, shape (2, waits): an item, and one that waits for its end.
    life, size
        int64, shape (visits,): the lives in buffers, and their bytes there.
    begin, end
        int64, shape (visits,): the items with whose start and end a buffer is taken and free.
    most
        Bytes that buffers have to have.
    """

    parts: Ints
    is_store: Bools
    tier: Ints
    bytes: Ints
    waits: Ints
    life: Ints
    size: Ints
    begin: Ints
    end: Ints
    most: int

    @property
    def first_part(self) -> Ints:
        """The item of the first part of each node; int64, shape (nodes of the trace,)."""
        return _items(self.parts, np.arange(self.parts.size), np.zeros_like(self.parts))

    @property
    def first_move(self) -> int:
        """The item of the first move."""
        return int(self.parts.sum())


def staged_moves(tensors: TraceTensors, tier: Ints, staging: Staging) -> Moves:
    """Work out what has to be moved. O(accesses log accesses).

    - ``tier``: int64, shape (lives,): of each life of ``tensors.table``; 0 for the first tier.
    """
    low = np.flatnonzero((tier[tensors.life] > 0) & ~(staging.in_place & works_in_place(tensors)))
    accesses, life, turn = tensors.accesses.at(low), tensors.life[low], tensors.turn[low]
    parts = _parts(tensors, low, staging)
    visits = visits_of(
        accesses, life, (turn[:, 0], turn[:, 1]), tensors.table["is_before"].to_numpy(),
        tensors.column("bytes"), distance=staging.distance, alone=parts[accesses.first] > 1,
    )  # fmt: skip
    made = _Making(tensors, tier, parts, visits, low)
    return made.moves(staging)


def _parts(tensors: TraceTensors, low: Ints, staging: Staging) -> Ints:
    """Return in how many parts each node works; int64, shape (nodes,)."""
    accesses = tensors.accesses
    moved = np.zeros(int(tensors.turn.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(moved, tensors.turn[low, 0], accesses.end[low] - accesses.begin[low])
    parts = np.ones(tensors.order.size, dtype=np.int64)
    wanted = np.clip(-(-2 * moved // max(staging.buffers, 1)), 1, _MOST_PARTS)
    is_work = (tensors.trace.nodes["kind"] == "COMP").to_numpy()
    single = np.flatnonzero((accesses.first == accesses.last) & is_work[accesses.first])
    parts[accesses.first[single]] = wanted[tensors.turn[single, 0]]
    # an update streams through four parts of the buffers: loaded, updated, stored, and the next
    role = tensors.table["role"].to_physical().to_numpy()[tensors.life]
    update = tensors.turn[accesses.writes & (role == TENSOR_ROLES.index("optimizer")), 0]
    updated = single[np.isin(tensors.turn[single, 0], update)]
    streams = np.clip(-(-4 * moved // max(staging.buffers, 1)), update_parts(moved), _MOST_PARTS)
    streamed = tensors.turn[updated, 0]
    parts[accesses.first[updated]] = np.where(moved[streamed] > 0, streams[streamed], 1)
    # an operator of several nodes works in none of them alone
    several = accesses.first != accesses.last
    parts[accesses.first[several]] = parts[accesses.last[several]] = 1
    return parts


def _items(parts: Ints, row: Ints, part: Ints) -> Ints:
    """Return the items of parts of nodes."""
    extra = parts.size + np.cumsum(parts - 1) - (parts - 1)
    return np.where(part == parts[row] - 1, row, extra[row] + part)


class _Making:
    """What is known while moves are made; arrays by share: of a visit, one for each part."""

    def __init__(
        self, tensors: TraceTensors, tier: Ints, parts: Ints, visits: Visits, low: Ints
    ) -> None:
        self.parts, self.place = parts, tensors.place
        self.start, self.end = tensors.start, tensors.end
        self.computes = _computing(tensors)
        self.width = _PHASES * int(parts.max(initial=1))
        accesses = tensors.accesses.at(low)
        self.role = tensors.table["role"].to_physical().to_numpy().astype(np.int64)
        self.tier = tier
        first, last = accesses.first[visits.access], accesses.last[visits.access]
        self.visits, self.first, self.last = visits, first, last
        self.writes = accesses.writes[visits.access]
        lanes = tensors.trace.nodes.select(pl.struct("thread", "stream", "device").rank("dense"))
        self.lane = lanes.to_series().to_numpy()
        loads = np.flatnonzero(visits.load)
        self.load = _shared(parts, first[loads], visits.load[loads])
        self.load_life = visits.life[visits.of_access[loads]][self.load.of]
        of_first, of_last = first[visits.first], last[visits.last]
        self.visit = _shared(parts, of_first, visits.bytes)
        # of what works in parts, a visit begins and ends with the same node
        self.end_row = of_last[self.visit.of]
        self.visit_life = visits.life[self.visit.of]
        stored = _shared(parts, of_last, visits.stored)
        self.store = _Shares(*(column[stored.bytes > 0] for column in stored))
        self.store_life = visits.life[self.store.of]

    def key(self, row: Ints, part: Ints, phase: int) -> Ints:
        """Return when something is done, in the order of the trace."""
        return self.place[row] * self.width + part * _PHASES + phase

    def moment(self, row: Ints, part: Ints) -> Ints:
        """Return when a part begins where nothing has to move, in ns."""
        length = self.end[row] - self.start[row]
        found: Ints = self.start[row] + length * part // self.parts[row]
        return found

    def moves(self, staging: Staging) -> Moves:
        """Put all together."""
        load_key = self.key(self.load.row, self.load.part, _LOAD)
        store_key = self.key(self.store.row, self.store.part, _STORE)
        key = np.concatenate([load_key, store_key])
        life = np.concatenate([self.load_life, self.store_life])
        tier = self.tier[life]
        most = int(tier.max(initial=0)) + 1
        different, number = np.unique(key * most + tier, return_inverse=True)
        number, count = number.reshape(-1), different.size
        bytes_ = np.zeros((count, len(TENSOR_ROLES)), dtype=np.int64)
        np.add.at(
            bytes_, (number, self.role[life]), np.concatenate([self.load.bytes, self.store.bytes])
        )
        row = np.zeros(count, dtype=np.int64)
        part = np.zeros(count, dtype=np.int64)
        row[number] = np.concatenate([self.load.row, self.store.row])
        part[number] = np.concatenate([self.load.part, self.store.part])
        is_store = different // most % _PHASES == _STORE
        # on a stream, loads come in the order of their uses, and stores in that of their writes
        moment = np.where(is_store, self.moment(row, part + 1), self.moment(row, part))
        order = np.lexsort((different, moment))
        number = np.argsort(order)[number]
        row, part, is_store, bytes_ = row[order], part[order], is_store[order], bytes_[order]
        of_tier = (different % most)[order]
        item = int(self.parts.sum()) + np.arange(count)
        work = _items(self.parts, row, part)
        waits = [np.stack([np.where(is_store, work, item), np.where(is_store, item, work)])]
        load_item, store_item = np.split(item[number], [load_key.size])
        waits.append(self._triggers(load_item, staging))
        waits.append(self._reloads(load_item, store_item, store_key))
        begin, end = self._ends(load_item, load_key, store_item, store_key)
        waits.append(self._orders(begin))
        rooms, peak = self._room(begin, end, staging.buffers)
        found = np.unique(np.concatenate([*waits, rooms], axis=1), axis=1)
        return Moves(
            self.parts, is_store, of_tier, bytes_, found, self.visit_life,
            self.visit.bytes, begin, end, peak,
        )  # fmt: skip

    def _triggers(self, item: Ints, staging: Staging) -> Ints:
        """Let loads wait for the computation some computations before their use."""
        ends = self.end[self.computes]
        before = np.searchsorted(ends, self.start[self.load.row], side="right")
        chosen = np.flatnonzero(before >= staging.distance)
        row = self.computes[before[chosen] - staging.distance]
        known = self.place[row] < self.place[self.load.row[chosen]]
        return np.stack([row[known], item[chosen][known]])

    def _reloads(self, load: Ints, store: Ints, store_key: Ints) -> Ints:
        """Let loads wait for the last store of what they load.

        Parts of an operation have bytes of their own, so they wait for none of each other.
        """
        load_key = self.key(self.load.row, np.zeros_like(self.load.part), _LOAD)
        life = np.concatenate([self.load_life, self.store_life])
        key = np.concatenate([load_key, store_key])
        item = np.concatenate([load, store])
        is_store = np.arange(life.size) >= load.size
        order = np.lexsort((key, life))
        latest = np.maximum.accumulate(np.where(is_store[order], np.arange(order.size), -1))
        known = ~is_store[order] & (latest >= 0)
        known &= life[order][np.maximum(latest, 0)] == life[order]
        return np.stack([item[order][latest[known]], item[order][known]])

    def _orders(self, begin: Ints) -> Ints:
        """Let accesses of other threads and streams wait for the load of a visit, and for writers.

        A recording may not show why they were in this order.
        """
        visits, first, last = self.visits, self.first, self.last
        if not first.size:
            return np.zeros((2, 0), dtype=np.int64)
        later = np.ones(first.size, dtype=np.bool_)
        later[visits.first] = False
        of_visit = begin[np.flatnonzero(self.visit.part == 0)][visits.of_access]
        writer = np.maximum.accumulate(np.where(self.writes, np.arange(first.size), -1))
        writer = np.append(-1, writer[:-1])
        known = later & (writer >= visits.first[visits.of_access])
        found = [np.stack([of_visit, first])[:, later & (of_visit >= self.parts.sum())]]
        for src in (of_visit, np.where(known, last[np.maximum(writer, 0)], -1)):
            chosen = np.flatnonzero(later & (src >= 0) & (src < self.parts.size))
            src, dst = src[chosen], first[chosen]
            is_apart = (self.lane[src] != self.lane[dst]) & (self.end[src] <= self.start[dst])
            is_apart &= self.place[src] < self.place[dst]
            found.append(np.stack([src, dst])[:, is_apart])
        src, dst = np.concatenate(found, axis=1)
        return np.stack([src, _items(self.parts, dst, np.zeros_like(dst))])

    def _ends(
        self, load: Ints, load_key: Ints, store: Ints, store_key: Ints
    ) -> tuple[Ints, Ints]:  # fmt: skip
        """Return the items with whose start each share of a visit begins, and whose end it ends."""
        visit = self.visit
        end_part = np.minimum(visit.part, self.parts[self.end_row] - 1)
        begin = _items(self.parts, visit.row, visit.part)
        end = _items(self.parts, self.end_row, end_part)
        own = self.key(visit.row, visit.part, _LOAD)
        begin = _found(own, self.visit_life, load_key, self.load_life, load, begin)
        own = self.key(self.end_row, end_part, _STORE)
        end = _found(own, self.visit_life, store_key, self.store_life, store, end)
        return begin, end

    def _room(self, begin: Ints, end: Ints, buffers: int) -> tuple[Ints, int]:
        """Let visits wait for the end of others where buffers are full; also the most in use."""
        visit = self.visit
        end_part = np.minimum(visit.part, self.parts[self.end_row] - 1)
        starts = self.key(visit.row, visit.part, _LOAD)
        order = np.argsort(starts, kind="stable")
        rows = list(zip(*(column[order].tolist() for column in (
            starts, self.moment(visit.row, visit.part), self.moment(self.end_row, end_part + 1),
            self.key(self.end_row, end_part, _STORE), visit.bytes, begin, end,
        )), strict=True))  # fmt: skip
        waits: list[tuple[int, int]] = []
        under_way: list[tuple[int, int, int, int]] = []
        used = most = at = 0
        while at < len(rows):
            start, moment, until = rows[at][0], rows[at][1], at
            while until < len(rows) and rows[until][0] == start:
                until += 1
            group = rows[at:until]
            used += sum(row[4] for row in group)
            while used > buffers and under_way and under_way[0][:2] < (moment, start):
                _, _, size, last = heapq.heappop(under_way)
                used -= size
                waits += [(last, first) for first in {row[5] for row in group}]
            most = max(most, used)
            for _, _, *about, _, last in group:
                heapq.heappush(under_way, (*about, last))
            at = until
        return np.array(waits, dtype=np.int64).reshape(-1, 2).T, most


class _Shares(NamedTuple):
    """Shares of amounts, one for each part of the node that they belong to.

    ``of`` is which amount, ``row`` and ``part`` the node and its part, and ``bytes`` the share.
    """

    of: Ints
    row: Ints
    part: Ints
    bytes: Ints


def _shared(parts: Ints, row: Ints, amount: Ints) -> _Shares:
    """Share amounts among the parts of nodes."""
    count = parts[row]
    of = np.repeat(np.arange(row.size), count)
    part = np.arange(of.size) - np.repeat(np.cumsum(count) - count, count)
    whole, number = amount[of], count[of]
    share = whole * (part + 1) // number - whole * part // number
    return _Shares(of, row[of], part, share)


def _found(
    key: Ints, life: Ints, keys: Ints, lives: Ints, items: Ints, otherwise: Ints
) -> Ints:  # fmt: skip
    """Look up items by key and life."""
    if not keys.size:
        return otherwise
    most = int(max(life.max(initial=0), lives.max(initial=0))) + 1
    known, wanted = keys * most + lives, key * most + life
    order = np.argsort(known)
    place = np.minimum(np.searchsorted(known[order], wanted), order.size - 1)
    return np.where(known[order][place] == wanted, items[order][place], otherwise)


def _computing(tensors: TraceTensors) -> Ints:
    """Return the computations with tensors, in the order in which they end."""
    rows = np.unique(tensors.accesses.first)
    chosen = rows[(tensors.trace.nodes["kind"] == "COMP").to_numpy()[rows]]
    found: Ints = chosen[np.lexsort((tensors.place[chosen], tensors.end[chosen]))]
    return found


_SHARED = ("duration", "exclusive", "flops", "bytes")  # columns that parts of a node share


def staged_trace(trace: Trace, moves: Moves, tiers: Sequence[str]) -> Trace:
    """Return a trace with loads and stores (MEM_LOAD and MEM_STORE, column ``tier``).

    Nodes keep their rows; parts of them, and moves, come after all. Loads from a tier are done one
    after the other, and so are stores to it. O(nodes + moves).

    - ``tiers``: Names of the lower tiers.
    """
    if not moves.tier.size and (moves.parts == 1).all():
        return trace
    nodes = pl.concat([_with_parts(trace.nodes, moves.parts), _nodes(trace, moves, tiers)])
    return replace(trace, nodes=nodes, deps=_deps(trace, moves))


def _with_parts(nodes: pl.DataFrame, parts: Ints) -> pl.DataFrame:
    """Return nodes, of which some work in parts; all but the last parts come after all nodes."""
    size, spread = parts.size, np.flatnonzero(parts > 1)
    count = parts[spread] - 1
    of = np.repeat(spread, count)
    part = np.arange(of.size) - np.repeat(np.cumsum(count) - count, count)
    rank = np.argsort(np.argsort(nodes["id"].to_numpy(), kind="stable"))
    most = int(parts.max(initial=1))
    source = np.concatenate([np.arange(size), of])
    which = np.concatenate([parts - 1, part])
    found = nodes[source] if of.size else nodes
    columns = {"id": pl.Series(rank[source] * most + which)}
    for name in _SHARED if of.size else ():
        whole, number = nodes[name].to_numpy()[source], parts[source]
        share = whole * (which + 1) // number - whole * which // number
        columns[name] = pl.Series(np.where(whole >= 0, share, whole))
    return found.with_columns(**columns)


def _nodes(trace: Trace, moves: Moves, tiers: Sequence[str]) -> pl.DataFrame:
    size, first = moves.tier.size, trace.nodes.height * int(moves.parts.max(initial=1))
    store = moves.is_store
    names = []
    for row, tier, stores in zip(
        (moves.bytes > 0).tolist(), moves.tier.tolist(), store.tolist(), strict=True
    ):
        what = ", ".join(role for role, has in zip(TENSOR_ROLES, row, strict=True) if has)
        way = f"to {tiers[tier - 1]}" if stores else f"from {tiers[tier - 1]}"
        names.append(f"{'store' if stores else 'load'} {what} {way}")
    return NODES.build(size, {
        "id": first + np.arange(size),
        "name": names,
        "kind": pl.Series(["MEM_LOAD", "MEM_STORE"]).gather(store.astype(np.int64)),
        "category": "kernel",
        "is_cpu": False,
        "device": int(trace.column("device").max(initial=0)),
        "bytes": moves.bytes.sum(axis=1),
        "tier": pl.Series(tiers).gather(moves.tier - 1),
    })  # fmt: skip


def _deps(trace: Trace, moves: Moves) -> pl.DataFrame:
    """Return what waits for what: an operation in parts waits with its first one."""
    src, dst = (trace.deps[name].to_numpy() for name in ("src", "dst"))
    first = moves.first_part
    spread = np.flatnonzero(moves.parts > 1)
    chain = [
        [*range(int(first[row]), int(first[row]) + int(moves.parts[row]) - 1), row]
        for row in spread.tolist()
    ]
    links = np.array(
        [pair for items in chain for pair in pairwise(items)], dtype=np.int64
    ).reshape(-1, 2).T  # fmt: skip
    kinds = trace.deps["kind"]
    added = np.concatenate([links, moves.waits], axis=1)
    return pl.concat([
        DEPS.build(src.size, {"src": src, "dst": first[dst], "kind": kinds,
                              "inferred": trace.deps["inferred"]}),
        DEPS.build(added.shape[1], {"src": added[0], "dst": added[1], "kind": "data"}),
    ])  # fmt: skip
