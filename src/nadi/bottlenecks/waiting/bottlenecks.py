"""Who waits for whom in a recording, and bottlenecks: what others wait for.

They are ranked by what the window would gain without these waits.

The wait-for graph: who waits for whom, how long, and the knots in which bottlenecks lie.

After Zhou, Gan, Ma and Wang: wPerf, generic off-CPU analysis to identify bottleneck waiting events
(OSDI 2018).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import networkx as nx
import numpy as np
import polars as pl

from nadi.bottlenecks.waiting.recorded_timelines import (
    RecordedActors,
    is_host,
    recorded_segments,
    switch_timelines,
    with_switches,
)
from nadi.bottlenecks.waiting.timelines import SegmentKind, Segments, Timelines, make_timelines
from nadi.bottlenecks.waiting.waiting_kernels import WaitColumns, redistribute
from nadi.errors import InputError, UsageError, checked
from nadi.files.switches import SwitchEvents, is_switches, read_switches
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.load_graph import load_graph
from nadi.graph.replay import Replay, replay_graph
from nadi.graph.windows import WHOLE, Window, choose_window, find_steps
from nadi.kernels.sequences import union_of
from nadi.trace.arrays import Ints
from nadi.whatif.what_if_results import WhatIf, balanced_ranks, what_if

if TYPE_CHECKING:
    from nadi.recordings.job_of_files import Reading


SMALLEST_SHARE = 0.01
"""Edges below this share of the window are left out before knots are looked for."""
SMALLEST_IN_KNOT = 0.2
"""Edges below this share are removed from a knot of several actors, the smallest first."""


@dataclass(frozen=True, eq=False)
class WaitGraph:
    """Who waits for whom.

    Attributes
    ----------
    timelines
        What it was made of.
    waiter, target
        int64, shape (edges,): numbers of actors.
    direct
        int64 ns, shape (edges,): how long the waiter waits for the target.
    weight
        int64 ns, shape (edges,): that, and again as much of it as others wait for the waiter
        meanwhile (cascaded redistribution).
    knots
        Each the numbers of actors that wait for nobody outside, by waiting time, longest first.
    """

    timelines: Timelines
    waiter: Ints
    target: Ints
    direct: Ints
    weight: Ints
    knots: tuple[tuple[int, ...], ...]

    def __repr__(self) -> str:
        return f"<WaitGraph edges={self.waiter.size} knots={len(self.knots)}>"

    def frame(self) -> pl.DataFrame:
        """Return the edges, largest first: waiter, waits_for, direct_ns, weight_ns, share."""
        names = [one.name for one in self.timelines.actors]
        order = np.lexsort((self.target, self.waiter, -self.weight))
        return pl.DataFrame({
            "waiter": [names[a] for a in self.waiter[order].tolist()],
            "waits_for": [names[a] for a in self.target[order].tolist()],
            "direct_ns": self.direct[order],
            "weight_ns": self.weight[order],
            "share": self.weight[order] / max(self.timelines.length_ns, 1),
        }, schema_overrides={"waiter": pl.String, "waits_for": pl.String})  # fmt: skip


_NUMBER = re.compile(r"#\d+$")
_MOST = 16  # bottlenecks for which a what-if is computed


@dataclass(frozen=True, eq=False)
class WithoutWaits:
    """A change: work that others wait for takes less time.

    Attributes
    ----------
    name
        Of whom.
    edges, amounts
        int64: edges of the graph, each once, and ns by which each gets shorter. The number of
        edges plus a vertex stands for the delay of the vertex.
    """

    name: str
    edges: Ints
    amounts: Ints

    def __str__(self) -> str:
        return f"nobody waits for {self.name}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the graph with the waits taken out; they all lie in one window."""
        weight, delay = graph.weight.copy(), graph.delay.copy()
        is_edge = self.edges < graph.num_edges
        weight[self.edges[is_edge]] -= self.amounts[is_edge]
        delay[self.edges[~is_edge] - graph.num_edges] -= self.amounts[~is_edge]
        return replace(graph, weight=weight, delay=delay)


@dataclass(frozen=True, eq=False)
class Bottleneck:
    """Something that others wait for.

    Attributes
    ----------
    name, kind
        As of the actor; or a lock.
    in_knot
        Whether it is part of a knot of the wait-for graph.
    waited_ns
        How long others wait for it, over all waiters.
    weight_ns
        The same with waits that it passes on to others (cascaded redistribution); of a lock as
        ``waited_ns``.
    gain_ns
        How much sooner the window would end if what others wait for took no time, by a replay of
        the changed event graph.
    waiters
        Names of those that wait longest for it directly, at most three.
    operations
        What it does meanwhile: name and ns, longest first, at most three; of something that only
        others wait for, what waits.
    change
        The change that was replayed.
    """

    name: str
    kind: str
    in_knot: bool
    waited_ns: int
    weight_ns: int
    gain_ns: int
    waiters: tuple[str, ...]
    operations: tuple[tuple[str, int], ...]
    change: WithoutWaits

    def __repr__(self) -> str:
        return f"<Bottleneck {self.name}: {self.gain_ns} ns>"


@dataclass(frozen=True, eq=False)
class Waits:
    """Who waits for whom in a window, and what it costs.

    Attributes
    ----------
    graph
        The wait-for graph.
    bottlenecks
        Largest gain first; empty for a recording of switches alone, which cannot be replayed.
    window
        The analysed window; None for a recording of switches alone.
    balanced
        It with balanced ranks; None if no work can be balanced.
    """

    graph: WaitGraph
    bottlenecks: tuple[Bottleneck, ...] = ()
    window: Window | None = None
    balanced: WhatIf | None = None

    def __repr__(self) -> str:
        return f"<Waits {self.graph!r} bottlenecks={len(self.bottlenecks)}>"

    @property
    def measured_ns(self) -> int:
        """Length of the window."""
        return self.graph.timelines.length_ns

    def frame(self) -> pl.DataFrame:
        """Return the bottlenecks as a table, largest gain first; times in ns."""
        rows = [
            {"name": one.name, "kind": one.kind, "in_knot": one.in_knot,
             "waited_ns": one.waited_ns, "weight_ns": one.weight_ns, "gain_ns": one.gain_ns,
             "waiters": list(one.waiters), "operations": [name for name, _ in one.operations]}
            for one in self.bottlenecks
        ]  # fmt: skip
        schema: dict[str, Any] = {
            "name": pl.String, "kind": pl.String, "in_knot": pl.Boolean, "waited_ns": pl.Int64,
            "weight_ns": pl.Int64, "gain_ns": pl.Int64, "waiters": pl.List(pl.String),
            "operations": pl.List(pl.String),
        }  # fmt: skip
        return pl.DataFrame(rows, schema=schema)


@checked
def find_waits(graph: EventGraph, window: Window, switches: SwitchEvents | None = None) -> Waits:
    """Find who waits for whom in a window, and replay the window without each cause.

    O(n log n) for n operations, and a replay for each of at most 16 bottlenecks.

    Parameters
    ----------
    graph
        As measured.
    switches
        Switches of its threads, if the system recorded them, in ns of the same clock.

    Raises
    ------
    InputError
        If they are not of the threads and time of the recording.
    """
    balanced = balanced_ranks(graph, window)
    window = _without_other_threads(graph, window)
    replay = replay_graph(graph)
    found = recorded_segments(replay)
    if switches is not None:
        found = with_switches(found, switches, graph.job.origin)
    begin, end = window.start(graph.time), window.end(graph.time)
    timelines = make_timelines(found.actors, found.segments, begin, end)
    waits = wait_graph(timelines)
    return Waits(waits, tuple(_bottlenecks(replay, window, found, waits)), window, balanced)


def _without_other_threads(graph: EventGraph, window: Window) -> Window:
    """Let steps end with the threads that mark them, and with devices.

    Another thread may work beside the steps for as long as they last; what steps need of it, they
    wait for.
    """
    if not window.is_marked or window.name == WHOLE:
        return window
    first, last = window.first // 2, window.last // 2
    thread = graph.numbers("thread")
    span = int(thread.max(initial=0)) + 1
    place = graph.op_trace * span + thread
    kept = ~is_host(graph)[last] | np.isin(place[last], place[first])
    return replace(window, last=window.last[kept]) if kept.any() else window


def _bottlenecks(
    replay: Replay, window: Window, found: RecordedActors, waits: WaitGraph
) -> list[Bottleneck]:
    """Replay the window without the waits for each candidate."""
    segments, first = waits.timelines.segments, waits.timelines.first
    count = len(found.actors)
    waited, weight = np.zeros((2, count), dtype=np.int64)
    np.add.at(waited, waits.target, waits.direct)
    np.add.at(weight, waits.target, waits.weight)
    awaited = segments.chosen(np.flatnonzero(segments.kind == SegmentKind.WAIT))
    in_knot = {actor for knot in waits.knots for actor in knot}
    least = SMALLEST_SHARE * waits.timelines.length_ns
    candidates = [
        a for a in np.argsort(-weight, kind="stable").tolist()
        if weight[a] >= least and found.actors[a].kind != "lock"
    ]  # fmt: skip
    made = []
    for actor in candidates[:_MOST]:
        mine = awaited.chosen(awaited.target == actor)
        one = found.actors[actor]
        change = (
            _work_awaited(replay.graph, one.name, segments.chosen(slice(*first[actor : actor + 2])),
                          mine)
            if one.kind in ("thread", "stream")
            else _summed(replay.graph, one.name, mine.edge, mine.end - mine.start)
        )  # fmt: skip
        numbers = int(waited[actor]), int(weight[actor])
        made.append(_asked(
            replay, window, (one.name, one.kind, actor in in_knot, *numbers), change,
            _names_of_waiters(waits, actor),
        ))  # fmt: skip
    made += _locks(replay, window, found, waits)
    return sorted(made, key=lambda one: (-one.gain_ns, -one.weight_ns, one.name))


def _locks(
    replay: Replay, window: Window, found: RecordedActors, waits: WaitGraph
) -> list[Bottleneck]:
    """Replay the window without the waits for each lock."""
    begin, end = waits.timelines.begin, waits.timelines.end
    start, stop = np.maximum(found.segments.start, begin), np.minimum(found.segments.end, end)
    made = []
    for number, name in enumerate(found.locks):
        mine = np.flatnonzero((found.lock == number) & (start < stop))
        if not mine.size:
            continue
        change = _summed(replay.graph, name, found.segments.edge[mine], (stop - start)[mine])
        total = int(change.amounts.sum())
        who = np.unique(found.segments.actor[mine]).tolist()
        names = tuple(found.actors[actor].name for actor in who[:3])
        made.append(_asked(replay, window, (name, "lock", True, total, total), change, names))
    return made


def _asked(
    replay: Replay, window: Window, about: tuple[str, str, bool, int, int], change: WithoutWaits,
    waiters: tuple[str, ...],
) -> Bottleneck:  # fmt: skip
    gain = what_if(replay.graph, change, window=window).gain_ns
    return Bottleneck(*about, gain, waiters, _operations(replay.graph, change), change)


def _work_awaited(
    graph: EventGraph, name: str, of_actor: Segments, awaited: Segments
) -> WithoutWaits:
    """Return the change that what an actor does while others wait for it takes no time."""
    own = of_actor.chosen((of_actor.kind == SegmentKind.RUN) & (of_actor.edge >= 0))
    union = union_of(awaited.start, awaited.end)
    amounts = union.until(own.end) - union.until(own.start)
    return _summed(graph, name, own.edge, amounts)


def _summed(graph: EventGraph, name: str, edges: Ints, amounts: Ints) -> WithoutWaits:
    """Return the change with each edge once; segments without an edge cannot be shortened."""
    total = np.zeros(graph.num_edges + graph.delay.size, dtype=np.int64)
    has_edge = edges >= 0
    np.add.at(total, edges[has_edge], amounts[has_edge])
    each = np.flatnonzero(total)
    return WithoutWaits(name, each, total[each])


def _operations(graph: EventGraph, change: WithoutWaits) -> tuple[tuple[str, int], ...]:
    """Return the names of the operations whose time is taken out, longest first."""
    is_edge = change.edges < graph.num_edges
    edges = np.where(is_edge, change.edges, 0)
    vertex = np.where(is_edge, 2 * graph.edge_op[edges], change.edges - graph.num_edges)
    op = np.where((vertex >= 0) & (vertex < 2 * graph.num_ops), vertex // 2, -1)
    gap = is_edge & (graph.edge_kind[edges] == EdgeKind.HOST_GAP)
    which, texts = graph.name_codes(np.maximum(op, 0), nameless=op < 0)
    times = np.bincount(2 * which.astype(np.int64) + gap, weights=change.amounts)
    sums: dict[str, int] = defaultdict(int)
    for code in np.flatnonzero(times).tolist():
        name = texts[code // 2]
        told = f"between operations in {name}" if code % 2 else name
        label = _NUMBER.sub("", told) if name else "between operations"
        sums[label] += int(times[code])
    longest = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    return tuple(longest[:3])


def _names_of_waiters(waits: WaitGraph, actor: int) -> tuple[str, ...]:
    mine = np.flatnonzero(waits.target == actor)
    longest = mine[np.argsort(-waits.direct[mine], kind="stable")][:3]
    return tuple(waits.timelines.actors[a].name for a in waits.waiter[longest].tolist())


def waits(
    *paths: Path | str,
    step: str | int = "all",
    window: str = "",
    switches: Path | str = "",
    progress: Callable[[str], None] = lambda _: None,
    **reading: Unpack[Reading],
) -> Waits:
    """Find who waits for whom: host threads, device streams, ranks, the system's threads.

    Parameters
    ----------
    paths
        Folders or files of a recording, as in :func:`nadi.load_job`; or one file of switches
        alone, of which there are no gains: it cannot be replayed.
    step
        Number of a step, or ``all``.
    window
        A time range instead of a step, such as ``120ms:180ms``; see :func:`choose_window`.
    switches
        A file with the switches of threads during the recording: the text of ``perf sched
        script``, ``perf script`` or ``trace-cmd report``, or a Perfetto trace.
    progress
        Called with a line of text before each longer stage.
    reading
        ``force``, ``capture`` and ``executor``, as in :func:`nadi.load_job`.

    Raises
    ------
    InputError
        If a file cannot be read, or switches are not of the recording's threads and time.
    UsageError
        If the step or time range does not exist, or does not apply.
    """
    if len(paths) == 1 and is_switches(paths[0]):
        if switches or window or str(step) != "all":
            what = "has switches of threads only, and no steps or further switches apply to it"
            raise UsageError(str(paths[0]), what, "give a recording of PyTorch")
        progress(f"reading {paths[0]}")
        return Waits(wait_graph(switch_timelines(read_switches(paths[0]))))
    events = read_switches(switches) if switches else None
    graph = load_graph(paths, progress, **reading)
    chosen = choose_window(graph, find_steps(graph), str(step), window)
    progress("finding waits")
    try:
        return find_waits(graph, chosen, events)
    except InputError as error:
        raise InputError(str(switches), error.what, error.remedy) from None


def wait_graph(timelines: Timelines) -> WaitGraph:
    """Compute the wait-for graph and its knots. O(waits * depth of chains)."""
    segments = timelines.segments
    waits = (segments.kind == SegmentKind.WAIT) & (segments.target >= 0)
    target = np.where(waits, segments.target, -1)
    count = len(timelines.actors)
    key = segments.actor * count + target
    pairs, number = np.unique(key[waits], return_inverse=True)
    pair = np.full(target.size, -1, dtype=np.int64)
    pair[waits] = number
    weight, direct = np.zeros((2, pairs.size), dtype=np.int64)
    np.add.at(direct, number, (segments.end - segments.start)[waits])
    columns = WaitColumns(timelines.first, segments.start, segments.end, target, pair)
    redistribute(columns, weight)
    waiter, awaited = np.divmod(pairs, max(count, 1))
    edges = {
        (a, b): w
        for a, b, w in zip(waiter.tolist(), awaited.tolist(), weight.tolist(), strict=True)
    }
    knots = find_knots(edges, timelines.length_ns)
    return WaitGraph(timelines, waiter, awaited, direct, weight, knots)


def find_knots(edges: Mapping[tuple[int, int], int], length: int) -> tuple[tuple[int, ...], ...]:
    """Find the groups of actors that others wait for, and that wait for nobody outside.

    Edges below 1 % of the window do not count. From a group of several, the smallest edge is
    removed until it is over 20 % of the window or the group falls apart, and then its parts are
    looked at in the same way.

    Parameters
    ----------
    edges
        ns by (waiter, target).
    length
        ns of the window.

    Returns
    -------
    tuple of tuples of int
        Actors of each knot, ascending; the knot that is waited for longest comes first, of equal
        ones that with the lowest actor.
    """
    whole = nx.DiGraph()
    for (waiter, target), weight in sorted(edges.items()):
        if weight >= SMALLEST_SHARE * length and waiter != target:
            whole.add_edge(waiter, target, weight=weight)
    found = [
        knot for group in _sinks(whole) for knot in _refined(whole.subgraph(group).copy(), length)
    ]
    waited = {knot: sum(w for _, _, w in whole.in_edges(knot, data="weight")) for knot in found}
    return tuple(sorted(found, key=lambda knot: (-waited[knot], knot)))


def _sinks(graph: nx.DiGraph) -> list[set[int]]:
    """Return the strongly connected groups without an edge to another one."""
    groups = nx.condensation(graph)
    return [set(groups.nodes[n]["members"]) for n in groups if groups.out_degree(n) == 0]


def _refined(knot: nx.DiGraph, length: int) -> list[tuple[int, ...]]:
    """Remove small edges of a knot; gives it, or the knots that it falls into."""
    while knot.number_of_edges():
        weight, waiter, target = min((w, a, b) for a, b, w in knot.edges(data="weight"))
        if weight > SMALLEST_IN_KNOT * length:
            break
        knot.remove_edge(waiter, target)
        parts = _sinks(knot)
        if len(parts) > 1 or len(parts[0]) < knot.number_of_nodes():
            return [one for part in parts for one in _refined(knot.subgraph(part).copy(), length)]
    return [tuple(sorted(knot))]
