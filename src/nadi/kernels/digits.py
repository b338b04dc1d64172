"""Decimal digits of microseconds to whole nanoseconds, without a float on the way.

A float64 near 1.7e15 us is 0.25 us coarse: reading such timestamps through it
invents overlaps that the recording does not have. The digits are read as they
stand.
"""

from __future__ import annotations

import numpy as np

from nadi.kernels._jit import kernel

__all__ = ["microseconds_to_ns"]

_COMMA, _MINUS, _POINT, _ZERO, _NINE, _FIVE = (ord(c) for c in ",-.09" + "5")
_MAX_BEFORE_LAST_DIGIT = (2**63 - 1) // 10 - 1


@kernel
def microseconds_to_ns(text: np.ndarray, out: np.ndarray) -> int:
    """Read comma-separated decimal numbers of microseconds as int64 nanoseconds.

    Parameters
    ----------
    text
        uint8, shape (bytes,): ``len(out)`` numbers such as ``-12.5`` with a comma
        between two of them; no exponent, no white space.
    out
        int64, shape (numbers,), filled in place. Digits past the nanosecond are
        rounded half away from zero.

    Returns
    -------
    int
        -1 when all were read; else the position of the first number that is not
        of this form, is missing, or lies beyond 9223372036854775.799 (an int64 of ns
        ends a little later). O(bytes).
    """
    at = 0
    size = text.size
    for i in range(out.size):
        negative = at < size and text[at] == _MINUS
        if negative:
            at += 1
        value = np.int64(0)
        num_digits = 0
        decimals = -1
        while at < size and text[at] != _COMMA:
            c = text[at]
            if c == _POINT and decimals < 0 and num_digits > 0:
                decimals = 0
            elif _ZERO <= c <= _NINE:
                num_digits += 1
                if decimals == 3:
                    if c >= _FIVE:
                        value += 1
                    decimals = 4
                elif decimals < 3:
                    if value > _MAX_BEFORE_LAST_DIGIT:
                        return i
                    value = value * 10 + (c - _ZERO)
                    if decimals >= 0:
                        decimals += 1
            else:
                return i
            at += 1
        if num_digits == 0:
            return i
        for _ in range(3 - max(decimals, 0)):
            if value > _MAX_BEFORE_LAST_DIGIT:
                return i
            value *= 10
        out[i] = -value if negative else value
        at += 1
    return -1 if at == size + 1 or out.size == 0 else out.size
