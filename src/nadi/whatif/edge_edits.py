"""Edge operations that several changes share."""

from __future__ import annotations

import numpy as np

from nadi.graph.event_graph import EdgeKind, Edges, EventGraph
from nadi.trace.arrays import Bools
from nadi.trace.schema import DEVICE_WORK
from nadi.whatif.selection import launchers

__all__ = ["calls_without_work", "into_ops", "is_on_device", "join", "of_ops", "without_calls"]


def is_on_device(graph: EventGraph) -> Bools:
    """Return which operations run on a device; bool, shape (ops,)."""
    return graph.gather("category").is_in(DEVICE_WORK).to_numpy()


def of_ops(edges: Edges, chosen: Bools) -> Bools:
    """Return which edges are time of chosen operations; bool, shape (edges,)."""
    return np.append(chosen, False)[edges.op]


def into_ops(edges: Edges, chosen: Bools) -> Bools:
    """Return which edges enter a start or end of chosen operations; bool, shape (edges,)."""
    into = np.minimum(edges.dst // 2, chosen.size)  # meetings of ranks come after all operations
    return np.append(chosen, False)[into]


def join(one: Edges, other: Edges) -> Edges:
    """Concatenate edges, in order."""
    return Edges(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))


def calls_without_work(graph: EventGraph, gone: Bools, since: int) -> Bools:
    """Return which calls from ``since`` on launch nothing once operations are removed.

    bool, shape (ops,).
    """
    call = launchers(graph)
    launched, left = np.zeros((2, graph.num_ops), dtype=np.bool_)
    launched[call[call >= 0]] = True
    left[call[(call >= 0) & ~gone]] = True
    found: Bools = launched & ~left & (graph.time[0 : 2 * graph.num_ops : 2] >= since)
    return found


def without_calls(edges: Edges, calls: Bools) -> Edges:
    """Set the time of removed calls to 0, and remove their waits."""
    waits = (edges.kind == EdgeKind.SYNC) & (edges.dst % 2 == 1) & into_ops(edges, calls)
    weight = np.where(of_ops(edges, calls), 0, edges.weight)
    return Edges(*(column[~waits] for column in edges._replace(weight=weight)))
