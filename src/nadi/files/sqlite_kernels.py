"""Rows of SQLite's tables, from the pages of a file to columns: sqlite.org/fileformat2.html.

Numbers in it have their highest byte first, and pages count from 1.
"""

import numpy as np

from nadi.files.read_columns import INTEGER, NULL, OTHER
from nadi.kernels.jit import called, inner, kernel
from nadi.kernels.protobuf import int64, uint64

_INTERIOR, _LEAF = 5, 13
_SCHEMA_AT = 100  # the first page begins with the header of the file


@inner
def _read_number(text: np.ndarray, at: int, width: int) -> int:
    value: int = int64(0)
    for i in range(width):
        value = value << 8 | int64(text[uint64(at + i)])
    return value


@called
def _read_varint(text: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Give a number and the position after it, or -1."""
    value = int64(0)
    for i in range(9):
        if at >= end:
            return int64(0), int64(-1)
        byte = int64(text[uint64(at)])
        at += 1
        if i == 8:
            return value << 8 | byte, at
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return int64(0), int64(-1)


@kernel
def find_leaves(
    text: np.ndarray, page: int, root: int, leaves: np.ndarray, stack: np.ndarray,
    counts: np.ndarray,
) -> bool:  # fmt: skip
    """Find the pages that hold the rows of a table; gives whether all are as they should be.

    - ``text``: uint8, shape (bytes,): whole pages of ``page`` bytes.
    - ``leaves``: int64, shape (pages,), filled: their numbers, in order of row.
    - ``stack``: int64, shape (deepest, 2): for the kernel's use.
    - ``counts``: int64, shape (2,), filled: how many leaves, and rows in them. O(pages).
    """
    num_pages = text.size // page
    visited = found = rows = depth = 0
    stack[0, 0], stack[0, 1] = root, 0
    while depth >= 0:
        number, child = stack[depth, 0], stack[depth, 1]
        visited += child == 0
        if not 0 < number <= num_pages or visited > num_pages:  # more than there are: a circle
            return False
        begin = (number - 1) * page
        head = begin + (_SCHEMA_AT if number == 1 else 0)
        cells = _read_number(text, head + 3, 2)
        if text[head] == _LEAF and head + 8 + 2 * cells <= begin + page:
            leaves[found] = number
            found += 1
            rows += cells
            depth -= 1
            continue
        if text[head] != _INTERIOR or head + 12 + 2 * cells > begin + page:
            return False
        if child > cells:
            depth -= 1
            continue
        at = head + 8
        if child < cells:
            at = begin + _read_number(text, head + 12 + 2 * child, 2)
        if at + 4 > begin + page or depth + 1 == stack.shape[0]:
            return False
        stack[depth, 1] += 1
        depth += 1
        stack[depth, 0], stack[depth, 1] = _read_number(text, at, 4), 0
    counts[0], counts[1] = found, rows
    return True


@called
def _gather(
    text: np.ndarray, num_pages: int, page: int, usable: int, at: int, out: int, length: int
) -> bool:
    """Copy what a row has beyond its page to ``out``; gives False if its pages end before."""
    room = usable - 4
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % room
    if local > usable - 35:
        local = least
    if at % page + local + 4 > usable:
        return False
    for i in range(local):
        text[out + i] = text[at + i]
    number, done = _read_number(text, at + local, 4), local
    while done < length:
        if not 0 < number <= num_pages:
            return False
        begin = (number - 1) * page
        size = min(room, length - done)
        for i in range(size):
            text[out + done + i] = text[begin + 4 + i]
        number, done = _read_number(text, begin, 4), done + size
    return True


@called
def _read_row(
    text: np.ndarray, at: int, end: int, row: int, fields: np.ndarray, values: np.ndarray,
    lengths: np.ndarray,
) -> bool:  # fmt: skip
    size, place = _read_varint(text, at, end)
    body = stop = at + size
    if place < 0 or not place <= stop <= end:
        return False
    for column in range(fields.size):
        field = fields[column]
        if place >= stop:  # the column was added to the table after this row
            if field >= 0:
                lengths[field, row] = NULL
            continue
        kind, place = _read_varint(text, place, stop)
        if place < 0 or kind < 0 or kind == 10 or kind == 11:
            return False
        width = 0
        if kind > 11:
            width = (kind - 12) >> 1
        elif kind < 8:
            width = kind if kind < 5 else 6 if kind == 5 else 8
        if width > end - body:
            return False
        if field >= 0:
            values[field, row] = body
            lengths[field, row] = width
            if kind == 0:
                lengths[field, row] = NULL
            elif kind == 7:
                lengths[field, row] = OTHER
            elif kind < 10:
                value = kind - 8
                if width > 0:
                    shift = 64 - 8 * width
                    value = _read_number(text, body, width) << shift >> shift
                values[field, row], lengths[field, row] = value, INTEGER
        body += width
    return True


@kernel
def read_rows(
    text: np.ndarray, num_pages: int, page: int, usable: int, leaves: np.ndarray,
    fields: np.ndarray, values: np.ndarray, lengths: np.ndarray,
) -> int:  # fmt: skip
    """Read columns of a table.

    - ``text``: uint8: the pages, and after them room for rows that are larger than a page.
    - ``page``, ``usable``: bytes of a page, and those of them that tables use.
    - ``leaves``: int64, as :func:`find_leaves` found them.
    - ``fields``: int64, shape (columns + 1,): where the number of each row goes in ``values``, then
      the values of each column; -1 where they are not wanted.
    - ``values``, ``lengths``: int64 and int32, shape (fields, rows), filled: as
      :class:`nadi.files.read_columns.ReadColumns` has them.
    - Returns: -1 if a page is not as it should be; else the bytes of the room that is needed: with
      less room, rows that are larger than a page were left out. O(bytes).
    """
    row = needed = 0
    size = num_pages * page
    for leaf in range(leaves.size):
        begin = (leaves[leaf] - 1) * page
        stop = begin + usable
        head = begin + (_SCHEMA_AT if begin == 0 else 0)
        cells = _read_number(text, head + 3, 2)
        if head + 8 + 2 * cells > stop:
            return -1
        for cell in range(cells):
            at = begin + _read_number(text, head + 8 + 2 * cell, 2)
            length, at = _read_varint(text, at, stop)
            if at < 0 or length < 0 or length > size:
                return -1
            number, at = _read_varint(text, at, stop)
            if at < 0:
                return -1
            end = at + length
            if length > usable - 35:
                out = size + needed
                needed += length
                if needed > size:  # each page is of one row
                    return -1
                if out + length > text.size:
                    row += 1
                    continue
                if not _gather(text, num_pages, page, usable, at, out, length):
                    return -1
                at, end = out, out + length
            elif end > stop:
                return -1
            if not _read_row(text, at, end, row, fields[1:], values, lengths):
                return -1
            if fields[0] >= 0:
                values[fields[0], row], lengths[fields[0], row] = number, INTEGER
            row += 1
    return int(needed)
