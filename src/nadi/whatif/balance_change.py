"""A change that spreads work evenly over ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nadi.analyze.operation_groups import communicating
from nadi.errors import UsageError
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.windows import find_steps
from nadi.model.arrays import Bools, Ints
from nadi.whatif.scale_and_overhead_changes import is_work, later_edges
from nadi.whatif.selection import Selection, covered, select

__all__ = ["Balance"]


@dataclass(frozen=True)
class Balance:
    """Give each rank the same amount of work in the selected operations; the sum stays.

    In each step a rank with more than the mean does its operations in less time, one with less in
    more. A rank without any takes its share over in all of its work. Communication, latencies and
    delays stay. Ranks that a condition ``rank=`` leaves out take no part.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"balance {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If there are no two ranks among which work can be spread.
        """
        chosen = covered(graph, select(graph, self.selection))
        ranks = np.array(graph.job.ranks)
        takes_part = np.isin(ranks, self.selection.ranks) if self.selection.ranks else ranks >= 0
        own = (graph.edge_op >= 0) & is_work(graph) & later_edges(graph, since)
        own &= (graph.edge_kind != EdgeKind.COMMUNICATION) & ~communicating(graph)[graph.edge_op]
        own &= takes_part[graph.op_trace[graph.edge_op]]
        selected = own & chosen[graph.edge_op]
        takers = np.flatnonzero(takes_part)
        where = _Places(graph)
        spent, whole = (where.sums(edges)[:, takers] for edges in (selected, own))
        possible = (spent > 0).any(axis=1) & (whole > 0).all(axis=1)
        if takers.size < 2 or not possible.any():
            raise UsageError(
                str(self), "there is no work that could be spread over two ranks or more",
                "load several ranks, and select operations other than communication",
            )  # fmt: skip
        mean = spent.mean(axis=1, keepdims=True)
        has_any = spent > 0
        factor = np.where(has_any, mean / np.maximum(spent, 1), 1 + mean / np.maximum(whole, 1))
        factors = np.ones((possible.size, ranks.size))
        factors[np.ix_(possible, takers)] = factor[possible]
        in_all = np.zeros((possible.size, ranks.size), dtype=np.bool_)
        in_all[:, takers] = ~has_any
        edges = np.flatnonzero(own & (selected | in_all[where.step, where.trace]))
        weight = graph.weight.copy()
        at = where.step[edges], where.trace[edges]
        weight[edges] = np.rint(weight[edges] * factors[at]).astype(np.int64)
        return graph.with_weights(weight)


class _Places:
    """The step and the rank of each edge."""

    def __init__(self, graph: EventGraph) -> None:
        begins = np.array([step.start(graph.time) for step in find_steps(graph)], dtype=np.int64)
        begun = graph.time[graph.in_src]
        self.step: Ints = np.maximum(np.searchsorted(begins, begun, side="right") - 1, 0)
        self.trace: Ints = graph.op_trace[graph.edge_op]
        self._weight = graph.weight
        self._shape = max(begins.size, 1), len(graph.job.ranks)

    def sums(self, edges: Bools) -> Ints:
        """Sum the time of edges; int64 ns, shape (steps, ranks)."""
        found = np.zeros(self._shape, dtype=np.int64)
        np.add.at(found, (self.step[edges], self.trace[edges]), self._weight[edges])
        return found
