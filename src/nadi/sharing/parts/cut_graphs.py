"""Cut an event graph in two: a part and the rest, each with the moments that the other gives it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nadi.errors import checked
from nadi.graph.event_graph import Edges, EventGraph
from nadi.graph.replay import Replay, replay_graph
from nadi.trace.arrays import Bools, Ints

__all__ = ["Cut", "Half", "cut_graph"]


@dataclass(frozen=True, eq=False)
class Half:
    """Some operations of a graph, and the moments of the others that they wait for.

    Attributes
    ----------
    graph
        Their graph. Its last ``num_given`` vertices are moments outside, which nothing determines
        but their delay: they are given. Edges from them are those of the whole graph.
    vertices
        int64, shape (vertices,): the vertex of the whole graph that each vertex is.
    num_given
        Number of given moments.
    """

    graph: EventGraph
    vertices: Ints
    num_given: int

    @property
    def own(self) -> Ints:
        """The vertices of the whole graph that this half determines; int64."""
        return self.vertices[: self.vertices.size - self.num_given]

    @property
    def given(self) -> Ints:
        """The vertices of the whole graph that are given to this half; int64."""
        return self.vertices[self.vertices.size - self.num_given :]

    def replay(self, time: Ints) -> Replay:
        """Replay this half alone.

        Parameters
        ----------
        time
            int64 ns, shape (vertices of the whole graph,): only those of ``given`` are used.

        Returns
        -------
        Replay
            ``time[:own.size]`` are the times of ``own``. O(vertices + edges).
        """
        delay = self.graph.delay.copy()
        delay[self.own.size :] = time[self.given]
        return replay_graph(replace(self.graph, delay=delay))


class Cut(NamedTuple):
    """A graph in two halves, and its border.

    Attributes
    ----------
    part, rest
        The chosen operations, and the others. The hub of a collective belongs to the part if
        all of its members do.
    border
        int64: the edges of the whole graph that enter the part from the rest.
    """

    part: Half
    rest: Half
    border: Ints


@checked
def cut_graph(graph: EventGraph, chosen: Bools) -> Cut:
    """Cut a graph in two. O(vertices + edges).

    Each vertex is in one half. Replaying a half with the times of the whole gives the times of
    the whole, to the nanosecond: a vertex has the same incoming edges and the same delay. If
    weights change, halves that hand each other their times until these stay the same give the
    times of the changed whole, because those are the only ones that fit all edges.

    Parameters
    ----------
    chosen
        bool, shape (ops,): the operations of the part.
    """
    inside = np.zeros(graph.num_vertices, dtype=np.bool_)
    inside[0 : 2 * graph.num_ops : 2] = inside[1 : 2 * graph.num_ops : 2] = chosen
    destinations = graph.destinations
    inside[2 * graph.num_ops :] = _hubs_inside(graph, chosen, destinations)
    enters = inside[destinations] & ~inside[graph.in_src]
    return Cut(
        _half(graph, chosen, inside, destinations),
        _half(graph, ~chosen, ~inside, destinations),
        np.flatnonzero(enters),
    )


def _hubs_inside(graph: EventGraph, chosen: Bools, destinations: Ints) -> Bools:
    """Return the hubs of which all members are chosen; bool, shape (hubs,)."""
    first, count = 2 * graph.num_ops, graph.num_vertices - 2 * graph.num_ops
    members, outside = np.zeros((2, count), dtype=np.int64)
    for hub, other in ((destinations, graph.in_src), (graph.in_src, destinations)):
        at = np.flatnonzero((hub >= first) & (other < first))
        np.add.at(members, hub[at] - first, 1)
        np.add.at(outside, hub[at] - first, ~chosen[other[at] // 2])
    found: Bools = (members > 0) & (outside == 0)
    return found


def _half(graph: EventGraph, chosen: Bools, inside: Bools, destinations: Ints) -> Half:
    own = np.flatnonzero(inside)
    mine = np.flatnonzero(inside[destinations])
    src = graph.in_src[mine]
    given = np.unique(src[~inside[src]])
    number = np.full(graph.num_vertices, -1, dtype=np.int64)
    number[own] = np.arange(own.size)
    number[given] = own.size + np.arange(given.size)
    op = np.append(np.where(chosen, np.cumsum(chosen) - 1, -1), -1)
    kinds = graph.edge_kind[mine].astype(np.int64)
    edges = Edges(
        number[src], number[destinations[mine]], graph.weight[mine], kinds,
        op[graph.edge_op[mine]],
    )  # fmt: skip
    made = graph.of_operations(chosen, own).with_edges(edges, given.size)
    time, delay = made.time.copy(), made.delay.copy()
    time[own.size :] = delay[own.size :] = graph.time[given]
    return Half(replace(made, time=time, delay=delay), np.concatenate([own, given]), given.size)
