"""Substring search in many spans of bytes."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import kernel

__all__ = ["spans_holding"]


@kernel
def spans_holding(
    content: np.ndarray, at: np.ndarray, length: np.ndarray, text: np.ndarray, holds: np.ndarray
) -> None:
    """Return which spans contain a text.

    Parameters
    ----------
    content
        uint8: the bytes that the spans lie in.
    at, length
        int64, shape (spans,): where each begins and how long it is.
    text
        uint8, shape (1 or more,).
    holds
        bool, shape (spans,), filled. O(bytes of the spans), where few begin like the text.
    """
    size = text.size
    first = text[0]
    for s in range(at.size):
        holds[s] = False
        for k in range(at[s], at[s] + length[s] - size + 1):
            if content[k] == first:
                n = 1
                while n < size and content[k + n] == text[n]:
                    n += 1
                if n == size:
                    holds[s] = True
                    break
