"""A change that moves device work to another stream.

Changes that reduce launches: fused kernels, and ranges launched as one CUDA graph.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.graph.edges.job_graph import ends_after, starts_in_call
from nadi.graph.event_graph import (
    NO_EDGES,
    EdgeKind,
    Edges,
    EventGraph,
    join_edges,
    make_edges,
)
from nadi.recordings.dependencies.tensor_dependencies import tensor_deps
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest
from nadi.trace.schema import TENSOR_DEPS
from nadi.units import format_count
from nadi.whatif.changes import (
    calls_without_work,
    into_ops,
    is_on_device,
    of_ops,
    waits_of_calls,
)
from nadi.whatif.selection import Selection, launchers, outermost, select


@dataclass(frozen=True)
class Fuse:
    """Fuse selected kernels that follow each other on a stream.

    Each run of kernels keeps its first launch and has no gaps between kernels; kernel times
    stay. A run ends where another operation waits for its last kernel, or its next kernel
    waits for another operation.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"fuse {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If no two of the selected operations are neighbors on a stream without a wait
            between them.
        """
        chosen = select(graph, self.selection) & is_on_device(graph)
        edges = graph.edges
        of_stream = np.flatnonzero(edges.kind == EdgeKind.STREAM)
        before, after = edges.src[of_stream] // 2, edges.dst[of_stream] // 2
        waited_for, waits = np.zeros((2, graph.num_vertices), dtype=np.bool_)
        others = np.isin(edges.kind, (EdgeKind.SYNC, EdgeKind.THREAD, EdgeKind.ADDED))
        waited_for[edges.src[others]] = True
        waits[edges.dst[others]] = True
        fused = chosen[before] & chosen[after]
        fused &= ~waited_for[2 * before + 1] & ~waits[2 * after]
        if not fused.any():
            raise UsageError(
                str(self),
                "no two of these operations are neighbors on a stream without a wait between "
                "them", "select neighboring kernels",
            )  # fmt: skip
        fused &= (graph.time[2 * before] >= since) & (graph.time[2 * after] >= since)
        follows = np.zeros(graph.num_ops, dtype=np.bool_)
        follows[after[fused]] = True
        launches = (edges.kind == EdgeKind.LAUNCH) & into_ops(edges, follows)
        weight = edges.weight.copy()
        weight[of_stream[fused]] = 0
        delay = graph.delay.copy()
        delay[2 * after[fused]] = 0
        calls = calls_without_work(graph, follows, since)
        weight[of_ops(edges, calls)] = 0
        kept = ~(launches | waits_of_calls(edges, calls))
        return graph.rewired(kept, NO_EDGES, since, weight=weight, delay=delay)


@dataclass(frozen=True)
class Graphed:
    """Launch all device work of each selected range with one call, as a CUDA graph does.

    The first launching call of a range stays and launches all that the range's thread
    launched; the rest of the range takes its thread no time. What other threads do for it,
    and its communication on threads, stays.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"cuda-graph {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If a range launches nothing, or waits for a device, which cannot be captured.
        """
        on_device = is_on_device(graph)
        chosen = select(graph, self.selection) & ~on_device
        range_of = outermost(graph, chosen)
        call = launchers(graph)
        work = np.flatnonzero(on_device & (call >= 0) & (range_of[call] >= 0))
        if not work.size:
            raise UsageError(
                str(self),
                "these operations launch no device work",
                "select a range that launches kernels",
            )
        begins = graph.time[2 * range_of[call[work]]]
        work = work[begins >= since]
        inside = (range_of >= 0) & (graph.time[2 * range_of] >= since)
        self._refuse_waits(graph, inside)
        owner = range_of[call[work]]
        first_of = np.full(graph.num_ops, graph.num_ops)
        np.minimum.at(first_of, owner, call[work])  # operations of a thread are in order of start
        kept_call = np.zeros(graph.num_ops, dtype=np.bool_)
        kept_call[first_of[owner]] = True
        launches_any = np.zeros(graph.num_ops, dtype=np.bool_)
        launches_any[owner] = True
        saved = inside & launches_any[range_of] & ~kept_call
        return _captured(graph, work, first_of[owner], saved, since)

    def _refuse_waits(self, graph: EventGraph, inside: Bools) -> None:
        """Raise UsageError if a call inside the range waits for device work."""
        edges = graph.edges
        waits = np.flatnonzero((edges.kind == EdgeKind.SYNC) & (edges.dst % 2 == 1))
        source, call = edges.src[waits] // 2, edges.dst[waits] // 2
        launched_by = launchers(graph)
        launches = np.zeros(graph.num_ops, dtype=np.bool_)
        launches[launched_by[launched_by >= 0]] = True
        for_room = launches[call] & (launched_by[source] != call)
        waiting = np.unique(call[inside[call] & is_on_device(graph)[source] & ~for_room])
        if waiting.size:
            name = graph.names(waiting[:1])[0]
            raise UsageError(
                str(self),
                f"{format_count(waiting.size)} calls in it wait for the device, such as {name}",
                "a CUDA graph cannot contain them: select a range without them",
            )


@dataclass(frozen=True)
class MoveToStream:
    """Move device work to another stream of its device.

    The work follows what was launched before it on the new stream, and no longer waits for its
    old stream. Waits for the old stream become waits for both parts, and both parts keep the
    waits of the old stream. Where operands are recorded, work also waits
    for the work whose data it uses; where they are not, nothing says what else the order of
    the old stream kept apart.
    """

    selection: Selection
    stream: int

    def __str__(self) -> str:
        return f"move {self.selection} to {self.stream}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If none of the operations runs on a device.
        """
        on_device = is_on_device(graph)
        old_stream = graph.op_stream
        moved = select(graph, self.selection) & on_device
        if not moved.any():
            raise UsageError(
                str(self), "none of these operations runs on a device", "choose device work"
            )
        moved &= old_stream != self.stream
        moved &= graph.time[0 : 2 * graph.num_ops : 2] >= since
        stream = np.where(moved, self.stream, old_stream)
        work, launched = np.flatnonzero(on_device), _launched(graph)
        launched[graph.time[0 : 2 * graph.num_ops : 2] < since] = -1  # nothing comes before these
        old = _order(graph, work, old_stream, launched)
        new = _order(graph, work, stream, launched)
        kept, placed = _stream_edges(graph, old, new)
        waits = join_edges([_waits_of_both(graph, old, moved), _data_edges(graph, moved)])
        waits = Edges(*(column[graph.time[waits.dst] >= since] for column in waits))
        return replace(graph, op_stream=stream).rewired(kept, join_edges([placed, waits]), since)


@dataclass(frozen=True)
class _Order:
    """Device work by stream, in execution order."""

    ops: Ints  # int64, shape (work,)
    # place, first: int64, shape (ops,): the place of each operation in ``ops``, and of the first of
    # its stream; -1 of operations on threads
    place: Ints
    first: Ints
    before: Ints  # int64, shape (ops,): the operation before it on its stream, or -1


def _launched(graph: EventGraph) -> Ints:
    """Return when each operation was enqueued on its recorded stream; ns, shape (ops,).

    A stream runs its work in the order of launches: so no work counts as launched before
    what ran before it.
    """
    recorded = graph.gather("stream").to_numpy()
    call = graph.recorded_launchers
    begun = graph.time[0 : 2 * graph.num_ops : 2]
    launched = np.where(call >= 0, begun[call], begun)
    work = np.flatnonzero(is_on_device(graph))
    order = _order(graph, work, recorded, begun)
    bounds = np.flatnonzero(order.before[order.ops] < 0)
    for ops in np.split(order.ops, bounds[1:]):
        launched[ops] = np.maximum.accumulate(launched[ops])
    return launched


def _order(graph: EventGraph, work: Ints, stream: Ints, moment: Ints) -> _Order:
    """Sort work by rank, device, stream and moment, then by recorded order."""
    device = graph.gather("device").to_numpy()
    keys = (stream[work], device[work], graph.op_trace[work])
    order = np.lexsort((work, moment[work], *keys))
    ops = work[order]
    is_first = np.ones(ops.size, dtype=np.bool_)
    is_first[1:] = np.logical_or.reduce([np.diff(key[order]) != 0 for key in keys])
    place, first, before = np.full((3, graph.num_ops), -1, dtype=np.int64)
    place[ops] = np.arange(ops.size)
    first[ops] = np.maximum.accumulate(np.where(is_first, np.arange(ops.size), 0))
    follows = np.flatnonzero(~is_first)
    before[ops[follows]] = ops[follows - 1]
    return _Order(ops, place, first, before)


def _stream_edges(graph: EventGraph, old: _Order, new: _Order) -> tuple[Bools, Edges]:
    """Keep edges between unchanged neighbors; new neighbors get the usual gap.

    - Returns bool, shape (edges,), and Edges: Which edges stay, and those between new neighbors.
    """
    edges = graph.edges
    of_stream = edges.kind == EdgeKind.STREAM
    usual = int(np.median(edges.weight[of_stream])) if of_stream.any() else 0
    op = np.minimum(edges.dst // 2, graph.num_ops - 1)
    gone = (of_stream | ends_after(graph)) & (old.before[op] != new.before[op])
    placed = np.flatnonzero((new.before >= 0) & (old.before != new.before))
    return ~gone, make_edges(2 * new.before[placed] + 1, 2 * placed, usual, EdgeKind.STREAM, placed)


def _waits_of_both(graph: EventGraph, old: _Order, moved: Bools) -> Edges:
    """Make waits for a divided stream wait for both parts, and both parts keep its waits.

    A call that waits for the work that it launched waits for no stream.
    """
    edges, num_ops = graph.edges, moved.size
    to = np.minimum(edges.dst // 2, num_ops - 1)
    of = np.minimum(edges.src // 2, num_ops - 1)
    waits = edges.kind == EdgeKind.SYNC
    of_stream = waits & (edges.src % 2 == 1) & (graph.recorded_launchers[of] != to)
    on_end = np.flatnonzero(of_stream & (old.place[of] >= 0))
    last = _last_of_other(old, moved)[of[on_end]]
    here = on_end[last >= 0]
    out = Edges(*(column[here] for column in edges))._replace(src=2 * last[last >= 0] + 1)
    on_start = np.flatnonzero(waits & (edges.dst % 2 == 0) & (old.place[to] >= 0))
    following = _next_of_other(old, moved)[to[on_start]]
    here = on_start[following >= 0]
    into = Edges(*(column[here] for column in edges))._replace(
        dst=2 * following[following >= 0], op=following[following >= 0]
    )
    return join_edges([out, into])


def _last_of_other(old: _Order, moved: Bools) -> Ints:
    """Return the last work before it on its stream that was moved if it was not, or -1."""
    is_moved, places = moved[old.ops], np.arange(old.ops.size)
    last = [np.maximum.accumulate(np.where(is_moved == one, places, -1)) for one in (False, True)]
    at = np.where(is_moved, *last)
    found = np.full(moved.size, -1, dtype=np.int64)
    there = at >= old.first[old.ops]
    found[old.ops[there]] = old.ops[at[there]]
    return found


def _next_of_other(old: _Order, moved: Bools) -> Ints:
    """Return the next work after it on its stream that was moved if it was not, or -1."""
    is_moved, places = moved[old.ops], np.arange(old.ops.size)
    far = old.ops.size
    following = [
        np.minimum.accumulate(np.where(is_moved == one, places, far)[::-1])[::-1]
        for one in (False, True)
    ]
    at = np.where(is_moved, *following)
    found = np.full(moved.size, -1, dtype=np.int64)
    there = np.flatnonzero(at < far)
    there = there[old.first[old.ops[at[there]]] == old.first[old.ops[there]]]
    found[old.ops[there]] = old.ops[at[there]]
    return found


def _data_edges(graph: EventGraph, moved: Bools) -> Edges:
    """Add data dependencies between works of which one was moved."""
    src, dst = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    operator = _operators(graph)
    for number, trace in enumerate(graph.job.traces):
        work = np.flatnonzero((graph.op_trace == number) & (operator >= 0))
        if not moved[work].any():
            continue
        deps = trace.deps.filter(trace.deps["kind"].is_in(TENSOR_DEPS))
        deps = (
            (deps if deps.height else tensor_deps(trace))
            .select("src", "dst")
            .unique(maintain_order=True)
        )
        of_row = pl.DataFrame({
            "row": graph.op_row[operator[work]], "op": work, "moved": moved[work],
        })  # fmt: skip
        pairs = (
            deps.join(of_row, left_on="src", right_on="row")
            .join(of_row, left_on="dst", right_on="row", suffix="_after")
            .filter(pl.col("moved") != pl.col("moved_after"))
        )
        src.append(pairs["op"].to_numpy())
        dst.append(pairs["op_after"].to_numpy())
    before, after = np.concatenate(src), np.concatenate(dst)
    return make_edges(2 * before + 1, 2 * after, 0, EdgeKind.SYNC, after)


def _operators(graph: EventGraph) -> Ints:
    """Return the innermost operator that launched device work, or -1; shape (ops,)."""
    is_operator = (graph.gather("category") == "operator").to_numpy()
    found = nearest(graph.recorded_launchers, graph.op_parent, is_operator)
    found[~is_on_device(graph)] = -1
    return found


def _captured(graph: EventGraph, work: Ints, call: Ints, saved: Bools, since: int) -> EventGraph:
    """Launch ``work`` by ``call``, and remove the time of ``saved``."""
    edges = graph.edges
    call_of = np.full(graph.num_ops + 1, -1)
    call_of[work] = call
    new_call = call_of[np.minimum(edges.dst // 2, graph.num_ops)]
    relaunched = (edges.kind == EdgeKind.LAUNCH) & (new_call >= 0) & (edges.src // 2 != new_call)
    latency = np.zeros(graph.num_ops, dtype=np.int64)
    # the time until work starts within its call goes with the call
    late = relaunched & ~starts_in_call(graph)
    np.maximum.at(latency, edges.dst[late] // 2, edges.weight[late])
    work = np.unique(edges.dst[relaunched] // 2)
    on_thread = np.isin(edges.kind, (EdgeKind.HOST_OP, EdgeKind.HOST_GAP))
    weight = np.where(on_thread & of_ops(edges, saved), 0, edges.weight)
    # nor do calls that are gone wait for room in a queue
    kept = ~(relaunched | waits_of_calls(edges, saved))
    launches = make_edges(2 * call_of[work] + 1, 2 * work, latency[work], EdgeKind.LAUNCH, work)
    delay = graph.delay.copy()
    delay[2 * work] = 0
    return graph.rewired(kept, launches, since, weight=weight, delay=delay)
