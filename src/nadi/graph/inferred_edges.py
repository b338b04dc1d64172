"""Edges that are inferred from times, and which of them the repeats of a recording confirm."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.trace.arrays import Bools, Ints

__all__ = ["is_inferred", "unconfirmed_edges"]

_KINDS = ("launch", "event", "sync", "thread")
_FEWEST_REPEATS = 3


def is_inferred(graph: EventGraph, edges: Ints) -> Bools:
    """Return which edges stand for dependencies that the recording does not state.

    Parameters
    ----------
    edges
        int64: positions of edges.

    Returns
    -------
    bool, shape of ``edges``. O((edges + deps) log deps).
    """
    pairs = _inferred_pairs(graph)
    if not pairs.size:
        return np.zeros(edges.size, dtype=np.bool_)
    found: Bools = np.isin(_pair(graph, graph.in_src[edges], _entered(graph, edges)), pairs)
    return found


def unconfirmed_edges(graph: EventGraph) -> Ints:
    """Return the inferred edges whose repeats do not confirm them; int64, ascending.

    The repeats of an edge are the inferred edges between operations of the same names. If the
    dependency is real, its destination follows its source after a latency that varies little,
    while the time since anything else that the destination waits for varies with what runs in
    between. Repeats confirm an edge if the latency varies less than that time, in at least three
    of them.
    """
    edges = np.flatnonzero(is_inferred(graph, np.arange(graph.num_edges)))
    if not edges.size:
        return edges
    source, vertex = graph.in_src[edges], _entered(graph, edges)
    repeats = pl.DataFrame({
        "source": graph.names(_operation(graph, source)),
        "vertex": graph.names(_operation(graph, vertex)),
        "kind": graph.edge_kind[edges],
        "latency": graph.time[vertex] - graph.time[source],
        "otherwise": graph.time[vertex] - _stated_before(graph, vertex),
    })  # fmt: skip
    same = ("source", "vertex", "kind")
    confirmed = repeats.select(
        (pl.len() >= _FEWEST_REPEATS).over(same)
        & (pl.col("latency").std() < pl.col("otherwise").std()).over(same)
    ).to_series()
    found: Ints = edges[~confirmed.to_numpy()]
    return found


def _stated_before(graph: EventGraph, vertices: Ints) -> Ints:
    """Return when vertices could occur without their inferred edges; 0 without other edges."""
    which, incoming = graph.incoming(vertices)
    stated = ~is_inferred(graph, incoming)
    before = np.zeros(vertices.size, dtype=np.int64)
    reached = graph.time[graph.in_src[incoming]] + graph.weight[incoming]
    np.maximum.at(before, which[stated], reached[stated])
    return before


def _inferred_pairs(graph: EventGraph) -> Ints:
    """Return the numbers of all inferred dependencies between operations."""
    found = [np.empty(0, dtype=np.int64)]
    for number, trace in enumerate(graph.job.traces):
        deps = trace.deps.filter(pl.col("inferred") & pl.col("kind").is_in(_KINDS))
        op_of_row = graph.ops_of_rows(number)
        src, dst = op_of_row[deps["src"].to_numpy()], op_of_row[deps["dst"].to_numpy()]
        here = (src >= 0) & (dst >= 0)
        found.append(_pair(graph, 2 * src[here], 2 * dst[here]))
    return np.concatenate(found)


def _pair(graph: EventGraph, source: Ints, vertex: Ints) -> Ints:
    """Return a number for each pair of operations."""
    return (source // 2) * (graph.num_vertices + 1) + vertex // 2


def _entered(graph: EventGraph, edges: Ints) -> Ints:
    """Return the vertex that each edge enters."""
    found: Ints = np.searchsorted(graph.in_ptr, edges, side="right") - 1
    return found


def _operation(graph: EventGraph, vertices: Ints) -> Ints:
    """Return the operation of each vertex; the last one for moments of collectives."""
    found: Ints = np.minimum(vertices // 2, graph.num_ops - 1)
    return found
