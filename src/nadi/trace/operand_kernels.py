"""What operations were given and gave, from lists written as JSON or by Python's ``str``.

Four texts belong together: values, shapes, types and strides, of which the last three
follow the nesting of the first. They are walked side by side, without recursion, to the
leaves: tensors, scalars and empty lists. Texts and tensors that stand many times are
kept once, by hashing.
"""

from typing import Any, NamedTuple

import numpy as np

from nadi.kernels.jit import inner, kernel

MAX_DEPTH = 60  # of lists in lists; the kinds of the brackets are kept in one int64
VALUES, SHAPES, TYPES, STRIDES = range(4)
_NUMBERS = 5  # of a tensor: its id, storage id, offset, elements and itemsize
_MAX_DIGITS = 18  # what surely fits an int64
_PRIME = 1099511628211  # of the hash FNV-1a

_COMMA, _MINUS, _ZERO, _NINE, _BACKSLASH = (ord(c) for c in ",-09\\")
_SINGLE, _DOUBLE, _OPEN, _CLOSE, _OPEN_ROUND, _CLOSE_ROUND = (ord(c) for c in "'\"[]()")
_WORD, _GAP, _QUOTE, _OPENING, _CLOSING, _SEPARATOR, _NEVER = range(7)
_CLASS = np.full(256, _WORD, dtype=np.uint8)  # of each byte outside strings
for _class, _members in (
    (_GAP, b" \t\n\r\v\f"), (_QUOTE, b"'\""), (_OPENING, b"[("), (_CLOSING, b"])"),
    (_SEPARATOR, b","), (_NEVER, b"{}"),
):  # fmt: skip
    _CLASS[list(_members)] = _class
_TENSOR = np.frombuffer(b"Tensor(", dtype=np.uint8)


class Names(NamedTuple):
    """Texts, each once: where it was first met; and a hash table of their numbers plus one."""

    start: np.ndarray
    length: np.ndarray
    slots: np.ndarray
    size: np.ndarray  # one number


class Tensors(NamedTuple):
    """Tensors, each once. ``dims`` holds each one's shape and then its strides."""

    numbers: np.ndarray
    device: np.ndarray
    dtype: np.ndarray
    first_dim: np.ndarray
    num_dims: np.ndarray
    num_strides: np.ndarray
    dims: np.ndarray
    slots: np.ndarray
    size: np.ndarray  # one number


class Leaves(NamedTuple):
    """Rows to be: the set a leaf stands in, where in it, and numbers of names and tensors."""

    set: np.ndarray
    position: np.ndarray
    item: np.ndarray
    type: np.ndarray
    value: np.ndarray
    tensor: np.ndarray
    size: np.ndarray  # one number


@inner
def _skip_space(text: np.ndarray, at: int, end: int) -> int:
    while at < end and _CLASS[text[at]] == _GAP:
        at += 1
    return at


@inner
def _skip_string(text: np.ndarray, at: int, end: int) -> int:
    """Return where the string that opens at ``at`` ends, or -1."""
    quote = text[at]
    at += 1
    while at < end and text[at] != quote:
        at += 2 if text[at] == _BACKSLASH else 1
    return at + 1 if at < end else -1


@inner
def _skip_word(text: np.ndarray, at: int, end: int) -> int:
    while at < end and _CLASS[text[at]] == _WORD:
        at += 1
    return at


@inner
def _skip_value(text: np.ndarray, at: int, end: int) -> int:
    """Return where the value at ``at`` ends, or -1 if it is none: O(bytes).

    Brackets must match, strings end, and a comma stand between two items; one before a
    closing bracket is as Python writes tuples of one.
    """
    depth = 0
    kinds = 0  # one bit a bracket: 1 if it is round
    after_item = False
    while at < end:
        c = text[at]
        what = _CLASS[c]
        if what == _GAP:
            at += 1
        elif what == _SEPARATOR:
            if not after_item:
                return -1
            after_item = False
            at += 1
        elif what == _CLOSING:
            if depth == 0 or (kinds & 1 == 1) != (c == _CLOSE_ROUND):
                return -1
            depth -= 1
            kinds >>= 1
            after_item = True
            at += 1
        elif after_item or what == _NEVER:
            return -1
        elif what == _OPENING:
            if depth == MAX_DEPTH:
                return -1
            depth += 1
            kinds = kinds << 1 | int(c == _OPEN_ROUND)
            at += 1
        elif what == _QUOTE:
            at = _skip_string(text, at, end)
            if at < 0:
                return -1
            after_item = True
        else:
            at = _skip_word(text, at, end)
            after_item = True
        if after_item and depth == 0:
            return at
    return -1


@inner
def _skip_checked(text: np.ndarray, at: int, end: int) -> int:
    """As :func:`_skip_value` where that went through before: quicker."""
    depth = 0
    while at < end:
        what = _CLASS[text[at]]
        if what == _WORD:
            at = _skip_word(text, at, end)
        elif what == _QUOTE:
            at = _skip_string(text, at, end)
            if at < 0:
                return end
        else:
            depth += int(what == _OPENING) - int(what == _CLOSING)
            at += 1
        if depth == 0:
            return at
    return end


@inner
def _next_item(text: np.ndarray, at: int, end: int) -> tuple[int, int, int]:
    """Return the span of a list's next item and where to go on; an empty span at its end."""
    begin = _skip_space(text, at, end)
    if begin >= end:
        return end, end, end
    stop = _skip_checked(text, begin, end)
    at = _skip_space(text, stop, end)
    return begin, stop, min(at + 1, end)


@inner
def _next_type(text: np.ndarray, at: int, end: int) -> tuple[int, int, int]:
    """As :func:`_next_item`, in a type such as ``GenericList[Tensor(float),Int]``."""
    depth = 0
    begin = at = _skip_space(text, at, end)
    while at < end:
        c = text[at]
        if _CLASS[c] == _OPENING:
            depth += 1
        elif _CLASS[c] == _CLOSING:
            depth -= 1
        elif c == _COMMA and depth == 0:
            break
        at += 1
    return begin, at, min(at + 1, end)


@inner
def _unquoted(text: np.ndarray, begin: int, end: int) -> tuple[int, int]:
    if end - begin >= 2 and _CLASS[text[begin]] == _QUOTE:
        return begin + 1, end - 1
    return begin, end


@inner
def _read_integer(text: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """Return an integer and where it ends, or -1 there if it is none or a very long one."""
    negative = at < end and text[at] == _MINUS
    if negative:
        at += 1
    begin = at
    value: Any = 0
    while at < end and _ZERO <= text[at] <= _NINE and at - begin < _MAX_DIGITS:
        value = value * 10 + (np.int64(text[at]) - _ZERO)
        at += 1
    if at == begin or (at < end and _CLASS[text[at]] == _WORD):
        return 0, -1
    return -value if negative else value, at


@inner
def _read_dims(text: np.ndarray, begin: int, end: int, out: np.ndarray, at: int) -> int:
    """Read a list of integers to ``out[at:]``; returns how many, or -1 if it is no such list."""
    if begin == end:
        return 0
    if _CLASS[text[begin]] != _OPENING:
        return -1
    count = 0
    here = _skip_space(text, begin + 1, end - 1)
    while here < end - 1:
        value, stop = _read_integer(text, here, end - 1)
        if stop < 0:
            return -1
        out[at + count] = value
        count += 1
        here = _skip_space(text, stop, end - 1)
        here = _skip_space(text, here + 1, end - 1)
    return count


@inner
def _read_tensor(
    text: np.ndarray, begin: int, end: int, numbers: np.ndarray
) -> tuple[bool, int, int]:
    """Read ``[id, storage, offset, elements, itemsize, "device"]``, and the device's span."""
    at = begin + 1
    for i in range(_NUMBERS):
        at = _skip_space(text, at, end)
        numbers[i], at = _read_integer(text, at, end)
        if at < 0:
            return False, 0, 0
        at = _skip_space(text, at, end)
        if at >= end or text[at] != _COMMA:
            return False, 0, 0
        at += 1
    at = _skip_space(text, at, end)
    if at >= end or _CLASS[text[at]] != _QUOTE:
        return False, 0, 0
    stop = _skip_string(text, at, end)
    if stop < 0 or _skip_space(text, stop, end) != end - 1:
        return False, 0, 0
    return True, at + 1, stop - 1


@inner
def _mixed(hash_so_far: int, value: int) -> int:
    mixed: int = (hash_so_far ^ value) * _PRIME
    return mixed ^ (mixed >> 32)


@inner
def _name(text: np.ndarray, begin: int, end: int, names: Names) -> int:
    """Return the number of a text."""
    key: Any = np.int64(end - begin)
    for at in range(begin, end):
        key = (key ^ np.int64(text[at])) * _PRIME
    key ^= key >> 32
    mask = names.slots.size - 1
    slot = key & mask
    while names.slots[slot] > 0:
        number: int = names.slots[slot] - 1
        if names.length[number] == end - begin:
            other = names.start[number]
            same = True
            for i in range(end - begin):
                if text[other + i] != text[begin + i]:
                    same = False
                    break
            if same:
                return number
        slot = (slot + 1) & mask
    number = names.size[0]
    names.size[0] += 1
    names.start[number], names.length[number] = begin, end - begin
    names.slots[slot] = number + 1
    return number


@inner
def _same_tensor(tensors: Tensors, a: int, b: int) -> bool:
    if (
        tensors.device[a] != tensors.device[b]
        or tensors.dtype[a] != tensors.dtype[b]
        or tensors.num_dims[a] != tensors.num_dims[b]
        or tensors.num_strides[a] != tensors.num_strides[b]
    ):
        return False
    for i in range(_NUMBERS):
        if tensors.numbers[a, i] != tensors.numbers[b, i]:
            return False
    for i in range(tensors.num_dims[a] + tensors.num_strides[a]):
        if tensors.dims[tensors.first_dim[a] + i] != tensors.dims[tensors.first_dim[b] + i]:
            return False
    return True


@inner
def _keep_tensor(tensors: Tensors) -> int:
    """Return the number of the tensor written after the last, which stays only if it is new."""
    new: int = tensors.size[0]
    key: Any = _mixed(tensors.device[new], tensors.dtype[new])
    for i in range(_NUMBERS):
        key = _mixed(key, tensors.numbers[new, i])
    end = tensors.first_dim[new] + tensors.num_dims[new] + tensors.num_strides[new]
    for i in range(tensors.first_dim[new], end):
        key = _mixed(key, tensors.dims[i])
    mask = tensors.slots.size - 1
    slot = key & mask
    while tensors.slots[slot] > 0:
        known: int = tensors.slots[slot] - 1
        if _same_tensor(tensors, known, new):
            return known
        slot = (slot + 1) & mask
    tensors.slots[slot] = new + 1
    tensors.size[0] += 1
    tensors.first_dim[new + 1] = end
    return new


@inner
def _dtype_span(text: np.ndarray, begin: int, end: int) -> tuple[int, int]:
    """Return the span of ``float`` in ``Tensor(float)``, an empty one for any other type."""
    if end - begin <= _TENSOR.size or text[end - 1] != _CLOSE_ROUND:
        return begin, begin
    for i in range(_TENSOR.size):
        if text[begin + i] != _TENSOR[i]:
            return begin, begin
    return begin + _TENSOR.size, end - 1


@inner
def _add_leaf(
    leaves: Leaves, number: int, position: int, item: int, type_name: int, value: int, tensor: int
) -> None:
    at = leaves.size[0]
    leaves.size[0] += 1
    leaves.set[at] = number
    leaves.position[at] = position
    leaves.item[at] = item
    leaves.type[at] = type_name
    leaves.value[at] = value
    leaves.tensor[at] = tensor


class _Walk(NamedTuple):
    """Where in the four lists of a set the reading is."""

    # at, end: int64, shape (depth, 4): of each list and each list in it, where to go on and its end
    at: np.ndarray
    end: np.ndarray
    # begin, stop: int64, shape (4,): the current items
    begin: np.ndarray
    stop: np.ndarray


@inner
def _open(text: np.ndarray, start: np.ndarray, length: np.ndarray, walk: _Walk) -> int:
    """Go into the four lists of a set; returns a bit for each that cannot be read."""
    unread = 0
    for kind in range(4):
        walk.at[0, kind] = walk.end[0, kind] = 0
        if length[kind] == 0:
            continue
        stop = start[kind] + length[kind]
        begin = _skip_space(text, start[kind], stop)
        last = _skip_value(text, begin, stop) if begin < stop else -1
        is_list = last >= 0 and _CLASS[text[begin]] == _OPENING
        if is_list and _skip_space(text, last, stop) == stop:
            walk.at[0, kind], walk.end[0, kind] = begin + 1, last - 1
        else:
            unread |= 1 << kind
    return unread


@inner
def _advance(text: np.ndarray, walk: _Walk, depth: int) -> None:
    """Find the next items of the four lists, side by side."""
    at, begin, stop = walk.at, walk.begin, walk.stop
    for kind in range(4):
        here, limit = at[depth, kind], walk.end[depth, kind]
        if kind == TYPES and depth > 0:
            begin[kind], stop[kind], at[depth, kind] = _next_type(text, here, limit)
        else:
            begin[kind], stop[kind], at[depth, kind] = _next_item(text, here, limit)
    if depth == 0:
        begin[TYPES], stop[TYPES] = _unquoted(text, begin[TYPES], stop[TYPES])


@inner
def _enter(text: np.ndarray, walk: _Walk, depth: int) -> None:
    """Go into the items just found, as far as they are lists."""
    for kind in range(4):
        first, last = walk.begin[kind], walk.stop[kind]
        walk.at[depth, kind] = walk.end[depth, kind] = last
        if first == last:
            continue
        if kind == TYPES:
            while first < last and text[first] != _OPEN:
                first += 1
        if first < last and _CLASS[text[first]] == _OPENING:
            walk.at[depth, kind], walk.end[depth, kind] = first + 1, last - 1


@inner
def _tensor_of(text: np.ndarray, walk: _Walk, tensors: Tensors, names: Names) -> tuple[int, int]:
    """Return the number of the tensor that a value is, or -1, and bits as :func:`_open` does."""
    begin, stop = walk.begin, walk.stop
    if stop[TYPES] > begin[TYPES] and text[stop[TYPES] - 1] == _CLOSE:
        return -1, 0  # it is said to be a list, which may well look like a tensor
    new = tensors.size[0]
    found, device, device_end = _read_tensor(
        text, begin[VALUES], stop[VALUES], tensors.numbers[new]
    )
    if not found:
        return -1, 0
    unread = 0
    first = tensors.first_dim[new]
    num_dims = _read_dims(text, begin[SHAPES], stop[SHAPES], tensors.dims, first)
    if num_dims < 0:
        unread, num_dims = 1 << SHAPES, 0
    num_strides = _read_dims(text, begin[STRIDES], stop[STRIDES], tensors.dims, first + num_dims)
    if num_strides < 0:
        unread, num_strides = unread | 1 << STRIDES, 0
    tensors.num_dims[new], tensors.num_strides[new] = num_dims, num_strides
    tensors.device[new] = _name(text, device, device_end, names)
    dtype, dtype_end = _dtype_span(text, begin[TYPES], stop[TYPES])
    tensors.dtype[new] = _name(text, dtype, dtype_end, names)
    return _keep_tensor(tensors), unread


@inner
def _keep_unread(
    text: np.ndarray, number: int, start: np.ndarray, length: np.ndarray, unread: int,
    leaves: Leaves, names: Names,
) -> int:  # fmt: skip
    """Add a leaf for each of a set's texts that could not be read; returns their number."""
    count = 0
    for kind in range(4):
        if unread >> kind & 1:
            value = _name(text, start[kind], start[kind] + length[kind], names)
            _add_leaf(leaves, number, -1, kind, -1, value, -1)
            count += 1
    return count


@inner
def _read_values(
    text: np.ndarray, number: int, walk: _Walk, leaves: Leaves, tensors: Tensors, names: Names
) -> int:
    """Read the leaves of a set of which :func:`_open` went into the lists; returns bits as that."""
    begin, stop = walk.begin, walk.stop
    unread = 0
    depth, position, item = 0, -1, -1
    while depth >= 0:
        _advance(text, walk, depth)
        if begin[VALUES] == stop[VALUES]:
            depth -= 1
            continue
        if depth == 0:
            position += 1
            item = -1
        tensor, value = -1, -1
        if _CLASS[text[begin[VALUES]]] == _OPENING:
            tensor, bits = _tensor_of(text, walk, tensors, names)
            unread |= bits
            if tensor < 0:
                item = max(item, 0)
                last = stop[VALUES] - 1
                if _skip_space(text, begin[VALUES] + 1, last) < last:
                    depth += 1
                    _enter(text, walk, depth)
                    continue
        if tensor < 0:
            value = _name(text, begin[VALUES], stop[VALUES], names)
        type_name = _name(text, begin[TYPES], stop[TYPES], names)
        _add_leaf(leaves, number, position, item, type_name, value, tensor)
        if item >= 0:
            item += 1
    return unread


@kernel
def bound_items(text: np.ndarray, start: np.ndarray, length: np.ndarray) -> int:
    """Return a number of items that lists hold at most, all of them together: O(bytes).

    - ``text``: uint8.
    - ``start``, ``length``: int64, shape (spans,).
    """
    count = 0
    for i in range(start.size):
        for at in range(start[i], start[i] + length[i]):
            c = text[at]  # compared without a table, several at once
            count += int((c == _COMMA) | (c == _OPEN) | (c == _OPEN_ROUND))
    return count


@kernel
def read_operands(
    text: np.ndarray, start: np.ndarray, length: np.ndarray, leaves: Leaves, tensors: Tensors,
    names: Names,
) -> int:  # fmt: skip
    """Read the leaves of sets of four texts: values, shapes, types and strides.

    - ``text``: uint8.
    - ``start``, ``length``: int64, shape (sets, 4): spans of ``text``; one of length 0 is not
      there.
    - ``leaves``, ``tensors``, ``names``: Filled. They must have room for what :func:`bound_items`
      gives of the values, and ``leaves`` for four more a set; ``slots`` are zero, their number a
      power of two and larger than that of what they hold.
    - Returns: How many texts could not be read. Each is a leaf with position -1, its whole text as
      the value. O(bytes), times the depth of lists in lists.
    """
    walk = _Walk(
        np.empty((MAX_DEPTH + 1, 4), dtype=np.int64),
        np.empty((MAX_DEPTH + 1, 4), dtype=np.int64),
        np.empty(4, dtype=np.int64),
        np.empty(4, dtype=np.int64),
    )
    num_unread = 0
    for number in range(start.shape[0]):
        unread = _open(text, start[number], length[number], walk)
        unread |= _read_values(text, number, walk, leaves, tensors, names)
        num_unread += _keep_unread(
            text, number, start[number], length[number], unread, leaves, names
        )
    return num_unread
