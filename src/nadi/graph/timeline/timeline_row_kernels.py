"""Slices put into rows of their track, so that none covers another."""

import numpy as np

from nadi.kernels.jit import kernel


@kernel
def place_in_rows(
    track: np.ndarray, start: np.ndarray, end: np.ndarray, free_at: np.ndarray, row: np.ndarray
) -> int:
    """Put each slice into the first row of its track that is free at its start.

    What is nested in a slice stands below it. A track has as many rows as ``free_at`` has places;
    what finds none is left out.

    - ``track``, ``start``, ``end``: int64, shape (slices,): in order of track, then start, longest
      first; times in ns.
    - ``free_at``: int64, shape (rows,): room for the end of the last slice of each row.
    - ``row``: int64, shape (slices,), filled: the row of each, or -1.
    - Returns: Number of slices without a row. O(slices x rows).
    """
    left_out = 0
    for i in range(track.size):
        if i == 0 or track[i] != track[i - 1]:
            free_at[:] = start[i]
        at = 0
        while at < free_at.size and free_at[at] > start[i]:
            at += 1
        if at == free_at.size:
            row[i] = -1
            left_out += 1
        else:
            row[i] = at
            # of slices without a length the next one stands below, where they begin together
            free_at[at] = end[i]
    return left_out
