"""What crosses the border of a part: waits for operations outside, and tensors.

Cut an event graph in two: a part and the rest, each with the moments that the other gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph
from nadi.graph.replay import Replay, replay_graph
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import PART_TENSORS, WAITS
from nadi.trace.trace import Trace


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


def boundary_waits(graph: EventGraph, cut: Cut, nodes: Sequence[Ints]) -> pl.DataFrame:
    """Return what operations of a part wait for outside, a row per dependency.

    Parameters
    ----------
    graph
        The whole.
    cut
        Its cut.
    nodes
        For each rank, int64, shape (nodes of the whole,): what the part calls each node.

    Returns
    -------
    polars.DataFrame
        ``schema.WAITS``: ``moment`` (``start`` or ``end``) of ``node`` is no sooner
        than ``after_ns`` after ``at_ns`` (since the epoch). ``waits_for`` is an operation of
        ``of_rank``; for a collective of which members are outside, it is empty, and the rank -1.
    """
    dst, src = graph.destinations[cut.border], graph.in_src[cut.border]
    is_hub = dst >= 2 * graph.num_ops  # never: a hub inside has no member outside
    dst, src, border = dst[~is_hub], src[~is_hub], cut.border[~is_hub]
    op, outside = dst // 2, np.where(src < 2 * graph.num_ops, src // 2, -1)
    ranks = np.array(graph.job.ranks)
    row = np.empty(op.size, dtype=np.int64)
    for number, new_row in enumerate(nodes):
        mine = graph.op_trace[op] == number
        row[mine] = new_row[graph.op_row[op[mine]]]
    kinds = np.array([kind.name.lower() for kind in EdgeKind])
    columns = {
        "rank": ranks[graph.op_trace[op]],
        "node": row,
        "name": graph.names(op),
        "moment": np.where(dst % 2 == 1, "end", "start").tolist(),
        "at_ns": graph.time[src] + graph.job.origin,
        "after_ns": graph.weight[border],
        "kind": kinds[graph.edge_kind[border]].tolist(),
        "waits_for": graph.names(outside, outside < 0),
        "of_rank": np.where(outside >= 0, ranks[graph.op_trace[outside]], -1),
    }
    return WAITS.build(op.size, columns).sort("rank", "node", "moment", maintain_order=True)


def cut_collectives(graph: EventGraph, chosen: Bools) -> int:
    """Return how many collectives and messages have members in the part and members outside."""
    first = 2 * graph.num_ops
    of_member = graph.edge_op >= 0
    enters, leaves = of_member & (graph.destinations >= first), of_member & (graph.in_src >= first)
    hubs = np.concatenate([graph.destinations[enters], graph.in_src[leaves]])
    inside = chosen[np.concatenate([graph.edge_op[enters], graph.edge_op[leaves]])]
    return int(np.intersect1d(hubs[inside], hubs[~inside]).size)


def boundary_tensors(trace: Trace, kept: Bools, nodes: Ints) -> pl.DataFrame:
    """Return the tensors that a part gets from outside, and those that it leaves there.

    Of operations in order of row: a storage comes from outside if the first operation of the part
    that has it reads it; it is left there if the part has it as an output, and the next operation
    outside that has it reads it. O(operands).

    Parameters
    ----------
    trace
        The whole rank, linked.
    kept
        bool, shape (nodes,): the rows of the part.
    nodes
        int64, shape (nodes,): what the part calls each node.

    Returns
    -------
    polars.DataFrame
        ``schema.PART_TENSORS``: ``node`` reads the tensor first, or has it as an output last;
        ``outside`` is the operation that had it as an output before, or reads it next.
    """
    timed = (trace.column("start") >= 0) & trace.nodes["is_cpu"].to_numpy()
    uses = trace.operands.lazy().filter(pl.col("tensor") >= 0).select("node", "is_output", "tensor")
    tensors = trace.tensors.lazy().with_row_index("tensor").cast({"tensor": pl.Int64})
    known = pl.DataFrame({"inside": kept, "is_timed": timed, "name": trace.nodes["name"]})
    named = known.lazy().with_row_index("node").cast({"node": pl.Int64, "name": pl.String})
    uses = uses.join(named.filter("is_timed"), on="node").join(tensors, on="tensor")
    has_storage = pl.when(pl.col("storage_id") > 0).then("storage_id")
    uses = uses.with_columns(storage=has_storage.otherwise(-1 - pl.col("tensor_id"))).sort(
        "node", "is_output"
    )
    ours, theirs = uses.filter("inside"), uses.filter(~pl.col("inside"))
    first = ours.unique("storage", keep="first", maintain_order=True).filter(~pl.col("is_output"))
    last = ours.filter("is_output").unique("storage", keep="last", maintain_order=True)
    written = theirs.filter("is_output").select("storage", "node", outside="name")
    later = theirs.select("storage", "node", outside="name", reads=~pl.col("is_output"))
    given = first.sort("node").join_asof(
        written.sort("node"), on="node", by="storage", allow_exact_matches=False,
        check_sortedness=False,
    )  # fmt: skip
    left = last.sort("node").join_asof(
        later.sort("node", "reads", descending=[False, True]), on="node", by="storage",
        strategy="forward", allow_exact_matches=False, check_sortedness=False,
    ).filter("reads").drop("reads")  # fmt: skip
    found = pl.concat([
        given.with_columns(is_output=pl.lit(value=False)),
        left.with_columns(is_output=pl.lit(value=True)),
    ]).collect()  # fmt: skip
    columns = {
        "rank": trace.rank,
        **{name: found[name] for name in ("is_output", "storage_id", "tensor_id", "dtype",
                                          "shape", "device", "name")},
        "bytes": found["elements"] * found["itemsize"],
        "node": nodes[found["node"].to_numpy()],
        "outside": found["outside"].fill_null(""),
    }  # fmt: skip
    return PART_TENSORS.build(found.height, columns)
