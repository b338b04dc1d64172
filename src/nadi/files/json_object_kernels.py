"""Objects of a list, or one after another, from the bytes of their JSON to columns."""

import numpy as np

from nadi.files.read_columns import INTEGER, NULL, OTHER
from nadi.kernels.jit import borrowed, called, kernel
from nadi.kernels.json_tokens import (
    BAD_CHARACTER,
    byte_at,
    fail,
    next_item,
    read_integer,
    skip_space,
    skip_value,
    string_end,
)
from nadi.kernels.strings import END, read_member

_QUOTE, _OPEN, _OPEN_LIST, _CLOSE_LIST, _N = (ord(c) for c in '"{[]n')


@called
def _read_value(
    text: np.ndarray, at: int, field: int, row: int, values: np.ndarray, lengths: np.ndarray,
    work: np.ndarray,
) -> int:  # fmt: skip
    """Read a value; gives the byte after it, or a failure."""
    first = text[at]
    if first == _QUOTE:
        end = string_end(text, at + 1)
        if end < 0:
            return end
        values[field, row], lengths[field, row] = at + 1, (end >> 1) - at - 1
        return (end >> 1) + 1
    end, number, flag = read_integer(text, at)
    if flag == 0:
        values[field, row], lengths[field, row] = number, INTEGER
        return end
    end = skip_value(text, at, work)
    values[field, row], lengths[field, row] = at, NULL if first == _N else OTHER - (end - at)
    return end


@called
def _read_object(
    text: np.ndarray, at: int, words: np.ndarray, tree: np.ndarray, row: int, values: np.ndarray,
    lengths: np.ndarray, work: np.ndarray,
) -> int:  # fmt: skip
    """Read an object from after its opening brace; gives the byte after it, or a failure."""
    node = 0
    while True:
        at, key, _, _ = read_member(text, at, words, work)
        if at < 0:
            return at
        if key == END:
            node = tree[node, -1]
            if node < 0:
                return at
            continue
        field = tree[node, key] if key >= 0 else -1
        if field < -1 and text[at] == _OPEN:
            node = -2 - field
            at += 1
        elif field >= 0:
            at = _read_value(text, at, field, row, values, lengths, work)
        else:
            at = skip_value(text, at, work)


@kernel
def read_objects(
    text: np.ndarray, is_list: bool, words: np.ndarray, tree: np.ndarray, values: np.ndarray,
    lengths: np.ndarray, work: np.ndarray,
) -> int:  # fmt: skip
    """Read some members of objects, also of objects in them.

    - ``text``: uint8, shape (bytes,): a list of objects, or objects with white space between them.
    - ``words``: Of the keys, as :func:`nadi.kernels.strings.make_words` makes them.
    - ``tree``: int64, shape (objects, keys + 1): for the object in a row, 0 the outer one, what the
      value of a key is: a row of ``values``; -1: not wanted; else the object -2 - value. The last
      column has the object around it, or -1.
    - ``values``, ``lengths``: int64 and int32, shape (fields, room), filled: as
      :class:`nadi.files.read_columns.ReadColumns` has them; of numbers that are no integers where
      they begin, and ``OTHER`` minus their bytes. ``lengths`` comes filled with ``NULL``.
    - ``work``: uint8, shape (deepest,): for the kernel's use.
    - Returns: The number of objects; that of the room, and 1, if there are more; or a failure of
      :mod:`nadi.kernels.json_tokens`. O(bytes).
    """
    text = borrowed(text)
    row = 0
    at = skip_space(text, 0)
    if is_list:
        if byte_at(text, at) != _OPEN_LIST:
            return int(fail(BAD_CHARACTER, at))
        at += 1
    while True:
        at = next_item(text, at, row == 0) if is_list else skip_space(text, at)
        if at < 0:
            return int(at)
        if at == text.size or (is_list and text[at] == _CLOSE_LIST):
            return row
        if text[at] != _OPEN:
            return int(fail(BAD_CHARACTER, at))
        if row == values.shape[1]:
            return row + 1
        at = _read_object(text, at + 1, words, tree, row, values, lengths, work)
        if at < 0:
            return int(at)
        row += 1
