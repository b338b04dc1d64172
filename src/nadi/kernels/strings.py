"""Texts that lie in a buffer, told apart without making Python objects of them."""

from __future__ import annotations

import numpy as np

from nadi.kernels._jit import inner, kernel
from nadi.kernels.protobuf import int64, uint64

__all__ = ["intern_spans"]

_SEED = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


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
    count = 0
    before = 0
    # what came after each text the last time; in traces mostly what comes after it again
    after = np.zeros(slots.size, dtype=np.int32)
    for row in range(begin.size):
        codes[row] = -1
        size = int64(length[row])
        if size < 0:
            continue
        code = after[before]
        if count == 0 or not _is_same(buffer, begin, length, firsts[code], row):
            code = _look_up(buffer, begin, length, row, slots, firsts)
            if slots[code] < 0:
                if 2 * count >= slots.size:
                    return -1
                slots[code] = count
                firsts[count] = row
                count += 1
            code = slots[code]
            after[before] = code
        codes[row] = code
        before = code
    return count


@inner
def _is_same(
    buffer: np.ndarray, begin: np.ndarray, length: np.ndarray, one: int, other: int
) -> bool:
    size = length[one]
    if size != length[other]:
        return False
    first, second = uint64(begin[one]), uint64(begin[other])
    at = uint64(0)
    while at < uint64(size) and buffer[first + at] == buffer[second + at]:
        at += uint64(1)
    return bool(at == uint64(size))


@inner
def _look_up(
    buffer: np.ndarray, begin: np.ndarray, length: np.ndarray, row: int, slots: np.ndarray,
    firsts: np.ndarray,
) -> int:  # fmt: skip
    """Give the slot of a text: one that has its number, or is free."""
    mixed = _SEED ^ uint64(length[row])
    first = uint64(begin[row])
    for i in range(uint64(length[row])):
        mixed = (mixed ^ uint64(buffer[first + i])) * _PRIME
    slot: int = int64((mixed ^ (mixed >> _HALF)) & uint64(slots.size - 1))
    while slots[slot] >= 0 and not _is_same(buffer, begin, length, firsts[slots[slot]], row):
        slot = (slot + 1) & (slots.size - 1)
    return slot
