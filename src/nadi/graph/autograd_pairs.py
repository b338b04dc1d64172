"""Autograd's nodes of the backward, and the operators of the forward that made them."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest

_EVALUATION = r"^autograd::engine::evaluate_function: "
_NODE = rf"{_EVALUATION}|Backward\d*$|^torch::autograd::"
_GRADIENT = r"torch::autograd::AccumulateGrad$"
_FORWARD_THREAD = r'"Fwd thread id"\s*:\s*(\d+)'


@dataclass(frozen=True, eq=False)
class BackwardNodes:
    """The outermost operations of autograd's nodes; arrays of shape (nodes,), in order of start."""

    ops: Ints  # int64: the operation that contains all work of the node
    origin: Ints  # int64: the operator of the forward that made the node, or -1
    # bool: the node accumulates a gradient. No operator of the forward made it.
    is_gradient: Bools


def backward_nodes(graph: EventGraph) -> BackwardNodes:
    """Find the nodes of the backward, and what made them.

    A node has the sequence number of the operator that made it, which is the last one to begin
    on its thread with this number: those before it made no node. Each thread counts for
    itself; where several threads used a number, the node's ``Fwd thread id`` decides. Flows
    (``fwdbwd``) say nothing else: PyTorch derives them from the same numbers. O(ops * depth).
    """
    is_operator = (graph.gather("category") == "operator").to_numpy()
    sequence = graph.numbers("sequence")
    is_gradient = is_operator & graph.named(_GRADIENT)
    is_node = is_operator & graph.named(_NODE) & ((sequence >= 0) | is_gradient)
    inside = nearest(graph.op_parent, graph.op_parent, is_node) >= 0
    same = inside & _repeats(graph, is_node, sequence)
    ops = np.flatnonzero(is_node & ~same)
    ops = ops[np.argsort(graph.time[2 * ops], kind="stable")]
    forward = np.flatnonzero(is_operator & ~is_node & (sequence >= 0))
    return BackwardNodes(ops, _origin(graph, ops, forward, sequence), is_gradient[ops])


def _repeats(graph: EventGraph, is_node: Bools, sequence: Ints) -> Bools:
    """Return which operations are the node that is evaluated by the node around them."""
    around = nearest(graph.op_parent, graph.op_parent, is_node)
    found: Bools = (around >= 0) & (sequence[around] == sequence)
    return found


def _origin(graph: EventGraph, nodes: Ints, forward: Ints, sequence: Ints) -> Ints:
    thread = graph.numbers("thread")
    begin = graph.time[0 : 2 * graph.num_ops : 2]

    def table(ops: Ints) -> pl.DataFrame:
        return pl.DataFrame({
            "trace": graph.op_trace[ops], "sequence": sequence[ops], "op": ops,
            "thread": thread[ops], "begin": begin[ops],
        })  # fmt: skip

    asked = table(nodes).filter(pl.col("sequence") >= 0).drop("thread")
    pairs = (
        asked.join(table(forward), on=["trace", "sequence"], suffix="_made")
        .filter(pl.col("begin_made") < pl.col("begin"))
        .sort("begin_made", maintain_order=True)
        .unique(["op", "thread"], keep="last", maintain_order=True)
    )
    if pairs["op"].is_duplicated().any():
        pairs = _on_their_thread(graph, pairs)
    origin = np.full(graph.num_ops, -1, dtype=np.int64)
    origin[pairs["op"].to_numpy()] = pairs["op_made"].to_numpy()
    return origin[nodes]


def _on_their_thread(graph: EventGraph, pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep one operator of a node that has candidates on several threads.

    ``Fwd thread id`` counts threads in an order of its own. An id is the thread on which most of
    its nodes have a candidate, and no two ids are the same thread.
    """
    ops = pairs["op"].unique(maintain_order=True)
    said = pl.DataFrame({"op": ops, "said": _forward_threads(graph, ops.to_numpy())})
    named = pairs.join(said, on="op")
    votes = (
        named.group_by("trace", "said", "thread")
        .agg(count=pl.len(), first=pl.col("begin_made").min())
        .sort("count", "said", "first", descending=[True, False, False])
    )
    taken: set[tuple[int, int]] = set()
    thread_of: dict[tuple[int, int], int] = {}
    for trace, number, thread in votes.select("trace", "said", "thread").iter_rows():
        if (trace, number) not in thread_of and (trace, thread) not in taken:
            thread_of[trace, number] = thread
            taken.add((trace, thread))
    threads = pl.DataFrame(
        [(*key, thread) for key, thread in thread_of.items()],
        schema={name: named.schema[name] for name in ("trace", "said", "thread")}, orient="row",
    )  # fmt: skip
    several = pl.col("op").is_duplicated()
    decided = named.filter(several).join(threads, on=["trace", "said", "thread"], how="semi")
    return pl.concat([named.filter(~several), decided])


def _forward_threads(graph: EventGraph, ops: Ints) -> pl.Series:
    """Read ``Fwd thread id`` of operations; -1 where it is not stated."""
    found = np.full(ops.size, -1, dtype=np.int64)
    of = graph.op_trace[ops]
    for number in np.unique(of).tolist():
        trace, mine = graph.job.traces[number], np.flatnonzero(of == number)
        attributes = trace.attributes
        rows = attributes.rows_named("args")
        owner = attributes.node[rows]
        place = np.searchsorted(owner, graph.op_row[ops[mine]])
        place = np.minimum(place, max(owner.size - 1, 0))
        has = owner[place] == graph.op_row[ops[mine]] if owner.size else np.zeros(0, np.bool_)
        texts = [attributes.span(row).decode(errors="replace") for row in rows[place[has]].tolist()]
        said = pl.Series(texts, dtype=pl.String).str.extract(_FORWARD_THREAD)
        found[mine[has]] = said.cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
    return pl.Series(found)


def node_before(graph: EventGraph, nodes: BackwardNodes) -> Ints:
    """Return the last node before each that computed gradients, on its thread.

    int64, shape (nodes,): a position among the nodes; that of the node itself if it accumulates no
    gradient; -1 without one. Autograd accumulates a gradient as soon as it is complete, before any
    other node.
    """
    place = np.arange(nodes.ops.size)
    table = pl.DataFrame({
        "trace": graph.op_trace[nodes.ops],
        "thread": graph.numbers("thread", nodes.ops),
        "around": graph.op_parent[nodes.ops],
        "computed": pl.Series(place).set(pl.Series(nodes.is_gradient), None),
    })  # fmt: skip
    before = pl.col("computed").forward_fill().over("trace", "thread", "around")
    return table.select(before.fill_null(-1)).to_series().to_numpy()
