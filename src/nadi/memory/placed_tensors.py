"""The tensors of a job that can be placed: when they live, what uses them, and what they are for.

Work is done for each different trace, not for each rank: ranks that share one have the same
tensors.

Prefixes that replicas of a model share in a memory that they have together.

Ranks that communicate, directly or through others, are one replica of a model. Those at the same
place of other replicas hold the same keys and values of a prefix, of which a memory needs one copy.

What tensors are for: weights, gradients, optimizer state, activations, KV cache, prefixes.

Generated traces state it. Elsewhere it follows from the phases of a step in which operations read
and write a tensor:

- there before, used by the optimizer and by forward or backward: ``weights``;
- there before, used by the optimizer alone, or made by it: ``optimizer``;
- written in the backward, and read by the optimizer: ``gradients``; also what is there before and
  written in the backward alone (buckets), and what a collective of the backward reduces to
  gradients;
- there before and only read: ``weights``, if the trace has no optimizer, and the elements are not
  integers of 8 bytes; else ``other`` (inputs);
- there before and written in a trace without a backward: ``kv``;
- there before and only read, by operations that each write a ``kv``: ``prefix``;
- there before and used by rows alone: ``tables``, or ``optimizer`` if no forward looks them up;
- made from weights alone (gathered or cast): ``weights``;
- made otherwise: ``activations``, with their gradients.

Visits of tensors to the first tier: when they are loaded, how long they stay, what is stored.

A tensor that lives in a lower tier comes to the first one for the operations that use it. Uses that
follow each other within some operations are one visit: its bytes are loaded once, and stored once
after the last of them, if it was written and is needed again. What a message brings stays until its
first use.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import InputError, checked
from nadi.kernels.paths import edges_by_vertex, topological_order
from nadi.memory.operation_accesses import Accesses, TensorsOfTrace, tensors_of_trace
from nadi.memory.table_lookups import RowCache, hit_shares
from nadi.simulation.accounts.memory_accounts import Lives, lives_of, row_times
from nadi.simulation.engine.codes import NodeKind
from nadi.simulation.simulation import Simulation
from nadi.systems.memory_tiers import DISTANCE
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest, number_rows
from nadi.trace.schema import ROLE_SOURCES, TENSOR_LIVES, TENSOR_ROLES
from nadi.trace.trace import Trace


class Visits(NamedTuple):
    """Visits, in order of life and time; those of ``access`` and ``load`` are by access."""

    access: Ints  # int64, shape (accesses,): the accesses in order of life, then of time
    of_access: Ints  # int64, shape (accesses,): the visit of each of them
    load: Ints  # int64, shape (accesses,): bytes that have to be loaded before each of them
    life: Ints  # int64, shape (visits,)
    # first, last: int64, shape (visits,): positions in ``access`` of the access that begins first,
    # and of that which ends last
    first: Ints
    last: Ints
    bytes: Ints  # int64, shape (visits,): that it takes in the first tier
    stored: Ints  # int64, shape (visits,): bytes that are stored after it

    @property
    def loaded(self) -> Ints:
        """Bytes that are loaded for each visit."""
        if not self.life.size:
            return self.life
        return np.add.reduceat(self.load, self.first)


FORWARD, BACKWARD, OPTIMIZER = range(3)
_PHASE = {"backward": BACKWARD, "optimizer": OPTIMIZER}  # what is recomputed is forward
_WEIGHTS, _GRADIENTS, _STATE_OF_ROLES, _ACTIVATIONS, _KV, _OTHER, _PREFIX, _TABLES_OF_ROLES = range(
    len(TENSOR_ROLES)
)
_STEP = r"(?i)^Optimizer\.step|^optimizer[._]step"
_BACKWARD = r"^autograd::engine::evaluate_function|Backward\d*$|^torch::autograd::"


class UsedLives(NamedTuple):
    """What is known of lives of storages before their roles; arrays of shape (lives,)."""

    is_before: Bools  # bool: whether it was there before
    is_word: Bools  # bool: whether its elements have 8 bytes
    of_access: Ints  # int64, shape (accesses,): the life that each access is of


def phases_of(trace: Trace) -> Ints:
    """Return the phase of a step that each row belongs to; int64, shape (nodes,).

    0 forward, 1 backward, 2 optimizer: as the trace states it, or by what operations are nested in.
    """
    stated = trace.nodes["phase"]
    if (stated != "").any():
        names = stated.cast(pl.String)
        found = names.replace_strict(_PHASE, default=FORWARD, return_dtype=pl.Int64)
        return found.to_numpy().astype(np.int64)
    every, parent = np.arange(trace.nodes.height), trace.column("parent")
    phase = np.zeros(trace.nodes.height, dtype=np.int64)
    phase[nearest(every, parent, trace.name_mask(_BACKWARD)) >= 0] = BACKWARD
    phase[nearest(every, parent, trace.name_mask(_STEP)) >= 0] = OPTIMIZER
    return phase


def inferred_roles(trace: Trace, accesses: Accesses, lives: UsedLives) -> Ints:
    """Return the role of each life as its uses show it: positions in ``schema.TENSOR_ROLES``.

    - ``trace``: That states operands.
    - ``accesses``: Of it.
    - Returns int64, shape (lives,): O(accesses).
    """
    phase = phases_of(trace)
    of_access = phase[accesses.row]
    size = lives.is_before.size
    reads, writes = np.zeros((2, 3, size), dtype=np.bool_)
    for flags, chosen in ((reads, accesses.reads), (writes, accesses.writes)):
        flags[of_access[chosen], lives.of_access[chosen]] = True
    uses = reads | writes
    before = lives.is_before
    model, optimizer = uses[FORWARD] | uses[BACKWARD], uses[OPTIMIZER]
    written = writes.any(axis=0)
    has_backward, has_optimizer = (phase == BACKWARD).any(), (phase == OPTIMIZER).any()
    role = np.full(size, _ACTIVATIONS)
    role[before] = _OTHER
    if not has_backward:
        role[before & written] = _KV
    if not has_optimizer:
        kept = before & ~written & ~lives.is_word
        role[kept] = _WEIGHTS
        role[kept & _only_with_caches(trace, accesses, lives, role)] = _PREFIX
    role[before & ~optimizer & writes[BACKWARD]] = _GRADIENTS
    role[optimizer & ~model] = _STATE_OF_ROLES
    role[before & optimizer & model] = _WEIGHTS
    by_rows = before & (np.bincount(lives.of_access, accesses.width == 0, minlength=size) == 0)
    role[by_rows] = np.where(uses[FORWARD], _TABLES_OF_ROLES, _STATE_OF_ROLES)[by_rows]
    # also where its buffer stays from step to step
    gradients = writes[BACKWARD] & reads[OPTIMIZER] & ~reads[FORWARD]
    role[gradients & ~by_rows] = _GRADIENTS
    _add_copies(trace, accesses, lives, role)
    return role


def update_accesses(trace: Trace, accesses: Accesses, role: Ints) -> Accesses:
    """Return accesses where updates from states with copies of weights do not read the weights.

    They are operations that state fewer bytes than their tensors have, read and written.

    - ``role``: int64, shape (accesses,): of each one's tensor.
    """
    height = trace.nodes.height
    changed = accesses.reads & accesses.writes
    moved = (accesses.end - accesses.begin) * (accesses.reads + accesses.writes.astype(np.int64))
    total = np.bincount(accesses.row, moved, minlength=height)
    states = np.bincount(accesses.row, changed & (role == _STATE_OF_ROLES), minlength=height)
    stated = trace.column("bytes")
    is_update = (stated >= 0) & (stated < total) & (states > 0)
    copied = changed & (role == _WEIGHTS) & is_update[accesses.row]
    return accesses._replace(reads=accesses.reads & ~copied)


def _only_with_caches(trace: Trace, accesses: Accesses, lives: UsedLives, role: Ints) -> Bools:
    """Return which lives are used only by operations that write a KV cache."""
    writes_cache = np.zeros(trace.nodes.height, dtype=np.bool_)
    writes_cache[accesses.row[accesses.writes & (role[lives.of_access] == _KV)]] = True
    found = np.ones(role.size, dtype=np.bool_)
    found[lives.of_access[~writes_cache[accesses.row]]] = False
    return found


def _add_copies(trace: Trace, accesses: Accesses, lives: UsedLives, role: Ints) -> None:
    """Find what is made from weights alone, and what a collective reduces to gradients."""
    size = trace.nodes.height

    def rows_with(chosen: Bools) -> Bools:
        found = np.zeros(size, dtype=np.bool_)
        found[accesses.row[chosen]] = True
        return found

    of_access = role[lives.of_access]
    # what an operation gives, it may be given as well
    given = accesses.reads & ~accesses.writes
    from_weights = rows_with(given & (of_access == _WEIGHTS))
    from_weights &= ~rows_with(given & (of_access != _WEIGHTS))
    copied = accesses.writes & (of_access == _ACTIVATIONS)
    # each use that writes it is a copy
    is_copy = np.zeros(role.size, dtype=np.bool_)
    is_copy[lives.of_access[copied & from_weights[accesses.row]]] = True
    is_copy[lives.of_access[copied & ~from_weights[accesses.row]]] = False
    reduces = (trace.nodes["kind"] == "COMM_COLL").to_numpy()
    reduces &= rows_with(accesses.writes & (of_access == _GRADIENTS))
    given_to = accesses.reads & (of_access == _ACTIVATIONS) & reduces[accesses.row]
    role[lives.of_access[given_to]] = _GRADIENTS
    role[is_copy] = _WEIGHTS


def holders_of_copies(simulation: Simulation, prefix: Ints, shared_by: int) -> Ints:
    """Return how many ranks of the same memory hold the prefix that each rank holds.

    - ``prefix``: int64, shape (ranks,): bytes of each rank's prefix.
    - ``shared_by``: Neighboring ranks that have a memory together; 0 for all.
    - Returns int64, shape (ranks,): At least 1. O(ranks of all groups).
    """
    replica = replica_numbers(simulation)
    rank = np.arange(replica.size)
    sizes = np.bincount(replica)
    order = np.argsort(replica, kind="stable")
    first = np.cumsum(sizes) - sizes
    place = np.empty_like(rank)
    place[order] = rank - first[replica[order]]
    memory = rank // shared_by if shared_by else np.zeros_like(rank)
    which, _ = number_rows([memory, sizes[replica], place, prefix])
    return np.asarray(np.bincount(which)[which])


def replica_numbers(simulation: Simulation) -> Ints:
    """Return the replica that each rank is a part of, numbered from 0; int64, shape (ranks,)."""
    of = list(range(simulation.like.size))

    def root(rank: int) -> int:
        while of[rank] != rank:
            of[rank] = of[of[rank]]
            rank = of[rank]
        return rank

    for ranks in _communicating(simulation):
        for rank in ranks[1:]:
            of[root(rank)] = root(ranks[0])
    _, number = np.unique([root(rank) for rank in of], return_inverse=True)
    return np.asarray(number.reshape(-1), dtype=np.int64)


def _communicating(simulation: Simulation) -> Iterator[list[int]]:
    """Yield ranks that communicate with each other."""
    program, trail = simulation.program, simulation.trail
    kind, group = trail.kind[: program.num_nodes], program.group
    for code in (NodeKind.COLLECTIVE, NodeKind.SEND):
        node = np.flatnonzero(kind == code)
        members = trail.peer[node]
        _, first = number_rows([group[node], members, trail.rank[node] * (code == NodeKind.SEND)])
        for one in node[first].tolist() if node.size else ():
            name = program.group_names[group[one]] if group[one] >= 0 else ""
            if name in simulation.copies:
                yield from simulation.copies[name].tolist()
            elif code == NodeKind.COLLECTIVE:
                yield trail.group_members[int(trail.peer[one])].tolist()
            else:
                yield [int(trail.rank[one]), int(trail.peer[one])]


_TABLES, _STATE = TENSOR_ROLES.index("tables"), TENSOR_ROLES.index("optimizer")


@dataclass(frozen=True, eq=False)
class TraceTensors:
    """The tensors of the ranks that share a trace.

    Attributes
    ----------
    number
        Which of the different traces of the job, as ``table`` has it.
    trace
        As it is simulated.
    stated
        The trace that states operands: the same, or what was recorded.
    ranks
        int64, shape (ranks,): who does it.
    representative
        The rank of the simulated program whose times are those of the table.
    accesses
        Of operations to tensors, in the order in which operations begin.
    life
        int64, shape (accesses,): row of ``table`` that each is of.
    turn
        int64, shape (accesses, 2): the operation that each begins and ends with, counted in the
        order in which those with tensors begin.
    order
        int64, shape (nodes,): the nodes in an order that keeps dependencies, by their start.
    start, end
        int64 ns, shape (nodes,): when they run without tiers.
    table
        ``schema.TENSOR_LIVES``.
    looked_up
        Bytes of rows of tables that operations read and write, with those that a cache serves.
    """

    number: int
    trace: Trace
    stated: Trace
    ranks: Ints
    representative: int
    accesses: Accesses
    life: Ints
    turn: Ints
    order: Ints
    start: Ints
    end: Ints
    table: pl.DataFrame
    looked_up: int = 0

    @cached_property
    def place(self) -> Ints:
        """Where each node comes in ``order``; int64, shape (nodes,)."""
        place = np.empty_like(self.order)
        place[self.order] = np.arange(self.order.size)
        return place

    @property
    def moved_rows(self) -> int:
        """Bytes of rows of tables that are read and written beside a cache."""
        is_table = self.table["role"].is_in(["tables", "optimizer"]).to_numpy()[self.life]
        looked_up = self.accesses.at(is_table & (self.accesses.width > 0))
        times = looked_up.reads + looked_up.writes.astype(np.int64)
        return int(((looked_up.end - looked_up.begin) * times).sum())

    def column(self, name: str) -> Ints:
        """Return a column of the table as an array."""
        return self.table[name].to_numpy()


@dataclass(frozen=True, eq=False)
class JobTensors:
    """The tensors of all ranks.

    Attributes
    ----------
    simulation
        Without tiers: its times are those of the table.
    traces
        Those that differ.
    """

    simulation: Simulation
    traces: tuple[TraceTensors, ...]

    def share_of_rank(self, one: TraceTensors, shared_by: int) -> Ints:
        """Return the bytes that each life takes of a rank's share of a memory.

        Replicas of a model that have the memory together keep one copy of a prefix there.

        Parameters
        ----------
        shared_by
            Neighboring ranks that have the memory together; 0 for all.
        """
        size, role = one.column("bytes"), one.table["role"].cast(pl.String)
        is_prefix = (role == "prefix").to_numpy()
        if shared_by == 1 or not is_prefix.any():
            return size
        found: Ints = np.where(is_prefix, -(-size // self.replicas_of(one, shared_by)), size)
        return found

    def replicas_of(self, one: TraceTensors, shared_by: int) -> int:
        """Return how many replicas of a model share each copy of a prefix in a memory, at least."""
        return int(self._holders(shared_by)[one.ranks].min())

    def _holders(self, shared_by: int) -> Ints:
        """Return how many ranks of a memory hold the same prefix; int64, shape (ranks,)."""
        if shared_by not in self._known_holders:
            prefix = np.zeros(self.simulation.like.size, dtype=np.int64)
            for one in self.traces:
                prefix[one.ranks] = one.table.filter(pl.col("role") == "prefix")["bytes"].sum()
            self._known_holders[shared_by] = holders_of_copies(self.simulation, prefix, shared_by)
        return self._known_holders[shared_by]

    @cached_property
    def _known_holders(self) -> dict[int, Ints]:
        return {}

    @cached_property
    def table(self) -> pl.DataFrame:
        """The tensors of all traces (``schema.TENSOR_LIVES``)."""
        return pl.concat([one.table for one in self.traces])


@checked
def tensors_of_job(simulation: Simulation, cache: RowCache | None = None) -> JobTensors:
    """Read the tensors of a simulated job. O(operands log operands) for each different trace.

    Parameters
    ----------
    cache
        Of rows of tables, in the first tier: what it serves is not accessed in the tables.

    Raises
    ------
    InputError
        If no trace states operands.
    """
    of_trace: dict[int, list[int]] = {}
    for rank, trace in enumerate(simulation.traces):
        of_trace.setdefault(id(trace), []).append(rank)
    found = []
    for number, ranks in enumerate(of_trace.values()):
        one = _tensors_of_trace(simulation, number, ranks, cache)
        if one is not None:
            found.append(one)
    if not found:
        sources = [source for one in simulation.traces[:1] for source in one.provenance.sources]
        raise InputError(
            sources[0].path if sources else "job",
            "its traces state no operands, so there are no tensors to place",
            "record host traces with ExecutionTraceObserver, or generate the job "
            "(nadi generate llm)",
        )  # fmt: skip
    return JobTensors(simulation, tuple(found))


def _tensors_of_trace(
    simulation: Simulation, number: int, ranks: list[int], cache: RowCache | None
) -> TraceTensors | None:
    trace = simulation.traces[ranks[0]]
    like = int(simulation.like[ranks[0]])
    played = simulation.recorded[ranks[0]] if simulation.recorded else None
    found = tensors_of_trace(trace, played)
    if found is None:
        return None
    lives = lives_of(*row_times(simulation, like, played), found.uses)
    order = _order(simulation, like, trace)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    some = found.accesses
    accesses = some.at(np.lexsort((some.begin, some.storage, place[some.first])))
    operations, turn = np.unique(place[accesses.first], return_inverse=True)
    until = np.searchsorted(operations, place[accesses.last], side="right") - 1
    known = found._replace(accesses=accesses)
    life = _lives_of_accesses(known, lives)
    kept, which = np.unique(life, return_inverse=True)
    turns = np.stack([turn, np.maximum(until, turn)], axis=1)
    known, table = _table(number, known, lives, kept, which, turns, cache)
    whole = TraceTensors(
        number, trace, found.stated, np.array(ranks, dtype=np.int64), like, accesses, which, turns,
        order, *row_times(simulation, like), table,
    )  # fmt: skip
    return replace(whole, accesses=known.accesses, looked_up=whole.moved_rows)


def _order(simulation: Simulation, rank: int, trace: Trace) -> Ints:
    """Return the rows of a trace by their start, in an order that keeps dependencies.

    A receive may be posted long before its message arrives. What it writes is there from then on,
    so it has its place by its end.
    """
    program = simulation.program
    first, last = program.first[rank : rank + 2].tolist()
    ends = program.first_child[first : last + 1]
    src = np.repeat(np.arange(last - first), np.diff(ends))
    dst = program.children[ends[0] : ends[-1]] - first
    in_ptr, in_src, _ = edges_by_vertex(src, dst, last - first)
    order = np.empty(last - first, dtype=np.int32)
    topological_order(in_ptr, in_src, order)
    row = program.row[first:last]
    receives = (trace.nodes["kind"] == "COMM_RECV").to_numpy()[row]
    moment = np.where(receives, simulation.end[first:last], simulation.start[first:last])
    return np.asarray(row[order[np.argsort(moment[order], kind="stable")]])


def _lives_of_accesses(found: TensorsOfTrace, lives: Lives) -> Ints:
    """Return the life that each access is of, by its operation and storage."""
    rows = found.stated.nodes.height
    key = found.uses.storage * rows + found.uses.row
    order = np.argsort(key)
    wanted = found.accesses.storage * rows + found.accesses.row
    return lives.of_use[order[np.searchsorted(key[order], wanted)]]


def _table(
    number: int, found: TensorsOfTrace, lives: Lives, kept: Ints, life: Ints, turn: Ints,
    cache: RowCache | None,
) -> tuple[TensorsOfTrace, pl.DataFrame]:  # fmt: skip
    """Return the table of the lives that are used; accesses come in the order of operations.

    Also the tensors whose accesses are as their roles say.
    """
    accesses, size = found.accesses, kept.size
    is_word = np.zeros(found.found.num_storages, dtype=np.bool_)
    is_word[found.found.storage[found.found.is_word]] = True
    storage = np.zeros(size, dtype=np.int64)
    storage[life] = accesses.storage
    before = ~lives.is_made[kept]
    used = UsedLives(before, is_word[storage], life)
    role = inferred_roles(found.stated, accesses, used)
    source = np.ones(size, dtype=np.int64)
    stated = found.stated.operand_columns
    if stated is not None and stated.roles:
        of_storage = np.full(found.found.num_storages, -1, dtype=np.int64)
        of_storage[found.found.storage] = stated.role
        known = of_storage[storage] >= 0
        codes = np.array([TENSOR_ROLES.index(name) for name in stated.roles], dtype=np.int64)
        role[known], source[known] = codes[of_storage[storage][known]], 0
    accesses = update_accesses(found.stated, accesses, role[life])
    bytes_ = lives.bytes[kept]
    if cache is not None:
        accesses = _beside_cache(accesses, life, role, bytes_, cache)
    length = accesses.end - accesses.begin
    order = np.lexsort((turn[:, 0], life))
    first = np.searchsorted(life[order], np.arange(size))
    last = np.append(first[1:], order.size) - 1
    visits = visits_of(accesses, life, (turn[:, 0], turn[:, 1]), before, bytes_, distance=DISTANCE)
    moved = np.zeros((2, size), dtype=np.int64)
    np.add.at(moved[0], visits.life, visits.loaded)
    np.add.at(moved[1], visits.life, visits.stored)
    return found._replace(accesses=accesses), TENSOR_LIVES.build(size, {
        "trace": number, "storage": storage, "bytes": bytes_,
        "role": pl.Series(TENSOR_ROLES).gather(role), "is_before": before,
        "source": pl.Series(ROLE_SOURCES).gather(source),
        "begin": lives.begin[kept], "end": lives.end[kept],
        "first_use": accesses.first[order[first]], "last_use": accesses.last[order[last]],
        "uses": np.bincount(life, minlength=size),
        "read": _sums(life, length * accesses.reads, size),
        "written": _sums(life, length * accesses.writes, size),
        "reuse": _reuse(accesses, life[order], turn[order, 0], before),
        "loaded": moved[0], "stored": moved[1],
    })  # fmt: skip


def _beside_cache(
    accesses: Accesses, life: Ints, role: Ints, size: Ints, cache: RowCache
) -> Accesses:
    """Return accesses of what a cache of rows does not serve.

    Rows have their part of the optimizer's state beside them in the cache.
    """
    looked_up = np.flatnonzero(accesses.width > 0)
    length = accesses.end - accesses.begin
    width, read = np.zeros((2, size.size), dtype=np.int64)
    width[life[looked_up]] = accesses.width[looked_up]
    np.maximum.at(read, life[looked_up], length[looked_up])
    tables = np.flatnonzero((width > 0) & np.isin(role, [_TABLES, _STATE]))
    if not tables.size:
        return accesses
    missed = np.ones(size.size)
    missed[tables] -= hit_shares(cache, size[tables], width[tables], read[tables])
    left = np.ceil(length * missed[life]).astype(np.int64)
    is_table = np.isin(life, tables) & (accesses.width > 0)
    return accesses._replace(begin=np.where(is_table, accesses.end - left, accesses.begin))


def _sums(group: Ints, amount: Ints, size: int) -> Ints:
    found = np.zeros(size, dtype=np.int64)
    np.add.at(found, group, amount)
    return found


def _reuse(accesses: Accesses, life: Ints, turn: Ints, before: np.ndarray) -> Ints:
    """Return the bytes that operations access between two uses of each life, on average.

    ``life`` and ``turn`` are of accesses in order of life and operation; those of ``accesses`` come
    in the order of operations.
    """
    turns = np.sort(turn)
    moved = (accesses.end - accesses.begin) * (accesses.reads + accesses.writes.astype(np.int64))
    passed = np.zeros(int(turn.max()) + 2, dtype=np.int64)
    np.add.at(passed, turns + 1, moved)
    passed = np.cumsum(passed)
    first = np.searchsorted(life, np.arange(before.size))
    last = np.append(first[1:], life.size) - 1
    is_gap = (life[1:] == life[:-1]) & (turn[1:] > turn[:-1])
    gap = np.where(is_gap, passed[turn[1:]] - passed[turn[:-1] + 1], 0)
    total = _sums(life[1:], gap, before.size)
    count = _sums(life[1:], is_gap.astype(np.int64), before.size)
    # what stays is used again in the next step
    around = passed[-1] - passed[turn[last] + 1] + passed[turn[first]]
    total, count = total + np.where(before, around, 0), count + before
    found: Ints = total // np.maximum(count, 1)
    return found


def visits_of(
    accesses: Accesses, life: Ints, turn: tuple[Ints, Ints], is_before: Bools, size: Ints, *,
    distance: int, alone: Bools | None = None,
) -> Visits:  # fmt: skip
    """Find the visits of tensors that live in a lower tier. O(accesses log accesses).

    - ``accesses``: Of tensors in lower tiers.
    - ``life``: int64, shape (accesses,): the life that each is of.
    - ``turn``: int64, shape (accesses,) each: when each begins and ends, counted in operations.
    - ``is_before``, ``size``: Of each life: whether it is there before and stays; its bytes.
    - ``distance``: Uses that are at most so many operations apart are one visit.
    - ``alone``: bool, shape (accesses,): accesses that are visits of their own, as their operation
      works on one part after the other.
    """
    begin, end = turn
    order = np.lexsort((end, begin, life))
    of, begin, end = life[order], begin[order], end[order]
    if not order.size:
        empty = np.zeros(0, dtype=np.int64)
        return Visits(*[empty] * 8)
    is_alone = np.zeros(order.size, dtype=np.bool_) if alone is None else alone[order]
    changes = np.append(True, of[1:] != of[:-1])
    far = np.append(True, begin[1:] - _latest(of, end)[:-1] > distance)
    far[1:] &= ~accesses.receives[order][:-1]  # nothing gives way that was not used yet
    same_turn = np.append(False, (begin[1:] == begin[:-1]) & (of[1:] == of[:-1]))
    cut = is_alone | np.append(False, is_alone[:-1])
    starts = changes | far | (cut & ~same_turn)
    visit = np.cumsum(starts) - 1
    first = np.flatnonzero(starts)
    by_end = np.lexsort((np.arange(order.size), end, visit))
    last = by_end[np.append(first[1:], order.size) - 1]
    of_visit = of[first]
    low, high = accesses.begin[order], accesses.end[order]
    is_new = _first_of_each(visit, low, high)
    added = _clipped(np.where(is_new, high - low, 0), first, visit, size[of_visit])
    reads, writes = accesses.reads[order], accesses.writes[order]
    is_making = changes[first] & ~is_before[of_visit]
    load = np.where(reads & ~is_making[visit], added, 0)
    written = _first_of_each(visit, low, high, writes)
    dirty = _clipped(np.where(written, high - low, 0), first, visit, size[of_visit])
    is_last = np.append(changes[first][1:], True)
    stored = np.where(is_last & ~is_before[of_visit], 0, np.add.reduceat(dirty, first))
    return Visits(
        order, visit, load, of_visit, first, last, np.add.reduceat(added, first), stored
    )  # fmt: skip


def _latest(group: Ints, value: Ints) -> Ints:
    """Return the largest value so far in each group; groups are contiguous."""
    room = int(value.max(initial=0)) + 1
    number = np.cumsum(np.append(True, group[1:] != group[:-1]))
    found: Ints = np.maximum.accumulate(number * room + value) - number * room
    return found


def _first_of_each(visit: Ints, begin: Ints, end: Ints, chosen: Bools | None = None) -> Bools:
    """Return which accesses are the first of their range of bytes in their visit."""
    rows = np.arange(visit.size) if chosen is None else np.flatnonzero(chosen)
    order = rows[np.lexsort((rows, end[rows], begin[rows], visit[rows]))]
    found = np.zeros(visit.size, dtype=np.bool_)
    if order.size:
        differs = np.zeros(order.size, dtype=np.bool_)
        differs[0] = True
        for column in (visit, begin, end):
            differs[1:] |= column[order[1:]] != column[order[:-1]]
        found[order[differs]] = True
    return found


def _clipped(amount: Ints, first: Ints, visit: Ints, size: Ints) -> Ints:
    """Return what each amount adds to its visit, which has no more than its size."""
    total = np.cumsum(amount)
    before = total[first] - amount[first]
    within = np.minimum(total - before[visit], size[visit])
    previous = np.append(0, within[:-1])
    previous[first] = 0
    found: Ints = within - previous
    return found
