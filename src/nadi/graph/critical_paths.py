"""The critical path: the chain of operations and waits, over all ranks, that sets a step's time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.forks import refuse_in_fork
from nadi.graph.communicating_operations import time_of_communication
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.replay import Replay
from nadi.graph.unexplained_edges import long_gaps, unknown_waits
from nadi.graph.windows import Window
from nadi.kernels.paths import EdgeTimes, Stretches, stretches_of_path, trace_back
from nadi.trace.arrays import Ints
from nadi.trace.notebook_html import notebook_html, times_of
from nadi.trace.tables.trace_tables import to_arrow, to_pandas
from nadi.units import format_ns

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from nadi.results.charts.chart_files import Figure


_TOLD = 5  # operations in a notebook
PATH_KINDS = (
    "host op", "host gap", "launch", "kernel", "communication", "memory", "delay", "unexplained",
)  # fmt: skip
"""The kinds of time on a path. ``delay`` is that of dependencies which a user or a file states;
``unexplained`` is what no dependency explains, long gaps, and waits for unknown work."""
_IF_ANY = ("memory", "delay")  # are named where they occur
_KIND_OF_EDGE = {
    EdgeKind.HOST_OP: "host op",
    EdgeKind.HOST_GAP: "host gap",
    EdgeKind.LAUNCH: "launch",
    EdgeKind.STREAM: "launch",
    EdgeKind.KERNEL: "kernel",
    EdgeKind.COMMUNICATION: "communication",
    EdgeKind.ARRIVAL: "communication",
    EdgeKind.SYNC: "host op",
    EdgeKind.THREAD: "host gap",
    EdgeKind.ADDED: "delay",
    EdgeKind.TENSOR: "delay",
    EdgeKind.GIVEN: "delay",
    EdgeKind.MEMORY: "memory",
}
_DELAY = len(EdgeKind)
_PATH_CODE = np.array(  # for each kind of edge, and last for delays
    [PATH_KINDS.index(_KIND_OF_EDGE[kind]) for kind in EdgeKind]
    + [PATH_KINDS.index("unexplained")],
    dtype=np.int8,
)


def kind_of_edges(graph: EventGraph, edge: Ints) -> npt.NDArray[np.int8]:
    """Return the kind of time on edges: positions in ``PATH_KINDS``, int8, shape of ``edge``."""
    is_communication, _ = time_of_communication(graph, edge)
    kinds = np.where(is_communication, np.uint8(EdgeKind.COMMUNICATION), graph.edge_kind[edge])
    return _PATH_CODE[kinds]


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The critical path through a window.

    Attributes
    ----------
    vertices
        int64, shape (vertices on the path,): first to last.
    segments
        One row per interval of one operation and kind, in order of time, without gaps between
        them: rank, node, id, name, kind, thread, stream, start, end; times are int64 ns since the
        origin of the job. For intervals without an operation ``node`` and ``id`` are -1; rank and
        thread are those that wait.
    """

    vertices: Ints
    segments: pl.DataFrame

    def __repr__(self) -> str:
        return f"<CriticalPath segments={self.segments.height} length={self.length} ns>"

    def _repr_html_(self) -> str:
        return notebook_html(
            "critical path",
            {"length": format_ns(self.length), **self._longest()},
            times_of(self.by_kind()),
        )

    def plot(self, top: int = 12) -> Figure:
        """Draw the path by kind, and the operations with most time on it.

        Parameters
        ----------
        top
            Number of operations.
        """
        from nadi.results.charts.chart_files import Figure  # only where charts are drawn
        from nadi.results.charts.charts import time_bars

        kinds = self.by_kind()
        title = f"Critical path: {format_ns(self.length)}"
        found = self.by_operation().head(top)
        names = [name or "(between operations)" for name in found["name"].cast(pl.String)]
        times = [
            [time if kind == one else 0 for one in PATH_KINDS]
            for kind, time in found.select("kind", "time").iter_rows()
        ]
        return Figure([
            time_bars(title, [""], list(kinds), [list(kinds.values())]),
            time_bars("Operations with most time on it", names, PATH_KINDS, times),
        ])  # fmt: skip

    def to_pandas(self) -> pd.DataFrame:
        """Return ``segments`` for pandas.

        Raises
        ------
        UsageError
            If pandas or pyarrow is not installed.
        """
        return to_pandas(self.segments)

    def to_arrow(self) -> pa.Table:
        """Return ``segments`` as an Arrow table.

        Raises
        ------
        UsageError
            If pyarrow is not installed.
        """
        return to_arrow(self.segments)

    def _longest(self) -> dict[str, str]:
        """Return the operations with most time on the path, by name, and their times."""
        found = self.by_operation().head(_TOLD).select("name", "kind", "time")
        return {
            f"{name or '(between operations)'} ({kind})": format_ns(time)
            for name, kind, time in found.iter_rows()
        }

    @property
    def length(self) -> int:
        """The length in ns: the sum of the segments, which equals the length of the window."""
        return int((self.segments["end"] - self.segments["start"]).sum())

    def by_kind(self) -> dict[str, int]:
        """Sum the segments by kind, in ns; memory and delay only if there is some."""
        sums = self.segments.group_by("kind").agg((pl.col("end") - pl.col("start")).sum())
        found = dict(sums.iter_rows())
        return {
            kind: found.get(kind, 0) for kind in PATH_KINDS if kind not in _IF_ANY or kind in found
        }

    def by_operation(self) -> pl.DataFrame:
        """Sum the segments by name and kind: name, kind, time (ns), count, ranks; longest first."""
        return operations_of(self.segments)


def operations_of(segments: pl.DataFrame) -> pl.DataFrame:
    """Sum segments of a path as :meth:`CriticalPath.by_operation` does."""
    return (
        segments.group_by("name", "kind")
        .agg(
            time=(pl.col("end") - pl.col("start")).sum(),
            count=pl.len(),
            ranks=pl.col("rank").unique().sort(),
        )
        .sort("time", "name", "kind", descending=[True, False, False])
    )


def walk_critical_path(replay: Replay, window: Window) -> CriticalPath:
    """Walk the critical path of a window back from its last event to its start.

    If several events end last, the path ends at the one of the lowest rank and row. If several
    dependencies bind equally, it follows the first in the graph. O(path).
    """
    refuse_in_fork()
    graph, time = replay.graph, replay.time
    begin = window.start(time)
    last = int(window.last[np.argmax(time[window.last])])
    path = np.empty(graph.num_vertices, dtype=np.int64)
    size = trace_back(replay.bound_by, graph.in_src, last, path)
    vertices = path[:size][::-1].copy()
    del path
    # cut off what precedes the window, but keep one vertex before it as the source
    first = int(np.searchsorted(time[vertices], begin, side="right")) - 1
    vertices = vertices[max(first, 0) :]
    # the times are gathered again: a variable here would keep them next to the path's table
    return describe_path(graph, vertices, replay.bound_by[vertices], time[vertices], begin)


def describe_path(
    graph: EventGraph, vertices: Ints, edge: Ints, reached: Ints, begin: int
) -> CriticalPath:
    """List the segments of a path.

    - ``vertices``: int64: first to last.
    - ``edge``, ``reached``: int64, of the shape of ``vertices``: the edge into each, or -1, and
      when the path reaches it (ns).
    - ``begin``: Start of the path, ns; earlier segments are dropped.
    """
    stretches = _stretches(graph, vertices, edge, reached, begin)
    del edge, reached  # a path may be as long as the trace
    return CriticalPath(vertices, _segments(graph, stretches))


def _stretches(
    graph: EventGraph, vertices: Ints, edge: Ints, reached: Ints, begin: int
) -> Stretches:
    """Split the time before each vertex into the time of its edge and the delay after that."""
    known = np.flatnonzero(edge >= 0)
    passed, into = edge[known], vertices[known]
    kinds, delay, weight = graph.edge_kind.copy(), graph.delay, graph.weight
    kinds[passed[long_gaps(graph, passed) | unknown_waits(graph, passed, into)]] = _DELAY
    talks, with_delay = time_of_communication(graph, passed)
    kinds[passed[talks]] = EdgeKind.COMMUNICATION
    if with_delay.any():
        delay, weight = delay.copy(), weight.copy()
        weight[passed[with_delay]] += delay[into[with_delay]]
        delay[into[with_delay]] = 0
    edges = EdgeTimes(delay, weight, graph.edge_op, kinds)
    # up to two per vertex; the operating system allocates no memory for unused entries
    start, end = (np.empty(2 * vertices.size, dtype=np.int64) for _ in range(2))
    code = np.empty(start.size, dtype=np.int8)
    op, place = (np.empty(start.size, dtype=np.int32) for _ in range(2))
    room = Stretches(start, end, code, op, place)
    first = stretches_of_path(
        vertices, edge, reached, begin, graph.num_ops, edges, _PATH_CODE, room
    )
    return Stretches(*(column[first:] for column in room))


def _segments(graph: EventGraph, stretches: Stretches) -> pl.DataFrame:
    """Return the table of segments for intervals of the path."""
    missing = stretches.op < 0
    place = stretches.place
    node, identity = graph.op_row[place], graph.numbers("id", place)
    node[missing] = identity[missing] = -1
    ranks = np.array([trace.rank for trace in graph.job.traces], dtype=np.int64)
    kinds = pl.Series(PATH_KINDS, dtype=pl.Enum(PATH_KINDS))
    return pl.DataFrame({
        "rank": ranks[graph.op_trace[place]],
        "node": node,
        "id": identity,
        "name": graph.names(place, missing),
        "kind": kinds.gather(stretches.code),
        "thread": graph.numbers("thread", place),
        "stream": graph.op_stream[place],
        "start": stretches.start,
        "end": stretches.end,
    })  # fmt: skip
