"""Group rows by a key, for the compressed arrays of graphs and attributes."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import kernel

__all__ = ["group_rows"]


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
