"""Convert the event graph to a networkx DiGraph, and back after any edit."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nadi.errors import Parameter, UsageError, check_kind, checked
from nadi.graph.event_graph import CycleError, EdgeKind, Edges, EventGraph, make_edges
from nadi.trace.arrays import Ints

if TYPE_CHECKING:
    import networkx as nx

_KINDS = {kind.name.lower(): kind for kind in EdgeKind}
_LONGEST_SUM = 2.0**62  # ns; beyond twice this sum times exceed int64
_ORIGINAL = "nadi"  # the key under which a DiGraph keeps its original graph


@checked
def to_networkx(graph: EventGraph) -> nx.DiGraph:
    """Convert the graph to a DiGraph, for networkx' algorithms and for editing.

    Returns
    -------
    networkx.DiGraph
        A node for each vertex, with ``name``, ``rank``, ``row``, ``moment`` (start, end or
        entered), ``time`` and ``delay`` (ns). Edges have ``weight`` (ns), ``kind`` and ``op``, the
        number of the operation that the time belongs to, or -1. If several edges connect two
        nodes, the longest is kept, which changes no time. O(vertices + edges).
    """
    check_kind("graph", graph, EventGraph, "make one with nadi.build_graph(nadi.load_job(...))")
    import networkx as nx

    result = nx.DiGraph(**{_ORIGINAL: graph})
    ranks = np.array(graph.job.ranks, dtype=np.int64)[graph.op_trace].tolist()
    rows, names = graph.op_row.tolist(), graph.op_names.to_list()
    time, delay = graph.time.tolist(), graph.delay.tolist()
    for vertex in range(graph.num_vertices):
        op = vertex // 2
        if op < graph.num_ops:
            said = {"name": names[op], "rank": ranks[op], "row": rows[op],
                    "moment": "end" if vertex % 2 else "start"}  # fmt: skip
        else:
            said = {"name": "", "rank": -1, "row": -1, "moment": "entered"}
        result.add_node(vertex, **said, time=time[vertex], delay=delay[vertex])
    kinds = {int(kind): kind.name.lower() for kind in EdgeKind}
    longest = _longest(graph)
    for src, dst, weight, kind, op in zip(
        *(column[longest].tolist() for column in graph.edges), strict=True
    ):
        result.add_edge(src, dst, weight=weight, kind=kinds[kind], op=op)
    return result


def _longest(graph: EventGraph) -> Ints:
    """Return the longest of the edges between each two vertices, in the graph's order."""
    edges = graph.edges
    order = np.lexsort((-edges.weight, edges.src, edges.dst))
    new = np.ones(order.size, dtype=np.bool_)
    new[1:] = (np.diff(edges.src[order]) != 0) | (np.diff(edges.dst[order]) != 0)
    return np.sort(order[new])


def from_networkx(digraph: nx.DiGraph) -> EventGraph:
    """Convert a DiGraph from :func:`to_networkx` back to an event graph, with all edits.

    Weights (ns) may be changed, and edges and nodes added and removed. A new edge has weight 0 and
    kind ``added`` by default. A new node has no operation, and a delay if it has the attribute
    ``delay``. An operation is removed if both of its nodes are removed.

    Raises
    ------
    UsageError
        If the DiGraph is not from :func:`to_networkx`; if the weight of an edge is not a whole
        number, or its kind or operation does not exist; if all weights and delays add up to more
        than 2^62 ns; or if only one of the two nodes of an operation was removed.
    CycleError
        If dependencies form a cycle; the error names the operations.
    """
    original = getattr(digraph, "graph", {}).get(_ORIGINAL)
    if not isinstance(original, EventGraph):
        raise UsageError(
            Parameter("digraph"), "was not made by to_networkx",
            "edit the DiGraph of to_networkx, or a copy of it",
        )  # fmt: skip
    base, number = _without_ops(original, digraph)
    had_edges = np.diff(original.in_ptr)[np.fromiter(number, np.int64, len(number))] > 0
    others = [node for node in digraph if node not in number]
    first_new = base.num_vertices
    number |= {node: first_new + k for k, node in enumerate(others)}
    num_ops = original.num_ops
    columns = [_edge(u, v, said, number, num_ops) for u, v, said in digraph.edges(data=True)]
    own = [_delay(node, digraph.nodes[node]) for node in others]
    longest = sum((abs(weight) for _, _, weight, _, _ in columns), start=0.0) + sum(own)
    if longest > _LONGEST_SUM:
        raise UsageError(
            "from_networkx",
            "the weights and delays add up to more than 2^62 ns (146 years)",
            "give them in nanoseconds",
        )  # fmt: skip
    src, dst, weight, kind, op = np.array(columns, dtype=np.int64).reshape(-1, 5).T
    of_op = _renumbered_ops(original, number)
    edges = make_edges(src, dst, weight, kind, np.append(of_op, -1)[op])
    # a vertex that had no edges and has one now still occurs no sooner than before
    has_edges = np.bincount(dst, minlength=first_new)[:first_new] > 0
    held = np.flatnonzero(has_edges & ~had_edges)
    moments = first_new + len(others) + np.arange(held.size)
    first = make_edges(moments, held, 0, EdgeKind.ADDED, -1)
    edges = Edges(*(np.concatenate(pair) for pair in zip(edges, first, strict=True)))
    try:
        made = base.with_edges(edges, len(others) + held.size)
    except CycleError as error:
        names = {vertex: node for node, vertex in number.items()}
        said = [
            str(names[vertex]) if vertex >= first_new else moment
            for vertex, moment in zip(error.vertices, error.moments, strict=True)
        ]
        raise CycleError(said, error.vertices) from None
    delay = np.concatenate([base.delay, np.array(own, dtype=np.int64), base.delay[held]])
    delay[held] = 0
    return replace(made, delay=delay)


def _edge(
    u: Hashable, v: Hashable, said: dict[str, Any], number: dict[Hashable, int], num_ops: int
) -> list[int]:
    where = f"edge {u!r} -> {v!r}"
    weight, kind, op = said.get("weight", 0), said.get("kind", "added"), said.get("op", -1)
    if not _is_whole(weight):
        raise UsageError(where, f"has weight {weight!r}", "give whole nanoseconds")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UsageError(where, f"has kind {kind!r}", f"give one of {', '.join(_KINDS)}")
    if not _is_whole(op) or not -1 <= op < num_ops:
        raise UsageError(
            where, f"has op {op!r}", f"give an operation, 0 to {num_ops - 1}, or -1 for none"
        )
    return [number[u], number[v], int(weight), int(_KINDS[kind]), int(op)]


def _delay(node: Hashable, said: dict[str, Any]) -> int:
    delay = said.get("delay", 0)
    if not _is_whole(delay) or delay < 0:
        raise UsageError(
            f"node {node!r}", f"has delay {delay!r}", "give whole nanoseconds, 0 or more"
        )
    return int(delay)


def _is_whole(value: object) -> bool:
    """Return whether a value is a whole number that fits into int64."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    return -(2**63) <= int(value) < 2**63


def _without_ops(
    original: EventGraph, digraph: nx.DiGraph
) -> tuple[EventGraph, dict[Hashable, int]]:
    """Drop operations without their two nodes; returns the graph and each node's new number."""
    there = np.array([vertex in digraph for vertex in range(original.num_vertices)], dtype=np.bool_)
    both = there[: 2 * original.num_ops].reshape(-1, 2)
    half = np.flatnonzero(both[:, 0] != both[:, 1])
    if half.size:
        op = int(half[0])
        raise UsageError(
            "from_networkx",
            f"only one of the two nodes of {original.op_names[op]} exists "
            f"(start {2 * op}, end {2 * op + 1})", "remove both nodes or neither",
        )  # fmt: skip
    kept_vertex = np.flatnonzero(there)
    number: dict[Hashable, int] = dict(
        zip(kept_vertex.tolist(), range(kept_vertex.size), strict=True)
    )
    base = original.of_operations(both[:, 0], kept_vertex)
    return base, number


def _renumbered_ops(original: EventGraph, number: dict[Hashable, int]) -> Ints:
    ops = np.full(original.num_ops, -1, dtype=np.int64)
    for op in range(original.num_ops):
        if 2 * op in number:
            ops[op] = number[2 * op] // 2
    return ops
