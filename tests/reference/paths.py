"""Longest paths through a graph of moments. An edge is (source, destination, weight)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["is_topological", "latest_times", "lies_on_cycle", "way_back"]

Edges = Sequence[tuple[int, int, int]]


def latest_times(edges: Edges, delay: Sequence[int]) -> tuple[list[int], list[int]]:
    """Give each vertex its time and the edge that bound it, or -1; the graph has no cycle."""
    entering: list[list[int]] = [[] for _ in delay]
    for number, (_, destination, _) in enumerate(edges):
        entering[destination].append(number)
    known: dict[int, tuple[int, int]] = {}

    def solve(vertex: int) -> tuple[int, int]:
        if vertex not in known:
            asked = [(solve(edges[e][0])[0] + edges[e][2], e) for e in entering[vertex]]
            latest = max((time for time, _ in asked), default=0)
            bound_by = next((e for time, e in asked if time == latest), -1)
            known[vertex] = latest + delay[vertex], bound_by
        return known[vertex]

    solved = [solve(vertex) for vertex in range(len(delay))]
    return [time for time, _ in solved], [bound_by for _, bound_by in solved]


def is_topological(order: Sequence[int], edges: Edges, num_vertices: int) -> bool:
    """Tell whether ``order`` has each vertex once and every edge points forward in it."""
    place = {vertex: position for position, vertex in enumerate(order)}
    return sorted(order) == list(range(num_vertices)) and all(
        place[source] < place[destination] for source, destination, _ in edges
    )


def lies_on_cycle(vertex: int, edges: Edges) -> bool:
    """Tell whether edges lead from ``vertex`` back to itself."""
    reached: set[int] = set()
    found = {destination for source, destination, _ in edges if source == vertex}
    while found - reached:
        reached |= found
        found = {destination for source, destination, _ in edges if source in reached}
    return vertex in reached


def way_back(edges: Edges, bound_by: Sequence[int], last: int) -> list[int]:
    """List the vertices from ``last`` back along binding edges."""
    if bound_by[last] < 0:
        return [last]
    return [last, *way_back(edges, bound_by, edges[bound_by[last]][0])]
