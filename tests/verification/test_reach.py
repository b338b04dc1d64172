"""Paths between vertices, against a closure worked out by trying all."""

from __future__ import annotations

from _reach import Reach, topological_order
from hypothesis import given, strategies as st


@st.composite
def acyclic_graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    number = draw(st.integers(1, 12))
    renamed = draw(st.permutations(range(number)))
    vertices = st.integers(0, number - 1)
    pairs = draw(st.lists(st.tuples(vertices, vertices), max_size=30))
    return number, [(renamed[min(p)], renamed[max(p)]) for p in pairs if p[0] != p[1]]


@given(acyclic_graphs())
def test_paths_are_those_of_the_closure(graph: tuple[int, list[tuple[int, int]]]) -> None:
    number, edges = graph
    leads = [[a == b or (a, b) in edges for b in range(number)] for a in range(number)]
    for via in range(number):
        for a in range(number):
            for b in range(number):
                leads[a][b] |= leads[a][via] and leads[via][b]
    reach = Reach(number, edges)
    assert [[reach.leads(a, b) for b in range(number)] for a in range(number)] == leads


def test_nothing_leads_to_a_cycle_or_from_it() -> None:
    edges = [(0, 1), (1, 2), (2, 1), (2, 3)]
    assert topological_order(4, edges) == [0]
    reach = Reach(4, edges)
    assert reach.leads(0, 0)
    assert not any(reach.leads(a, b) for a, b in edges)
