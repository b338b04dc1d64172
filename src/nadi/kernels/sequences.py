"""Half-open intervals: the length of their union, and the positions in ranges."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["expand_ranges", "union_length"]


def union_length(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> int:
    """Return the time covered by at least one of the intervals ``[start, end)``.

    Parameters
    ----------
    start, end
        int64, shape (intervals,); ``end >= start``; any order, any overlap.

    Returns
    -------
    int
        Same unit as the input. O(n log n).
    """
    if start.size == 0:
        return 0
    order = np.argsort(start, kind="stable")
    start = start[order]
    reach = np.maximum.accumulate(end[order])
    # time between two consecutive starts is covered as far as the reach so far
    covered = np.minimum(reach[:-1], start[1:]) - start[:-1]
    return int(covered.sum() + reach[-1] - start[-1])


def expand_ranges(
    first: npt.NDArray[np.int64], count: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """List the positions ``first, first + 1, ...`` of ranges, one range after the other.

    Parameters
    ----------
    first, count
        int64, shape (ranges,); ``count >= 0``.

    Returns
    -------
    which, at
        int64, shape (sum of count,): the range, and the position. O(ranges + sum of count).
    """
    which = np.repeat(np.arange(first.size), count)
    at = np.arange(which.size) - np.repeat(np.cumsum(count) - count, count) + first[which]
    return which, at
