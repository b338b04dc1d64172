"""Texts that lie in a buffer, told apart without making Python objects of them."""

from __future__ import annotations

import numpy as np

from nadi.kernels._jit import kernel

__all__ = ["intern_spans"]

_SEED = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(32)


@kernel
def intern_spans(
    buffer: np.ndarray,
    begin: np.ndarray,
    length: np.ndarray,
    slots: np.ndarray,
    codes: np.ndarray,
    firsts: np.ndarray,
) -> int:
    """Give each text a number, equal texts the same, in order of first occurrence. O(bytes).

    Parameters
    ----------
    buffer
        uint8.
    begin, length
        int64 and int32, shape (texts,); a length below 0 is passed over.
    slots
        int32, a power of two, twice as many as different texts or more; filled.
    codes
        int32, shape (texts,), filled; -1 where passed over.
    firsts
        int64, shape (texts,): the row in which each different text stands first.

    Returns
    -------
    int
        Number of different texts; -1 if there are too many for the slots.
    """
    slots[:] = -1
    mask = slots.size - 1
    count = 0
    for row in range(begin.size):
        codes[row] = -1
        size = np.int64(length[row])
        if size < 0:
            continue
        at = begin[row]
        mixed = _SEED ^ np.uint64(size)
        for i in range(at, at + size):
            mixed = (mixed ^ np.uint64(buffer[i])) * _PRIME
        slot = np.int64((mixed ^ (mixed >> _MIX)) & np.uint64(mask))
        while True:
            code = slots[slot]
            if code < 0:
                if 2 * count >= slots.size:
                    return -1
                slots[slot] = count
                firsts[count] = row
                codes[row] = count
                count += 1
                break
            first = firsts[code]
            if length[first] == size:
                other = begin[first]
                same = 0
                while same < size and buffer[other + same] == buffer[at + same]:
                    same += 1
                if same == size:
                    codes[row] = code
                    break
            slot = (slot + 1) & mask
    return count
