"""A graph cut in two, edge by edge. An edge is (source, destination, weight)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["border", "inside", "solve"]

Edges = Sequence[tuple[int, int, int]]


def inside(edges: Edges, num_ops: int, num_vertices: int, chosen: Sequence[bool]) -> set[int]:
    """Give the vertices of the part: those of its operations, and hubs that only these touch."""
    part = {vertex for vertex in range(2 * num_ops) if chosen[vertex // 2]}
    for hub in range(2 * num_ops, num_vertices):
        touching = {s for s, d, _ in edges if d == hub} | {d for s, d, _ in edges if s == hub}
        members = {vertex for vertex in touching if vertex < 2 * num_ops}
        if members and members <= part:
            part.add(hub)
    return part


def border(edges: Edges, part: set[int]) -> list[int]:
    """Give the edges that lead into a part."""
    return [n for n, (source, destination, _) in enumerate(edges)
            if destination in part and source not in part]  # fmt: skip


def solve(edges: Edges, delay: Sequence[int], part: set[int], given: Sequence[int]) -> list[int]:
    """Give the times of a part's vertices, ascending; others have the times of ``given``."""
    known: dict[int, int] = {}

    def time(vertex: int) -> int:
        if vertex not in part:
            return given[vertex]
        if vertex not in known:
            entering = [time(s) + weight for s, d, weight in edges if d == vertex]
            known[vertex] = max(entering, default=0) + delay[vertex]
        return known[vertex]

    return [time(vertex) for vertex in sorted(part)]
