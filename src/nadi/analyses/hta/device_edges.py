"""Edges to, between and from device work: launches, streams, synchronizations.

The rules are numbered G1 to G7 and S1 to S4 as in ``docs/critical-path.md``.

The nodes and edges of HTA's graph as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import HTA_EVENT_RECORD, hta_calls

EDGE_TYPES = (
    "OPERATOR_KERNEL", "DEPENDENCY", "KERNEL_LAUNCH_DELAY", "KERNEL_KERNEL_DELAY",
    "SYNC_DEPENDENCY",
)  # fmt: skip
_WEIGHTLESS = tuple(EDGE_TYPES.index(name) for name in ("DEPENDENCY", "SYNC_DEPENDENCY"))
_HOST_WORK = ("operator", "runtime", "driver")


@dataclass(frozen=True, eq=False)
class Moments:
    """The nodes of the graph: starts and ends of events."""

    events: pl.DataFrame  # the events, columns as in ``parsing.parse_events``
    row: Ints  # int64, shape (moments,): the event of each, a row of ``events``
    time: Ints  # int64 ns, shape (moments,)
    is_start: Bools  # bool, shape (moments,)
    # start, end: int64, shape (events,): the moments of each event; -1 for an event without
    start: Ints
    end: Ints
    # bool, shape (events,): whether the event is a call that waits for a device
    is_blocking: Bools

    def column(self, name: str) -> Ints:
        """Return an integer column of the events."""
        return self.events[name].to_numpy()


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Edges in the order in which HTA adds them."""

    # begin, end: int64, shape (edges,): moments
    begin: Ints
    end: Ints
    type: Ints  # int64, shape (edges,): position in ``EDGE_TYPES``
    weight: Ints  # int64 ns, shape (edges,)
    event: Ints  # int64, shape (edges,): row of the event that the time is attributed to, or -1

    def taken(self, rows: Ints | Bools) -> EdgeList:
        """Return some of the edges, in the order of ``rows``."""
        return EdgeList(
            self.begin[rows], self.end[rows], self.type[rows], self.weight[rows], self.event[rows]
        )


def make_moments(events: pl.DataFrame) -> Moments:
    """N1, N2: create the nodes, sorted by time, then index, with starts before ends."""
    stream, partner = events["stream"].to_numpy(), events["partner"].to_numpy()
    has_moments = events["category"].is_in(_HOST_WORK).to_numpy() | (
        (stream != -1) & (partner >= 0)
    )
    rows = np.flatnonzero(has_moments)
    begin = events["start"].to_numpy()[rows]
    time = np.concatenate([begin, begin + events["duration"].to_numpy()[rows]])
    row = np.concatenate([rows, rows])
    is_end = np.repeat([False, True], rows.size)
    order = np.lexsort((is_end, events["index"].to_numpy()[row], time))
    number = np.empty(order.size, dtype=np.int64)
    number[order] = np.arange(order.size)
    start, end = np.full((2, events.height), -1, dtype=np.int64)
    start[rows], end[rows] = number[: rows.size], number[rows.size :]
    is_blocking = events["name"].is_in(hta_calls("blocks")).to_numpy()
    return Moments(events, row[order], time[order], ~is_end[order], start, end, is_blocking)


def weighted_edges(
    moments: Moments,
    kind: Ints,
    begin: Ints,
    end: Ints,
    event: Ints,
    weightless: Bools,
) -> EdgeList:
    """Create edges whose weight is the time between their moments.

    Edges of a type without weight, and edges marked by ``weightless``, get weight 0.
    """
    weight = moments.time[end] - moments.time[begin]
    weight[np.isin(kind, _WEIGHTLESS) | weightless] = 0
    return EdgeList(begin, end, kind, weight, event)


def join_hta_edges(moments: Moments, *lists: EdgeList) -> EdgeList:
    """E2, E3: concatenate edges; an edge added twice keeps its first position and its last data.

    - Raises InputError if work of a stream waits for an event of the same stream, for which HTA's
      rules define no result.
    """
    every = EdgeList(*(
        np.concatenate([getattr(part, name) for part in lists])
        for name in ("begin", "end", "type", "weight", "event")
    ))  # fmt: skip
    _check_streams(moments, every)
    key = every.begin * moments.time.size + every.end
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    last = np.empty(first.size, dtype=np.int64)
    last[place] = np.arange(key.size)  # of equal positions the last assignment counts
    return every.taken(last[np.argsort(first, kind="stable")])


def _check_streams(moments: Moments, edges: EdgeList) -> None:
    stream = moments.column("stream")[moments.row]
    wrong = (edges.type == EDGE_TYPES.index("SYNC_DEPENDENCY")) & (
        stream[edges.begin] == stream[edges.end]
    )
    if wrong.any():
        at = int(edges.end[np.argmax(wrong)])
        event = moments.events.row(int(moments.row[at]), named=True)
        raise InputError(
            f"traceEvents[{event['index']}]",
            f"{event['name']!r} waits for an event of its own stream {event['stream']}, "
            "for which HTA's rules have no answer",
            "use Nadi's rules",
        )  # fmt: skip


_SYNCS = ("Event Sync", "Context Sync")
_LONGEST_GAP_NS = 1_500_000  # after a longer gap a kernel does not follow from the one before
_OPERATOR, _LAUNCH, _GAP, _SYNC = (
    EDGE_TYPES.index(name)
    for name in ("OPERATOR_KERNEL", "KERNEL_LAUNCH_DELAY", "KERNEL_KERNEL_DELAY", "SYNC_DEPENDENCY")
)


@dataclass(frozen=True, eq=False)
class _Launches:
    """Launch calls and the work that they launched in the whole trace; shape (launches,)."""

    # call, work: index of each
    call: Ints
    work: Ints
    # call_start, work_start: int64 ns
    call_start: Ints
    work_start: Ints
    # stream, process: of the work
    stream: Ints
    process: Ints
    # call_process, call_thread: of the call
    call_process: Ints
    call_thread: Ints
    # length_at_call, length_at_work: length of the stream's queue after the one came, and after the
    # other left
    length_at_call: Ints
    length_at_work: Ints

    @cached_property
    def by_place(self) -> dict[tuple[int, ...], Ints]:
        """Rows by stream and process of the work, in order of the calls' starts."""
        return self._by(self.stream, self.process)

    @cached_property
    def by_caller(self) -> dict[tuple[int, ...], Ints]:
        """Rows by stream of the work, process and thread of the call, in the same order."""
        return self._by(self.stream, self.call_process, self.call_thread)

    def _by(self, *keys: Ints) -> dict[tuple[int, ...], Ints]:
        order = np.argsort(self.call_start, kind="stable")
        table = np.stack(keys, axis=1)[order]
        unique, group = np.unique(table, axis=0, return_inverse=True)
        by_group = np.argsort(group.reshape(-1), kind="stable")
        rows = np.split(order[by_group], np.cumsum(np.bincount(group.reshape(-1)))[:-1])
        return {tuple(key): part for key, part in zip(unique.tolist(), rows, strict=True)}


def _launches(events: pl.DataFrame, name: str) -> _Launches:
    """G3: find the launches and the lengths of the queues.

    - Raises InputError if there are none (R4).
    """
    calls = events.filter(pl.col("name").is_in(hta_calls("launches")) & (pl.col("partner") > 0))
    pairs = calls.join(
        events.filter(pl.col("index").is_in(calls["partner"].implode())),
        left_on="partner", right_on="index", suffix="_work", maintain_order="left",
    )  # fmt: skip
    if pairs.is_empty():
        raise InputError(
            name, "the trace contains no launched device work, which HTA's rules require",
            "use Nadi's rules",
        )  # fmt: skip
    stream = pairs["stream_work"].to_numpy()
    times = pairs["start"].to_numpy(), pairs["start_work"].to_numpy()
    size = stream.size
    # at equal times, arrivals are counted before departures
    leaves = np.repeat([0, 1], size)
    streams = np.tile(stream, 2)
    order = np.lexsort((leaves, np.concatenate(times), streams))
    # every stream's changes add up to 0, so that its queue begins empty
    length = np.empty(2 * size, dtype=np.int64)
    length[order] = np.cumsum(1 - 2 * leaves[order])
    return _Launches(
        call=pairs["index"].to_numpy(),
        work=pairs["partner"].to_numpy(),
        call_start=times[0],
        work_start=times[1],
        stream=stream,
        process=pairs["process_work"].to_numpy(),
        call_process=pairs["process"].to_numpy(),
        call_thread=pairs["thread"].to_numpy(),
        length_at_call=length[:size],
        length_at_work=length[size:],
    )


@dataclass(frozen=True, eq=False)
class _Work:
    """Device work and synchronizations in the order in which HTA processes them."""

    moments: Moments  # the nodes of the graph
    launches: _Launches  # of the whole trace
    row: Ints  # int64, shape (work,): rows of the events
    is_sync: Bools  # bool, shape (work,)

    @cached_property
    def kernels(self) -> Ints:
        """Positions of the device work without synchronizations."""
        return np.flatnonzero(~self.is_sync)

    @cached_property
    def row_of_index(self) -> dict[int, int]:
        """The row of each event by its index."""
        index = self.moments.column("index").tolist()
        return dict(zip(index, range(len(index)), strict=True))

    @cached_property
    def record_start(self) -> dict[int, int]:
        """Start of the first call that recorded an event, by its correlation."""
        events = self.moments.events
        records = events.filter(pl.col("name") == HTA_EVENT_RECORD).reverse()
        return dict(records.select("correlation", "start").iter_rows())

    @cached_property
    def place_of_row(self) -> dict[int, int]:
        """The place of each row."""
        return dict(zip(self.row.tolist(), range(self.row.size), strict=True))

    @cached_property
    def by_stream(self) -> dict[int, Ints]:
        """Positions of the device work by stream, in order of first occurrence."""
        stream = self.moments.column("stream")[self.row[self.kernels]]
        unique, first = np.unique(stream, return_index=True)
        order = np.argsort(first)
        return {int(unique[k]): self.kernels[stream == unique[k]] for k in order}

    @cached_property
    def previous(self) -> Ints:
        """Row of the work before on the same stream, or -1; shape (work,)."""
        before = np.full(self.row.size, -1, dtype=np.int64)
        for places in self.by_stream.values():
            before[places[1:]] = self.row[places[:-1]]
        return before


def hta_device_edges(
    moments: Moments, events: pl.DataFrame, name: str, *, zero_weight_launch_edges: bool
) -> EdgeList:
    """Return the edges of device work in the order in which HTA adds them.

    - ``moments``: Of the events in the window.
    - ``events``: Those of the whole trace, which the queues are counted over.
    - ``name``: Of the trace, for messages.
    - ``zero_weight_launch_edges``: Also add an edge from the launch to work that the launch did not
      delay.
    - Raises InputError if nothing was launched.
    """
    work = _in_order(moments, _launches(events, name))
    source = np.full(work.row.size, -1, dtype=np.int64)  # G2: what each waits for besides
    waits = _synchronize(work, source)
    return _joined(moments, [waits, *_kernel_edges(work, source, zero_weight_launch_edges)])


def _in_order(moments: Moments, launches: _Launches) -> _Work:
    """G1: sort device work by start and synchronizations by end."""
    events = moments.events
    stream, partner = moments.column("stream"), moments.column("partner")
    kept = ((stream != -1) | events["name"].is_in(_SYNCS).to_numpy()) & (partner >= 0)
    row = np.flatnonzero(kept)
    is_sync = (events["category"] == "sync").to_numpy()[row]
    start, duration = (moments.column(name)[row] for name in ("start", "duration"))
    order = np.argsort(np.where(is_sync, start + duration, start), kind="stable")
    return _Work(moments, launches, row[order], is_sync[order])


@dataclass(frozen=True, eq=False)
class _Part:
    """Some edges of one kind; all arrays of one shape.

    ``place`` tells during which work they are added; parts are in the order in which each
    work's edges are.
    """

    place: Ints
    begin: Ints
    end: Ints
    kind: int
    event: Ints
    is_weightless: bool = False


def _joined(moments: Moments, parts: list[_Part]) -> EdgeList:
    sizes = [part.place.size for part in parts]
    edges = weighted_edges(
        moments,
        np.repeat([part.kind for part in parts], sizes),
        np.concatenate([part.begin for part in parts]),
        np.concatenate([part.end for part in parts]),
        np.concatenate([part.event for part in parts]),
        np.repeat([part.is_weightless for part in parts], sizes),
    )
    return edges.taken(np.argsort(np.concatenate([p.place for p in parts]), kind="stable"))


def _kernel_edges(work: _Work, source: Ints, zero_weight: bool) -> list[_Part]:
    """G2, G5 to G7: edges for the duration of work and for what it waited for."""
    moments, time, at = work.moments, work.moments.time, work.kernels
    row, source, before = work.row[at], source[at], work.previous[at]
    start = moments.start[row]
    call, was_idle = _launch_of(work, row)
    # an index of -1 gathers an arbitrary value, which is not used
    call_time = time[call]
    source_time, before_time = time[moments.end[source]], time[moments.end[before]]
    has_call, has_source, has_before = call >= 0, source >= 0, before >= 0
    is_launch = was_idle & has_call
    is_launch &= ~has_before | (before_time < call_time)
    is_launch &= ~has_source | (source_time < call_time)
    follows = ~is_launch & has_before & (time[start] - before_time < _LONGEST_GAP_NS)
    follows &= ~has_source | (source_time <= before_time)
    unbound = ~is_launch & has_call & zero_weight
    nobody = np.full(at.size, -1, dtype=np.int64)

    def part(
        chosen: Bools, begin: Ints, end: Ints, kind: int, event: Ints, weightless: bool = False
    ) -> _Part:
        return _Part(at[chosen], begin[chosen], end[chosen], kind, event[chosen], weightless)

    return [
        part(start >= 0, start, moments.end[row], _OPERATOR, row),
        part(has_source, moments.end[source], start, _SYNC, nobody),
        part(is_launch, call, start, _LAUNCH, nobody),
        part(follows, moments.end[before], start, _GAP, before),
        part(unbound, call, start, _LAUNCH, nobody, weightless=True),
    ]


def _launch_of(work: _Work, row: Ints) -> tuple[Ints, Bools]:
    """Return the moment of each work's launch, or -1, and whether its stream was idle then."""
    launches, moments = work.launches, work.moments
    partner, index = moments.column("partner")[row], moments.column("index")
    order = np.argsort(index, kind="stable")
    at = np.minimum(np.searchsorted(index[order], partner), order.size - 1)
    call = order[at]
    moment = np.where(index[call] == partner, moments.start[call], -1)
    idle_calls = launches.call[launches.length_at_call == 1]
    idle_works = launches.work[launches.length_at_work == 0]
    return moment, np.isin(partner, idle_calls) & np.isin(index[row], idle_works)


def _synchronize(work: _Work, source: Ints) -> _Part:
    """S1 to S4: edges to calls that wait; sets ``source`` of work that waits."""
    moments, events = work.moments, work.moments.events
    found: list[tuple[int, int, int]] = []
    for place in np.flatnonzero(work.is_sync).tolist():
        event = events.row(int(work.row[place]), named=True)
        call = work.row_of_index.get(event["partner"], -1)
        if event["name"] == "Stream Wait Event":
            dst = _next_launched(work, call, event["stream"])
            src = _recorded_work(work, event)
            if src >= 0 and dst > place:
                source[dst] = src
            continue
        if call < 0 or moments.end[call] < 0:
            continue
        ended = (
            [_recorded_work(work, event)] if event["name"] == "Event Sync"
            else _last_of_streams(work, place, event)
        )  # fmt: skip
        found += [(place, int(moments.end[k]), int(moments.end[call])) for k in ended if k >= 0]
    place_of, begin, end = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return _Part(place_of, begin, end, _SYNC, np.full(begin.size, -1, dtype=np.int64))


def _last_of_streams(work: _Work, place: int, event: dict[str, Any]) -> list[int]:
    """S1: the last work of each stream, or of one, before a synchronization."""
    if event["name"] not in ("Context Sync", "Stream Sync"):
        return []
    ended = []
    for stream, places in work.by_stream.items():
        at = int(np.searchsorted(places, place)) - 1
        if at >= 0 and (event["name"] == "Context Sync" or event["stream"] == stream):
            ended.append(int(work.row[places[at]]))
    return ended


def _recorded_work(work: _Work, event: dict[str, Any]) -> int:
    """S2: row of the last work launched on the stream waited for before the event's record."""
    launches = work.launches
    recorded = work.record_start.get(event["waits_on_record"])
    rows = launches.by_place.get((event["waits_on_stream"], event["process"]))
    if recorded is None or rows is None or event["waits_on_stream"] == -1:
        return -1
    at = int(np.searchsorted(launches.call_start[rows], recorded, side="right")) - 1
    row = work.row_of_index.get(int(launches.work[rows[at]]), -1) if at >= 0 else -1
    return row if row >= 0 and work.moments.end[row] >= 0 else -1


def _next_launched(work: _Work, call: int, stream: int) -> int:
    """S4: place of the first work that the thread launched on a stream after a call, or -1."""
    if call < 0:
        return -1
    moments, launches = work.moments, work.launches
    process, thread, start = (
        int(moments.column(name)[call]) for name in ("process", "thread", "start")
    )
    rows = launches.by_caller.get((stream, process, thread), np.empty(0, dtype=np.int64))
    at = int(np.searchsorted(launches.call_start[rows], start, side="right"))
    if at == rows.size:
        return -1
    row = work.row_of_index.get(int(launches.work[rows[at]]), -1)
    return work.place_of_row.get(row, -1)
