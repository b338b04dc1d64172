"""Fields of protobuf messages, and numbers written in decimal, from spans of bytes to columns."""

import numpy as np

from nadi.kernels.jit import kernel
from nadi.kernels.protobuf import (
    int64,
    read_field,
    read_fixed,
    read_varint,
    skip_value,
    uint64,
)

_LONGEST_DECIMAL = 18  # digits, of which each number fits 64 bits


@kernel
def read_fields(
    text: np.ndarray, at: np.ndarray, end: np.ndarray, row_of: np.ndarray, values: np.ndarray,
    ends: np.ndarray,
) -> int:  # fmt: skip
    """Read some fields of messages; gives -1, or the byte of one that is broken. O(bytes).

    ``row_of`` has the row of each number of a field, or -1; ``values`` and ``ends`` have shape
    (rows, messages), filled: -1 and -2 for what is absent.
    """
    for message in range(at.size):
        for row in range(values.shape[0]):
            values[row, message], ends[row, message] = -1, -2
        place, stop = at[message], end[message]
        while place < stop:
            before, value = place, int64(0)
            tag, place = read_varint(text, place, stop)
            if place < 0 or tag <= 7:
                return int(before)
            begin, wire = place, tag & 7
            if wire == 0:  # read here, as the most are, and not once to pass it over
                value, place = read_varint(text, place, stop)
            else:
                begin, place = skip_value(text, place, stop, wire)
            if place < 0:
                return int(before)
            number = tag >> 3
            row = row_of[uint64(number)] if number < row_of.size else -1
            if row < 0:
                continue
            if wire == 2:
                values[row, message], ends[row, message] = begin, place
                continue
            if wire != 0:
                value = read_fixed(text, begin, place - begin)
            values[row, message], ends[row, message] = value, -1
    return -1


@kernel
def find_inner(
    text: np.ndarray, at: np.ndarray, end: np.ndarray, number: int, owner: np.ndarray,
    begins: np.ndarray, ends: np.ndarray,
) -> int:  # fmt: skip
    """Find the contents of a field; gives how many, or -1 - the byte of what is broken. O(bytes).

    Those for which the arrays have no room are only counted.
    """
    count, room = 0, owner.size
    wanted = number << 3 | 2
    for message in range(at.size):
        place, stop = at[message], end[message]
        while place < stop:
            before = place
            tag, begin, place = read_field(text, place, stop)
            if place < 0:
                return int(-1 - before)
            if tag == wanted:
                if count < room:
                    owner[count], begins[count], ends[count] = message, begin, place
                count += 1
    return count


@kernel
def read_decimals(
    text: np.ndarray, at: np.ndarray, length: np.ndarray, values: np.ndarray, is_number: np.ndarray
) -> None:
    """Read texts that are integers as JSON writes them.

    - ``text``: uint8, shape (bytes,).
    - ``at``, ``length``: int64, shape (texts,): where each begins, and its bytes.
    - ``values``, ``is_number``: int64 and bool, shape (texts,), filled: the number, and whether the
      text is one of at most 18 digits. O(bytes of the texts).
    """
    for row in range(at.size):
        place = at[row]
        stop = place + length[row]
        negative = place < stop and text[place] == 45
        place += negative
        digits = stop - place
        good = 0 < digits <= _LONGEST_DECIMAL and (text[place] != 48 or digits == 1)
        value = int64(0)
        for i in range(place, stop if good else place):
            digit = int64(text[i]) - 48
            good = good and 0 <= digit <= 9
            value = value * 10 + digit
        is_number[row] = good and not (negative and value == 0)
        values[row] = -value if negative else value
