"""Changes of durations and overheads; dependencies stay the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nadi.errors import UsageError
from nadi.graph.edges.early_returns import returns_early
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.trace.arrays import Bools, Ints
from nadi.units import exact_ns, plain_number
from nadi.whatif.selection import Selection, covered, launchers, outermost, select

__all__ = ["NoGaps", "NoOverhead", "Scale", "SetTime", "is_work", "later_edges"]

_LONGEST_NS = 2**62
_OVERHEADS = (EdgeKind.LAUNCH, EdgeKind.STREAM)


@dataclass(frozen=True)
class Scale:
    """Multiply the time of operations by a factor.

    A host operation includes everything that its thread does from its start to its end; a
    collective means its transfer. Overheads and delays stay.
    """

    selection: Selection
    factor: float

    def __str__(self) -> str:
        return f"scale {self.selection} {plain_number(self.factor)}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        scaled = covered(graph, select(graph, self.selection))
        edges = np.flatnonzero(
            (graph.edge_op >= 0)
            & scaled[graph.edge_op]
            & is_work(graph)
            & later_edges(graph, since)
        )
        weight = graph.weight.copy()
        if float(weight[edges].sum()) * self.factor >= _LONGEST_NS:
            raise UsageError(str(self), "the step would exceed a century", "give a smaller factor")
        weight[edges] = np.rint(weight[edges] * self.factor).astype(np.int64)
        return graph.with_weights(weight)


@dataclass(frozen=True)
class SetTime:
    """Set the time of each operation; a host operation includes its nested operations.

    An operation nested in another selected one takes its share of that one's time.
    """

    selection: Selection
    time_ns: int

    def __str__(self) -> str:
        return f"set {self.selection} {exact_ns(self.time_ns)}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        chosen = select(graph, self.selection)
        if not 0 <= self.time_ns * int(chosen.sum()) < _LONGEST_NS:
            raise UsageError(
                str(self), "is negative, or the total exceeds a century", "give a shorter time"
            )
        top = outermost(graph, chosen)
        edges = np.flatnonzero((graph.edge_op >= 0) & (top[graph.edge_op] >= 0) & is_work(graph))
        # another thread, which continues before the end, does so as much sooner or later
        early = returns_early(graph)[edges]
        earlier, edges = edges[early], edges[~early]
        of = top[graph.edge_op[edges]]
        shares = _shares(graph.weight[edges], of, self.time_ns, graph.num_ops)
        # an operation of length 0 has one edge that can take the time: the one into its end
        own = np.bincount(of, weights=graph.weight[edges], minlength=graph.num_ops)
        before = np.maximum(own[top[graph.edge_op[earlier]]], 1)
        sooner = np.rint(graph.weight[earlier] / before * self.time_ns).astype(np.int64)
        edges, shares = np.append(edges, earlier), np.append(shares, sooner)
        of = top[graph.edge_op[edges]]
        instant = (own[of] == 0) & (graph.destinations[edges] == 2 * of + 1)
        shares[instant] = self.time_ns
        later = later_edges(graph, since)[edges]
        weight = graph.weight.copy()
        weight[edges[later]] = shares[later]
        return graph.with_weights(weight)


@dataclass(frozen=True)
class NoOverhead:
    """Remove launch overhead: latency, gaps between kernels, and the time of the launching call."""

    selection: Selection

    def __str__(self) -> str:
        return f"no-overhead {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        chosen = select(graph, self.selection)
        calls = np.zeros(graph.num_ops, dtype=np.bool_)
        call = launchers(graph)[chosen]
        if not (call >= 0).any():
            raise UsageError(
                str(self),
                "none of these operations was launched by a runtime call",
                "choose device work",
            )
        calls[call[call >= 0]] = True
        into = graph.destinations // 2
        overhead = np.isin(graph.edge_kind, _OVERHEADS) & (into < graph.num_ops)
        overhead &= chosen[np.minimum(into, graph.num_ops - 1)]
        calling = (
            (graph.edge_op >= 0) & calls[graph.edge_op] & (graph.edge_kind == EdgeKind.HOST_OP)
        )
        weight = np.where((overhead | calling) & later_edges(graph, since), 0, graph.weight)
        return graph.with_weights(weight)


@dataclass(frozen=True)
class NoGaps:
    """Remove the time between operations of a thread: Python and unrecorded work."""

    def __str__(self) -> str:
        return "no-gaps"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        gap = (graph.edge_kind == EdgeKind.HOST_GAP) & later_edges(graph, since)
        return graph.with_weights(np.where(gap, 0, graph.weight))


def is_work(graph: EventGraph) -> Bools:
    """Return which edges are time of an operation, not overhead between two."""
    work = (
        EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.KERNEL, EdgeKind.COMMUNICATION,
        EdgeKind.MEMORY,
    )  # fmt: skip
    return np.isin(graph.edge_kind, work)


def later_edges(graph: EventGraph, since: int) -> Bools:
    """Return which edges begin at or after a moment; bool, shape (edges,)."""
    return graph.time[graph.in_src] >= since


def _shares(weight: Ints, of: Ints, total: int, num_ops: int) -> Ints:
    """Divide ``total`` ns among the edges of each operation in proportion to their weights."""
    order = np.argsort(of, kind="stable")
    of_sorted = of[order]
    reached = np.cumsum(weight[order])
    before = np.zeros(num_ops, dtype=np.int64)
    first = np.flatnonzero(np.append(True, np.diff(of_sorted) != 0)[: of_sorted.size])
    before[of_sorted[first]] = reached[first] - weight[order][first]
    whole = np.zeros(num_ops, dtype=np.int64)
    np.maximum.at(whole, of_sorted, reached - before[of_sorted])
    part = (reached - before[of_sorted]) / np.maximum(whole[of_sorted], 1)
    due = np.rint(part * total).astype(np.int64)
    due[1:] -= np.where(np.diff(of_sorted) == 0, due[:-1], 0)
    shares = np.empty_like(due)
    shares[order] = due
    return shares
