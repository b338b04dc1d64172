"""Attributes in bulk: spans put together."""

from __future__ import annotations

import numpy as np

from nadi.kernels._jit import kernel

__all__ = ["copy_spans"]


@kernel
def copy_spans(buffer: np.ndarray, begin: np.ndarray, length: np.ndarray, out: np.ndarray) -> None:
    """Put spans one after the other. O(bytes).

    Parameters
    ----------
    buffer, out
        uint8; ``out`` is as long as all spans together.
    begin, length
        int64, shape (spans,).
    """
    at = 0
    for span in range(begin.size):
        for i in range(length[span]):
            out[at + i] = buffer[begin[span] + i]
        at += length[span]
