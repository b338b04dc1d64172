"""A longest common subsequence of two sequences, in time that grows with their differences.

E. W. Myers, "An O(ND) difference algorithm and its variations", Algorithmica 1 (1986), in its
version of linear space.
"""

import numpy as np

from nadi.kernels.jit import called, inner, kernel

_NOWHERE = -(2**62)


@kernel
def align(left: np.ndarray, right: np.ndarray, most_edits: int, partner: np.ndarray) -> int:
    """Pair equal elements of two sequences, in order, as many as possible.

    - ``left``, ``right``: int64, shape (n,) and (m,).
    - ``most_edits``: Up to half so many elements without a partner between two stretches, the pairs
      are as many as can be; where there are more, they may be fewer.
    - ``partner``: int64, shape (n,), -1 at entry: filled with the position in ``right``.
    - Returns: Number of pairs. With d elements that have none expected O(n + m + d^2), and never
      more than O((n + m) * most_edits).
    """
    # furthest positions reached on each diagonal, from the beginning and from the end
    forward, backward = np.empty((2, 2 * most_edits + 3), dtype=np.int64)
    boxes = np.empty((left.size + right.size + 2, 4), dtype=np.int64)
    boxes[0] = (0, left.size, 0, right.size)
    num_boxes = 1
    num_pairs = 0
    while num_boxes > 0:
        num_boxes -= 1
        a, a_end, b, b_end = boxes[num_boxes]
        while a < a_end and b < b_end and left[a] == right[b]:
            partner[a] = b
            num_pairs += 1
            a += 1
            b += 1
        while a < a_end and b < b_end and left[a_end - 1] == right[b_end - 1]:
            a_end -= 1
            b_end -= 1
            partner[a_end] = b_end
            num_pairs += 1
        if a == a_end or b == b_end:
            continue
        x, y = _split(left[a:a_end], right[b:b_end], most_edits, forward, backward)
        boxes[num_boxes] = (a, a + x, b, b + y)
        boxes[num_boxes + 1] = (a + x, a_end, b + y, b_end)
        num_boxes += 2
    return num_pairs


@called
def _split(
    left: np.ndarray,
    right: np.ndarray,
    most_edits: int,
    forward: np.ndarray,
    backward: np.ndarray,
) -> tuple[int, int]:
    """Find a point on a best path, by searching from both ends until the searches meet.

    If they do not within ``most_edits``, it is the point furthest from the beginning.
    Neither the first nor the last elements are equal.
    """
    n, m = left.size, right.size
    zero = most_edits + 1
    best_x = best_y = np.int64(0)
    for d in range(most_edits + 1):
        for reached in (forward, backward):
            # what the first step comes from; then, diagonals that nothing has reached
            reached[zero - d - 1] = _NOWHERE
            reached[zero + d + 1] = _NOWHERE if d > 0 else 0
        best_x, best_y = np.int64(0), np.int64(0)
        lowest, highest = -d + 2 * max(0, d - m), d - 2 * max(0, d - n)
        for k in range(lowest, highest + 1, 2):
            x = _step(forward, zero + k, k, n, m)
            forward[zero + k] = x
            if x < 0:
                continue
            y = x - k
            while x < n and y < m and left[x] == right[y]:
                x += 1
                y += 1
            forward[zero + k] = x
            if x + y > best_x + best_y:
                best_x, best_y = x, y
            other = n - m - k
            if (n - m) % 2 != 0 and -d < other < d and x + backward[zero + other] >= n:
                return x, y
        for k in range(lowest, highest + 1, 2):
            x = _step(backward, zero + k, k, n, m)
            backward[zero + k] = x
            if x < 0:
                continue
            y = x - k
            while x < n and y < m and left[n - 1 - x] == right[m - 1 - y]:
                x += 1
                y += 1
            backward[zero + k] = x
            other = n - m - k
            if (n - m) % 2 == 0 and -d <= other <= d and x + forward[zero + other] >= n:
                return n - x, m - y
    return best_x, best_y


@inner
def _step(reached: np.ndarray, at: int, k: int, n: int, m: int) -> int:
    """Leave out one element, of the left or the right, to come to diagonal k."""
    x = reached[at + 1]  # one of the right
    if x - k > m:
        x = np.int64(_NOWHERE)
    beside = reached[at - 1]  # one of the left
    if 0 <= beside < n and beside + 1 > x:
        x = beside + 1
    return x if x >= 0 else np.int64(_NOWHERE)
