"""Instructions of a pickle: looked at before it is read, and followed to columns."""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, called, inner, kernel
from nadi.kernels.protobuf import int64, read_fixed, uint64

DICTIONARY, LIST, TUPLE, NONE, FALSE, TRUE, INTEGER, REAL, TEXT, OTHER = range(10)
"""Kinds of values."""

_STOP, _MEMOIZE, _PUT, _LONG_PUT, _LONG, _LONGER = 46, 0x94, 113, 114, 0x8A, 0x8B
_GET, _LONG_GET, _OPEN, _FRAME, _PROTOCOL = 104, 106, 40, 0x95, 0x80
_BYTE, _TWO_BYTES = 75, 77  # of an integer without a sign
# bytes: counters, times and addresses have no more. Of longer ones, as many as one likes are equal
# in the hash by which dictionaries find them, and each is compared with all before it
_LONGEST_NUMBER = 9
AHEAD = 256  # numbers of what is kept may be as far beyond how many there are


@kernel
def find_odd(
    text: np.ndarray, arguments: np.ndarray, lengths: np.ndarray, count: np.ndarray
) -> int:
    """Find the first instruction that makes no plain value, or where the pickle is broken.

    - ``text``: uint8, shape (bytes,).
    - ``arguments``, ``lengths``: int64, shape (256,): the bytes that follow each instruction, -1 if
      it is refused; and the bytes of its length if it states one, or 0.
    - ``count``: int64, shape (1,), filled: the instructions.
    - Returns: Twice the byte where it stands, and 1 more if it is refused; twice the number of
      bytes if there is none before the end of the pickle. O(bytes).
    """
    at = begin = kept = 0
    while at < text.size:
        begin = at
        code = uint64(text[uint64(at)])
        at += 1
        count[0] += 1
        if code == _GET and at < text.size:  # the most frequent by far
            at += 1
            continue
        if code == _STOP:
            return int(2 * text.size)
        if arguments[code] < 0:
            return int(2 * begin + 1)
        width = lengths[code]
        more = arguments[code]
        if width > text.size - at:
            return int(2 * begin)
        if width > 0:
            for k in range(width):
                more |= int64(text[at + k]) << 8 * k
            at += width
        if code in (_LONG, _LONGER) and not 0 <= more <= _LONGEST_NUMBER:
            return int(2 * begin + 1)
        if more < 0 or more > text.size - at:
            return int(2 * begin)
        at += more
        # Python makes a list for all numbers up to this one
        if code == _LONG_PUT:
            number = int64(0)
            for k in range(4):
                number |= int64(text[at - 4 + k]) << 8 * k
            if number > kept + AHEAD:
                return int(2 * begin)
        kept += code in (_MEMOIZE, _PUT, _LONG_PUT)
    return int(2 * begin)


class Instructions(NamedTuple):
    """What instructions do; int64, shape (256,)."""

    arguments: np.ndarray  # the bytes that follow
    lengths: np.ndarray  # the bytes of the length that it states first, or 0
    # the kind of the value that it makes, -2 - the kind of the one into which it puts others, or -1
    kind: np.ndarray
    # how many values it takes from the stack, -1: all since the latest mark, -2: it takes none
    takes: np.ndarray


class Followed(NamedTuple):
    """What a pickle makes, with room for one of each for each instruction."""

    # int64, shape (instructions, 3): the kind of each value, where its content begins, and an
    # integer or the bytes of a text
    values: np.ndarray
    pairs: np.ndarray  # int32, shape (instructions, 3): a dictionary, a key, and its value
    # runs, items: int32, shape (instructions, 2) and (instructions,): a list, and how many of the
    # items are put into it at once; the items
    runs: np.ndarray
    items: np.ndarray
    stack: np.ndarray  # int32, shape (instructions,): values, and -1 for a mark
    kept: np.ndarray  # int32: the value that is kept under a number, and 1; zeros before
    # int64, shape (5,), zeros before: how many values, pairs, runs and items there are; and the
    # value that is the whole
    counts: np.ndarray


@kernel
def follow(text: np.ndarray, codes: Instructions, made: Followed) -> int:
    """Follow a pickle in which :func:`find_odd` finds nothing; gives -1, or where it is broken.

    ``made`` is filled. O(bytes).
    """
    codes, made = borrowed(codes), borrowed(made)
    stack, kept, count = made.stack, made.kept, made.counts
    at = depth = num_kept = 0
    while at < text.size:
        begin = at
        code = uint64(text[uint64(begin)])
        width = codes.lengths[code]
        size = codes.arguments[code]
        if width > 0:
            size = read_fixed(text, begin + 1, width)
        content = begin + 1 + width
        at = content + size
        if code == _GET or code == _LONG_GET:
            number = read_fixed(text, content, size)
            if number >= kept.size or kept[uint64(number)] == 0:
                return int(begin)
            stack[uint64(depth)] = kept[uint64(number)] - 1
            depth += 1
        elif codes.takes[code] > -2:
            depth = _take(codes.kind[code], codes.takes[code], begin, made, depth)
            if depth < 0:
                return int(begin)
        elif codes.kind[code] >= 0:
            if codes.kind[code] == INTEGER:
                size = _integer(text, content, size, code not in (_BYTE, _TWO_BYTES))
            stack[depth] = _add(made, codes.kind[code], content, size)
            depth += 1
        elif code == _OPEN:
            stack[depth] = -1
            depth += 1
        elif code == _STOP or code in (_MEMOIZE, _PUT, _LONG_PUT):
            if depth == 0 or stack[depth - 1] < 0:
                return int(begin)
            if code == _STOP:
                count[4] = stack[depth - 1]
                return -1
            number = num_kept if code == _MEMOIZE else read_fixed(text, content, size)
            num_kept += kept[number] == 0
            kept[number] = stack[depth - 1] + 1
    return int(at)


@inner
def _add(made: Followed, kind: int, at: int, number: int) -> int:
    """Add a value; gives its number."""
    value = made.counts[0]
    made.values[value, 0], made.values[value, 1], made.values[value, 2] = kind, at, number
    made.counts[0] = value + 1
    return value  # type: ignore[no-any-return]


@called
def _take(kind: int, takes: int, begin: int, made: Followed, depth: int) -> int:
    """Make a tuple, or put values into a list or dictionary; gives the depth after it, or -1."""
    stack, count = made.stack, made.counts
    to_mark = takes < 0
    least = 0 if to_mark else depth - takes
    first = depth
    while first > max(least, 0) and stack[uint64(first - 1)] >= 0:
        first -= 1
    # down to a mark, or as many as it takes
    if (to_mark and first == 0) or (not to_mark and first != least):
        return -1
    below = first - to_mark  # without the mark
    is_tuple = kind == TUPLE
    if is_tuple:
        holder = _add(made, TUPLE, begin, 0)
    elif below == 0:
        return -1
    else:
        holder = stack[below - 1]
        if holder < 0 or made.values[holder, 0] != -2 - kind:
            return -1
    if made.values[holder, 0] == DICTIONARY:
        if (depth - first) % 2:
            return -1
        for place in range(first, depth, 2):
            of_key = made.values[stack[place], 0]
            if of_key in (LIST, DICTIONARY):  # which are no keys in Python
                return -1
            row = count[1]
            made.pairs[row, 0], made.pairs[row, 1] = holder, stack[place]
            made.pairs[row, 2] = stack[place + 1]
            count[1] = row + 1
    else:
        made.runs[count[2], 0], made.runs[count[2], 1] = holder, depth - first
        start = count[3]
        for k in range(depth - first):
            made.items[uint64(start + k)] = stack[uint64(first + k)]
        count[2] += 1
        count[3] = start + depth - first
    if is_tuple:
        stack[below] = holder
    return int(below + is_tuple)


@called
def _integer(text: np.ndarray, at: int, size: int, is_signed: bool) -> int:
    """Read an integer; the largest, or the smallest, of 64 bits if it has more."""
    number = read_fixed(text, at, min(size, 8))
    if size > 8:  # at most one byte more
        is_negative = text[at + 8] >= 128
        fits = int64(text[at + 8]) == (255 if number < 0 else 0)
        return number if fits else (-(2**63) if is_negative else 2**63 - 1)
    if is_signed and 0 < size < 8 and text[at + size - 1] >= 128:
        number -= int64(1) << (8 * size)
    return number


@kernel
def find_values(
    pairs: np.ndarray, row_of: np.ndarray, column_of: np.ndarray, found: np.ndarray
) -> None:
    """Find the values of some keys of dictionaries.

    - ``pairs``: int32, shape (pairs, 3): a dictionary, the number of a key, and its value.
    - ``row_of``, ``column_of``: int32, shape (values,) and (keys + 1,): where in ``found`` each
      dictionary and each key belongs, or -1; the last key is what is no text.
    - ``found``: int64, shape (columns, rows), filled where there is a value. O(pairs).
    """
    for k in range(pairs.shape[0]):
        row, column = row_of[pairs[k, 0]], column_of[pairs[k, 1]]
        if row >= 0 and column >= 0:
            found[column, row] = pairs[k, 2]


@kernel
def find_items(
    runs: np.ndarray, items: np.ndarray, row_of: np.ndarray, first: np.ndarray, found: np.ndarray
) -> None:
    """Find what is in some lists.

    - ``runs``, ``items``: int32, shape (runs, 2) and (items,): a list, and how many of the items
      are in it; the items of one run after the other.
    - ``row_of``: int32, shape (values,): the row of a list, or -1.
    - ``first``: int64, shape (rows + 1,), zeros, filled: where in ``found`` the items of each row
      begin, and the end.
    - ``found``: int32, shape (items,), filled. O(items + rows).
    """
    for run in range(runs.shape[0]):
        row = row_of[runs[run, 0]]
        if row >= 0:
            first[row] += runs[run, 1]
    end = int64(0)
    for row in range(first.size):
        end += first[row]
        first[row] = end - first[row]
    at = int64(0)
    for run in range(runs.shape[0]):
        row, size = row_of[runs[run, 0]], int64(runs[run, 1])
        if row >= 0:
            start = first[row]
            for k in range(size):
                found[uint64(start + k)] = items[uint64(at + k)]
            first[row] = start + size
        at += size
    for row in range(first.size - 1, 0, -1):
        first[row] = first[row - 1]
    first[0] = 0
