"""Protobuf's building bricks, for kernels: numbers, fields, and the checks of both.

A position of -1 means that the bytes are not what they should be. Every read is
checked against the end of the message that it belongs to.
"""

from typing import Any

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.kernels.json_tokens import load_word

# positions that may not be negative: numba spares the test for counting from the end, which
# keeps loops from being vectorised
uint64: Any = np.uint64
int64: Any = np.int64  # of type Any, as mypy takes numpy's integers for no int
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_HIGHEST_BITS = np.uint64(0x8080808080808080)  # of 8 bytes: set in those beyond ASCII


@called
def _read_long_varint(buffer: np.ndarray, at: int, end: int) -> tuple[int, int]:
    value = int64(0)
    shift = 0
    while at < end and shift < 64:
        byte = int64(buffer[uint64(at)])
        at += 1
        if shift == 63 and byte > 1:
            return int64(0), -1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return int64(0), -1


@inner
def read_varint(buffer: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Read a number; gives its 64 bits as int64, and the position after it or -1."""
    if at < end and buffer[uint64(at)] < 0x80:  # the most frequent by far
        return int64(buffer[uint64(at)]), at + 1
    if at + 1 < end and buffer[uint64(at + 1)] < 0x80:
        return int64(buffer[uint64(at)]) & 0x7F | int64(buffer[uint64(at + 1)]) << 7, at + 2
    return _read_long_varint(buffer, at, end)


@inner
def read_fixed(buffer: np.ndarray, at: int, width: int) -> int:
    """Read ``width`` bytes, the lowest first, that the caller knows to be there."""
    value: int = int64(0)
    for i in range(width):
        value |= int64(buffer[at + i]) << (8 * i)
    return value


@inner
def skip_value(buffer: np.ndarray, at: int, end: int, wire: int) -> tuple[int, int]:
    """Give where a field's content begins, past a length, and where it ends or -1."""
    if wire == _VARINT:
        _, after = read_varint(buffer, at, end)
        return at, after
    if wire == _DELIMITED:
        length, at = read_varint(buffer, at, end)
        if at < 0 or length < 0 or length > end - at:
            return at, -1
        return at, at + length
    width = 8 if wire == _FIXED64 else 4 if wire == _FIXED32 else -1
    if width < 0 or width > end - at:
        return at, -1
    return at, at + width


@inner
def read_field(buffer: np.ndarray, at: int, end: int) -> tuple[int, int, int]:
    """Give a field's number and type as one tag, and where its content begins and ends or -1."""
    tag, at = read_varint(buffer, at, end)
    if at < 0 or tag <= 7:
        return tag, at, -1
    begin, at = skip_value(buffer, at, end, tag & 7)
    return tag, begin, at


@inner
def is_utf8(buffer: np.ndarray, at: int, end: int) -> bool:
    """Tell whether bytes are UTF-8: no stray, missing, overlong or surrogate sequences."""
    length = end - at
    if length < 8:
        high = load_word(buffer, at, length)
    else:
        high = load_word(buffer, end - 8, 8)
        for k in range(0, length - 8, 8):
            high |= load_word(buffer, at + k, 8)
    return high & _HIGHEST_BITS == 0 or _is_long_utf8(buffer, at, end)


@called
def _is_long_utf8(buffer: np.ndarray, at: int, end: int) -> bool:
    while at < end:
        first = int64(buffer[at])
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if more > end - at:
            return False
        second = int64(buffer[at])
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return False
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return False
        for i in range(at, at + more):
            if buffer[i] & 0xC0 != 0x80:
                return False
        at += more
    return True


@inner
def varint_size(value: int) -> int:
    """Give how many bytes a number takes, its 64 bits taken as unsigned."""
    size = 1
    rest = (value >> 7) & 0x01FFFFFFFFFFFFFF
    while rest > 0:
        rest >>= 7
        size += 1
    return size


@inner
def put_varint(out: np.ndarray, at: int, value: int) -> int:
    """Write a number; gives the position after it."""
    rest = value
    if rest < 0:  # the highest of 64 bits is set: nine bytes of seven, and a last of one
        for _ in range(9):
            out[at] = np.uint8((rest & 0x7F) | 0x80)
            rest >>= 7
            at += 1
        out[at] = np.uint8(1)
        return at + 1
    while rest > 0x7F:
        out[at] = np.uint8((rest & 0x7F) | 0x80)
        rest >>= 7
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@inner
def put_fixed(out: np.ndarray, at: int, value: int, width: int) -> int:
    """Write the lowest ``width`` bytes of a number; gives the position after them."""
    for i in range(width):
        out[at + i] = np.uint8((value >> (8 * i)) & 0xFF)
    return at + width
