"""Find nodes that depend on each other in a cycle."""

from __future__ import annotations

import numpy as np

from nadi.kernels.groups import group_rows
from nadi.trace.arrays import Ints
from nadi.trace.validate import cycle_row

__all__ = ["cycle_among"]


def cycle_among(num_nodes: int, parent: Ints, child: Ints) -> list[int]:
    """Return the nodes of a cycle, each of which the one before depends on; empty if there is none.

    O(nodes + dependencies), in plain Python only if there is a cycle.
    """
    first = cycle_row(num_nodes, parent, child)
    if first < 0:
        return []
    begin = np.empty(num_nodes + 1, dtype=np.int64)
    order = np.empty(child.size, dtype=np.int64)
    group_rows(child, begin, order)
    parents = parent[order]
    # the shortest path from the node back to itself, along its dependencies
    came_from: dict[int, int] = {}
    reached = [first]
    for node in reached:
        for other in parents[begin[node] : begin[node + 1]].tolist():
            if other == first:
                return _way_back(came_from, first, node)
            if other not in came_from:
                came_from[other] = node
                reached.append(other)
    raise AssertionError("cycle_row returned a node that is not on a cycle")


def _way_back(came_from: dict[int, int], first: int, last: int) -> list[int]:
    way = [last]
    while way[-1] != first:
        way.append(came_from[way[-1]])
    return way[::-1]
