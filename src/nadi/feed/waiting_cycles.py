"""Nodes that wait for each other in a circle."""

from __future__ import annotations

import numpy as np

from nadi.kernels.groups import group_rows
from nadi.model.arrays import Ints
from nadi.model.validate import cycle_row

__all__ = ["cycle_among"]


def cycle_among(num_nodes: int, parent: Ints, child: Ints) -> list[int]:
    """Give the nodes of a circle, each waited for by the one before; empty if there is none.

    O(nodes + dependencies), in plain Python only where there is a circle.
    """
    first = cycle_row(num_nodes, parent, child)
    if first < 0:
        return []
    begin = np.empty(num_nodes + 1, dtype=np.int64)
    order = np.empty(child.size, dtype=np.int64)
    group_rows(child, begin, order)
    parents = parent[order]
    # the shortest way from the node back to itself, over what is waited for
    came_from: dict[int, int] = {}
    reached = [first]
    for node in reached:
        for other in parents[begin[node] : begin[node + 1]].tolist():
            if other == first:
                return _way_back(came_from, first, node)
            if other not in came_from:
                came_from[other] = node
                reached.append(other)
    raise AssertionError("cycle_row gave a node that is on no cycle")


def _way_back(came_from: dict[int, int], first: int, last: int) -> list[int]:
    way = [last]
    while way[-1] != first:
        way.append(came_from[way[-1]])
    return way[::-1]
