"""Binary min-heaps of integers, each in an array from ``base`` on."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import inner

__all__ = ["put_in", "take_first"]


@inner
def put_in(heap: np.ndarray, base: int, size: int, item: int) -> None:
    """Push an item onto a heap of ``size`` items."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if heap[base + parent] <= item:
            break
        heap[base + at] = heap[base + parent]
        at = parent
    heap[base + at] = item


@inner
def take_first(heap: np.ndarray, base: int, left: int) -> int:
    """Remove the first item of a heap that keeps ``left`` items; the last one replaces it."""
    first, item = heap[base], heap[base + left]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= left:
            break
        if child + 1 < left and heap[base + child + 1] < heap[base + child]:
            child += 1
        if heap[base + child] >= item:
            break
        heap[base + at] = heap[base + child]
        at = child
    heap[base + at] = item
    return first
