"""The longest path is the one that NetworkX finds."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings, strategies as st

from nadi.analyses.hta.hta_path_kernels import longest_path
from tests.amounts import examples


def longest(num_vertices: int, edges: list[tuple[int, int, int]]) -> list[int] | int:
    """Give the longest path; of a graph with a cycle the kernel's answer."""
    begin, end, weight = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    entering, leaving = np.argsort(end, kind="stable"), np.argsort(begin, kind="stable")
    steps = np.arange(num_vertices + 1)
    distance, before = np.empty((2, num_vertices), dtype=np.int64)
    last = longest_path(
        np.searchsorted(end[entering], steps), begin[entering], weight[entering],
        np.searchsorted(begin[leaving], steps), end[leaving], distance, before,
    )  # fmt: skip
    if last < 0:
        return int(last)
    path = [int(last)]
    while before[path[-1]] != path[-1]:
        path.append(int(before[path[-1]]))
    return path[::-1]


@st.composite
def acyclic(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    """Graphs with many equal paths, in any order of edges, each edge once."""
    size = draw(st.integers(1, 10))
    place = draw(st.permutations(range(size)))
    vertex = st.integers(0, size - 1)
    pairs = draw(st.lists(st.tuples(vertex, vertex), unique_by=frozenset, max_size=25))
    weights = draw(st.lists(st.integers(-1, 2), min_size=len(pairs), max_size=len(pairs)))
    return size, [
        (*((a, b) if place[a] < place[b] else (b, a)), weight)
        for (a, b), weight in zip(pairs, weights, strict=True)
        if a != b
    ]


@settings(max_examples=examples(300))
@given(acyclic())
def test_as_networkx(graph: tuple[int, list[tuple[int, int, int]]]) -> None:
    size, edges = graph
    expected = nx.DiGraph()
    expected.add_nodes_from(range(size))
    expected.add_weighted_edges_from(edges)
    assert longest(size, edges) == nx.dag_longest_path(expected)


@given(st.integers(2, 8).flatmap(lambda size: st.tuples(
    st.just(size),
    st.lists(st.tuples(*[st.integers(0, size - 1)] * 2), unique=True, max_size=15),
)))  # fmt: skip
def test_a_cycle_is_told_by_one_of_its_vertices(graph: tuple[int, list[tuple[int, int]]]) -> None:
    size, pairs = graph
    found = longest(size, [(begin, end, 1) for begin, end in pairs])
    expected = nx.DiGraph(pairs)
    if nx.is_directed_acyclic_graph(expected):
        assert isinstance(found, list)
    else:
        assert isinstance(found, int)
        assert any(-1 - found in cycle for cycle in nx.simple_cycles(expected))
