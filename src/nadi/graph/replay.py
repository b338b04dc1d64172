"""Replay: compute the time of every vertex of an event graph from weights and delays alone."""

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.kernels.paths import latest_times, replay_times
from nadi.trace.arrays import Ints, Ints32
from nadi.trace.schema import SCHEDULE
from nadi.trace.trace import Schedule

# the same graph is replayed by several who ask for its times
_TIMES: WeakKeyDictionary[EventGraph, Ints] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Replay:
    """The times of a replayed graph.

    Attributes
    ----------
    graph
        The graph that was replayed.
    time
        int64 ns, shape (vertices,), since the origin of the job.
    """

    graph: EventGraph
    time: Ints

    def __repr__(self) -> str:
        return f"<Replay of {self.graph!r}>"

    @cached_property
    def bound_by(self) -> Ints32:
        """The edge that sets the time of each vertex, or -1 without incoming edges.

        int32, shape (vertices,). If several edges bind equally, it is the first. Most replays are
        asked for times alone, so it is worked out on first use. O(vertices + edges).
        """
        found = np.empty(self.graph.num_vertices, dtype=np.int32)
        _replayed(self.graph, found, self.graph.weight)
        return found

    def slack(self, last: Ints, end: int) -> tuple[Ints, Ints32]:
        """Compute how much later each vertex can occur with all of ``last`` by ``end``.

        Parameters
        ----------
        last
            int64: vertices.
        end
            ns since the origin of the job, no sooner than these vertices.

        Returns
        -------
        slack
            int64 ns, shape (vertices,), 0 on critical paths; the largest int64 for vertices that
            lead to none of ``last``.
        next_edge
            int32, shape (vertices,): the outgoing edge that limits the slack of each vertex, or -1.
            O(vertices + edges).
        """
        graph, far = self.graph, np.int64(2**62)
        latest = np.full(graph.num_vertices, far)
        latest[last] = end
        next_edge = np.empty(graph.num_vertices, dtype=np.int32)
        latest_times(
            graph.order, graph.in_ptr, graph.in_src, graph.weight, graph.delay, latest, next_edge
        )
        # vertices that lead to none of ``last`` have unlimited slack
        unbound = latest > far // 2
        slack = np.where(unbound, np.iinfo(np.int64).max, latest - self.time)
        return slack, next_edge

    def schedule(self) -> Schedule:
        """Return the start, end and binding dependency of every operation."""
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
                "stream": graph.op_stream,
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


@checked
def replay_graph(graph: EventGraph) -> Replay:
    """Compute the time of every vertex from weights and delays. O(vertices + edges).

    An unmodified graph reproduces the measured times exactly.
    """
    if graph not in _TIMES:
        time = times_with(graph, graph.weight)
        _TIMES[graph] = graph.time if np.array_equal(time, graph.time) else time
    return Replay(graph, _TIMES[graph])


def times_with(graph: EventGraph, weight: Ints) -> Ints:
    """Return the time of every vertex with other weights of edges; it is not kept."""
    return _replayed(graph, np.empty(0, dtype=np.int32), weight)


def replayed_as(graph: EventGraph, time: Ints) -> EventGraph:
    """Return a graph whose replay gives these times, which whoever asks for them gets."""
    _TIMES.setdefault(graph, time)
    return graph


def _replayed(graph: EventGraph, bound_by: Ints32, weight: Ints) -> Ints:
    """Return the time of every vertex; ``bound_by`` is filled as :func:`replay_times` does."""
    time = np.empty(graph.num_vertices, dtype=np.int64)
    replay_times(graph.order, graph.in_ptr, graph.in_src, weight, graph.delay, time, bound_by)
    return time
