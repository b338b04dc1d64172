"""Nodes that wait for others, released many at a time: for feeders of simulators.

Children are kept by parent: those of row r are ``child[child_first[r]:child_first[r + 1]]``.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, inner, kernel
from nadi.kernels.sequences import put_in, take_first

# states of a node, in the order in which it has them
WAITING, READY, ISSUED, FREED, REMOVED = range(5)
# which of the ready ones is next: the lowest rank, the first that became ready, the last
BY_RANK, FIFO, LIFO = range(3)


class Waiting(NamedTuple):
    """What nodes wait for."""

    # child_first, child: int64: the rows that wait for each row
    child_first: np.ndarray
    child: np.ndarray
    # int64, shape (rows,): how many of those that a node waits for have not ended
    missing: np.ndarray
    state: np.ndarray  # int64, shape (rows,)


@kernel
def release_rows(waiting: Waiting, out: np.ndarray, rows: np.ndarray) -> tuple[int, int]:
    """End nodes that were issued, and remove them. O(rows + children).

    - ``out``: int64, filled: the rows that are ready now, in the order in which they became so;
      room for all that wait.
    - ``rows``: int64, shape (released,); -1 is refused.
    - Returns refused, count: -1 and how many are ready now; or the position in ``rows`` of the
      first that is not issued or stands twice, and 0: then nothing is changed.
    """
    w = borrowed(waiting)
    rows, out = borrowed(rows), borrowed(out)
    for k in range(rows.size):
        if rows[k] < 0 or w.state[rows[k]] != ISSUED:
            for before in range(k):
                w.state[rows[before]] = ISSUED
            return k, 0
        w.state[rows[k]] = REMOVED
    count = 0
    for k in range(rows.size):
        count = _release(rows[k], w, out, count)
    return -1, count


@kernel
def run_ready(
    policy: int, rank: np.ndarray, row_of: np.ndarray, waiting: Waiting, ready: np.ndarray,
    count: int, out: np.ndarray,
) -> tuple[int, int, int]:  # fmt: skip
    """Issue nodes one after the other and end each at once, until none is ready or room is full.

    - ``policy``: :data:`BY_RANK`, :data:`FIFO` or :data:`LIFO`.
    - ``rank``, ``row_of``: int64, shape (rows,): for the first, the rank of each row and the row of
      each rank.
    - ``ready``: int64, shape (rows,): the ranks or rows that are ready, as a heap or in order.
    - ``count``: How many these are.
    - ``out``: int64, filled: rows in the order of issue.
    - Returns issued, first, end: How many were issued; those ready now stand in
      ``ready[first:end]``, as before. O(issued * log(ready) + children).
    """
    w = borrowed(waiting)
    rank, row_of, ready, out = borrowed(rank), borrowed(row_of), borrowed(ready), borrowed(out)
    released = np.empty(w.state.size, dtype=np.int64)
    released = borrowed(released)
    issued, first, end = 0, 0, count
    while issued < out.size and first < end:
        if policy == BY_RANK:
            end -= 1
            row = row_of[take_first(ready, 0, end)]
        elif policy == FIFO:
            row = ready[first]
            first += 1
        else:
            end -= 1
            row = ready[end]
        out[issued] = row
        issued += 1
        w.state[row] = REMOVED
        num_released = _release(row, w, released, 0)
        for k in range(num_released):
            if policy == BY_RANK:
                put_in(ready, 0, end, rank[released[k]])
            else:
                ready[end] = released[k]
            end += 1
    return issued, first, end


@inner
def _release(row: int, w: Waiting, out: np.ndarray, count: int) -> int:
    """Let the children of a row wait for one node less; add those that are ready now."""
    for k in range(w.child_first[row], w.child_first[row + 1]):
        child = w.child[k]
        w.missing[child] -= 1
        if w.missing[child] == 0:
            w.state[child] = READY
            out[count] = child
            count += 1
    return count
