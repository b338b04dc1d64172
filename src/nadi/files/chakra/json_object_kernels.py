"""Where the objects end of a file that holds several, one after the other."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import kernel

_QUOTE, _BACKSLASH, _OPEN, _CLOSE = 0x22, 0x5C, 0x7B, 0x7D


@kernel
def find_objects(content: np.ndarray, ends: np.ndarray) -> int:
    """Find where each object that lies in no other one ends.

    Parameters
    ----------
    content
        uint8: JSON objects, with or without space between them.
    ends
        int64, filled as far as it goes: the position after each object's last brace.

    Returns
    -------
    int
        Number of objects. O(bytes). Of what is no JSON the objects mean nothing.
    """
    count = 0
    depth = 0
    in_text = False
    at = 0
    while at < content.size:
        byte = content[at]
        at += 1
        if in_text:
            if byte == _BACKSLASH:
                at += 1
            elif byte == _QUOTE:
                in_text = False
        elif byte == _QUOTE:
            in_text = True
        elif byte == _OPEN:
            depth += 1
        elif byte == _CLOSE:
            depth -= 1
            if depth == 0:
                if count < ends.size:
                    ends[count] = at
                count += 1
    return count
