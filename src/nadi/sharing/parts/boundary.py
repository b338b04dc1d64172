"""What crosses the border of a part: waits for operations outside, and tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.sharing.parts.cut_graphs import Cut
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import PART_TENSORS, WAITS
from nadi.trace.trace import Trace

__all__ = ["boundary_tensors", "boundary_waits", "cut_collectives"]


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
