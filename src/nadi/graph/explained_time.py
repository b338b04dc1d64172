"""How much of the measured time the event graph explains, and which delays it does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.replay import replay_graph
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEVICE_WORK

__all__ = ["LATE_NS", "Explained", "explain_time"]

LATE_NS = 10_000
"""Device work that starts later than this after its last dependency counts as late."""


@dataclass(frozen=True, eq=False)
class Explained:
    """The job replayed without the delays that no dependency explains.

    Attributes
    ----------
    graph
        The job.
    ranks
        rank; measured and explained, ns: from the first start to the last end on each
        rank, as measured and without those delays.
    measured_ns, explained_ns
        The same over all ranks.
    num_device_operations
        Number of operations on devices.
    num_late
        Number of these that start more than ``LATE_NS`` after their last known dependency.
        Work whose launch is not in the trace is not among them.
    vertices
        int64: the vertices with an unexplained delay, the longest first.
    """

    graph: EventGraph
    ranks: pl.DataFrame
    measured_ns: int
    explained_ns: int
    num_device_operations: int
    num_late: int
    vertices: Ints

    def __repr__(self) -> str:
        return f"<Explained {self.explained_ns} of {self.measured_ns} ns>"

    @property
    def error(self) -> float:
        """Relative error: explained minus measured time, divided by the measured time."""
        return (self.explained_ns - self.measured_ns) / max(self.measured_ns, 1)

    def largest(self, count: int = 5) -> pl.DataFrame:
        """Return the longest unexplained delays: rank, node (row), name, moment, time and delay.

        Times are in ns, since the job's origin. ``moment`` says whether the start or the
        end of the operation came late. A moment of several ranks has no rank, node and name.
        """
        graph, vertices = self.graph, self.vertices[:count]
        is_op = vertices < 2 * graph.num_ops
        op = np.where(is_op, vertices // 2, 0)
        ranks = np.array([trace.rank for trace in graph.job.traces], dtype=np.int64)
        return pl.DataFrame({
            "rank": np.where(is_op, ranks[graph.op_trace[op]], -1),
            "node": np.where(is_op, graph.op_row[op], -1),
            "name": graph.op_names.gather(op).set(pl.Series(~is_op), ""),
            "moment": np.where(vertices % 2 == 1, "end", "start").tolist(),
            "time": graph.time[vertices],
            "delay": graph.delay[vertices],
        }, schema_overrides={"name": pl.String, "moment": pl.String})  # fmt: skip


@checked
def explain_time(graph: EventGraph, since: int = 0) -> Explained:
    """Replay a job without the delays that no dependency explains. O(vertices + edges).

    Durations, the time of threads between operations and typical overheads stay. What
    comes from outside of the recording stays too: the first operation of each thread, and
    device work launched before the recording began.

    Parameters
    ----------
    since
        Delays before this time stay, and spans begin with it; ns since the job's origin.
    """
    is_work = _starts_of_device_work(graph)
    taken = (graph.delay > 0) & ~_roots(graph, is_work) & (graph.time >= since)
    replayed = replay_graph(replace(graph, delay=np.where(taken, 0, graph.delay))).time
    ends = [
        (trace.rank, *(_span(time, graph.op_trace == t, since) for time in (graph.time, replayed)))
        for t, trace in enumerate(graph.job.traces)
    ]
    vertices = np.flatnonzero(taken)
    every = np.ones(graph.num_ops, dtype=np.bool_)
    return Explained(
        graph=graph,
        ranks=pl.DataFrame(
            ends, schema=dict.fromkeys(("rank", "measured", "explained"), pl.Int64), orient="row"
        ),
        measured_ns=_span(graph.time, every, since),
        explained_ns=_span(replayed, every, since),
        num_device_operations=int(is_work.sum()),
        num_late=int((is_work & taken & (graph.delay > LATE_NS)).sum()),
        vertices=vertices[np.argsort(-graph.delay[vertices], kind="stable")],
    )


def _span(time: Ints, ops: Bools, since: int) -> int:
    """Measure from the first start of operations, or from ``since``, to their last end."""
    if not ops.any():
        return 0
    start, end = time[0 : 2 * ops.size : 2][ops], time[1 : 2 * ops.size : 2][ops]
    return int(end.max() - max(start.min(), since))


def _starts_of_device_work(graph: EventGraph) -> Bools:
    starts = np.zeros(graph.num_vertices, dtype=np.bool_)
    starts[0 : 2 * graph.num_ops : 2] = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    return starts


def _roots(graph: EventGraph, is_work: Bools) -> Bools:
    """Return which vertices wait for something that was not recorded."""
    launched = np.zeros(graph.num_vertices, dtype=np.bool_)
    destination = np.repeat(np.arange(graph.num_vertices), np.diff(graph.in_ptr))
    launched[destination[graph.edge_kind == EdgeKind.LAUNCH]] = True
    rooted: Bools = (np.diff(graph.in_ptr) == 0) | (is_work & ~launched)
    return rooted
