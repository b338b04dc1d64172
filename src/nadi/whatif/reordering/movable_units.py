"""Movable units: an operator that the program called, with everything nested in it.

Data dependencies by tensors as edges, which moves must not break.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from nadi.graph.event_graph import EdgeKind, EventGraph, make_edges
from nadi.graph.replay import replay_graph
from nadi.kernels.paths import edges_by_vertex, replay_times
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import pattern
from nadi.trace.schema import LABELS, TENSOR_DEPS
from nadi.whatif.reordering.operation_layout import OperationLayout, Works, operations_of_rows
from nadi.whatif.selection import outermost

BLOCKERS = (
    "nothing",
    "raw",
    "war",
    "waw",
    "comm order",
    "random numbers",
    "hidden state",
    "value read",
    "device wait",
    "hand-over",
    "barrier",
    "unknown effects",
    "step or thread",
    "nesting",
)
"""Reasons why an operation cannot start earlier."""
_CODE = {name: code for code, name in enumerate(BLOCKERS)}

_OPERATOR = r"^(\w+)::\w+(\.\w+)?$"
_NO_OPERATOR = r"^(autograd|torch)::"
_READS_VALUE = (
    r"^aten::(item|_local_scalar_dense|is_nonzero|equal|allclose|nonzero|masked_select|_?unique2?"
    r"|unique_consecutive|unique_dim|_assert_async|bincount)$"
)
_WAIT_CALL = pattern("device sync", "stream sync", "event sync", "blocking copy")
_BARRIER = r"barrier"
_RANDOM = (
    r"^aten::(_?fused_dropout|native_dropout|(feature_)?(alpha_)?dropout_?|bernoulli_?|rand\w*"
    r"|normal_?|normal_functional|uniform_?|random_?|multinomial|exponential_?|cauchy_?"
    r"|geometric_?|log_normal_?|poisson|binomial|_?standard_gamma|rrelu\w*"
    r"|_?scaled_dot_product\w*|_\w*flash_attention\w*|_efficient_attention\w*)$"
)
# what schemas keep silent: running statistics, tables that a backward pass updates
_HIDDEN_STATE = (
    r"^aten::(_?batch_norm\w*|native_batch_norm\w*|_native_batch_norm\w*|cudnn_batch_norm\w*"
    r"|miopen_batch_norm\w*|instance_norm)$|split_embedding|SplitLookup"
)
_IN_ORDER = (("random numbers", _RANDOM), ("hidden state", _HIDDEN_STATE))
_KINDS_OF_NEED = (TENSOR_DEPS, ("raw",))
_STEP = r"^ProfilerStep#\d+$"


@dataclass(frozen=True)
class Units:
    """The units of a job in the order of their threads; arrays of shape (units,)."""

    layout: OperationLayout  # the threads that they stand on
    op: Ints  # int64: the outermost operation of each
    # begin, end: int64: the places of its start and end in the chain; ascending
    begin: Ints
    end: Ints
    of_op: Ints  # int64, shape (ops,): the unit in which each host operation lies, or -1
    can_move: Bools  # bool: whether it may change its place at all
    is_communication: Bools  # bool: whether it communicates, or asks for communication
    # lets_wait, records: bool: whether it tells a stream to wait for an event; whether it records
    # one after all that it launches, as communication does, for others to wait for
    lets_wait: Bools
    records: Bools
    # first_work, last_work: int64: what it launched: a range of ``layout.works``
    first_work: Ints
    last_work: Ints
    # fence, fence_reason: int64: the last place of its thread that nothing passes on the way to it,
    # or its own where it cannot move; why (a position in ``BLOCKERS``)
    fence: Ints
    fence_reason: Ints
    # needs_ptr, needs, needs_reason: int64: unit u has to stay after the units
    # ``needs[needs_ptr[u]:needs_ptr[u + 1]]`` of its thread; why
    needs_ptr: Ints
    needs: Ints
    needs_reason: Ints
    # legal, legal_renamed: int64 ns, shape (units,): before when its work cannot start, wherever it
    # and all that it needs stand, with all else as it is now. The same if no memory were used again
    # (without war and waw).
    legal: Ints
    legal_renamed: Ints

    @cached_property
    def after_fence(self) -> Ints:
        """The first unit that each unit can follow, by fences alone."""
        return np.searchsorted(self.end, self.fence)

    @cached_property
    def limits(self) -> tuple[Ints, Ints]:
        """The first unit that each unit can follow, and why; int64, shape (units,)."""
        first, reason = self.after_fence.copy(), self.fence_reason.copy()
        unit = np.repeat(np.arange(self.op.size), np.diff(self.needs_ptr))
        order = np.lexsort((self.needs, unit))
        last = order[np.append(np.diff(unit[order]) != 0, True)[: order.size]]
        higher = self.needs[last] > first[unit[last]]
        chosen = unit[last][higher]
        first[chosen] = self.needs[last][higher]
        reason[chosen] = self.needs_reason[last][higher]
        return first, reason

    def at_op(self, op: int) -> int:
        """Return the unit whose outermost operation is the given one, or -1."""
        unit = int(self.of_op[op])
        return unit if unit >= 0 and self.op[unit] == op else -1


def find_units(layout: OperationLayout, time: Ints, since: int) -> Units:
    """Find the movable units, and how far each can move.

    - ``layout``: Of a graph whose job has dependencies by tensors.
    - ``time``: int64 ns, shape (vertices,): a replay of the graph.
    - ``since``: Measured time in ns since the job's origin before which nothing moves.
    - Returns: O(ops log ops + dependencies).
    """
    graph = layout.graph
    pairs = tensor_pairs(graph)
    outer = outermost(graph, _is_work(layout, pairs))
    op = np.unique(outer[outer >= 0])
    op = op[np.argsort(layout.at[2 * op])]
    number = np.full(graph.num_ops + 1, -1, dtype=np.int64)
    number[op] = np.arange(op.size)
    of_op = number[outer]
    begin, end = layout.at[2 * op], layout.at[2 * op + 1]
    first, last = layout.works.of(begin, end)
    parts = _Parts(layout, time, op, begin, end, of_op, first, last)
    nested = parts.nested()
    talks = parts.communicates()
    is_call = graph.gather("category").is_in(["runtime", "driver"]).to_numpy()
    serves = np.isin(layout.thread[op], layout.resource[layout.works.op])
    fence, reason, needs = _order(parts, pairs, talks, nested, since)
    can_move = nested & ~is_call[op] & ~serves
    from_afar = _data_from_afar(parts, pairs)
    legal = [
        _legal(parts, can_move, fence, needs, ready, kinds)
        for ready, kinds in zip(from_afar, _KINDS_OF_NEED, strict=True)
    ]
    return Units(
        layout, op, begin, end, of_op, can_move, talks, parts.named(pattern("stream wait")),
        parts.records(), first, last, fence, reason, *needs, *legal,
    )  # fmt: skip


def _is_work(layout: OperationLayout, pairs: tuple[Ints, Ints, Ints]) -> Bools:
    """Return which host operations do work: operators, runtime calls, users of data.

    Labels, autograd's nodes and Python's functions only stand around these.
    """
    graph = layout.graph
    names = graph.op_names
    unique = names.unique()
    operators = unique.filter(
        unique.str.contains(_OPERATOR) & ~unique.str.contains(_NO_OPERATOR)
    )  # fmt: skip
    category = graph.gather("category")
    works: Bools = names.is_in(operators.implode()).to_numpy() & ~category.is_in(LABELS).to_numpy()
    works |= category.is_in(["runtime", "driver"]).to_numpy()
    works[pairs[0]] = True
    works[pairs[1]] = True
    works &= ~layout.on_device
    return works


@dataclass(frozen=True)
class _Parts:
    """Units as they are found; as :class:`Units`."""

    layout: OperationLayout
    time: Ints
    op: Ints
    begin: Ints
    end: Ints
    of_op: Ints
    first_work: Ints
    last_work: Ints

    def containing(self, chosen: Bools) -> Bools:
        """Return which units contain a chosen operation; bool, shape (units,)."""
        inside = self.of_op[chosen & (self.of_op >= 0)]
        found = np.zeros(self.op.size, dtype=np.bool_)
        found[inside] = True
        return found

    def named(self, text: str) -> Bools:
        """Return which units contain an operation whose name matches; bool, shape (units,)."""
        names = self.layout.graph.op_names
        unique = names.unique()
        fitting = unique.filter(unique.str.contains(text))
        return self.containing(names.is_in(fitting.implode()).to_numpy())

    def launching(self, chosen: Bools) -> Bools:
        """Return which units launch one of the chosen works; bool, shape (units,)."""
        works = self.layout.works
        total = np.concatenate([[0], np.cumsum(chosen[works.op])])
        found: Bools = total[self.last_work] > total[self.first_work]
        return found

    def records(self) -> Bools:
        """Return which units record an event after all that they launch; bool, shape (units,)."""
        layout = self.layout
        calls = layout.graph.op_names.str.contains(pattern("event record")).to_numpy() & (
            self.of_op >= 0
        )
        last_record, last_launch = np.full((2, self.op.size), -1, dtype=np.int64)
        np.maximum.at(last_record, self.of_op[calls], layout.at[2 * np.flatnonzero(calls)])
        works = layout.works
        asked = self.of_op[works.call] >= 0
        np.maximum.at(last_launch, self.of_op[works.call[asked]], works.at[asked])
        found: Bools = (last_launch >= 0) & (last_record > last_launch)
        return found

    def communicates(self) -> Bools:
        """Return which units are or launch communication; bool, shape (units,)."""
        is_comm = (self.layout.graph.gather("comm_type") != "none").to_numpy()
        return self.launching(is_comm) | self.containing(is_comm) | self.named(r"^c10d::")

    def nested(self) -> Bools:
        """Return which units are contiguous on their thread; bool, shape (units,)."""
        inside = np.flatnonzero(self.of_op >= 0)
        unit = self.of_op[inside]
        first = np.full(self.op.size, self.layout.chain.size, dtype=np.int64)
        last = np.full(self.op.size, -1, dtype=np.int64)
        np.minimum.at(first, unit, self.layout.at[2 * inside])
        np.maximum.at(last, unit, self.layout.at[2 * inside + 1])
        count = np.bincount(unit, minlength=self.op.size)
        num_cut = np.cumsum(self.layout.link < 0)  # up to each place
        whole = num_cut[self.end] == num_cut[self.begin]
        found: Bools = (
            (first == self.begin)
            & (last == self.end)
            & (self.end - self.begin + 1 == 2 * count)
            & whole
        )
        return found


_Needs = tuple[Ints, Ints, Ints]


def _order(
    parts: _Parts, pairs: _Needs, talks: Bools, nested: Bools, since: int
) -> tuple[Ints, Ints, _Needs]:
    """Return ``fence``, ``fence_reason``, and what each unit needs, as of :class:`Units`."""
    fences, reasons = _fences(parts, nested, since)
    nearest = np.searchsorted(fences, parts.begin, side="right") - 1
    fence, reason = fences[nearest], reasons[nearest]  # the first of a thread is always a fence
    # what has a fence in itself stays where it is
    inner = np.searchsorted(fences, parts.begin)
    fenced = inner < np.searchsorted(fences, parts.end, side="right")
    fence = np.where(fenced, parts.begin, fence)
    reason = np.where(fenced, reasons[np.minimum(inner, reasons.size - 1)], reason)
    found = [_needs_of_data(parts, pairs)]
    in_order = [("comm order", talks)]
    in_order += [(name, parts.named(pattern)) for name, pattern in _IN_ORDER]
    for name, members in in_order:
        before, after, elsewhere, place = _followers(parts, members)
        found.append((before, after, np.full(before.size, _CODE[name])))
        later = place > fence[elsewhere]
        fence[elsewhere[later]] = place[later]
        reason[elsewhere[later]] = _CODE[name]
    before, after, why = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(after, kind="stable")
    ptr = np.searchsorted(after[order], np.arange(parts.op.size + 1))
    return fence, reason, (ptr, before[order], why[order])


def _needs_of_data(parts: _Parts, pairs: _Needs) -> _Needs:
    """Return pairs of units of a thread with a data dependency, and its kind."""
    src, dst, kind = pairs
    before, after = parts.of_op[src], parts.of_op[dst]
    thread = parts.layout.thread[parts.op]
    # nested calls cannot change their order, so they need no entry
    inner = (before >= 0) & (before < after) & (thread[before] == thread[after])
    key = np.unique((after[inner] * parts.op.size + before[inner]) * len(TENSOR_DEPS) + kind[inner])
    pair, code = np.divmod(key, len(TENSOR_DEPS))
    first = np.append(True, np.diff(pair) != 0)[: pair.size]  # of several kinds raw is named
    after, before = np.divmod(pair[first], max(parts.op.size, 1))
    names = np.array([_CODE[name] for name in TENSOR_DEPS])
    return before, after, names[code[first]]


def _followers(parts: _Parts, members: Bools) -> tuple[Ints, Ints, Ints, Ints]:
    """Return pairs of units that must keep their order on a rank.

    - Returns before, after: int64: units of one thread.
    - and elsewhere, place: int64: units that follow one of another thread, and the first place of
      their own thread that comes after it.
    """
    chosen = np.flatnonzero(members)
    op = parts.op[chosen]
    rank, start = parts.layout.graph.op_trace[op], parts.time[2 * op]
    chosen = chosen[np.lexsort((chosen, start, rank))]
    before, after = chosen[:-1], chosen[1:]
    one, other = parts.op[before], parts.op[after]
    thread = parts.layout.thread
    same = thread[one] == thread[other]
    of_rank = parts.layout.graph.op_trace[one] == parts.layout.graph.op_trace[other]
    elsewhere, former = after[~same & of_rank], before[~same & of_rank]
    of_chain = thread[parts.layout.chain // 2]
    places = []
    for unit, earlier in zip(elsewhere.tolist(), former.tolist(), strict=True):
        low, last = int(np.searchsorted(of_chain, thread[parts.op[unit]])), int(parts.begin[unit])
        times = parts.time[parts.layout.chain[low:last]]
        places.append(low + int(np.searchsorted(times, parts.time[2 * parts.op[earlier] + 1])))
    return before[same], after[same], elsewhere, np.array(places, dtype=np.int64)


def _data_from_afar(parts: _Parts, pairs: _Needs) -> list[Ints]:
    """Return when each unit's data from other threads is available; int64 ns, shape (units,).

    As all is now; by ``_KINDS_OF_NEED``.
    """
    time, thread = parts.time, parts.layout.thread
    src, dst, kind = pairs
    after = parts.of_op[dst]
    done = time[2 * src + 1]
    which, work = outermost_works(parts.layout, src, last=True)
    np.maximum.at(done, which, time[2 * parts.layout.works.op[work] + 1])
    across = (after >= 0) & (thread[src] != thread[dst])
    found = []
    for kinds in _KINDS_OF_NEED:
        chosen = across & np.isin(kind, [TENSOR_DEPS.index(name) for name in kinds])
        ready = np.full(parts.op.size, np.iinfo(np.int64).min // 2)
        np.maximum.at(ready, after[chosen], done[chosen])
        found.append(ready)
    return found


def _legal(
    parts: _Parts, can_move: Bools, fence: Ints, needs: _Needs, ready: Ints,
    kinds: Sequence[str],
) -> Ints:  # fmt: skip
    """Return ``legal`` of :class:`Units`: longest paths through needs alone, data by ``kinds``.

    A unit has three moments: it starts, its work starts, its data is there. It starts after
    its fence and the threads' time of what it needs; device work starts after the data of
    what it needs, and all else itself does.
    """
    num_units, time = parts.op.size, parts.time
    own, takes, work_start, work_end, on_device = _shortest(parts)
    start = time[2 * parts.op]
    unit = np.arange(num_units)
    begins, works, done = 1 + 3 * unit, 2 + 3 * unit, 3 + 3 * unit  # 0 is before all
    waits = np.where(on_device, works, begins)
    ptr, need, why = needs
    needing = np.repeat(unit, np.diff(ptr))
    kept = can_move[needing]
    needing, need, why = needing[kept], need[kept], why[kept]
    of_data = np.isin(why, [_CODE[name] for name in kinds])
    fixed = unit[~can_move]
    floor = np.minimum(time[parts.layout.chain[fence]], start)
    nothing = np.zeros(num_units, dtype=np.int64)
    parts_of_edges = [
        (nothing, begins, np.where(can_move, floor, start)),
        (nothing[fixed], works[fixed], work_start[fixed]),
        (nothing[fixed], done[fixed], work_end[fixed]),
        (nothing, waits, np.minimum(ready, work_start)),
        (begins, works, nothing),
        (works, done, takes),
        (begins[need], begins[needing], own[need]),
        (done[need[of_data]], waits[needing[of_data]], np.zeros(int(of_data.sum()), np.int64)),
    ]
    src, dst, weight = (np.concatenate(column) for column in zip(*parts_of_edges, strict=True))
    num_vertices = 3 * num_units + 1
    in_ptr, source, edge = edges_by_vertex(src, dst, num_vertices)
    found, delay = np.zeros((2, num_vertices), dtype=np.int64)
    order, nothing_asked = np.arange(num_vertices, dtype=np.int32), np.empty(0, dtype=np.int32)
    replay_times(order, in_ptr, source, weight[edge], delay, found, nothing_asked)
    return np.minimum(found[works], work_start)


def _shortest(parts: _Parts) -> tuple[Ints, Ints, Ints, Ints, Bools]:
    """Return the durations of units and the times of their works; ns, shape (units,).

    - Returns own, takes: int64: of its thread; of the longest of its works, or as much as of its
      thread if it asks for none.
    - and work_start, work_end: int64: of its first and last work as it is, or of itself.
    - and on_device: bool: whether all of its works are device work, and there are some.
    """
    layout, graph, time = parts.layout, parts.layout.graph, parts.time
    weight = np.where(layout.link >= 0, graph.weight[layout.link], 0)
    total = np.concatenate([[0], np.cumsum(weight)])
    own: Ints = total[parts.end + 1] - total[parts.begin + 1]
    kinds = (EdgeKind.KERNEL, EdgeKind.COMMUNICATION, EdgeKind.MEMORY)
    into = np.isin(graph.edge_kind, kinds)
    of_vertex = np.zeros(graph.num_vertices, dtype=np.int64)
    np.maximum.at(of_vertex, graph.destinations[into], graph.weight[into])
    asked = parts.of_op[layout.works.call] >= 0
    work, unit = layout.works.op[asked], parts.of_op[layout.works.call[asked]]
    takes = own.copy()
    takes[unit] = 0
    np.maximum.at(takes, unit, of_vertex[2 * work + 1])
    first, last = time[2 * parts.op], time[2 * parts.op + 1]
    first[unit] = np.iinfo(np.int64).max
    np.minimum.at(first, unit, time[2 * work])
    np.maximum.at(last, unit, time[2 * work + 1])
    on_device = np.zeros(parts.op.size, dtype=np.bool_)
    on_device[unit] = True
    on_device[unit[~layout.on_device[work]]] = False
    return own, takes, first, last, on_device


def _fences(parts: _Parts, nested: Bools, since: int) -> tuple[Ints, Ints]:
    """Find the positions that no move crosses; int64: ascending positions, and why."""
    layout, graph = parts.layout, parts.layout.graph
    chain, thread = layout.chain, layout.thread[layout.chain // 2]
    found: list[tuple[Ints, str]] = []
    first = np.flatnonzero(np.append(True, np.diff(thread) != 0)[: thread.size])
    early = np.flatnonzero(graph.time[chain] < since)
    found.append((np.concatenate([first, early]), "step or thread"))
    steps = graph.op_names.str.contains(_STEP).to_numpy() & ~layout.on_device
    marks = layout.at[np.flatnonzero(np.repeat(steps, 2))]
    found.append((marks, "step or thread"))
    cut = layout.link < 0
    cut[first] = False
    found.append((np.flatnonzero(cut), "nesting"))
    found.append((parts.end[~nested], "nesting"))
    waits = parts.containing(_waiting_calls(layout)) | parts.named(_WAIT_CALL)
    found.append((parts.end[waits], "device wait"))
    found.append((parts.end[parts.named(_READS_VALUE)], "value read"))
    found.append((parts.end[parts.named(_BARRIER)], "barrier"))
    found.append((parts.end[_unknown(parts)], "unknown effects"))
    found.append((_hand_overs(layout), "hand-over"))
    places = np.concatenate([place for place, _ in found])
    why = np.concatenate([np.full(place.size, _CODE[name]) for place, name in found])
    order = np.argsort(places, kind="stable")
    return places[order], why[order]


def _waiting_calls(layout: OperationLayout) -> Bools:
    """Return which host operations wait for device work whose result the host may read.

    Not those that wait for room in a queue, or while their own data is taken along.
    """
    graph = layout.graph
    edges = np.flatnonzero(graph.edge_kind == EdgeKind.SYNC)
    source, vertex = graph.in_src[edges], graph.destinations[edges]
    call = vertex // 2
    into_call = (vertex % 2 == 1) & (vertex < 2 * graph.num_ops)
    into_call &= (source % 2 == 1) & (source < 2 * graph.num_ops)
    edges, source, call = edges[into_call], source[into_call] // 2, call[into_call]
    launches = np.zeros(graph.num_ops, dtype=np.bool_)
    launches[layout.works.call] = True
    for_room = launches[call] & (layout.launched_by[source] != call)
    waits = np.zeros(graph.num_ops, dtype=np.bool_)
    waits[call[layout.on_device[source] & ~layout.on_device[call] & ~for_room]] = True
    return waits


def _unknown(parts: _Parts) -> Bools:
    """Return which units launch device work whose data is unknown."""
    graph = parts.layout.graph
    names = graph.op_names
    unique = names.unique()
    operators = unique.filter(unique.str.contains(_OPERATOR))
    known = names.is_in(operators.implode()).to_numpy()
    return parts.launching(parts.layout.on_device) & ~parts.containing(known)


def _hand_overs(layout: OperationLayout) -> Ints:
    """Return the positions at which a thread continues after another thread."""
    graph = layout.graph
    is_comm = (graph.gather("comm_type") != "none").to_numpy()
    found = []
    for number, trace in enumerate(graph.job.traces):
        deps = trace.deps.filter(
            pl.col("inferred") & pl.col("kind").is_in(["thread", "sync"])
        )  # fmt: skip
        src = operations_of_rows(graph, number, deps["src"].to_numpy())
        dst = operations_of_rows(graph, number, deps["dst"].to_numpy())
        at_end = (deps["kind"] == "sync").to_numpy()
        between = (src >= 0) & (dst >= 0)
        between &= ~layout.on_device[src] & ~layout.on_device[dst] & ~is_comm[src]
        vertex = 2 * dst[between] + at_end[between]
        found.append(layout.at[vertex])
    return np.concatenate([np.empty(0, dtype=np.int64), *found])


def tensor_pairs(graph: EventGraph) -> tuple[Ints, Ints, Ints]:
    """Return the tensor dependencies of all ranks.

    - Returns src, dst, kind: int64, shape (dependencies,): operations; position in
      ``schema.TENSOR_DEPS``. O(dependencies).
    """
    found: list[tuple[Ints, Ints, Ints]] = []
    for number, trace in enumerate(graph.job.traces):
        for code, name in enumerate(TENSOR_DEPS):
            deps = trace.deps.filter(pl.col("kind") == name)
            src = operations_of_rows(graph, number, deps["src"].to_numpy())
            dst = operations_of_rows(graph, number, deps["dst"].to_numpy())
            here = (src >= 0) & (dst >= 0)
            found.append((src[here], dst[here], np.full(int(here.sum()), code)))
    none = np.empty(0, dtype=np.int64)
    src, dst, kind = (np.concatenate([none, *column]) for column in zip(*found, strict=True))
    return src, dst, kind


def with_tensor_edges(graph: EventGraph) -> EventGraph:
    """Add edges for data dependencies that no thread or stream order ensures.

    Nothing changes in the replay: what held by chance now holds by an edge, and what began
    later than its data does so still, by a delay after it. A dependency that the replay
    contradicts already is left out. O(vertices + edges + dependencies).
    """
    layout = OperationLayout.of(graph)
    src, dst = _moments(layout)
    time = replay_graph(graph).time
    holds = time[src] <= time[dst]
    wanted = np.unique(src[holds] * graph.num_vertices + dst[holds])
    there = graph.edge_kind == EdgeKind.TENSOR
    known = graph.in_src[there].astype(np.int64) * graph.num_vertices + graph.destinations[there]
    src, dst = np.divmod(np.setdiff1d(wanted, known, assume_unique=True), graph.num_vertices)
    if not src.size:
        return graph
    new = make_edges(src, dst, 0, EdgeKind.TENSOR, dst // 2)
    # what was a delay after other edges is a delay after the latest of all
    explained = np.where(np.diff(graph.in_ptr) > 0, time - graph.delay, np.iinfo(np.int64).min)
    np.maximum.at(explained, dst, time[src])
    delay = graph.delay.copy()
    delay[dst] = time[dst] - explained[dst]
    return replace(graph, delay=delay).edited(np.ones(graph.num_edges, dtype=np.bool_), new)


def _moments(layout: OperationLayout) -> tuple[Ints, Ints]:
    """Return the ends that starts must wait for; vertices, int64, shape (pairs,).

    Data is there when the work on it is done: that which an operation launched, or else the
    operation itself. Device work waits for it on its stream; what runs on threads is asked for
    only then. Of work on one stream and from one thread the order is kept anyway.
    """
    src, dst, _ = tensor_pairs(layout.graph)
    works, thread, resource = layout.works, layout.thread, layout.resource
    last_of, last = outermost_works(layout, src, last=True)
    first_of, first = outermost_works(layout, dst, last=False)
    on_device = layout.on_device[works.op[first]]
    left = pl.DataFrame({"pair": last_of, "before": works.op[last]})
    right = pl.DataFrame({"pair": first_of[on_device], "after": works.op[first[on_device]]})
    both = left.join(right, on="pair", how="inner")
    before, after = both["before"].to_numpy(), both["after"].to_numpy()
    elsewhere = resource[before] != resource[after]
    alone = left.join(right, on="pair", how="anti")
    across = thread[src] != thread[dst]
    ends = [before[elsewhere], alone["before"].to_numpy(), src[across]]
    starts = [after[elsewhere], dst[alone["pair"].to_numpy()], dst[across]]
    return 2 * np.concatenate(ends) + 1, 2 * np.concatenate(starts)


def outermost_works(layout: OperationLayout, op: Ints, *, last: bool) -> tuple[Ints, Ints]:
    """Find the last, or first, work on each stream that each operation launched.

    - Returns which, work: int64: position in ``op``, and in ``layout.works``.
    """
    works = layout.works
    begin, end = works.of(layout.at[2 * op], layout.at[2 * op + 1])
    count = np.maximum(end - begin, 0)
    which = np.repeat(np.arange(op.size), count)
    work = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + begin[which]
    neighbor = _neighbors(layout, works, after=last)[work]
    kept: Bools = neighbor >= end[which] if last else neighbor < begin[which]
    return which[kept], work[kept]


def _neighbors(layout: OperationLayout, works: Works, *, after: bool) -> Ints:
    """Return the next or previous work of each on its stream or thread; int64, shape (works,).

    Where there is none, a number beyond all.
    """
    place = layout.resource[works.op]
    order = np.argsort(place, kind="stable")
    same = np.diff(place[order]) == 0
    found = np.full(works.op.size, works.op.size if after else -1, dtype=np.int64)
    if after:
        found[order[:-1][same]] = order[1:][same]
    else:
        found[order[1:][same]] = order[:-1][same]
    return found
