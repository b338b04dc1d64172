"""What each rank, thread and stream does in a window: compute, communicate, wait, or nothing.

When the threads of a rank without a device compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.event_graph import EventGraph
from nadi.graph.stragglers import find_participants
from nadi.graph.windows import Window
from nadi.kernels.sequences import union_lengths
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import COMMUNICATION_KINDS, DEVICE_WORK
from nadi.trace.trace import Trace


def host_computation(trace: Trace, communicates: Bools) -> tuple[Ints, Ints]:
    """Find the intervals in which an operator is the innermost on its thread.

    What communicates does not compute, nor does an operator in which its thread waits for
    communication of another thread.

    - ``communicates``: bool, shape (nodes,): communication, what asks for it or waits for it, and
      all in these.
    - Returns begin, end: int64, shape (intervals,): borders, ``2 * row`` for the start of a node
      and ``2 * row + 1`` for its end. O(nodes log nodes).
    """
    nesting = nest(trace, left_out=~trace.category_mask("operator"))
    border = 2 * nesting.rows[nesting.boundary // 2] + nesting.boundary % 2
    at = np.flatnonzero(nesting.owner >= 0)
    own = ~communicates[nesting.rows[nesting.owner[at]]]
    at = at[own & ~np.isin(border[at], _ends_of_waits(trace))]
    return border[at - 1], border[at]


def _ends_of_waits(trace: Trace) -> Ints:
    """Return the borders at which a thread has waited for communication of another thread."""
    waits = trace.deps.filter(pl.col("inferred") & pl.col("kind").is_in(["sync", "thread"]))
    awaited, row = waits["src"].to_numpy(), waits["dst"].to_numpy()
    on_host = (trace.nodes["is_cpu"] & trace.nodes["kind"].is_in(COMMUNICATION_KINDS)).to_numpy()
    at_end = (waits["kind"] == "sync").to_numpy()
    found: Ints = (2 * row + at_end)[on_host[awaited]]
    return found


_NOT_WORK = ("annotation", "python", "metadata")
_Spans = tuple[Ints, Ints, Ints]  # start, end, and the rank's position in the job


@dataclass(frozen=True)
class RankCommunication:
    """Communication time of a rank in ns, and the part of it that no computation overlaps."""

    rank: int
    communication: int
    exposed: int


class _Operations(NamedTuple):
    """The operations of a job, cut to a window: times in ns, and what they are; shape (ops,)."""

    start: Ints
    end: Ints
    called: Ints  # when a thread was asked for the communication; the start for others
    entered: Ints  # when the straggler has entered the collective; the start for others
    on_device: Bools
    communicates: Bools
    asks: Bools  # for communication, or waits for it: on threads
    copies: Bools
    kernels: Bools  # except for communication
    is_work: Bools


class _Activity(NamedTuple):
    """What a rank does; ns. The five parts add up to the length; ``communication`` is all of it."""

    rank: int
    computing: int
    transferring: int
    waiting: int
    copying: int
    idle: int
    has_device: bool
    communication: int


# the same part of a graph is asked for by several analyses
_KEPT: WeakKeyDictionary[EventGraph, tuple[int, int, list[_Activity]]] = WeakKeyDictionary()


def rank_activity(graph: EventGraph, window: Window) -> pl.DataFrame:
    """Divide the window of each rank by what it does; times are int64 ns. O(ops log ops).

    Of several activities at the same time the first counts: computation (kernels, or the self time
    of operators on a rank without a device), transfer in collectives and messages, wait time in
    them for the straggler, copies and memory sets. The rest is idle. On a rank without a device,
    communication begins with its call.

    - Returns: A row per rank: rank, computing, transferring, waiting, copying, idle, whose sum is
      the length of the window; has_device.
    """
    rows = _activities(graph, window.start(graph.time), window.end(graph.time))
    return pl.DataFrame(rows, schema=_Activity._fields, orient="row").drop("communication")


@checked
def communication_by_rank(graph: EventGraph, start: int, end: int) -> list[RankCommunication]:
    """Compute the communication time of each rank in ``[start, end)``, ns since the job's origin.

    What is exposed is what :func:`rank_activity` calls transferring and waiting. O(ops log ops).
    """
    return [
        RankCommunication(one.rank, one.communication, one.transferring + one.waiting)
        for one in _activities(graph, start, end)
    ]


def _activities(graph: EventGraph, begin: int, end: int) -> list[_Activity]:
    if graph not in _KEPT or _KEPT[graph][:2] != (begin, end):
        _KEPT[graph] = begin, end, _found_activities(graph, begin, end)
    return _KEPT[graph][2]


def _found_activities(graph: EventGraph, begin: int, end: int) -> list[_Activity]:
    ops, rank, count = _operations(graph, begin, end), graph.op_trace, len(graph.job.ranks)
    has_device = np.bincount(rank[ops.on_device], minlength=count) > 0
    without = ~has_device[rank]
    called = np.where(without, ops.called, ops.start)
    comm = ops.communicates
    computing = [_spans(ops.start, ops.end, rank, ops.kernels)]
    computing += [_host_spans(graph, place, ops) for place in np.flatnonzero(~has_device).tolist()]
    talking = _spans(called, ops.end, rank, comm | (ops.asks & without))
    busy = np.zeros((5, count), dtype=np.int64)
    spans: list[_Spans] = []
    for number, more in enumerate((
        computing,
        [_spans(np.maximum(called, ops.entered), ops.end, rank, comm)],
        [talking],
        [_spans(ops.start, ops.end, rank, ops.copies)],
    )):  # fmt: skip
        spans += more
        start, stop, of = map(np.concatenate, zip(*spans, strict=True))
        busy[number + 1] = union_lengths(start, stop, of, count)
    parts = np.diff(np.append(busy, np.full((1, count), end - begin), axis=0), axis=0)
    communication = union_lengths(*talking, count)
    return [
        _Activity(*row)
        for row in zip(graph.job.ranks, *parts.tolist(), has_device.tolist(),
                       communication.tolist(), strict=True)
    ]  # fmt: skip


def stream_activity(graph: EventGraph, window: Window) -> pl.DataFrame:
    """Sum what runs on each thread and stream in a window; times are int64 ns. O(ops log ops).

    Annotations and Python functions do not count as work.

    - Returns: A row per thread and stream with work: rank, resource (such as ``device 0 stream
      7``), is_host, operations (that overlap the window), busy (time in which any of them runs),
      communicating (the same of communication) and idle.
    """
    begin, end = window.start(graph.time), window.end(graph.time)
    ops = _operations(graph, begin, end)
    places = pl.DataFrame({
        "rank": np.array(graph.job.ranks, dtype=np.int64)[graph.op_trace],
        "is_host": ~ops.on_device,
        "device": np.where(ops.on_device, graph.numbers("device"), -1),
        "lane": np.where(ops.on_device, graph.op_stream, graph.numbers("thread")),
    }).with_row_index("op")  # fmt: skip
    keys = ("rank", "is_host", "device", "lane")
    groups = (
        places.filter(pl.Series(ops.is_work & (ops.end > ops.start)))
        .group_by(keys, maintain_order=True)
        .agg("op", operations=pl.len().cast(pl.Int64))
    )
    op, lane = groups["op"].explode().to_numpy(), np.arange(groups.height)
    lane = np.repeat(lane, groups["operations"].to_numpy())
    comm = ops.communicates[op]
    busy = union_lengths(ops.start[op], ops.end[op], lane, groups.height)
    op, lane = op[comm], lane[comm]
    communicating = union_lengths(ops.start[op], ops.end[op], lane, groups.height)
    stream = pl.format("device {} stream {}", "device", "lane")
    name = pl.when("is_host").then(pl.format("thread {}", "lane")).otherwise(stream)
    return groups.select(
        "rank", "is_host", "operations", resource=name, busy=busy, communicating=communicating,
        idle=end - begin - busy,
    ).select(
        "rank", "resource", "is_host", "operations", "busy", "communicating", "idle"
    ).sort("rank", "is_host", "busy", descending=[False, False, True])  # fmt: skip


def _operations(graph: EventGraph, begin: int, end: int) -> _Operations:
    times = np.clip(graph.time[: 2 * graph.num_ops], begin, end)
    category = graph.gather("category")
    on_device = category.is_in(DEVICE_WORK).to_numpy()
    communicates = graph.gather("kind").is_in(COMMUNICATION_KINDS).to_numpy()
    kernels = (category == "kernel").to_numpy() & ~communicates
    caller = np.where(communicates & ~on_device, graph.recorded_launchers, -1)
    return _Operations(
        start=times[0::2],
        end=times[1::2],
        called=np.where(caller >= 0, np.minimum(times[2 * caller], times[0::2]), times[0::2]),
        entered=np.clip(_entered(graph), begin, end),
        on_device=on_device,
        communicates=communicates,
        asks=graph.communicates & ~on_device & ~communicates,
        copies=on_device & ~kernels & ~communicates,
        kernels=kernels,
        is_work=~category.is_in(_NOT_WORK).to_numpy(),
    )


def _host_spans(graph: EventGraph, place: int, ops: _Operations) -> _Spans:
    """Return when operators of a rank without a device compute; ns, cut to the window."""
    trace = graph.job.traces[place]
    op_of_row = graph.ops_of_rows(place)
    talks = np.append(ops.communicates | ops.asks, False)[op_of_row]
    times = np.column_stack((ops.start, ops.end))
    start, end = (
        times[op_of_row[border // 2], border % 2] for border in host_computation(trace, talks)
    )
    return _spans(start, end, np.full(start.size, place), np.ones(start.size, dtype=np.bool_))


def _entered(graph: EventGraph) -> Ints:
    """Return when the last rank has entered the collective of an operation; else its start; ns."""
    entered = graph.time[0 : 2 * graph.num_ops : 2].copy()
    hub, op, waits = find_participants(graph)
    entered[op[waits]] = graph.time[hub[waits]]
    return entered


def _spans(start: Ints, end: Ints, rank: Ints, which: Bools) -> _Spans:
    inside = which & (end > start)
    return start[inside], end[inside], rank[inside]
