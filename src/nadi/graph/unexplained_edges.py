"""Edges whose time the recording does not explain: long gaps, and waits for unknown work."""

import numpy as np

from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import pattern

_MARK = "ProfilerStep#"
_FAR_OUT = 3  # interquartile ranges above the upper quartile: far out by Tukey's rule
_FEWEST_GAPS = 8
_MOST_GAPS = 50_000  # so many, evenly chosen, are enough for quartiles
_SYNCS = ("device sync", "stream sync", "event sync")


def long_gaps(graph: EventGraph, edge: Ints) -> Bools:
    """Return which edges are long gaps of a thread that nothing names.

    A gap on the host is long if it is far out among the gaps of the recording: above the upper
    quartile by three interquartile ranges, on a logarithmic scale.

    - ``edge``: int64: positions of edges.
    - Returns bool, shape of ``edge``. O(edges).
    """
    gaps = np.flatnonzero(graph.edge_kind == EdgeKind.HOST_GAP)
    gaps = _without_cause(graph, gaps[:: max(gaps.size // _MOST_GAPS, 1)])
    found = np.zeros(edge.size, dtype=np.bool_)
    if gaps.size < _FEWEST_GAPS:
        return found
    lower, upper = np.percentile(np.log(graph.weight[gaps]), (25, 75))
    at = np.flatnonzero(graph.edge_kind[edge] == EdgeKind.HOST_GAP)
    at = at[graph.weight[edge[at]] > 0]
    at = at[np.log(graph.weight[edge[at]]) > upper + _FAR_OUT * (upper - lower)]
    found[at[np.isin(edge[at], _without_cause(graph, edge[at]))]] = True
    return found


def _without_cause(graph: EventGraph, gaps: Ints) -> Ints:
    """Return the gaps that take time, and that nothing names.

    A Python function names what happens in it, and so does a label most of whose time is its own:
    that of a data loader, or one that the user put there. The mark of a step does not.
    """
    gaps = gaps[graph.weight[gaps] > 0]
    around = np.maximum(graph.edge_op[gaps], 0)
    category = graph.gather("category", around)
    own, lasts = (graph.numbers(column, around) for column in ("exclusive", "duration"))
    is_label = (category == "annotation").to_numpy() & (2 * own >= lasts)
    is_label &= ~graph.names(around).str.starts_with(_MARK).to_numpy()
    named = (category == "python").to_numpy() | is_label
    found: Ints = gaps[(graph.edge_op[gaps] < 0) | ~named]
    return found


def unknown_waits(graph: EventGraph, edge: Ints, vertices: Ints) -> Bools:
    """Return which edges are the time of calls that wait for work that is not known.

    - ``edge``, ``vertices``: int64: positions of edges, and the vertex that each enters.
    - Returns bool, shape of ``edge``. O(edges + deps).
    """
    found = np.zeros(edge.size, dtype=np.bool_)
    at = np.flatnonzero((graph.edge_kind[edge] == EdgeKind.HOST_OP) & (vertices % 2 == 1))
    at = at[graph.edge_op[edge[at]] == vertices[at] // 2]
    names = graph.names(vertices[at] // 2)
    at = at[names.str.contains(pattern(*_SYNCS)).to_numpy()]
    which, incoming = graph.incoming(vertices[at])
    has_work = np.zeros(at.size, dtype=np.bool_)
    has_work[which[graph.edge_kind[incoming] == EdgeKind.SYNC]] = True
    found[at[~has_work]] = True
    return found
