"""Longest paths through a graph of moments. An edge is (source, destination, weight)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["is_topological", "latest_times", "lies_on_cycle", "stretches", "way_back"]

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


def stretches(
    path: Sequence[tuple[int | None, int, tuple[int, str, int | None] | None, int]], begin: int
) -> list[tuple[int, int, str, int | None, int | None]]:
    """Cut a path into stretches: start, end, kind, operation whose time it is, and that waits.

    ``path`` has for each vertex its operation, its delay, the edge into it (weight, kind,
    operation) and when the path comes to it. Looked at is one ns after the other.
    """
    moments: list[tuple[int, tuple[str, int | None, int | None]]] = []
    for number, (operation, delay, edge, reached) in enumerate(path):
        own = next((op for op, *_ in path[number:] if op is not None), operation)
        came = begin
        if edge is not None:
            weight, kind, of = edge
            came = reached - delay
            place = own if of is None else of
            moments += [(ns, (kind, of, place)) for ns in range(came - weight, came)]
        moments += [(ns, ("delay", own, own)) for ns in range(came, reached)]
    found: list[tuple[int, int, str, int | None, int | None]] = []
    for ns, what in moments:
        if ns < begin:
            continue
        if found and found[-1][2:] == what:
            found[-1] = (found[-1][0], ns + 1, *what)
        else:
            found.append((ns, ns + 1, *what))
    return found
