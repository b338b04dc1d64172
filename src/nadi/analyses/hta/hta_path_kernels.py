"""The longest path through a directed acyclic graph, with the tie-breaking of NetworkX."""

import numpy as np

from nadi.kernels.jit import inner, kernel


@inner
def _longest_into(
    v: int, in_ptr: np.ndarray, in_src: np.ndarray, in_weight: np.ndarray, distance: np.ndarray
) -> tuple[int, int]:
    """Give the vertex before ``v`` on the longest path to it, itself if none, and its length."""
    best = -1
    longest = 0
    for e in range(in_ptr[v], in_ptr[v + 1]):
        length = distance[in_src[e]] + in_weight[e]
        if best < 0 or length > longest:
            best = in_src[e]
            longest = length
    return (v, 0) if best < 0 or longest < 0 else (best, longest)


@inner
def _vertex_on_cycle(in_ptr: np.ndarray, in_src: np.ndarray, before: np.ndarray) -> int:
    """Give a vertex that lies on a cycle, where some were not reached (``before`` is -1)."""
    v = 0
    while before[v] >= 0:
        v += 1
    # an unreached vertex has an unreached predecessor; walking back must end in a cycle
    for _ in range(before.size):
        e = in_ptr[v]
        while before[in_src[e]] >= 0:
            e += 1
        v = in_src[e]
    return v


@kernel
def longest_path(
    in_ptr: np.ndarray,
    in_src: np.ndarray,
    in_weight: np.ndarray,
    out_ptr: np.ndarray,
    out_dst: np.ndarray,
    distance: np.ndarray,
    before: np.ndarray,
) -> int:
    """Find the longest path; of equally long paths the first one.

    Vertices are gone through generation by generation: first those that no edge enters,
    in order, then each as soon as its last predecessor is done. Of several predecessors
    with the same distance the first is taken, of several last vertices too.

    - ``in_ptr``, ``in_src``, ``in_weight``: int64, shapes (vertices + 1,), (edges,), (edges,): the
      edges that enter each vertex.
    - ``out_ptr``, ``out_dst``: int64, shapes (vertices + 1,), (edges,): the edges that leave each.
    - ``distance``: int64, shape (vertices,), filled: length of the longest path to each, at least
      0.
    - ``before``: int64, shape (vertices,), filled: the vertex before on that path; itself for its
      first.
    - Returns: Last vertex of the longest path; of a graph with a cycle -1 less a vertex that lies
      on one. O(vertices + edges).
    """
    num_vertices = distance.size
    queue = np.empty(num_vertices, dtype=np.int64)
    missing = np.empty(num_vertices, dtype=np.int64)
    size = 0
    for v in range(num_vertices):
        before[v] = -1
        missing[v] = in_ptr[v + 1] - in_ptr[v]
        if missing[v] == 0:
            queue[size] = v
            size += 1
    at = 0
    last = -1
    while at < size:
        v = queue[at]
        at += 1
        before[v], distance[v] = _longest_into(v, in_ptr, in_src, in_weight, distance)
        if last < 0 or distance[v] > distance[last]:
            last = v
        for e in range(out_ptr[v], out_ptr[v + 1]):
            w = out_dst[e]
            missing[w] -= 1
            if missing[w] == 0:
                queue[size] = w
                size += 1
    return last if size == num_vertices else -1 - _vertex_on_cycle(in_ptr, in_src, before)
