"""Longest paths through a directed acyclic graph whose vertices are moments in time.

Edges are stored by destination (compressed sparse rows): vertex v is entered by
the edges ``in_ptr[v]:in_ptr[v + 1]``, each with a source and a weight.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels._jit import kernel

__all__ = ["latest_times", "replay_times", "topological_order", "trace_back"]


@kernel
def topological_order(in_ptr: np.ndarray, in_src: np.ndarray, order: np.ndarray) -> int:
    """Order the vertices so that every edge points forward.

    Depth first from each vertex back along its incoming edges, without recursion.

    Parameters
    ----------
    in_ptr, in_src
        int64, shapes (vertices + 1,) and (edges,).
    order
        int64, shape (vertices,), filled.

    Returns
    -------
    int
        -1, or a vertex that lies on a cycle. O(vertices + edges).
    """
    num_vertices = order.size
    next_edge = in_ptr[:-1].copy()
    state = np.zeros(num_vertices, dtype=np.uint8)  # 0 unseen, 1 on the stack, 2 done
    stack = np.empty(num_vertices, dtype=np.int64)
    num_done = 0
    for root in range(num_vertices):
        if state[root] != 0:
            continue
        stack[0] = root
        state[root] = 1
        depth = 1
        while depth > 0:
            v = stack[depth - 1]
            if next_edge[v] == in_ptr[v + 1]:
                state[v] = 2
                order[num_done] = v
                num_done += 1
                depth -= 1
                continue
            u = in_src[next_edge[v]]
            next_edge[v] += 1
            if state[u] == 1:
                return int(u)
            if state[u] == 0:
                state[u] = 1
                stack[depth] = u
                depth += 1
    return -1


@kernel
def replay_times(
    order: np.ndarray,
    in_ptr: np.ndarray,
    in_src: np.ndarray,
    weight: np.ndarray,
    delay: np.ndarray,
    time: np.ndarray,
    bound_by: np.ndarray,
) -> None:
    """Give each vertex the latest time that its incoming edges ask for, plus its own delay.

    Parameters
    ----------
    order
        int64, shape (vertices,): a topological order.
    in_ptr, in_src, weight
        int64, shapes (vertices + 1,), (edges,) and (edges,); weights in ns.
    delay
        int64 ns, shape (vertices,): added to that latest time; the time itself where
        no edge enters.
    time
        int64 ns, shape (vertices,), filled.
    bound_by
        int64, shape (vertices,), filled: the edge that set the time (of several equal
        ones the first), or -1 where none enters. O(vertices + edges).
    """
    for v in order:
        bound = -1
        latest = 0
        for e in range(in_ptr[v], in_ptr[v + 1]):
            asked = time[in_src[e]] + weight[e]
            if bound < 0 or asked > latest:
                latest = asked
                bound = e
        time[v] = latest + delay[v]
        bound_by[v] = bound


@kernel
def latest_times(
    order: np.ndarray,
    in_ptr: np.ndarray,
    in_src: np.ndarray,
    weight: np.ndarray,
    delay: np.ndarray,
    latest: np.ndarray,
    next_edge: np.ndarray,
) -> None:
    """Give each vertex the latest time at which no vertex after it comes too late.

    Parameters
    ----------
    order, in_ptr, in_src, weight, delay
        As for :func:`replay_times`.
    latest
        int64 ns, shape (vertices,): at entry the latest time at which a vertex may come by
        itself; lowered.
    next_edge
        int64, shape (vertices,), filled: the edge that sets this time (of several equal
        ones the one that enters the vertex latest in ``order``, and of that the first), or
        -1 where it is the vertex's own. O(vertices + edges).
    """
    next_edge[:] = -1
    for at in range(order.size - 1, -1, -1):
        v = order[at]
        for e in range(in_ptr[v], in_ptr[v + 1]):
            allowed = latest[v] - delay[v] - weight[e]
            if allowed < latest[in_src[e]]:
                latest[in_src[e]] = allowed
                next_edge[in_src[e]] = e


@kernel
def trace_back(bound_by: np.ndarray, in_src: np.ndarray, last: int, path: np.ndarray) -> int:
    """Follow binding edges back from a vertex to one that no edge enters.

    Parameters
    ----------
    bound_by, in_src
        int64, shapes (vertices,) and (edges,), as for :func:`replay_times`.
    last
        The vertex to begin with.
    path
        int64, shape (vertices,), filled: the vertices, ``last`` first.

    Returns
    -------
    int
        Number of vertices on the path. O(path).
    """
    path[0] = last
    size = 1
    while bound_by[path[size - 1]] >= 0:
        path[size] = in_src[bound_by[path[size - 1]]]
        size += 1
    return size
