"""Which vertex of a graph comes before which: plain Python and numpy, nothing of Nadi."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Edges = Sequence[tuple[int, int]]


class Reach:
    """Answers whether a path leads from one vertex to another.

    The graph is covered by paths, found greedily; for every vertex it is kept how far along
    each of them something comes before it. O((vertices + edges) * paths), where paths are
    about as many as threads and streams.

    Parameters
    ----------
    num_vertices
        Number of vertices.
    edges
        Pairs (source, destination). Of several that enter a vertex, the ones given first
        are preferred for continuing a path. What lies on a cycle, or behind one, has no
        place in any order: no path is found to it or from it.
    """

    def __init__(self, num_vertices: int, edges: Edges) -> None:
        self.order = topological_order(num_vertices, edges)
        sources: list[list[int]] = [[] for _ in range(num_vertices)]
        for source, destination in edges:
            sources[destination].append(source)
        self._path, self._place, num_paths = _cover(num_vertices, self.order, sources)
        self._before = np.full((num_vertices, num_paths), -1, dtype=np.int32)
        for vertex in self.order:
            row = self._before[vertex]
            for source in sources[vertex]:
                np.maximum(row, self._before[source], out=row)
            row[self._path[vertex]] = self._place[vertex]

    def leads(self, source: int, destination: int) -> bool:
        """Tell whether there is a path, or both are the same vertex."""
        path = self._path[source]
        return path >= 0 and bool(self._before[destination, path] >= self._place[source])


def _cover(
    num_vertices: int, order: Sequence[int], sources: Sequence[Sequence[int]]
) -> tuple[list[int], list[int], int]:
    """Cover the graph with paths: per vertex its path and its place on it, and their number."""
    path, place = [-1] * num_vertices, [0] * num_vertices
    ends: list[int] = []
    for vertex in order:
        before = next((s for s in sources[vertex] if ends[path[s]] == s), -1)
        if before >= 0:
            path[vertex], place[vertex] = path[before], place[before] + 1
            ends[path[vertex]] = vertex
        else:
            path[vertex] = len(ends)
            ends.append(vertex)
    return path, place, len(ends)


def topological_order(num_vertices: int, edges: Edges) -> list[int]:
    """Order the vertices so that edges lead onward; those on or behind a cycle are missing."""
    waiting = [0] * num_vertices
    followers: list[list[int]] = [[] for _ in range(num_vertices)]
    for source, destination in edges:
        waiting[destination] += 1
        followers[source].append(destination)
    order = [vertex for vertex in range(num_vertices) if not waiting[vertex]]
    for vertex in order:  # grows while it is walked
        for follower in followers[vertex]:
            waiting[follower] -= 1
            if not waiting[follower]:
                order.append(follower)
    return order
