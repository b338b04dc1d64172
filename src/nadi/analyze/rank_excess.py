"""What one rank does beyond the other ranks, by name: why it is late."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.critical_paths import PATH_KINDS, CriticalPath, kind_of_edges
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.windows import Window
from nadi.model.arrays import Bools, Ints

__all__ = ["EXPLAINS", "Excess", "largest_excess"]

EXPLAINS = 0.2
"""The share of the time that a rank is late from which on an excess is taken as its cause."""

_OWN_TIME = (EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.KERNEL, EdgeKind.MEMORY)
_DELAY = PATH_KINDS.index("unexplained")
_MARK = r"^(ProfilerStep)#\d+$"  # one name in all steps


@dataclass(frozen=True)
class Excess:
    """What a rank does beyond the median of the other ranks, in a window.

    Attributes
    ----------
    name
        The operation, or what encloses a gap; empty for time between operations.
    kind
        The kind of time, as in ``PATH_KINDS``: host op, host gap, kernel, memory or unexplained.
    count
        How many more of these operations the rank runs; 0 or less if they only take longer.
    time_ns
        How much more time it spends in them.
    others_ns
        The median of the time that the other ranks spend in them.
    """

    name: str
    kind: str
    count: int
    time_ns: int
    others_ns: int


@checked
def largest_excess(
    graph: EventGraph, window: Window, path: CriticalPath, rank: int, late_ns: int
) -> Excess:
    """Find the operations by which a rank exceeds the others most.

    Operations are compared by name and kind of time: a rank's own time without communication and
    waits, against the median of the other ranks. Only as much of an excess counts as lies on the
    critical path, unless that is less than a fifth of ``late_ns``: the path may lack dependencies.
    Time that no operation encloses comes last, as a thread may wait in it for something that was
    not recorded. If the rank runs more of the operations, the name is that of the outermost
    operation around them of which it runs as many more, and the times are from start to end.

    Returns
    -------
    Excess
        Of time 0 if the rank exceeds the others in nothing. O(edges + ranks * names).
    """
    names, code = _names(graph)
    trace = graph.job.ranks.index(rank)
    others = np.arange(len(graph.job.traces)) != trace
    inside = _inside(graph, window)
    times = _own_times(graph, inside, code, len(names))
    counts = np.zeros((len(graph.job.traces), len(names)), dtype=np.int64)
    started = np.flatnonzero(inside[0 : 2 * graph.num_ops : 2])
    np.add.at(counts, (graph.op_trace[started], code[started]), 1)
    typical = np.median(times[others], axis=0)
    more = times[trace] - typical
    on_path = np.minimum(more, _on_path(path, names, rank))
    named = np.arange(len(names)) > 0
    enough = (
        which
        for which in (np.where(named, on_path, 0), np.where(named, more, 0), on_path)
        if which.max(initial=0) >= EXPLAINS * late_ns
    )
    more = next(enough, more)
    if more.size == 0 or more.max() <= 0:
        return Excess("", "host gap", 0, 0, 0)
    kind, found = divmod(int(np.argmax(more)), len(names))
    extra = np.rint(counts[trace] - np.median(counts[others], axis=0)).astype(np.int64)
    own, usual = times[trace, kind, found], typical[kind, found]
    if PATH_KINDS[kind] == "host op" and extra[found] > 0:
        found = _outermost(graph, trace, found, code, extra)
        lasted = _lengths(graph, inside, code == found)
        own, usual = lasted[trace], np.median(lasted[others])
    return Excess(
        names[found], PATH_KINDS[kind], int(extra[found]), int(own - usual), int(usual)
    )  # fmt: skip


def _names(graph: EventGraph) -> tuple[list[str], Ints]:
    """Return the distinct names, "" first, and the position of each operation's name in them."""
    names = graph.op_names.str.replace(_MARK, "$1")
    distinct = ["", *sorted(set(names.unique().to_list()) - {""})]
    codes = names.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int64)
    return distinct, codes


def _inside(graph: EventGraph, window: Window) -> Bools:
    time = graph.time
    inside: Bools = (time >= window.start(time)) & (time <= window.end(time))
    return inside


def _own_times(graph: EventGraph, inside: Bools, code: Ints, num_names: int) -> Ints:
    """Sum the own time of each rank by kind and name; int64 ns, shape (ranks, kinds, names)."""
    sums = np.zeros((len(graph.job.traces), len(PATH_KINDS), num_names), dtype=np.int64)
    into = graph.destinations
    edges = np.flatnonzero(np.isin(graph.edge_kind, _OWN_TIME) & inside[into])
    op = graph.edge_op[edges]
    trace = graph.op_trace[np.where(op >= 0, op, into[edges] // 2)]
    kinds = kind_of_edges(graph.edge_kind[edges]).astype(np.int64)
    np.add.at(sums, (trace, kinds, np.where(op >= 0, code[op], 0)), graph.weight[edges])
    # what begins a thread or a stream has no delay, but a time
    entered = np.diff(graph.in_ptr)[: 2 * graph.num_ops] > 0
    late = np.flatnonzero(entered & inside[: 2 * graph.num_ops])
    late = late[graph.delay[late] > 0]
    op = late // 2
    np.add.at(sums[:, _DELAY], (graph.op_trace[op], code[op]), graph.delay[late])
    return sums


def _on_path(path: CriticalPath, names: list[str], rank: int) -> Ints:
    """Sum the segments of a rank by kind and name; int64 ns, shape (kinds, names)."""
    own = path.segments.filter(pl.col("rank") == rank)
    code = own["name"].str.replace(_MARK, "$1").cast(pl.Enum(names)).to_physical().to_numpy()
    kind = own["kind"].to_physical().to_numpy()
    sums = np.zeros((len(PATH_KINDS), len(names)), dtype=np.int64)
    np.add.at(sums, (kind, code), (own["end"] - own["start"]).to_numpy())
    return sums


def _outermost(graph: EventGraph, trace: int, found: int, code: Ints, extra: Ints) -> int:
    """Return the outermost name around a name of which a rank runs as many more operations."""
    is_operator = (graph.gather("category") == "operator").to_numpy()
    while True:
        ops = np.flatnonzero((code == found) & (graph.op_trace == trace))
        parents = graph.op_parent[ops]
        parents = parents[parents >= 0]
        around = code[parents[is_operator[parents]]]
        if not around.size:
            return found
        names, times = np.unique(around, return_counts=True)
        above = int(names[np.argmax(times)])
        if above == found or extra[above] != extra[found]:
            return found
        found = above


def _lengths(graph: EventGraph, inside: Bools, chosen: Bools) -> Ints:
    """Sum the operations chosen on each rank from start to end; int64 ns, shape (ranks,)."""
    ops = np.flatnonzero(chosen & inside[0 : 2 * graph.num_ops : 2])
    sums = np.zeros(len(graph.job.traces), dtype=np.int64)
    np.add.at(sums, graph.op_trace[ops], graph.time[2 * ops + 1] - graph.time[2 * ops])
    return sums
