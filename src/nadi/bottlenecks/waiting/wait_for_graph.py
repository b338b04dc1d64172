"""The wait-for graph: who waits for whom, how long, and the knots in which bottlenecks lie.

After Zhou, Gan, Ma and Wang: wPerf, generic off-CPU analysis to identify bottleneck waiting events
(OSDI 2018).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import networkx as nx
import numpy as np
import polars as pl

from nadi.bottlenecks.waiting.timelines import SegmentKind, Timelines
from nadi.bottlenecks.waiting.waiting_kernels import WaitColumns, redistribute
from nadi.trace.arrays import Ints

SMALLEST_SHARE = 0.01
"""Edges below this share of the window are left out before knots are looked for."""
SMALLEST_IN_KNOT = 0.2
"""Edges below this share are removed from a knot of several actors, the smallest first."""


@dataclass(frozen=True, eq=False)
class WaitGraph:
    """Who waits for whom.

    Attributes
    ----------
    timelines
        What it was made of.
    waiter, target
        int64, shape (edges,): numbers of actors.
    direct
        int64 ns, shape (edges,): how long the waiter waits for the target.
    weight
        int64 ns, shape (edges,): that, and again as much of it as others wait for the waiter
        meanwhile (cascaded redistribution).
    knots
        Each the numbers of actors that wait for nobody outside, by waiting time, longest first.
    """

    timelines: Timelines
    waiter: Ints
    target: Ints
    direct: Ints
    weight: Ints
    knots: tuple[tuple[int, ...], ...]

    def __repr__(self) -> str:
        return f"<WaitGraph edges={self.waiter.size} knots={len(self.knots)}>"

    def frame(self) -> pl.DataFrame:
        """Return the edges, largest first: waiter, waits_for, direct_ns, weight_ns, share."""
        names = [one.name for one in self.timelines.actors]
        order = np.lexsort((self.target, self.waiter, -self.weight))
        return pl.DataFrame({
            "waiter": [names[a] for a in self.waiter[order].tolist()],
            "waits_for": [names[a] for a in self.target[order].tolist()],
            "direct_ns": self.direct[order],
            "weight_ns": self.weight[order],
            "share": self.weight[order] / max(self.timelines.length_ns, 1),
        }, schema_overrides={"waiter": pl.String, "waits_for": pl.String})  # fmt: skip


def wait_graph(timelines: Timelines) -> WaitGraph:
    """Compute the wait-for graph and its knots. O(waits * depth of chains)."""
    segments = timelines.segments
    waits = (segments.kind == SegmentKind.WAIT) & (segments.target >= 0)
    target = np.where(waits, segments.target, -1)
    count = len(timelines.actors)
    key = segments.actor * count + target
    pairs, number = np.unique(key[waits], return_inverse=True)
    pair = np.full(target.size, -1, dtype=np.int64)
    pair[waits] = number
    weight, direct = np.zeros((2, pairs.size), dtype=np.int64)
    np.add.at(direct, number, (segments.end - segments.start)[waits])
    columns = WaitColumns(timelines.first, segments.start, segments.end, target, pair)
    redistribute(columns, weight)
    waiter, awaited = np.divmod(pairs, max(count, 1))
    edges = {
        (a, b): w
        for a, b, w in zip(waiter.tolist(), awaited.tolist(), weight.tolist(), strict=True)
    }
    knots = find_knots(edges, timelines.length_ns)
    return WaitGraph(timelines, waiter, awaited, direct, weight, knots)


def find_knots(edges: Mapping[tuple[int, int], int], length: int) -> tuple[tuple[int, ...], ...]:
    """Find the groups of actors that others wait for, and that wait for nobody outside.

    Edges below 1 % of the window do not count. From a group of several, the smallest edge is
    removed until it is over 20 % of the window or the group falls apart, and then its parts are
    looked at in the same way.

    Parameters
    ----------
    edges
        ns by (waiter, target).
    length
        ns of the window.

    Returns
    -------
    tuple of tuples of int
        Actors of each knot, ascending; the knot that is waited for longest comes first, of equal
        ones that with the lowest actor.
    """
    whole = nx.DiGraph()
    for (waiter, target), weight in sorted(edges.items()):
        if weight >= SMALLEST_SHARE * length and waiter != target:
            whole.add_edge(waiter, target, weight=weight)
    found = [
        knot for group in _sinks(whole) for knot in _refined(whole.subgraph(group).copy(), length)
    ]
    waited = {knot: sum(w for _, _, w in whole.in_edges(knot, data="weight")) for knot in found}
    return tuple(sorted(found, key=lambda knot: (-waited[knot], knot)))


def _sinks(graph: nx.DiGraph) -> list[set[int]]:
    """Return the strongly connected groups without an edge to another one."""
    groups = nx.condensation(graph)
    return [set(groups.nodes[n]["members"]) for n in groups if groups.out_degree(n) == 0]


def _refined(knot: nx.DiGraph, length: int) -> list[tuple[int, ...]]:
    """Remove small edges of a knot; gives it, or the knots that it falls into."""
    while knot.number_of_edges():
        weight, waiter, target = min((w, a, b) for a, b, w in knot.edges(data="weight"))
        if weight > SMALLEST_IN_KNOT * length:
            break
        knot.remove_edge(waiter, target)
        parts = _sinks(knot)
        if len(parts) > 1 or len(parts[0]) < knot.number_of_nodes():
            return [one for part in parts for one in _refined(knot.subgraph(part).copy(), length)]
    return [tuple(sorted(knot))]
