"""EventGraph: every start and end of every operation of a job, and what each waits for.

A vertex is the start (``2 * op``) or end (``2 * op + 1``) of an operation, or the
moment at which the last rank has entered a collective (after those). An edge says
that its destination cannot come sooner than its source plus a weight in ns. What
no edge explains stays as an explicit delay of the vertex, so that replaying the
unchanged graph gives back every measured time to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.kernels.paths import replay_times
from nadi.schedule import Schedule
from nadi.schema import SCHEDULE
from nadi.trace import Job

__all__ = ["EdgeKind", "EventGraph", "Replay"]

_Ints = npt.NDArray[np.int64]


class EdgeKind(IntEnum):
    """What an edge stands for."""

    HOST_OP = 0  # time in which an operation runs on its thread, nothing nested in it
    HOST_GAP = 1  # time of a thread in which no operation runs
    LAUNCH = 2  # from a call to the work that it launched
    STREAM = 3  # from one piece of device work to the next on its stream
    KERNEL = 4  # device work
    COMMUNICATION = 5  # data on its way
    ARRIVAL = 6  # a rank enters a collective
    SYNC = 7  # a call returns after the work that it waited for
    THREAD = 8  # a thread goes on after work of another thread


@dataclass(frozen=True, eq=False)
class EventGraph:
    """A job as a directed acyclic graph of moments.

    Attributes
    ----------
    job
        The traces behind it.
    op_trace, op_row
        int64, shape (ops,): position of the trace in ``job.traces``, and node row there.
    op_parent
        int64, shape (ops,): the operation that encloses it on its thread, or -1.
    time
        int64 ns, shape (vertices,): measured, since ``job.origin``.
    delay
        int64 ns, shape (vertices,), never negative: measured time that no edge explains;
        the measured time itself where no edge enters.
    in_ptr
        int64, shape (vertices + 1,): the edges ``in_ptr[v]:in_ptr[v + 1]`` enter v.
    in_src, weight, edge_op
        int64, shape (edges,): source vertex; ns; the operation whose time it is, or -1.
    edge_kind
        uint8, shape (edges,): an :class:`EdgeKind`.
    order
        int64, shape (vertices,): a topological order.
    """

    job: Job
    op_trace: _Ints
    op_row: _Ints
    op_parent: _Ints
    time: _Ints
    delay: _Ints
    in_ptr: _Ints
    in_src: _Ints
    weight: _Ints
    edge_op: _Ints
    edge_kind: npt.NDArray[np.uint8]
    order: _Ints

    def __repr__(self) -> str:
        return f"<EventGraph vertices={self.num_vertices} edges={self.num_edges}>"

    @property
    def num_ops(self) -> int:
        """Number of operations."""
        return self.op_row.size

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return self.time.size

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.in_src.size

    @cached_property
    def op_names(self) -> pl.Series:
        """Name of each operation; text, shape (ops,)."""
        return self.gather("name").cast(pl.String)

    def gather(self, column: str) -> pl.Series:
        """Give a column of the nodes for each operation, shape (ops,)."""
        parts = [
            trace.nodes[column].gather(self.op_row[self.op_trace == t])
            for t, trace in enumerate(self.job.traces)
        ]
        return pl.concat(parts)

    def with_weights(self, weight: _Ints) -> EventGraph:
        """Give the same graph with other weights; the measured times stay."""
        return replace(self, weight=weight)

    def replay(self) -> Replay:
        """Compute when every vertex happens, from weights and delays. O(vertices + edges).

        An unmodified graph gives back the measured times exactly.
        """
        time = np.empty(self.num_vertices, dtype=np.int64)
        bound_by = np.empty(self.num_vertices, dtype=np.int64)
        replay_times(self.order, self.in_ptr, self.in_src, self.weight, self.delay, time, bound_by)
        return Replay(self, time, bound_by)


@dataclass(frozen=True, eq=False)
class Replay:
    """Times of a replayed graph.

    Attributes
    ----------
    graph
        The graph that was replayed.
    time
        int64 ns, shape (vertices,), since the origin of the job.
    bound_by
        int64, shape (vertices,): the edge that set the time of each vertex (of several
        equal ones the first), or -1 where none enters.
    """

    graph: EventGraph
    time: _Ints
    bound_by: _Ints

    def __repr__(self) -> str:
        return f"<Replay of {self.graph!r}>"

    def schedule(self) -> Schedule:
        """Give start, end and binding dependency of every operation."""
        graph = self.graph
        starts = 2 * np.arange(graph.num_ops)
        bound = self.bound_by[starts]
        source = np.where(bound >= 0, graph.in_src[bound], -1)
        source_op = np.where((source >= 0) & (source < 2 * graph.num_ops), source // 2, -1)
        kinds = np.array([kind.name.lower() for kind in EdgeKind] + [""], dtype=object)
        ranks = np.array([trace.rank for trace in graph.job.traces])
        is_host = graph.gather("is_cpu").to_numpy()
        resource = (
            pl.DataFrame({
                "is_host": is_host,
                "thread": graph.gather("thread"),
                "device": graph.gather("device"),
                "stream": graph.gather("stream"),
            })
            .select(
                pl.when("is_host")
                .then(pl.format("thread {}", "thread"))
                .otherwise(pl.format("device {} stream {}", "device", "stream"))
            )
            .to_series()
        )  # fmt: skip
        columns = {
            "rank": ranks[graph.op_trace],
            "node": graph.op_row,
            "start": self.time[starts],
            "end": self.time[starts + 1],
            "resource": resource,
            "bound_by": kinds[
                np.where(bound >= 0, graph.edge_kind[bound], np.uint8(len(EdgeKind)))
            ].tolist(),
            "bound_rank": np.where(source_op >= 0, ranks[graph.op_trace[source_op]], -1),
            "bound_node": np.where(source_op >= 0, graph.op_row[source_op], -1),
        }
        return Schedule(SCHEDULE.build(graph.num_ops, columns))
