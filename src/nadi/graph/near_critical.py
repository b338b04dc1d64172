"""Near-critical paths of a window, and the slack of its operations."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.critical_paths import CriticalPath, describe_path, walk_critical_path
from nadi.graph.event_graph import EventGraph
from nadi.graph.replay import Replay
from nadi.graph.windows import Window
from nadi.kernels.paths import trace_back
from nadi.trace.arrays import Ints32
from nadi.trace.schema import DEVICE_WORK

_UNBOUND = np.iinfo(np.int64).max
_BOUNDS = (0, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
_KINDS = ("host", "device", "communication")


@dataclass(frozen=True, eq=False)
class NearCriticalPath:
    """One of the longest paths of a window.

    Attributes
    ----------
    through
        The operation that it is the longest path through (its number in the graph), or -1
        for the critical path.
    slack
        How much shorter than the critical path it is, in ns: its operations can take this much
        longer without delaying the window.
    path
        Its segments, each as early as the path allows.
    """

    through: int
    slack: int
    path: CriticalPath


@checked
def near_critical_paths(replay: Replay, window: Window, count: int = 5) -> list[NearCriticalPath]:
    """Find the longest paths of a window, each through an operation of no longer path.

    The first is the critical path. Each further one is the longest path through the end of
    the operation with the least slack of those whose end is on no path so far; of equal
    ones that which ends first, then the lowest rank and row. From there it goes back along
    dependencies that bind and on along those that leave least room, with the ties of
    :meth:`Replay.slack`.

    Returns
    -------
    list of NearCriticalPath
        At most ``count``, of rising slack; fewer if all operations that lead to the end of
        the window are on them. O(edges + operations log operations + length of the paths).
    """
    graph, time = replay.graph, replay.time
    begin = window.start(time)
    slack, next_edge = replay.slack(window.last, window.end(time))
    ends = 2 * np.arange(graph.num_ops) + 1
    open_ends = ends[(slack[ends] < _UNBOUND) & (time[ends] > begin)]
    open_ends = open_ends[np.lexsort((open_ends, time[open_ends], slack[open_ends]))]
    covered = np.zeros(graph.num_vertices, dtype=np.bool_)
    destinations = graph.destinations
    found = [NearCriticalPath(-1, 0, walk_critical_path(replay, window))]
    covered[found[0].path.vertices] = True
    for vertex in open_ends.tolist():
        if len(found) >= count:
            break
        if not covered[vertex]:
            path = _path_through(replay, vertex, next_edge, destinations, begin)
            covered[path.vertices] = True
            found.append(NearCriticalPath(vertex // 2, int(slack[vertex]), path))
    return found[:count]


def _path_through(
    replay: Replay, vertex: int, next_edge: Ints32, destinations: Ints32, begin: int
) -> CriticalPath:
    """Return the longest path through a vertex to the end of the window."""
    graph, time = replay.graph, replay.time
    way = np.empty(graph.num_vertices, dtype=np.int64)
    back = way[: trace_back(replay.bound_by, graph.in_src, vertex, way)][::-1].copy()
    first = int(np.searchsorted(time[back], begin, side="right")) - 1
    back = back[max(first, 0) :]
    on = way[1 : trace_back(next_edge, destinations, vertex, way)].copy()
    on_edges = next_edge[np.append(vertex, on)[: on.size]]
    reached = time[vertex] + np.cumsum(graph.weight[on_edges] + graph.delay[on])
    return describe_path(
        graph,
        np.append(back, on),
        np.append(replay.bound_by[back], on_edges),
        np.append(time[back], reached),
        begin,
    )


@checked
def slack_histogram(replay: Replay, window: Window) -> pl.DataFrame:
    """Count operations by slack: how much later they can end without delaying the window.

    Returns
    -------
    polars.DataFrame
        kind (host, device, communication); slack (ns: the most that the operations of the
        row have, and null for those that have more or that nothing in the window waits
        for); operations; time (ns, summed over them, with what lies in them). Of what ends
        in the window. O(edges).
    """
    graph, time = replay.graph, replay.time
    begin, end = window.start(time), window.end(time)
    slack, _ = replay.slack(window.last, end)
    starts, ends = time[: 2 * graph.num_ops].reshape(-1, 2).T
    inside = np.flatnonzero((ends > begin) & (ends <= end))
    bounds = np.array(_BOUNDS)
    row = np.searchsorted(bounds, slack[2 * inside + 1])
    rows = pl.DataFrame({
        "kind": _kinds(graph).gather(inside),
        "slack": pl.Series([*_BOUNDS, None], dtype=pl.Int64).gather(row),
        "time": (ends - starts)[inside],
    })  # fmt: skip
    return (
        rows.group_by("kind", "slack")
        .agg(operations=pl.len().cast(pl.Int64), time=pl.sum("time"))
        .sort("kind", "slack", nulls_last=True)
    )


def _kinds(graph: EventGraph) -> pl.Series:
    is_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    is_communication = (graph.gather("comm_type") != "none").to_numpy()
    code = np.where(is_communication, 2, np.where(is_device, 1, 0))
    return pl.Series(_KINDS, dtype=pl.Enum(_KINDS)).gather(code)
