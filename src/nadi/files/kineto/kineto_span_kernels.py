"""Where the objects of a list begin and end."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import kernel
from nadi.kernels.json_tokens import MAX_DEPTH, next_item, skip_value

__all__ = ["event_spans"]

_CLOSE_LIST = ord("]")


@kernel
def event_spans(text: np.ndarray, at: int, is_first: bool, spans: np.ndarray) -> int:
    """Find the bytes of objects that were read before.

    Parameters
    ----------
    text
        uint8, shape (bytes,).
    at
        The byte after the opening bracket, or that of the comma before the first object.
    is_first
        Which of both it is.
    spans
        int64, shape (objects, 2), filled: begin and exclusive end of each.

    Returns
    -------
    int
        How many were found, or a failure. O(bytes).
    """
    stack = np.empty(MAX_DEPTH, dtype=np.uint8)
    for number in range(spans.shape[0]):
        begin = next_item(text, at, is_first and number == 0)
        if begin < 0:
            return int(begin)
        if text[begin] == _CLOSE_LIST:
            return number
        at = skip_value(text, begin, stack)
        if at < 0:
            return int(at)
        spans[number, 0] = begin
        spans[number, 1] = at
    return int(spans.shape[0])
