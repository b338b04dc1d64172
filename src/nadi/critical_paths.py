"""The critical path: the chain of waiting that sets how long a step takes, over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import UsageError
from nadi.graph import EdgeKind, EventGraph, Replay
from nadi.hta.path import HtaCriticalPath, hta_critical_path
from nadi.kernels.paths import trace_back
from nadi.steps import Window
from nadi.trace import Job, Trace

__all__ = ["PATH_KINDS", "CriticalPath", "critical_path", "kind_of_edges"]

_Ints = npt.NDArray[np.int64]

PATH_KINDS = ("host op", "host gap", "launch", "kernel", "communication", "delay")
_DELAY = PATH_KINDS.index("delay")
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
}
_PATH_CODE = np.array([PATH_KINDS.index(_KIND_OF_EDGE[kind]) for kind in EdgeKind])


def kind_of_edges(edge_kind: npt.NDArray[np.uint8]) -> _Ints:
    """Give what time on edges counts as: positions in ``PATH_KINDS``, shape (edges,)."""
    return _PATH_CODE[edge_kind]


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The critical path through a window.

    Attributes
    ----------
    vertices
        int64, shape (vertices on the path,): first to last.
    segments
        One row per stretch of one operation and kind, in order of time, without gaps
        between them: rank, node, id, name, kind, thread, stream, start, end; times are
        int64 ns since the origin of the job. Where no operation runs, ``node`` and ``id``
        are -1 and rank and thread are those that wait.
    """

    vertices: _Ints
    segments: pl.DataFrame

    def __repr__(self) -> str:
        return f"<CriticalPath segments={self.segments.height} length={self.length} ns>"

    @property
    def length(self) -> int:
        """Its length in ns: the sum of its segments, and so the length of the window."""
        return int((self.segments["end"] - self.segments["start"]).sum())

    def by_kind(self) -> dict[str, int]:
        """Sum the segments by kind, in ns; every kind is there."""
        sums = self.segments.group_by("kind").agg((pl.col("end") - pl.col("start")).sum())
        found = dict(sums.iter_rows())
        return {kind: found.get(kind, 0) for kind in PATH_KINDS}

    def by_operation(self) -> pl.DataFrame:
        """Sum the segments by name and kind: name, kind, time (ns), count, ranks; most first."""
        return (
            self.segments.group_by("name", "kind")
            .agg(
                time=(pl.col("end") - pl.col("start")).sum(),
                count=pl.len(),
                ranks=pl.col("rank").unique().sort(),
            )
            .sort("time", "name", "kind", descending=[True, False, False])
        )


@overload
def critical_path(
    source: Replay, window: Window, *, rules: Literal["nadi"] = "nadi"
) -> CriticalPath: ...


@overload
def critical_path(
    source: Trace | Job | Sequence[Trace],
    *,
    rules: Literal["hta"],
    rank: int | None = None,
    annotation: str = "",
    instance: int | tuple[int, int] = 0,
    zero_weight_launch_edges: bool = False,
    include_last_step: bool = False,
) -> HtaCriticalPath: ...


def critical_path(
    source: Any, window: Window | None = None, *, rules: str = "nadi", **options: Any
) -> CriticalPath | HtaCriticalPath:
    """Find the critical path by Nadi's rules, or by those of Holistic Trace Analysis (HTA).

    By Nadi's, of a replay and a window: one path over all ranks, without gaps. By HTA's
    (``rules="hta"``), of a trace and an annotation: see
    :func:`nadi.hta_critical_path`, which takes the same arguments.

    Raises
    ------
    UsageError
        If there are no such rules.
    """
    if rules == "hta":
        return hta_critical_path(source, **options)
    if rules != "nadi" or window is None:
        raise UsageError(
            "rules", f"{rules!r} with {'a' if window else 'no'} window",
            "rules are 'nadi', of a replay and a window, and 'hta', of a trace",
        )  # fmt: skip
    return _trace_path(source, window)


def _trace_path(replay: Replay, window: Window) -> CriticalPath:
    """Trace the critical path of a window back from its last event to its start.

    Of several events that end last, the one of the lowest rank and row is taken; of
    several dependencies that bind equally, the first in the graph. O(path).
    """
    graph, time = replay.graph, replay.time
    begin = window.start(time)
    last = int(window.last[np.argmax(time[window.last])])
    path = np.empty(graph.num_vertices, dtype=np.int64)
    size = trace_back(replay.bound_by, graph.in_src, last, path)
    vertices = path[:size][::-1].copy()
    # what lies before the window is cut off; one vertex before it is kept as the source
    first = int(np.searchsorted(time[vertices], begin, side="right")) - 1
    vertices = vertices[max(first, 0) :]
    return CriticalPath(vertices, _segments(graph, _stretches(replay, vertices, begin)))


@dataclass(frozen=True)
class _Stretches:
    """Stretches of the path: times, kind, whose time it is (-1: none's), and who waits."""

    start: _Ints
    end: _Ints
    code: _Ints
    op: _Ints
    place: _Ints


def _stretches(replay: Replay, vertices: _Ints, begin: int) -> _Stretches:
    """Split the way into each vertex into what an edge explains and the delay after it."""
    graph, time = replay.graph, replay.time
    edge = replay.bound_by[vertices]
    known = edge >= 0
    own_op = np.where(vertices < 2 * graph.num_ops, vertices // 2, -1)
    edge_start = np.where(known, time[graph.in_src[edge]], begin)
    edge_end = np.where(known, time[vertices] - graph.delay[vertices], begin)
    code = np.where(known, _PATH_CODE[graph.edge_kind[edge]], _DELAY)
    op = np.where(known, graph.edge_op[edge], -1)
    starts = np.stack([edge_start, edge_end], axis=1).ravel()
    ends = np.stack([edge_end, time[vertices]], axis=1).ravel()
    codes = np.stack([code, np.full(code.size, _DELAY)], axis=1).ravel()
    ops = np.stack([op, own_op], axis=1).ravel()
    # a moment of several ranks has no place of its own, but its edges have an operation
    places = np.where(ops >= 0, ops, np.repeat(own_op, 2))
    starts = np.maximum(starts, begin)
    kept = ends > starts
    return _Stretches(starts[kept], ends[kept], codes[kept], ops[kept], places[kept])


def _segments(graph: EventGraph, parts: _Stretches) -> pl.DataFrame:
    """Join consecutive stretches of one operation and kind, and name them."""
    new = np.ones(parts.start.size, dtype=np.bool_)
    new[1:] = (np.diff(parts.code) != 0) | (np.diff(parts.op) != 0) | (np.diff(parts.place) != 0)
    at = np.flatnonzero(new)
    last = np.append(at[1:], parts.start.size) - 1 if at.size else at
    op, place = parts.op[at], parts.place[at]
    ranks = np.array([trace.rank for trace in graph.job.traces])
    has_op = op >= 0
    per_op = pl.DataFrame({
        "name": graph.op_names,
        "id": graph.gather("id"),
        "thread": graph.gather("thread"),
        "stream": graph.op_stream,
    })[place]  # fmt: skip
    missing = pl.Series(~has_op)
    return pl.DataFrame({
        "rank": ranks[graph.op_trace[place]],
        "node": np.where(has_op, graph.op_row[op], -1),
        "id": per_op["id"].set(missing, -1),
        "name": per_op["name"].set(missing, ""),
        "kind": np.array(PATH_KINDS, dtype=object)[parts.code[at]].tolist(),
        "thread": per_op["thread"],
        "stream": per_op["stream"],
        "start": parts.start[at],
        "end": parts.end[last],
    }, schema_overrides={"kind": pl.Enum(PATH_KINDS)})  # fmt: skip
