"""What the recording does not explain on a critical path, by cause, and what is only inferred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.communicating_operations import time_of_communication
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.event_graph import EventGraph
from nadi.graph.inferred_edges import is_inferred
from nadi.graph.replay import Replay
from nadi.graph.unexplained_edges import long_gaps, unknown_waits
from nadi.trace.arrays import Ints
from nadi.trace.schema import DEVICE_WORK

__all__ = ["CAUSES", "UnexplainedPath", "unexplained_path"]

CAUSES = (
    "device busy with work begun before the recording",
    "thread not scheduled",
    "wait for unknown work",
    "unknown",
)
_BEFORE, _NOT_SCHEDULED, _UNKNOWN_WAIT, _UNKNOWN = range(4)


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
    """

    length_ns: int
    by_cause: dict[str, int]
    inferred_ns: int

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
    np.add.at(sums, _causes(graph, vertices[some]), late[some])
    vertices, edge, late, talks = vertices[known], edge[known], late[known], talks[known]
    own = np.minimum(graph.weight[edge], np.maximum(time[vertices] - late - begin, 0))
    own[talks] = 0
    sums[_UNKNOWN] += own[long_gaps(graph, edge)].sum()
    sums[_UNKNOWN_WAIT] += own[unknown_waits(graph, edge, vertices)].sum()
    by_cause = dict(zip(CAUSES, sums.tolist(), strict=True))
    return UnexplainedPath(path.length, by_cause, _inferred(replay, vertices, edge, begin))


def _causes(graph: EventGraph, vertices: Ints) -> Ints:
    """Return the cause of the delay of each vertex; positions in ``CAUSES``."""
    is_op = vertices < 2 * graph.num_ops
    op = np.where(is_op, vertices // 2, 0)
    on_device = graph.gather("category", op).is_in(DEVICE_WORK).to_numpy()
    first = _first_ends(graph) if on_device.any() else np.zeros(graph.num_ops, dtype=np.int64)
    waits = np.diff(graph.in_ptr)[vertices] > 0
    idle_since = graph.time[vertices] - graph.delay[vertices]
    nothing_ended = idle_since < first[op]
    return np.select(
        [is_op & on_device & nothing_ended, is_op & ~on_device & waits],
        [_BEFORE, _NOT_SCHEDULED], _UNKNOWN,
    )  # fmt: skip


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


def _inferred(replay: Replay, vertices: Ints, edge: Ints, begin: int) -> int:
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
