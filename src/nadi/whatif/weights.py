"""Changes of durations and overheads: the same dependencies, other times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import UsageError
from nadi.graph import EdgeKind, EventGraph
from nadi.whatif.selection import Selection, covered, launchers, outermost, select

__all__ = ["Network", "NoGaps", "NoOverhead", "Scale", "SetTime", "is_work"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_LONGEST_NS = 2**62
_OVERHEADS = (EdgeKind.LAUNCH, EdgeKind.STREAM)


@dataclass(frozen=True)
class Scale:
    """Multiply the time of operations by a factor.

    A host operation stands for all that its thread does from its start to its end, a
    device operation for itself, a collective for its transfer. Overheads and delays stay.
    """

    selection: Selection
    factor: float

    def __str__(self) -> str:
        return f"scale {self.selection} {_number(self.factor)}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes."""
        scaled = covered(graph, select(graph, self.selection))
        edges = np.flatnonzero(
            (graph.edge_op >= 0) & scaled[graph.edge_op] & is_work(graph) & _later(graph, since)
        )
        weight = graph.weight.copy()
        if float(weight[edges].sum()) * self.factor >= _LONGEST_NS:
            raise UsageError(
                str(self), "the step would take over a century", "give a smaller factor"
            )
        weight[edges] = np.rint(weight[edges] * self.factor).astype(np.int64)
        return graph.with_weights(weight)


@dataclass(frozen=True)
class SetTime:
    """Let each operation take a given time; a host operation with all that lies in it.

    What lies in another chosen operation takes its share of that one's time.
    """

    selection: Selection
    time_ns: int

    def __str__(self) -> str:
        return f"set {self.selection} {self.time_ns}ns"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes."""
        chosen = select(graph, self.selection)
        top = outermost(graph, chosen)
        own = _work_by_outermost(graph, top)
        edges = np.flatnonzero(
            (graph.edge_op >= 0) & (top[graph.edge_op] >= 0) & is_work(graph) & _later(graph, since)
        )
        of = top[graph.edge_op[edges]]
        weight = graph.weight.copy()
        share = weight[edges] / np.maximum(own[of], 1)
        weight[edges] = np.rint(share * self.time_ns).astype(np.int64)
        # what took no time at all has one edge to put the time on: the one into its end
        instant = edges[(own[of] == 0) & (graph.destinations[edges] == 2 * of + 1)]
        weight[instant] = self.time_ns
        return graph.with_weights(weight)


@dataclass(frozen=True)
class NoOverhead:
    """Launch device work at no cost: no latency, no turn-around, no time of the launching call."""

    selection: Selection

    def __str__(self) -> str:
        return f"no-overhead {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes."""
        chosen = select(graph, self.selection)
        calls = np.zeros(graph.num_ops, dtype=np.bool_)
        call = launchers(graph)[chosen]
        calls[call[call >= 0]] = True
        into = graph.destinations // 2
        overhead = np.isin(graph.edge_kind, _OVERHEADS) & (into < graph.num_ops)
        overhead &= chosen[np.minimum(into, graph.num_ops - 1)]
        calling = (
            (graph.edge_op >= 0) & calls[graph.edge_op] & (graph.edge_kind == EdgeKind.HOST_OP)
        )
        weight = np.where((overhead | calling) & _later(graph, since), 0, graph.weight)
        return graph.with_weights(weight)


@dataclass(frozen=True)
class NoGaps:
    """Take away the time of threads in which no operation runs: Python's, and the unrecorded."""

    def __str__(self) -> str:
        return "no-gaps"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes."""
        gap = (graph.edge_kind == EdgeKind.HOST_GAP) & _later(graph, since)
        return graph.with_weights(np.where(gap, 0, graph.weight))


@dataclass(frozen=True)
class Network:
    """Price communication anew: latency, plus what a rank has to send divided by a bandwidth.

    What a rank has to send of a ring with n ranks: all_reduce 2 (n - 1) / n of its data,
    reduce_scatter, all_to_all, gather and scatter (n - 1) / n, all_gather n - 1 times its
    shard, all others once.

    Attributes
    ----------
    bandwidth
        Bytes per second that a rank can send.
    latency_ns
        Of every operation.
    """

    bandwidth: float
    latency_ns: int = 0

    def __str__(self) -> str:
        latency = f" {self.latency_ns}ns" if self.latency_ns else ""
        return f"network {_number(self.bandwidth)}B/s{latency}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes.

        Raises
        ------
        UsageError
            If no communication has a known size.
        """
        sent = _bytes_to_send(graph)
        known = np.append(sent >= 0, False)[graph.edge_op]
        edges = known & (graph.edge_kind == EdgeKind.COMMUNICATION) & _later(graph, since)
        if not edges.any():
            raise UsageError(
                str(self), "no communication in the trace has a known size",
                "record with input shapes (record_shapes=True), or scale it by a factor",
            )  # fmt: skip
        time = self.latency_ns + np.rint(sent * 1e9 / self.bandwidth).astype(np.int64)
        # of a collective on a thread only the wait is the transfer, which one edge stands for
        return graph.with_weights(np.where(edges, time[graph.edge_op], graph.weight))


def is_work(graph: EventGraph) -> _Bools:
    """Tell which edges are time spent by an operation, and not an overhead between two."""
    work = (EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.KERNEL, EdgeKind.COMMUNICATION)
    return np.isin(graph.edge_kind, work)


def _later(graph: EventGraph, since: int) -> _Bools:
    return graph.time[graph.in_src] >= since


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _work_by_outermost(graph: EventGraph, top: _Ints) -> _Ints:
    """Sum the time of the edges that belong to each outermost operation; ns, shape (ops,)."""
    edges = np.flatnonzero((graph.edge_op >= 0) & is_work(graph))
    of = top[graph.edge_op[edges]]
    total = np.zeros(graph.num_ops, dtype=np.int64)
    np.add.at(total, of[of >= 0], graph.weight[edges][of >= 0])
    return total


def _bytes_to_send(graph: EventGraph) -> _Ints:
    """Give the bytes that each communication's rank sends on a ring; -1 where unknown."""
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
    known = (comm_type != "none").to_numpy() & (given >= 0)
    return np.where(known, np.rint(given * factor), -1).astype(np.int64)
