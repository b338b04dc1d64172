"""Rows put together by a key: the arrays that graphs and attributes are kept in."""

from __future__ import annotations

import numpy as np

from nadi.kernels._jit import kernel

__all__ = ["group_rows", "in_a_cycle"]


@kernel
def group_rows(keys: np.ndarray, first: np.ndarray, order: np.ndarray) -> None:
    """Sort rows by a small integer key, equal keys in the order given. O(rows + keys).

    Parameters
    ----------
    keys
        int64, shape (rows,): each from 0 to ``len(first) - 2``.
    first
        int64, shape (keys + 1,), filled: where each key's rows begin in ``order``.
    order
        int64, shape (rows,), filled: the rows, sorted.
    """
    first[:] = 0
    for row in range(keys.size):
        first[keys[row] + 1] += 1
    for key in range(first.size - 1):
        first[key + 1] += first[key]
    at = first[:-1].copy()
    for row in range(keys.size):
        order[at[keys[row]]] = row
        at[keys[row]] += 1


@kernel
def in_a_cycle(first: np.ndarray, heads: np.ndarray, left: np.ndarray) -> int:
    """Find a vertex on a cycle, or -1. O(vertices + edges).

    Parameters
    ----------
    first, heads
        int64: the edges by tail; those of tail t are ``heads[first[t]:first[t + 1]]``.
    left
        int64, shape (vertices,), filled: in-degrees that remain after vertices without
        one were taken away, again and again; 0 for all if there is no cycle.
    """
    size = left.size
    left[:] = 0
    for edge in range(heads.size):
        left[heads[edge]] += 1
    queue = np.empty(size, dtype=np.int64)
    end = 0
    for vertex in range(size):
        if left[vertex] == 0:
            queue[end] = vertex
            end += 1
    at = 0
    while at < end:
        tail = queue[at]
        at += 1
        for edge in range(first[tail], first[tail + 1]):
            head = heads[edge]
            left[head] -= 1
            if left[head] == 0:
                queue[end] = head
                end += 1
    if end == size:
        return -1
    # what is left lies on a cycle or after one: go back along what is left until one repeats
    before = np.full(size, -1, dtype=np.int64)
    for tail in range(size):
        if left[tail] > 0:
            for edge in range(first[tail], first[tail + 1]):
                before[heads[edge]] = tail
    vertex = 0
    while left[vertex] == 0:
        vertex += 1
    for _ in range(size):
        vertex = before[vertex]
    return vertex
