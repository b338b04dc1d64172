"""Estimate the typical overheads of a rank from its own recording.

These are launch latencies, gaps between kernels of a stream, and the time until a waiting call
returns. If an operation starts later than the typical overhead after a dependency, the dependency
does not explain the rest, which becomes a delay of the operation.

Edges that are inferred from times, and which of them the repeats of a recording confirm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.event_graph import EventGraph
from nadi.trace.arrays import Bools, Bytes, Ints, Ints32, Numbers
from nadi.trace.categories import (
    COPY_FROM_PAGEABLE,
    COPY_TO_PAGEABLE,
    STAGED_COPY_BYTES,
    pattern,
)
from nadi.trace.schema import CATEGORIES, DEP_KINDS, DEVICE_WORK
from nadi.trace.trace import Trace

LAUNCH_CLASSES = ("device", "blocking copy", "staged copy", "gloo", "thread", "idle device")
"""Work that calls launch; a blocking copy holds its call up to its end, a staged one until most
of its data is taken along. A device may need longer after it was idle for some time."""
WAIT_CLASSES = (
    "device", "stream", "event", "copy", "queue", "hand-over", "staged copy", "gloo",
)  # fmt: skip
"""What calls and threads wait for."""
_MEASURED = ("hand-over", "staged copy")  # these wait as long as they do, there is nothing typical
MEASURED_WAITS = tuple(WAIT_CLASSES.index(name) for name in _MEASURED)
_WAIT_NAMES = ("device", "stream", "event")  # the WAIT_CLASSES of calls that only wait

_GLOO = r"^gloo:"
_MIN_SAMPLES = 20
_LARGEST_GUESS_NS = 3_000
_FAR = 2**62
_QUEUED_NS = 10_000
_LONGEST_TURNAROUND_NS = 5_000
_LONGER_NS, _LONGER = 2_000, 1.5
_WORK_CLASS = np.array([DEVICE_WORK.index(c) if c in DEVICE_WORK else 0 for c in CATEGORIES])
_Window = tuple[int, int]
_ALWAYS: _Window = (0, _FAR)


@dataclass(frozen=True)
class Overheads:
    """Typical overheads in ns; int64 arrays.

    Attributes
    ----------
    launch_after_end, launch_after_start
        Shape (launch classes,): from the end and from the start of a call to the start of
        the work that it launched.
    turnaround
        Shape (device work, device work): from the end of work of one category to the start
        of work of another on the same stream, as in ``schema.DEVICE_WORK``.
    crossing
        From the end of work to the start of work on another stream that waits for it by an event.
    wait_return
        Shape (wait classes,): from the end of the work to the return of the call.
    wait_call
        Shape (wait classes,): the duration of the call when it has nothing to wait for.
    """

    launch_after_end: Ints
    launch_after_start: Ints
    turnaround: Ints
    crossing: int
    wait_return: Ints
    wait_call: Ints

    def table(self) -> pl.DataFrame:
        """Return all overheads as a table: what, which, ns."""
        pairs = [f"{before} to {after}" for before in DEVICE_WORK for after in DEVICE_WORK]
        parts = (
            ("launch after call's end", LAUNCH_CLASSES, self.launch_after_end),
            ("launch after call's start", LAUNCH_CLASSES, self.launch_after_start),
            ("turn-around of a stream", pairs, self.turnaround.ravel()),
            ("crossing to another stream", ("event",), np.array([self.crossing])),
            ("return from a wait", WAIT_CLASSES, self.wait_return),
            ("call with nothing to wait for", WAIT_CLASSES, self.wait_call),
        )
        return pl.DataFrame(
            [(what, which, int(ns)) for what, names, values in parts
             for which, ns in zip(names, values, strict=True)],
            schema=["what", "which", "ns"], orient="row",
        )  # fmt: skip


@dataclass(frozen=True)
class SyncWaits:
    """The sync dependencies of a rank, with the time that each call waits for."""

    # work, call: int64, shape (waits,): node rows
    work: Ints
    call: Ints
    kind: Ints  # int64, shape (waits,): position in ``WAIT_CLASSES``
    # int64 ns, shape (waits,): the end of the work; for work that ends after its call returns, its
    # start
    moment: Ints
    from_start: Bools  # bool, shape (waits,): whether ``moment`` is the start
    last: Ints  # int64 ns, shape (waits,): the latest ``moment`` of all waits of the same call


class HandOvers(NamedTuple):
    """The dependencies of a rank between threads; arrays of shape (hand-overs,).

    ``work`` and ``op`` are node rows: what ended, and the operation that its end let start.
    ``waited`` says whether the thread of ``op`` waited, ``last`` when the last of all work ended
    that it then waited for (int64 ns), ``of_gloo`` whether that was gloo's. ``from_start`` says
    whether the work went on after it had let the operation start.
    """

    work: Ints
    op: Ints
    waited: Bools
    last: Ints
    of_gloo: Bools
    from_start: Bools


class TraceDeps:
    """Columns of a linked trace for overheads and edges; each is computed once, on first use.

    Attributes
    ----------
    trace
        The linked trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._of_kind: dict[str, tuple[Ints, Ints]] = {}

    @cached_property
    def start(self) -> Ints:
        """Start of each node; int64 ns since the epoch, shape (nodes,)."""
        return self.trace.column("start")

    @cached_property
    def end(self) -> Ints:
        """End of each node; int64 ns since the epoch, shape (nodes,)."""
        return self.start + self.trace.column("duration")

    def of(self, kind: str) -> tuple[Ints, Ints]:
        """Return the dependencies of a kind: the awaited and the waiting node rows."""
        if kind not in self._of_kind:
            rows = self._rows_of(kind)
            ends = (self.trace.deps[name].to_numpy()[rows] for name in ("src", "dst"))
            self._of_kind[kind] = next(ends), next(ends)
        return self._of_kind[kind]

    def _rows_of(self, kind: str) -> Ints:
        return np.flatnonzero(self._kind == DEP_KINDS.index(kind))

    @cached_property
    def _kind(self) -> Bytes:
        return self.trace.deps["kind"].to_physical().to_numpy()

    def inside(self, kind: str, within: _Window) -> Bools:
        """Return for which dependencies of a kind the waiting operation starts in an interval."""
        start = self.start[self.of(kind)[1]]
        return (start >= within[0]) & (start < within[1])

    @cached_property
    def launcher(self) -> Ints:
        """The node that launched each node, or -1; int64, shape (nodes,)."""
        inside = self.inside("launch", _ALWAYS)
        caller, work = (rows[inside] for rows in self.of("launch"))
        launcher = np.full(self.trace.nodes.height, -1, dtype=np.int64)
        launcher[work] = caller
        return launcher

    @cached_property
    def ready(self) -> Ints:
        """When the last work ended that each node's stream waits for; else 0.

        The stream waits for its own previous work, and for work of other streams through events.
        int64 ns, shape (nodes,).
        """
        ready = np.zeros(self.trace.nodes.height, dtype=np.int64)
        for kind in ("stream", "event"):
            inside = self.inside(kind, _ALWAYS)
            before, after = (rows[inside] for rows in self.of(kind))
            np.maximum.at(ready, after, self.end[before])
        return ready

    @cached_property
    def _is_cpu(self) -> Bools:
        return self.trace.nodes["is_cpu"].to_numpy()

    def is_host(self, rows: Ints) -> Bools:
        """Return which nodes ran on the host; bool, of the shape of ``rows``."""
        return self._is_cpu[rows]

    @cached_property
    def launch_class(self) -> Ints:
        """The class of each launch; positions in ``LAUNCH_CLASSES``, shape (launches,)."""
        caller, work = self.of("launch")
        named = self.trace.name_mask
        on_device = ~self.is_host(work)
        staged = (
            named(COPY_FROM_PAGEABLE)[work]
            & (self.trace.column("bytes")[work] > STAGED_COPY_BYTES)
            & (self.start[work] < self.end[caller])
        )
        blocking, is_gloo = named(COPY_TO_PAGEABLE)[work], named(_GLOO)[work]
        kind = np.select(
            [on_device & blocking, on_device & staged, on_device, is_gloo], [1, 2, 0, 3], 4
        )
        return np.where((kind == 0) & self._onto_idle_device, 5, kind)

    @cached_property
    def _onto_idle_device(self) -> Bools:
        """Which launches come when the device was idle for so long that it starts later."""
        caller, work = self.of("launch")
        idle = self.end[caller] - _last_end_before(self, work, self.end[caller])
        latency = self.start[work] - self.end[caller]
        is_comm = self.trace.comm_mask()[work]
        alone = ~self.is_host(work) & (self.ready[work] <= self.end[caller]) & (idle < _FAR)
        sample = alone & (latency >= 0) & (idle > 0) & ~is_comm
        found: Bools = alone & (idle >= _idle_border(idle[sample], latency[sample]))
        return found

    @cached_property
    def turnaround_class(self) -> tuple[Ints, Ints]:
        """The categories of consecutive work; positions in ``DEVICE_WORK``, shape (pairs,)."""
        before, after = self.of("stream")
        return self._work_class(before), self._work_class(after)

    def _work_class(self, rows: Ints) -> Ints:
        found: Ints = _WORK_CLASS[self.trace.codes("category")[rows]]
        return found

    @cached_property
    def hand_overs(self) -> HandOvers:
        """The dependencies between threads."""
        work, op = self.of("thread")
        waited = self.trace.deps["inferred"].to_numpy()[self._rows_of("thread")]
        last = np.zeros(self.trace.nodes.height, dtype=np.int64)
        np.maximum.at(last, op[waited], self.end[work[waited]])
        is_last = waited & (self.end[work] == last[op])
        done = work[is_last]
        of_gloo = np.zeros(last.size, dtype=np.bool_)
        of_gloo[op[is_last]] = self.trace.name_mask(_GLOO)[done]
        from_start = self.end[work] > self.start[op]
        return HandOvers(work, op, waited, last[op], of_gloo[op], from_start)

    @cached_property
    def waits(self) -> SyncWaits:
        """The waits of calls for work, each with its class."""
        return _waits(self)


@checked
def estimate_overheads(trace: Trace, within: tuple[int, int] = _ALWAYS) -> Overheads:
    """Estimate the typical overheads of a linked trace.

    Parameters
    ----------
    within
        Only operations that start in this half-open interval are used; ns since the epoch.

    Returns
    -------
    Overheads
        O(nodes + deps log deps).
    """
    return overheads_of(TraceDeps(trace), within)


def overheads_of(deps: TraceDeps, within: tuple[int, int] = _ALWAYS) -> Overheads:
    """Estimate typical overheads as :func:`estimate_overheads`, from existing columns."""
    after_end, after_start = _launch_latencies(deps, within)
    returns, calls = _wait_overheads(deps, within)
    turnaround = _turnarounds(deps, within)
    crossing = _crossing(deps, after_end, turnaround, within)
    return Overheads(after_end, after_start, turnaround, crossing, returns, calls)


def _launch_latencies(deps: TraceDeps, within: _Window) -> tuple[Ints, Ints]:
    """Take medians over launches onto an idle stream, without communication.

    With fewer than 20 such launches it is their lower quartile, from the call's end at most 3 us.
    Without any it is the lower quartile over all launches, at most 3 us.
    """
    inside = deps.inside("launch", within)
    caller, work = (rows[inside] for rows in deps.of("launch"))
    kind = deps.launch_class[inside]
    start = deps.start[work]
    since_end, since_start = start - deps.end[caller], start - deps.start[caller]
    on_device = ~deps.is_host(work)
    is_comm = deps.trace.comm_mask()[work]
    idle = ~on_device | (deps.ready[work] <= deps.start[caller])
    after_end, after_start = np.zeros((2, len(LAUNCH_CLASSES)), dtype=np.int64)
    for number in np.flatnonzero(np.bincount(kind)):
        sample = (kind == number) & ~(is_comm & on_device)
        after_start[number] = _typical(since_start[sample], idle[sample], _FAR)
        after_end[number] = _typical(since_end[sample], idle[sample], _LARGEST_GUESS_NS)
    return after_end, after_start


def _last_end_before(deps: TraceDeps, work: Ints, moment: Ints) -> Ints:
    """Return when the last work of a device ended that started before a moment; else ``-_FAR``.

    Later than the moment if the device is then busy. int64 ns, of the shape of ``work``.
    """
    last = np.full(work.size, -_FAR, dtype=np.int64)
    device = deps.trace.column("device")
    on_device = np.flatnonzero(deps.trace.category_mask(*DEVICE_WORK))
    for number in np.unique(device[work]).tolist():
        rows = on_device[device[on_device] == number]
        rows = rows[np.argsort(deps.start[rows], kind="stable")]
        reached = np.append(-_FAR, np.maximum.accumulate(deps.end[rows]))
        mine = device[work] == number
        last[mine] = reached[np.searchsorted(deps.start[rows], moment[mine])]
    return last


def _idle_border(idle: Ints, latency: Ints) -> int:
    """Find the idle time from which on launches take longer; the far future if none do.

    It is where two levels fit the logarithm of the latencies best. Each level needs 20 launches;
    the second median has to be 2 us and half as long again as the first; and the levels have to
    leave half of the variance or less.
    """
    order = np.argsort(idle, kind="stable")
    idle, latency = idle[order], latency[order]
    count = idle.size
    if count < 2 * _MIN_SAMPLES:
        return _FAR
    level = np.log(latency + 1_000.0)
    level -= level.mean()
    below = np.cumsum(level)[:-1]
    size = np.arange(1, count)
    explained = below**2 * (1 / size + 1 / (count - size))  # the sum of both levels is 0
    possible = (idle[1:] > idle[:-1]) & (size >= _MIN_SAMPLES) & (count - size >= _MIN_SAMPLES)
    if not possible.any():
        return _FAR
    split = int(np.argmax(np.where(possible, explained, -1.0))) + 1
    before, after = np.median(latency[:split]), np.median(latency[split:])
    is_longer = after - before >= _LONGER_NS and after >= _LONGER * before
    is_clear = 2 * explained[split - 1] >= (level**2).sum()
    return int(idle[split]) if is_longer and is_clear else _FAR


def _typical(times: Ints, idle: Bools, largest_guess: int) -> int:
    """Return the median over launches onto idle streams, or a low estimate if they are few."""
    possible = times >= 0
    if (idle & possible).sum() >= _MIN_SAMPLES:
        return int(np.median(times[idle & possible]))
    if (idle & possible).any():
        return int(min(np.percentile(times[idle & possible], 25), largest_guess))
    if possible.any():  # all of these waited for something else too
        return int(min(np.percentile(times[possible], 25), _LARGEST_GUESS_NS))
    return 0


def _turnarounds(deps: TraceDeps, within: _Window) -> Ints:
    """Take means over pairs of the same two categories that were queued early enough.

    In such a pair the second was launched 10 us before the first ended, and started within 5 us of
    that end. Two categories without such a pair get the mean over all such pairs.
    """
    inside = deps.inside("stream", within)
    before, after = (rows[inside] for rows in deps.of("stream"))
    ended = deps.end[before]
    gap = deps.start[after] - ended
    sample = (_launched_at(deps, after) <= ended - _QUEUED_NS) & (gap >= 0)
    sample &= gap <= _LONGEST_TURNAROUND_NS
    sample &= deps.ready[after] <= ended  # and did not wait for another stream
    first, second = (of[inside][sample] for of in deps.turnaround_class)
    gap = gap[sample]
    typical = np.full((3, 3), int(gap.mean()) if gap.size else 0, dtype=np.int64)
    for pair in {*zip(first.tolist(), second.tolist(), strict=True)}:
        typical[pair] = int(gap[(first == pair[0]) & (second == pair[1])].mean())
    return typical


def _crossing(deps: TraceDeps, after_end: Ints, turnaround: Ints, within: _Window) -> int:
    """Take the median over work that started within 5 us after an event that it waited for.

    Only work counts that its launch and its own stream allowed to start by then. ``after_end`` and
    ``turnaround`` are as in :class:`Overheads`.
    """
    inside = deps.inside("event", within)
    source, held = (rows[inside] for rows in deps.of("event"))
    if held.size == 0:
        return 0
    start, end = deps.start, deps.end
    always = deps.inside("stream", _ALWAYS)
    before, after = (rows[always] for rows in deps.of("stream"))
    first, second = (of[always] for of in deps.turnaround_class)
    allowed = np.zeros(deps.trace.nodes.height, dtype=np.int64)
    allowed[after] = end[before] + turnaround[first, second]
    always = deps.inside("launch", _ALWAYS)
    caller, work = (rows[always] for rows in deps.of("launch"))
    launched = np.minimum(end[caller] + after_end[deps.launch_class[always]], start[work])
    allowed[work] = np.maximum(allowed[work], launched)
    last = np.zeros(deps.trace.nodes.height, dtype=np.int64)
    np.maximum.at(last, held, end[source])
    held = np.unique(held)
    gap = start[held] - last[held]
    sample = (last[held] >= allowed[held]) & (gap >= 0) & (gap <= _LONGEST_TURNAROUND_NS)
    return int(np.median(gap[sample])) if sample.any() else 0


def _waits(deps: TraceDeps) -> SyncWaits:
    trace, start, end = deps.trace, deps.start, deps.end
    inside = deps.inside("sync", _ALWAYS)
    work, call = (rows[inside] for rows in deps.of("sync"))
    own_copy = deps.launcher[work] == call
    on_device = trace.category_mask(*DEVICE_WORK)[work]
    on_call = trace.category_mask("runtime", "driver")[call]
    from_start = (own_copy | (on_device & ~on_call)) & (end[work] > end[call])
    of_gloo = ~on_device & trace.name_mask(_GLOO)[work]
    named = [trace.name_mask(pattern(f"{name} sync"))[call] for name in _WAIT_NAMES]
    number = {name: position for position, name in enumerate(WAIT_CLASSES)}
    kind = np.select(
        [of_gloo, ~on_device | ~on_call, *named, from_start, own_copy],
        [number["gloo"], number["hand-over"], *(number[name] for name in _WAIT_NAMES),
         number["staged copy"], number["copy"]],
        number["queue"],
    )  # fmt: skip
    moment = np.where(from_start, start[work], end[work])
    last = np.zeros(trace.nodes.height, dtype=np.int64)
    np.maximum.at(last, call, moment)
    return SyncWaits(work, call, kind, moment, from_start, last[call])


def _wait_overheads(deps: TraceDeps, within: _Window) -> tuple[Ints, Ints]:
    """Compute medians over calls that waited, and over calls that had nothing to wait for."""
    waits = deps.waits
    start, end = deps.start[waits.call], deps.end[waits.call]
    duration = end - start
    inside = (start >= within[0]) & (start < within[1]) & (waits.moment == waits.last)
    waited = waits.last > start
    returns, calls = np.zeros((2, len(WAIT_CLASSES)), dtype=np.int64)
    for number, name in enumerate(WAIT_CLASSES):
        mine = inside & (waits.kind == number)
        if (mine & ~waited).any():
            calls[number] = int(np.median(duration[mine & ~waited]))
        # calls that took no longer than one without a wait do not show when they were woken
        woken = mine & waited & (duration > calls[number])
        if name in _MEASURED:
            returns[number] = _FAR
        elif name == "gloo":
            returns[number] = _wake_up(deps, within)
        elif woken.any():
            returns[number] = int(np.median((end - waits.last)[woken]))
    return returns, calls


def _wake_up(deps: TraceDeps, within: _Window) -> int:
    """Return the longest time that a thread usually takes to continue after gloo's work.

    It is the upper fence of Tukey's rule: what lies beyond the upper quartile by more than one and
    a half interquartile ranges is an outlier, a thread that was not scheduled.
    """
    waits, threads = deps.waits, deps.hand_overs
    calls = np.unique(waits.call[waits.kind == WAIT_CLASSES.index("gloo")])
    ops = np.unique(threads.op[threads.waited & threads.of_gloo])
    last = np.zeros(deps.trace.nodes.height, dtype=np.int64)
    last[threads.op], ended = threads.last, np.zeros_like(last)
    ended[waits.call] = waits.last
    rows = np.concatenate([calls, ops])
    times = np.concatenate([deps.end[calls] - ended[calls], deps.start[ops] - last[ops]])
    times = times[(deps.start[rows] >= within[0]) & (deps.start[rows] < within[1])]
    if times.size == 0:
        return 0
    lower, upper = np.percentile(times, (25, 75))
    return int(upper + 1.5 * (upper - lower))


def _launched_at(deps: TraceDeps, work: Ints) -> Ints:
    """Return the end of the call that launched each operation; the far future if unknown."""
    caller = deps.launcher[work]
    on_device = deps.trace.category_mask(*DEVICE_WORK)[work]
    known = (caller >= 0) & on_device
    return np.where(known, deps.end[caller], np.iinfo(np.int64).max)


_FEWEST_REPEATS = 3


def is_inferred(graph: EventGraph, edges: Numbers) -> Bools:
    """Return which edges stand for dependencies that the recording does not state.

    - ``edges``: int64: positions of edges.
    - Returns bool, shape of ``edges``. O((edges + deps) log deps).
    """
    src, dst = graph.inferred_pairs
    if not src.size:
        return np.zeros(edges.size, dtype=np.bool_)
    into = _entered(graph, edges)
    waits = np.zeros(graph.num_vertices // 2 + 1, dtype=np.bool_)
    waits[dst] = True
    at = np.flatnonzero(waits[into // 2])  # few
    found = np.zeros(edges.size, dtype=np.bool_)
    found[at] = np.isin(
        _pair(graph, graph.in_src[edges[at]], into[at]), _pair(graph, 2 * src, 2 * dst)
    )
    return found


def unconfirmed_edges(graph: EventGraph) -> Ints:
    """Return the inferred edges whose repeats do not confirm them; int64, ascending.

    The repeats of an edge are the inferred edges between operations of the same names. If the
    dependency is real, its destination follows its source after a latency that varies little,
    while the time since anything else that the destination waits for varies with what runs in
    between. Repeats confirm an edge if the latency varies less than that time, in at least three
    of them.
    """
    edges = np.flatnonzero(is_inferred(graph, np.arange(graph.num_edges)))
    if not edges.size:
        return edges
    source, vertex = graph.in_src[edges], _entered(graph, edges)
    repeats = pl.DataFrame({
        "source": graph.names(_operation(graph, source)),
        "vertex": graph.names(_operation(graph, vertex)),
        "kind": graph.edge_kind[edges],
        "latency": graph.time[vertex] - graph.time[source],
        "otherwise": graph.time[vertex] - _stated_before(graph, vertex),
    })  # fmt: skip
    same = ("source", "vertex", "kind")
    confirmed = repeats.select(
        (pl.len() >= _FEWEST_REPEATS).over(same)
        & (pl.col("latency").std() < pl.col("otherwise").std()).over(same)
    ).to_series()
    found: Ints = edges[~confirmed.to_numpy()]
    return found


def _stated_before(graph: EventGraph, vertices: Numbers) -> Ints:
    """Return when vertices could occur without their inferred edges; 0 without other edges."""
    which, incoming = graph.incoming(vertices)
    stated = ~is_inferred(graph, incoming)
    before = np.zeros(vertices.size, dtype=np.int64)
    reached = graph.time[graph.in_src[incoming]] + graph.weight[incoming]
    np.maximum.at(before, which[stated], reached[stated])
    return before


def _pair(graph: EventGraph, source: Numbers, vertex: Numbers) -> Ints:
    """Return a number for each pair of operations."""
    return (source // 2).astype(np.int64) * (graph.num_vertices + 1) + vertex // 2


def _entered(graph: EventGraph, edges: Numbers) -> Ints32:
    """Return the vertex that each edge enters."""
    return graph.destinations[edges]


def _operation(graph: EventGraph, vertices: Numbers) -> Ints:
    """Return the operation of each vertex; the last one for moments of collectives."""
    found: Ints = np.minimum(vertices // 2, graph.num_ops - 1)
    return found
