"""Communication on another network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.graph.edges.early_returns import returns_early
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.trace.arrays import Ints
from nadi.units import exact_ns, exact_rate
from nadi.whatif.scale_and_overhead_changes import later_edges

__all__ = ["OnNetwork"]

_LONGEST_NS = 2**62


@dataclass(frozen=True)
class OnNetwork:
    """Recompute communication times: latency plus the bytes that a rank sends over a bandwidth.

    Bytes that a rank sends in a ring of n ranks: all_reduce 2 (n - 1) / n of its data,
    reduce_scatter, all_to_all, gather and scatter (n - 1) / n, all_gather n - 1 times its
    shard, all others once.

    Attributes
    ----------
    bandwidth
        Bytes per second that a rank can send, at least 1.
    latency_ns
        Of every operation.
    """

    bandwidth: float
    latency_ns: int = 0

    def __str__(self) -> str:
        latency = f" {exact_ns(self.latency_ns)}" if self.latency_ns else ""
        return f"network {exact_rate(self.bandwidth)}{latency}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If no communication has a known size.
        """
        if not self.bandwidth >= 1:
            raise UsageError(str(self), "is below 1 B/s", "give a higher bandwidth")
        sent = _bytes_to_send(graph)
        transfers = _transfers(graph)
        transfers = transfers[sent[graph.edge_op[transfers]] >= 0]
        if not transfers.size:
            raise UsageError(
                str(self), "no communication in the trace has a known size",
                "record with record_shapes=True, or use scale with a factor",
            )  # fmt: skip
        transfers = transfers[later_edges(graph, since)[transfers]]
        time = self.latency_ns + np.rint(sent[graph.edge_op[transfers]] / self.bandwidth * 1e9)
        if not time.sum() < _LONGEST_NS:
            raise UsageError(str(self), "would exceed a century", "give a higher bandwidth")
        weight = graph.weight.copy()
        weight[transfers] = time.astype(np.int64)
        return graph.with_weights(weight)


def _transfers(graph: EventGraph) -> Ints:
    """Find the edges that are the transfer of each communication.

    That is the way from the meeting of the ranks. Where a rank does not wait for others, or
    they are not here, it is the longest stretch of its own time; of equal ones the first.

    Returns
    -------
    int64, ascending
        One edge of each operation, and one to each thread that continues before its end.
    """
    early = returns_early(graph)
    edges = np.flatnonzero((graph.edge_kind == EdgeKind.COMMUNICATION) & ~early)
    op = graph.edge_op[edges]
    met = graph.in_src[edges] >= 2 * graph.num_ops
    order = np.lexsort((edges, -graph.weight[edges], ~met, op))
    first = np.append(True, np.diff(op[order]) != 0)[: order.size]
    return np.sort(np.append(edges[order[first]], np.flatnonzero(early)))


def _bytes_to_send(graph: EventGraph) -> Ints:
    """Return the bytes that each rank of a communication sends on a ring; -1 where unknown."""
    sizes = [
        pl.Series([len(ranks) for ranks in trace.groups["ranks"].to_list()], dtype=pl.Int64)
        for trace in graph.job.traces
    ]
    group = graph.gather("group").to_numpy()
    members = np.full(graph.num_ops, graph.job.world_size, dtype=np.int64)
    for t, size in enumerate(sizes):
        mine = np.flatnonzero((graph.op_trace == t) & (group >= 0))
        members[mine] = size.to_numpy()[group[mine]]
    members = np.maximum(members, 1)
    comm_type = graph.gather("comm_type").cast(pl.String)
    given = graph.gather("comm_bytes").to_numpy().astype(np.float64)
    shared = (members - 1) / members
    factor = np.select(
        [
            (comm_type == "all_reduce").to_numpy(),
            comm_type.is_in(["reduce_scatter", "all_to_all", "gather", "scatter"]).to_numpy(),
            (comm_type == "all_gather").to_numpy(),
        ],
        [2 * shared, shared, members - 1],
        1.0,
    )
    # a single known rank that communicates has partners that are not recorded here
    known = (comm_type != "none").to_numpy() & (given >= 0) & ((group >= 0) | (members > 1))
    return np.where(known, np.rint(given * factor), -1).astype(np.int64)
