"""A change that moves device work to another stream."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.graph.edges.job_graph import ends_after
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.recordings.dependencies.tensor_dependencies import tensor_deps
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest
from nadi.trace.schema import TENSOR_DEPS
from nadi.whatif.changes import is_on_device, join
from nadi.whatif.selection import Selection, select


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
        waits = join(_waits_of_both(graph, old, moved), _data_edges(graph, moved))
        waits = Edges(*(column[graph.time[waits.dst] >= since] for column in waits))
        edges = join(join(kept, placed), waits)
        return replace(graph, op_stream=stream).rewired(edges, since)


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


def _stream_edges(graph: EventGraph, old: _Order, new: _Order) -> tuple[Edges, Edges]:
    """Keep edges between unchanged neighbors; new neighbors get the usual gap."""
    edges = graph.edges
    of_stream = edges.kind == EdgeKind.STREAM
    usual = int(np.median(edges.weight[of_stream])) if of_stream.any() else 0
    op = np.minimum(edges.dst // 2, graph.num_ops - 1)
    gone = (of_stream | ends_after(graph)) & (old.before[op] != new.before[op])
    kept = Edges(*(column[~gone] for column in edges))
    placed = np.flatnonzero((new.before >= 0) & (old.before != new.before))
    return kept, make_edges(2 * new.before[placed] + 1, 2 * placed, usual, EdgeKind.STREAM, placed)


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
    return join(out, into)


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
