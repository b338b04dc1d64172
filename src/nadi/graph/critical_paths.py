"""The critical path: the chain of operations and waits, over all ranks, that sets a step's time.

Which time of a graph counts as communication.

Edges whose time the recording does not explain: long gaps, and waits for unknown work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.forks import refuse_in_fork
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.replay import Replay
from nadi.graph.windows import Window
from nadi.kernels.paths import EdgeTimes, Stretches, stretches_of_path, trace_back
from nadi.trace.arrays import Bools, Ints, Ints32, Numbers
from nadi.trace.categories import pattern
from nadi.trace.notebook_html import notebook_html, times_of
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.tables.trace_tables import to_arrow, to_pandas
from nadi.units import format_ns

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from nadi.results.charts.chart_files import Figure


_MARK = "ProfilerStep#"
_FAR_OUT = 3  # interquartile ranges above the upper quartile: far out by Tukey's rule
_FEWEST_GAPS = 8
_MOST_GAPS = 50_000  # so many, evenly chosen, are enough for quartiles
_SYNCS = ("device sync", "stream sync", "event sync")


_ITS_TIME = (
    EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.LAUNCH, EdgeKind.STREAM, EdgeKind.KERNEL,
    EdgeKind.COMMUNICATION, EdgeKind.SYNC,
)  # fmt: skip


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


def kind_of_edges(graph: EventGraph, edge: Numbers) -> npt.NDArray[np.int8]:
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
    graph: EventGraph, vertices: Ints, edge: Ints32, reached: Ints, begin: int
) -> CriticalPath:
    """List the segments of a path.

    - ``vertices``: int64: first to last.
    - ``edge``, ``reached``: int32 and int64, of the shape of ``vertices``: the edge into each, or
      -1, and when the path reaches it (ns).
    - ``begin``: Start of the path, ns; earlier segments are dropped.
    """
    stretches = _stretches(graph, vertices, edge, reached, begin)
    del edge, reached  # a path may be as long as the trace
    return CriticalPath(vertices, _segments(graph, stretches))


def _stretches(
    graph: EventGraph, vertices: Ints, edge: Ints32, reached: Ints, begin: int
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


def time_of_communication(graph: EventGraph, edge: Numbers) -> tuple[Bools, Bools]:
    """Return which edges are time of communication, and of which the delay after them is, too.

    Communication takes all time from its call until its transfer ends: what the host does in the
    call and its backend in the collective (gloo copies data), and what passes until the transfer
    begins. On a thread that begins when its backend gets to it; a delay on a device has a cause
    that is not known.

    - ``edge``: int64: positions of edges.
    - Returns two of bool, shape of ``edge``. O(edges + ops * depth).
    """
    op, kind = graph.edge_op[edge], graph.edge_kind[edge]
    is_time: Bools = (op >= 0) & np.isin(kind, _ITS_TIME)
    is_time &= graph.communicates[np.maximum(op, 0)]
    begins = np.flatnonzero(is_time & (kind == EdgeKind.LAUNCH))
    on_thread = ~graph.gather("category", op[begins]).is_in(DEVICE_WORK).to_numpy()
    with_delay = np.zeros(edge.size, dtype=np.bool_)
    with_delay[begins[on_thread]] = True
    return is_time, with_delay


def long_gaps(graph: EventGraph, edge: Numbers) -> Bools:
    """Return which edges are long gaps of a thread that nothing names.

    A gap on the host is long if it is far out among the gaps of the recording: above the upper
    quartile by three interquartile ranges, on a logarithmic scale.

    - ``edge``: int64: positions of edges.
    - Returns bool, shape of ``edge``. O(edges).
    """
    gaps = np.flatnonzero(graph.edge_kind == EdgeKind.HOST_GAP)
    gaps = _without_cause(graph, gaps[:: max(gaps.size // _MOST_GAPS, 1)])
    found = np.zeros(edge.size, dtype=np.bool_)
    if gaps.size < _FEWEST_GAPS:
        return found
    lower, upper = np.percentile(np.log(graph.weight[gaps]), (25, 75))
    at = np.flatnonzero(graph.edge_kind[edge] == EdgeKind.HOST_GAP)
    at = at[graph.weight[edge[at]] > 0]
    at = at[np.log(graph.weight[edge[at]]) > upper + _FAR_OUT * (upper - lower)]
    found[at[np.isin(edge[at], _without_cause(graph, edge[at]))]] = True
    return found


def _without_cause(graph: EventGraph, gaps: Ints) -> Ints:
    """Return the gaps that take time, and that nothing names.

    A Python function names what happens in it, and so does a label most of whose time is its own:
    that of a data loader, or one that the user put there. The mark of a step does not.
    """
    gaps = gaps[graph.weight[gaps] > 0]
    around = np.maximum(graph.edge_op[gaps], 0)
    category = graph.gather("category", around)
    own, lasts = (graph.numbers(column, around) for column in ("exclusive", "duration"))
    is_label = (category == "annotation").to_numpy() & (2 * own >= lasts)
    is_label &= ~graph.names(around).str.starts_with(_MARK).to_numpy()
    named = (category == "python").to_numpy() | is_label
    found: Ints = gaps[(graph.edge_op[gaps] < 0) | ~named]
    return found


def unknown_waits(graph: EventGraph, edge: Numbers, vertices: Ints) -> Bools:
    """Return which edges are the time of calls that wait for work that is not known.

    - ``edge``, ``vertices``: int: positions of edges, and the vertex that each enters.
    - Returns bool, shape of ``edge``. O(edges + deps).
    """
    found = np.zeros(edge.size, dtype=np.bool_)
    at = np.flatnonzero((graph.edge_kind[edge] == EdgeKind.HOST_OP) & (vertices % 2 == 1))
    at = at[graph.edge_op[edge[at]] == vertices[at] // 2]
    names = graph.names(vertices[at] // 2)
    at = at[names.str.contains(pattern(*_SYNCS)).to_numpy()]
    which, incoming = graph.incoming(vertices[at])
    has_work = np.zeros(at.size, dtype=np.bool_)
    has_work[which[graph.edge_kind[incoming] == EdgeKind.SYNC]] = True
    found[at[~has_work]] = True
    return found
