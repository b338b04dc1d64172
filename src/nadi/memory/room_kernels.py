"""Which tensors fit into a memory, one after the other, at every moment of their lives."""

import numpy as np

from nadi.kernels.jit import inner, kernel

_DEEPEST = 64


@inner
def _most(
    most: np.ndarray, more: np.ndarray, low: int, high: int, stack: np.ndarray
) -> int:  # fmt: skip
    """Return the most that is in use in a range of moments. O(log moments)."""
    found = -(2**62)
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 1, 0, more.size // 2, 0
    depth = 1
    while depth:
        depth -= 1
        node, first = stack[depth, 0], stack[depth, 1]
        end, above = stack[depth, 2], stack[depth, 3]
        if end <= low or first >= high:
            continue
        if low <= first and end <= high:
            found = max(found, most[node] + above)
            continue
        above += more[node]
        half = (first + end) // 2
        stack[depth, 0], stack[depth, 1], stack[depth, 2] = 2 * node, first, half
        stack[depth, 3] = above
        stack[depth + 1, 0], stack[depth + 1, 1] = 2 * node + 1, half
        stack[depth + 1, 2], stack[depth + 1, 3] = end, above
        depth += 2
    return found


@inner
def _take(
    most: np.ndarray, more: np.ndarray, low: int, high: int, amount: int, stack: np.ndarray
) -> None:  # fmt: skip
    """Take memory in a range of moments. O(log moments)."""
    leaves = more.size // 2
    stack[0, 0], stack[0, 1], stack[0, 2] = 1, 0, leaves
    depth = 1
    while depth:
        depth -= 1
        node, first, end = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        if end <= low or first >= high:
            continue
        if low <= first and end <= high:
            most[node] += amount
            more[node] += amount
            continue
        half = (first + end) // 2
        stack[depth, 0], stack[depth, 1], stack[depth, 2] = 2 * node, first, half
        stack[depth + 1, 0], stack[depth + 1, 1], stack[depth + 1, 2] = 2 * node + 1, half, end
        depth += 2
    # maxima of the nodes above both ends, from below
    for end in (low, high - 1):
        node = (end + leaves) // 2
        while node:
            most[node] = max(most[2 * node], most[2 * node + 1]) + more[node]
            node //= 2


@kernel
def fill_room(
    order: np.ndarray, begin: np.ndarray, end: np.ndarray, size: np.ndarray, capacity: int,
    moments: int, fits: np.ndarray,
) -> int:  # fmt: skip
    """Put tensors into a memory in an order; those that do not fit stay out.

    - ``order``: int64, shape (tensors to try,).
    - ``begin``, ``end``: int64, shape (tensors,): the moments of their lives, half open, from 0.
    - ``size``: int64 bytes, shape (tensors,).
    - ``capacity``: Bytes; negative for no limit.
    - ``moments``: How many there are.
    - ``fits``: bool, shape (tensors,), filled for those in ``order``.
    - Returns: The most bytes that are in use at any moment. O(tensors log moments).
    """
    leaves = 1
    while leaves < moments:
        leaves *= 2
    most, more = np.zeros(2 * leaves, dtype=np.int64), np.zeros(2 * leaves, dtype=np.int64)
    stack = np.zeros((_DEEPEST, 4), dtype=np.int64)
    for one in order:
        fits[one] = True
        if end[one] <= begin[one]:
            continue
        if capacity >= 0:
            used = _most(most, more, begin[one], end[one], stack)
            fits[one] = used + size[one] <= capacity
        if fits[one]:
            _take(most, more, begin[one], end[one], size[one], stack)
    highest: int = most[1]
    return highest
