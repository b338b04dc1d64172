"""Slices put where none cuts another: in each other or apart."""

import numpy as np

from nadi.kernels.jit import inner, kernel

_END_OF_TIME = 2**63 - 1


@inner
def _close(
    boundary: np.ndarray, at: int, top: int, time: int, order: np.ndarray, end: np.ndarray,
    below: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """End what lies on a lane, ``top`` innermost, and is over by a time.

    Gives how many boundaries there are then, and what is innermost.
    """
    while top >= 0 and end[order[top]] <= time:
        boundary[at] = 2 * order[top] + 1
        at += 1
        top = below[top]
    return at, top


@kernel
def lay_out(
    first: np.ndarray, order: np.ndarray, start: np.ndarray, end: np.ndarray, lane: np.ndarray,
    boundary: np.ndarray,
) -> int:  # fmt: skip
    """Divide each track into lanes whose slices nest strictly.

    A slice goes to the lane of the slice that encloses it and began last; where none does, to the
    first lane on which nothing is open.

    - ``first``, ``order``: int64, shapes (tracks + 1,) and (slices,): track t has the slices
      ``order[first[t]:first[t + 1]]``, in order of start, longest first.
    - ``start``, ``end``: int64 ns, shape (slices,), ``end >= start``.
    - ``lane``: int64, shape (slices,), filled: its lane on its track, from 0.
    - ``boundary``: int64, shape (2 * slices,), filled: the start (``2 * slice``) and end (``2 *
      slice + 1``) of every slice, track by track; those of one lane in an order in which each end
      closes what was opened last, at times that never decrease.
    - Returns: Number of slices on other lanes than the first. O(slices x lanes).
    """
    below = np.empty(order.size, dtype=np.int64)  # by place in order: what a slice lies on
    top = np.full(4, -1, dtype=np.int64)  # of each lane: the place of the innermost open slice
    at = num_moved = 0
    for t in range(first.size - 1):
        num_lanes = 0
        for place in range(first[t], first[t + 1]):
            new = order[place]
            around = free = -1
            for k in range(num_lanes):
                at, top[k] = _close(boundary, at, top[k], start[new], order, end, below)
                if top[k] < 0:
                    if free < 0:
                        free = k
                elif end[new] <= end[order[top[k]]] and (around < 0 or top[k] > top[around]):
                    around = k
            chosen = around if around >= 0 else free
            if chosen < 0:
                chosen = num_lanes
                num_lanes += 1
                if num_lanes > top.size:
                    top = np.concatenate((top, np.full(top.size, -1, dtype=np.int64)))
            below[place] = top[chosen]
            top[chosen] = place
            lane[new] = chosen
            num_moved += chosen > 0
            boundary[at] = 2 * new
            at += 1
        for k in range(num_lanes):
            at, top[k] = _close(boundary, at, top[k], _END_OF_TIME, order, end, below)
    return num_moved
