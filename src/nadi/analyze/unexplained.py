"""How much of the measured time the graph explains, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.graph import EdgeKind, EventGraph
from nadi.schema import DEVICE_WORK

__all__ = ["LATE_NS", "Explained", "explain_time"]

_Ints = npt.NDArray[np.int64]
LATE_NS = 10_000
"""Device work that starts later than this after all that it waits for counts as late."""


@dataclass(frozen=True, eq=False)
class Explained:
    """A job as it would have run without the delays that no dependency explains.

    Attributes
    ----------
    measured_ns, explained_ns
        From the first start to the last end, as measured and without those delays.
    device_operations
        Number of operations on devices.
    late
        Device operations that start over ``LATE_NS`` after all that they are known to wait
        for: rank, node (row), name, start (ns since the job's origin), delay (ns); the
        longest delay first. Work whose launch is not in the trace is not among them.
    delays
        The same of every start and end of any operation with such a delay.
    """

    measured_ns: int
    explained_ns: int
    device_operations: int
    late: pl.DataFrame
    delays: pl.DataFrame

    @property
    def error(self) -> float:
        """Explained less measured time, as a part of the measured time."""
        return (self.explained_ns - self.measured_ns) / max(self.measured_ns, 1)


def explain_time(graph: EventGraph) -> Explained:
    """Replay a job without the delays that no dependency explains. O(vertices + edges).

    Durations, the time of threads between operations and typical overheads stay. What
    comes from outside of the recording stays too: the first operation of each thread, and
    device work launched before the recording began.
    """
    rooted = _roots(graph)
    delay = np.where(rooted, graph.delay, 0)
    time = replace(graph, delay=delay).replay().time
    unexplained = np.flatnonzero(~rooted & (graph.delay > 0))
    delays = _delays(graph, unexplained)
    late = np.flatnonzero(_starts_of_device_work(graph) & ~rooted & (graph.delay > LATE_NS))
    on_device = graph.gather("category").is_in(DEVICE_WORK)
    return Explained(
        measured_ns=_span(graph, graph.time),
        explained_ns=_span(graph, time),
        device_operations=int(on_device.sum()),
        late=_delays(graph, late),
        delays=delays,
    )


def _span(graph: EventGraph, time: _Ints) -> int:
    ends = time[: 2 * graph.num_ops]
    return int(ends.max() - ends.min()) if ends.size else 0


def _starts_of_device_work(graph: EventGraph) -> npt.NDArray[np.bool_]:
    starts = np.zeros(graph.num_vertices, dtype=np.bool_)
    starts[0 : 2 * graph.num_ops : 2] = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    return starts


def _roots(graph: EventGraph) -> npt.NDArray[np.bool_]:
    """Tell which vertices wait for something that was not recorded."""
    entered = np.diff(graph.in_ptr) > 0
    launched = np.zeros(graph.num_vertices, dtype=np.bool_)
    destination = np.repeat(np.arange(graph.num_vertices), np.diff(graph.in_ptr))
    launched[destination[graph.edge_kind == EdgeKind.LAUNCH]] = True
    return ~entered | (_starts_of_device_work(graph) & ~launched)


def _delays(graph: EventGraph, vertices: _Ints) -> pl.DataFrame:
    """List vertices with their delay, the longest first."""
    vertices = vertices[np.argsort(-graph.delay[vertices], kind="stable")]
    op = np.minimum(vertices // 2, graph.num_ops - 1)
    is_op = vertices < 2 * graph.num_ops
    ranks = np.array([trace.rank for trace in graph.job.traces], dtype=np.int64)
    return pl.DataFrame({
        "rank": np.where(is_op, ranks[graph.op_trace[op]], -1),
        "node": np.where(is_op, graph.op_row[op], -1),
        "name": graph.op_names.gather(op).set(pl.Series(~is_op), ""),
        "moment": np.where(vertices % 2 == 1, "end", "start").tolist(),
        "time": graph.time[vertices],
        "delay": graph.delay[vertices],
    }, schema_overrides={"name": pl.String, "moment": pl.String})  # fmt: skip
