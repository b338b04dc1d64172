"""What the recording does not explain on a critical path, by cause, and what is only inferred.

How much of the measured time the event graph explains, and which delays it does not.

Times in which a thread runs no operation for long: it sleeps, or waits for something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.critical_paths import CriticalPath, long_gaps, time_of_communication, unknown_waits
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.overheads import is_inferred
from nadi.graph.replay import Replay, replay_graph
from nadi.trace.arrays import Bools, Ints, Ints32, Numbers
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import contentions

_LEAST_NS = 1_000_000  # Python between two operations takes less
_LOADER = r"MultiProcessingDataLoaderIter.*(?:__next__|_next_data|_get_data)"
WAITS_IN_PYTHON = (
    r"<(?:built-in )?(?:function|method) (?:sleep|select|poll|acquire|acquire_lock|wait|get|recv|"
    r"accept|control|join)\b|^nadi::wait |^wait in "
)
"""Calls of Python in which a thread does nothing; other functions compute."""


class ThreadWaits(NamedTuple):
    """Waits of threads; int64 arrays of shape (waits,).

    Attributes
    ----------
    edge
        The edge of the time between operations, or -1: then the wait is the delay of its end.
    vertex
        The moment at which it ends.
    around
        The operation, range or Python function in which the thread waits, or -1.
    next_op
        The operation that the thread begins next, or -1.
    time_ns
        How long it lasts as recorded, whatever changes of the graph have made of it.
    """

    edge: Ints
    vertex: Ints
    around: Ints
    next_op: Ints
    time_ns: Ints

    def chosen(self, which: Bools | Ints) -> ThreadWaits:
        """Return some of the waits."""
        return ThreadWaits(*(column[which] for column in self))


@checked
def thread_waits(graph: EventGraph) -> ThreadWaits:
    """Find the waits of all threads.

    A wait is time between operations, from what a thread does to what another one does after it,
    or a delay of a thread, of a millisecond or more: Python between two operations takes less.
    Where Python functions are recorded, only calls count that wait, such as ``sleep``, however
    short, and so does the time in ``DataLoader`` with worker processes. What a thread waits for on
    another recorded thread or rank is no wait here: the graph has it as a dependency.
    O(operations log operations).
    """
    found = _every_gap(graph)
    category = graph.gather("category", np.maximum(found.around, 0))
    framed = (category == "python").to_numpy() & (found.around >= 0)
    names = graph.named(WAITS_IN_PYTHON)
    stated = graph.named(_LOADER) | names
    is_stated = stated[found.around] & (found.around >= 0)
    is_long = ~framed & (found.time_ns >= _LEAST_NS)
    chosen = found.chosen(np.flatnonzero(is_stated | is_long))
    return chosen._replace(next_op=next_ops(graph, chosen.vertex))


def _every_gap(graph: EventGraph) -> ThreadWaits:
    """Return all times between operations or threads, and delays of threads that ran before."""
    into = graph.destinations
    own = 2 * graph.num_ops
    is_gap = (graph.edge_kind == EdgeKind.HOST_GAP) & (into < own)
    # where nothing else is waited for, all of the time is the thread's own
    is_only = np.diff(graph.in_ptr)[into] == 1
    lasts = np.where(is_only, graph.time[into] - graph.time[graph.in_src], graph.weight)
    gap = np.flatnonzero(is_gap & (lasts > 0))
    works = (graph.gather("is_cpu") & (graph.gather("comm_type") == "none")).to_numpy()
    entered = np.diff(graph.in_ptr)[:own] > 0
    late = np.flatnonzero(entered & (graph.delay[:own] > 0) & np.repeat(works, 2))
    op = late // 2
    around = np.where(late % 2 == 0, graph.op_parent[op], op)
    none = np.full(late.size, -1, dtype=np.int64)
    edges = (gap, into[gap], graph.edge_op[gap], np.full(gap.size, -1), lasts[gap])
    delays = (none, late, around, none, graph.delay[late])
    parts = zip(edges, _handed_over(graph, works), delays, strict=True)
    return ThreadWaits(*(np.concatenate(three) for three in parts))


def _handed_over(graph: EventGraph, works: Bools) -> tuple[Ints, ...]:
    """Return the times from a thread to what another one does after it: that one may sleep."""
    into = graph.destinations
    launched = np.append(works, False)[np.minimum(into // 2, graph.num_ops)]
    edge = np.flatnonzero((graph.edge_kind == EdgeKind.LAUNCH) & launched & (graph.weight > 0))
    op = into[edge] // 2
    none = np.full(edge.size, -1, dtype=np.int64)
    return edge, into[edge].astype(np.int64), graph.op_parent[op], none, graph.weight[edge]


# several analyses ask what comes next
_BY_THREAD: WeakKeyDictionary[EventGraph, tuple[Ints32, Ints, Ints32]] = WeakKeyDictionary()


def next_ops(graph: EventGraph, vertices: Ints) -> Ints:
    """Return the operation that the thread of each vertex begins then or next, or -1; int64.

    O(operations log operations).
    """
    if graph not in _BY_THREAD:
        _BY_THREAD[graph] = _by_thread(graph)
    order, key, code = _BY_THREAD[graph]
    found = vertices // 2
    ends = np.flatnonzero(vertices % 2 == 1)
    op = vertices[ends] // 2
    thread = code[op].astype(np.int64)
    at = np.searchsorted(key, thread * _graph_span(graph) + graph.time[vertices[ends]])
    later = np.append(order, -1)[at]
    same = (later >= 0) & (code[later] == code[op])
    found[ends] = np.where(same, later, -1)
    return found


def _by_thread(graph: EventGraph) -> tuple[Ints32, Ints, Ints32]:
    """Return operations of threads in order, thread and start of each as one number, and threads.

    Shapes (operations of threads,) twice, and (ops,).
    """
    thread = graph.numbers("thread")
    start = graph.time[0 : 2 * graph.num_ops : 2]
    on_host = np.flatnonzero(graph.gather("is_cpu").to_numpy())
    place = graph.op_trace * (int(thread.max(initial=0)) + 2) + thread
    order = on_host[np.lexsort((start[on_host], place[on_host]))]
    _, code = np.unique(place, return_inverse=True)
    key = code[order] * _graph_span(graph) + np.maximum(start[order], 0)
    return order.astype(np.int32), key, code.astype(np.int32)


def _graph_span(graph: EventGraph) -> int:
    return int(graph.time.max(initial=0)) + 1


MOST_OF_STEPS = 0.5
"""Where other threads have the processors for more of the steps, they bound them."""
CAUSES = (
    "device busy with work begun before the recording",
    "thread not scheduled",
    "wait for unknown work",
    "recording of a rank begins later",
    "unknown",
)
_BEFORE, _NOT_SCHEDULED, _UNKNOWN_WAIT, _BEGINS_LATER, _UNKNOWN = range(5)


class LongGaps(NamedTuple):
    """Long gaps of threads on a path before operations of one name.

    ``time_ns`` is the time of all, ``times`` how many there are, and ``until_ns`` the end of the
    longest, since the job's origin.
    """

    before: str
    time_ns: int
    times: int
    until_ns: int


@dataclass(frozen=True)
class UnexplainedPath:
    """The part of a critical path that the recording does not explain; ns.

    Attributes
    ----------
    length_ns
        The length of the path.
    by_cause
        For each of ``CAUSES``, the time without an explanation: delays, long gaps on the host in
        which no Python function is recorded, and calls that wait for work that is not known.
    inferred_ns
        The time that nothing but inferred dependencies explains: if they are wrong, the path is.
    gaps
        The long gaps, by the operation that the thread begins next; most time first.
    """

    length_ns: int
    by_cause: dict[str, int]
    inferred_ns: int
    gaps: tuple[LongGaps, ...]

    @property
    def total_ns(self) -> int:
        """The unexplained time of all causes."""
        return sum(self.by_cause.values())

    @property
    def explained_ns(self) -> int:
        """The rest of the path."""
        return self.length_ns - self.total_ns


@checked
def unexplained_path(replay: Replay, path: CriticalPath) -> UnexplainedPath:
    """Divide the unexplained time of a critical path by cause. O(path + deps)."""
    graph, time, vertices = replay.graph, replay.time, path.vertices
    begin = int(path.segments["start"].min() or 0) if path.segments.height else 0  # type: ignore[arg-type]
    edge = replay.bound_by[vertices]
    late = np.minimum(graph.delay[vertices], np.maximum(time[vertices] - begin, 0))
    known = edge >= 0
    talks, with_delay = (np.zeros(edge.size, dtype=np.bool_) for _ in range(2))
    talks[known], with_delay[known] = time_of_communication(graph, edge[known])
    some = (late > 0) & ~with_delay
    sums = np.zeros(len(CAUSES), dtype=np.int64)
    causes = _causes(graph, vertices[some])
    np.add.at(sums, causes, late[some])
    on_host = causes == _UNKNOWN
    on_host[on_host] = ~_on_device(graph, vertices[some][on_host])
    unknown = int(late[some][on_host].sum())
    vertices, edge, late, talks = vertices[known], edge[known], late[known], talks[known]
    own = np.minimum(graph.weight[edge], np.maximum(time[vertices] - late - begin, 0))
    own[talks] = 0
    gap = long_gaps(graph, edge)
    sums[_UNKNOWN] += own[gap].sum()
    unknown += int(own[gap].sum())
    if unknown <= _not_run_ns(graph):
        sums[[_UNKNOWN, _NOT_SCHEDULED]] += (-unknown, unknown)
    sums[_UNKNOWN_WAIT] += own[unknown_waits(graph, edge, vertices)].sum()
    by_cause = dict(zip(CAUSES, sums.tolist(), strict=True))
    inferred = _inferred(replay, vertices, edge, begin)
    gaps = _by_next(graph, vertices[gap], own[gap])
    return UnexplainedPath(path.length, by_cause, inferred, gaps)


def _not_run_ns(graph: EventGraph) -> int:
    """Return for how long threads were ready while others ran, where they were for most of a step.

    As the recorder of each rank counted it; of the rank with the least, as a path is of any.
    """
    if least_contention(graph) <= MOST_OF_STEPS:
        return 0
    lengths = [trace.step_lengths for trace in graph.job.traces]
    return min(sum(one.ready_ns) for one in lengths if one is not None)


def least_contention(graph: EventGraph) -> float:
    """Return for how much of its steps a rank was ready while others ran, of that with the least.

    As recorders counted it; 0 if one says nothing.
    """
    return min(contentions(graph.job.traces))


def _on_device(graph: EventGraph, vertices: Ints) -> Bools:
    """Return which vertices are of operations on devices."""
    is_op = vertices < 2 * graph.num_ops
    op = np.where(is_op, vertices // 2, 0)
    on_device: Bools = is_op & graph.gather("category", op).is_in(DEVICE_WORK).to_numpy()
    return on_device


def _by_next(graph: EventGraph, vertices: Ints, time: Ints) -> tuple[LongGaps, ...]:
    """Sum up gaps, which end at vertices, by the operation that follows; steps have one name."""
    op = next_ops(graph, vertices)
    table = pl.DataFrame({
        "before": graph.names(np.maximum(op, 0), op < 0).str.replace(r"^(ProfilerStep)#\d+$", "$1"),
        "time": time, "until": graph.time[vertices],
    })  # fmt: skip
    sums = table.group_by("before").agg(
        pl.sum("time"), pl.len(), pl.col("until").sort_by("time").last()
    )
    return tuple(map(LongGaps._make, sums.sort("time", "before", descending=[True, False]).rows()))


def _causes(graph: EventGraph, vertices: Ints) -> Ints:
    """Return the cause of the delay of each vertex; positions in ``CAUSES``."""
    is_op = vertices < 2 * graph.num_ops
    op = np.where(is_op, vertices // 2, 0)
    on_device = _on_device(graph, vertices)
    first = _first_ends(graph) if on_device.any() else np.zeros(graph.num_ops, dtype=np.int64)
    waits = np.diff(graph.in_ptr)[vertices] > 0
    idle_since = graph.time[vertices] - graph.delay[vertices]
    nothing_ended = idle_since < first[op]
    begins = graph.time[vertices] == _begins(graph)[graph.op_trace[op]]
    return np.select(
        [on_device & nothing_ended, is_op & ~on_device & waits, is_op & begins],
        [_BEFORE, _NOT_SCHEDULED, _BEGINS_LATER], _UNKNOWN,
    )  # fmt: skip


def _begins(graph: EventGraph) -> Ints:
    """Return when the first operation of each rank starts; int64 ns, (ranks,)."""
    begins = np.full(len(graph.job.traces), np.iinfo(np.int64).max)
    np.minimum.at(begins, graph.op_trace, graph.time[0 : 2 * graph.num_ops : 2])
    return begins


def _first_ends(graph: EventGraph) -> Ints:
    """Return when the first recorded work of each operation's stream ended; int64 ns, (ops,)."""
    work = np.flatnonzero(graph.gather("category").is_in(DEVICE_WORK).to_numpy())
    ends = pl.DataFrame({
        "trace": graph.op_trace[work], "device": graph.numbers("device", work),
        "stream": graph.op_stream[work], "end": graph.time[2 * work + 1],
    }).with_columns(pl.col("end").min().over("trace", "device", "stream"))  # fmt: skip
    first = np.full(graph.num_ops, -1, dtype=np.int64)
    first[work] = ends["end"].to_numpy()
    return first


def _inferred(replay: Replay, vertices: Ints, edge: Numbers, begin: int) -> int:
    """Sum the time between vertices with an inferred edge and what else they waited for."""
    graph, time = replay.graph, replay.time
    chosen = vertices[is_inferred(graph, edge)]
    chosen = chosen[time[chosen] > begin]
    which, incoming = graph.incoming(chosen)
    stated = ~is_inferred(graph, incoming)
    since = np.full(chosen.size, begin, dtype=np.int64)
    np.maximum.at(since, which[stated], time[graph.in_src[incoming[stated]]])
    # intervals may overlap: each moment counts once
    order = np.argsort(since, kind="stable")
    since, until = since[order], time[chosen][order]
    reached = np.maximum.accumulate(np.append(begin, until))[:-1]
    return int(np.maximum(until - np.maximum(since, reached), 0).sum())


LATE_NS = 10_000
"""Device work that starts later than this after its last dependency counts as late."""


@dataclass(frozen=True, eq=False)
class Explained:
    """The job replayed without the delays that no dependency explains.

    Attributes
    ----------
    graph
        The job.
    ranks
        rank; measured and explained, ns: from the first start to the last end on each
        rank, as measured and without those delays.
    measured_ns, explained_ns
        The same over all ranks.
    num_device_operations
        Number of operations on devices.
    num_late
        Number of these that start more than ``LATE_NS`` after their last known dependency.
        Work whose launch is not in the trace is not among them.
    vertices
        int64: the vertices with an unexplained delay, the longest first.
    """

    graph: EventGraph
    ranks: pl.DataFrame
    measured_ns: int
    explained_ns: int
    num_device_operations: int
    num_late: int
    vertices: Ints

    def __repr__(self) -> str:
        return f"<Explained {self.explained_ns} of {self.measured_ns} ns>"

    @property
    def error(self) -> float:
        """Relative error: explained minus measured time, divided by the measured time."""
        return (self.explained_ns - self.measured_ns) / max(self.measured_ns, 1)

    def largest(self, count: int = 5) -> pl.DataFrame:
        """Return the longest unexplained delays: rank, node (row), name, moment, time and delay.

        Times are in ns, since the job's origin. ``moment`` says whether the start or the
        end of the operation came late. A moment of several ranks has no rank, node and name.
        """
        graph, vertices = self.graph, self.vertices[:count]
        is_op = vertices < 2 * graph.num_ops
        op = np.where(is_op, vertices // 2, 0)
        ranks = np.array([trace.rank for trace in graph.job.traces], dtype=np.int64)
        return pl.DataFrame({
            "rank": np.where(is_op, ranks[graph.op_trace[op]], -1),
            "node": np.where(is_op, graph.op_row[op], -1),
            "name": graph.names(op, ~is_op),
            "moment": np.where(vertices % 2 == 1, "end", "start").tolist(),
            "time": graph.time[vertices],
            "delay": graph.delay[vertices],
        }, schema_overrides={"name": pl.String, "moment": pl.String})  # fmt: skip


@checked
def explain_time(graph: EventGraph, since: int = 0) -> Explained:
    """Replay a job without the delays that no dependency explains. O(vertices + edges).

    Durations, the time of threads between operations and typical overheads stay. What
    comes from outside of the recording stays too: the first operation of each thread, and
    device work launched before the recording began.

    Parameters
    ----------
    since
        Delays before this time stay, and spans begin with it; ns since the job's origin.
    """
    is_work = _starts_of_device_work(graph)
    taken = (graph.delay > 0) & ~_roots(graph, is_work) & (graph.time >= since)
    replayed = replay_graph(replace(graph, delay=np.where(taken, 0, graph.delay))).time
    ends = [
        (
            trace.rank,
            *(_span(time, graph.ops_of_trace(t), since) for time in (graph.time, replayed)),
        )
        for t, trace in enumerate(graph.job.traces)
    ]
    vertices = np.flatnonzero(taken)
    every = slice(0, graph.num_ops)
    return Explained(
        graph=graph,
        ranks=pl.DataFrame(
            ends, schema=dict.fromkeys(("rank", "measured", "explained"), pl.Int64), orient="row"
        ),
        measured_ns=_span(graph.time, every, since),
        explained_ns=_span(replayed, every, since),
        num_device_operations=int(is_work.sum()),
        num_late=int((is_work & taken & (graph.delay > LATE_NS)).sum()),
        vertices=vertices[np.argsort(-graph.delay[vertices], kind="stable")],
    )


def _span(time: Ints, ops: slice, since: int) -> int:
    """Measure from the first start of operations, or from ``since``, to their last end."""
    if ops.start == ops.stop:
        return 0
    ends = time[2 * ops.start : 2 * ops.stop]
    return int(ends[1::2].max() - max(ends[0::2].min(), since))


def _starts_of_device_work(graph: EventGraph) -> Bools:
    starts = np.zeros(graph.num_vertices, dtype=np.bool_)
    starts[0 : 2 * graph.num_ops : 2] = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    return starts


def _roots(graph: EventGraph, is_work: Bools) -> Bools:
    """Return which vertices wait for something that was not recorded."""
    launched = np.zeros(graph.num_vertices, dtype=np.bool_)
    destination = np.repeat(np.arange(graph.num_vertices), np.diff(graph.in_ptr))
    launched[destination[graph.edge_kind == EdgeKind.LAUNCH]] = True
    rooted: Bools = (np.diff(graph.in_ptr) == 0) | (is_work & ~launched)
    return rooted
