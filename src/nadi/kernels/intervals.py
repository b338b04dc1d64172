"""Lengths of unions of half-open intervals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["union_length"]


def union_length(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> int:
    """Measure the time covered by at least one of the intervals ``[start, end)``.

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
