"""Nodes of a PyTorch execution trace, from the bytes of its JSON to columns and attributes.

As in :mod:`nadi.kernels.kineto`, what is read of one node goes to ``work`` first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.kernels._jit import borrowed, called, inner, kernel
from nadi.kernels.json_tokens import (
    NOT_AN_INTEGER,
    byte_at,
    fail,
    next_item,
    read_integer,
    read_microseconds,
    skip_value,
    string_end,
    unescape,
)
from nadi.kernels.strings import END, make_words, read_member, word_of_string

__all__ = [
    "ATTR", "INPUTS", "IS_MISSING", "IS_OUT_OF_RANGE", "IS_WRONG_TYPE", "ITEM", "KEY", "NAMES",
    "NODE_KEYS", "NUMBERS", "OUTPUTS", "STATE", "TYPE_JSON", "TYPE_OPERAND", "WORDS", "WORK_SIZE",
    "Found", "scan_nodes",
]  # fmt: skip

# keys of a node; those of schema 1.0.1 and of linked traces after those of today
NODE_KEYS = (
    "id", "ctrl_deps", "parent", "rf_id", "seq_id", "scope", "name", "inputs", "outputs", "attrs",
    "fw_parent", "tid", "fw_tid", "op_schema", "input_shapes", "input_types", "output_shapes",
    "output_types", "ts", "inclusive_dur", "exclusive_dur", "inter_thread_dep", "cat", "stream",
    "device",
)  # fmt: skip
(_ID, _CTRL_DEPS, _PARENT, _RF_ID, _SEQ_ID, _SCOPE, _NAME, _INPUTS, _OUTPUTS, _ATTRS, _FW_PARENT,
 _TID, _FW_TID, _OP_SCHEMA, _INPUT_SHAPES, _INPUT_TYPES, _OUTPUT_SHAPES, _OUTPUT_TYPES, _TS,
 _INCLUSIVE, _EXCLUSIVE, _THREAD_DEP, _CAT, _STREAM, _DEVICE) = range(
    len(NODE_KEYS)
)  # fmt: skip
# names of attributes that have a code; others are counted down from -1
INPUTS = ("inputs.values", "inputs.shapes", "inputs.types", "inputs.strides")
OUTPUTS = ("outputs.values", "outputs.shapes", "outputs.types", "outputs.strides")
NAMES = (
    *NODE_KEYS, *INPUTS, *OUTPUTS, "kernel_backend", "kernel_file", "tensor_range",
)  # fmt: skip
_FIRST_INPUT = len(NODE_KEYS)
_FIRST_OUTPUT = _FIRST_INPUT + len(INPUTS)

NUMBERS = {
    name: column
    for column, name in enumerate(
        ("id", "ctrl_deps", "parent", "rf_id", "sequence", "scope", "name_at", "name_length",
         "values_at", "values_length", "start", "duration", "exclusive", "thread_dep", "category",
         "stream", "device")
    )
}  # fmt: skip
_WIDTH = len(NUMBERS)
_NAME_AT, _, _VALUES_AT, _, _START, _, _, _W_THREAD_DEP, _CATEGORY, _W_STREAM, _W_DEVICE = range(
    6, _WIDTH
)
# where the values of ts, inclusive_dur, exclusive_dur, stream, device begin and end (-1: are not),
# and of the first three whether they are to be read again, with an exponent
_SPANS = _WIDTH
_AGAIN = _SPANS + 10
_HAS_ID, _HAS_NAME, KEY, ITEM, ATTR = range(_AGAIN + 3, _AGAIN + 8)
# of an attribute: spans of its name, type and value, twice the quote's place as string_end has it
_A_NAME, _A_NAME_END, _A_TYPE, _A_VALUE, _A_VALUE_END, _A_KEYS = range(_AGAIN + 8, _AGAIN + 14)
WORK_SIZE = _A_KEYS + 1

_STATE = ("row", "kept", "keys", "doubles", "again", "unescaped", "is_full", "has_begun")
STATE = {name: place for place, name in enumerate(_STATE)}
_S_ROW, _S_KEPT, _S_KEYS, _S_DOUBLES, _S_AGAIN, _S_UNESCAPED, _S_FULL, _S_BEGAN = range(len(_STATE))

# failures besides those of JSON
IS_WRONG_TYPE, IS_OUT_OF_RANGE, IS_MISSING = range(16, 19)

# kinds of types of attributes (first column of ``types``), and types that no attribute names
SIGNED, UNSIGNED, BOOL, STRING, DOUBLE, NO_SCALAR = range(6)
TYPE_JSON, TYPE_OPERAND = 15, 16

_QUOTE, _OPEN, _OPEN_LIST, _CLOSE_LIST, _N, _T, _F, _MINUS = (ord(c) for c in '"{[]ntf-')
_ZERO, _NINE = (ord(c) for c in "09")
_LIMIT = 2**62
_UINT64_TENTH = np.uint64((2**64 - 1) // 10)

# keys of nodes, of operands, and of attributes; names of attributes; types come from outside
WORDS = (
    make_words({key: code for code, key in enumerate(NODE_KEYS)}),
    make_words({key.partition(".")[2]: code for code, key in enumerate(INPUTS)}),
    make_words({"name": 0, "type": 1, "value": 2}),
    make_words({name: code for code, name in enumerate(NAMES) if "." not in name}),
)


class Found(NamedTuple):
    """What is found in a list of nodes; arrays with room for more rows than are filled.

    Attributes
    ----------
    numbers
        int64, shape (nodes, ``len(NUMBERS)``).
    kept
        int64, shape (attributes, 3): the node's row times 2^32 and the code of the name;
        the value, or where its span begins; the span's length times 64 and the type.
    keys
        int64, shape (names, 3): the spans of names that have no code, and before which of
        nothing, ``inputs.`` and ``outputs.`` (0, 1, 2) they stand.
    doubles
        int64, shape (numbers, 5): the attribute's row, the span of its number, and that of
        all of it.
    again
        int64, shape (times, 4): row, column, and span of times with an exponent.
    unescaped
        uint8, shape (bytes,): texts that have escapes, without them; spans in it begin
        after all of the file.
    """

    numbers: np.ndarray
    kept: np.ndarray
    keys: np.ndarray
    doubles: np.ndarray
    again: np.ndarray
    unescaped: np.ndarray


@inner
def _wrong(work: np.ndarray, key: int, code: int, at: int) -> int:
    work[KEY] = key
    return fail(code, at)


@inner
def _keep(
    kept: np.ndarray, state: np.ndarray, code: int, type_code: int, value: int, length: int
) -> None:
    place = state[_S_KEPT]
    if place >= kept.shape[0]:
        state[_S_FULL] = 1 + _S_KEPT
        return
    kept[place, 0] = (state[_S_ROW] << 32) | (code & 0xFFFFFFFF)
    kept[place, 1] = value
    kept[place, 2] = (length << 6) | type_code
    state[_S_KEPT] = place + 1


@called
def _add_key(keys: np.ndarray, state: np.ndarray, at: int, end: int, prefix: int) -> int:
    """Give a code to a name that has none."""
    place = state[_S_KEYS]
    if place >= keys.shape[0]:
        state[_S_FULL] = 1 + _S_KEYS
        return -1
    keys[place, 0] = at
    keys[place, 1] = end - at
    keys[place, 2] = prefix
    state[_S_KEYS] = place + 1
    return -1 - place


@inner
def _read_unsigned(text: np.ndarray, at: int) -> tuple[int, int]:
    """Read a uint64 of more than 63 bits, as the int64 of the same bits; and 1 if it is one."""
    value = np.uint64(0)
    while _ZERO <= byte_at(text, at) <= _NINE:
        digit = np.uint64(text[at] - np.uint8(_ZERO))
        if value > _UINT64_TENTH or (value == _UINT64_TENTH and digit > np.uint64(5)):
            return np.int64(0), 0
        value = value * np.uint64(10) + digit
        at += 1
    return np.int64(value), 1


@called
def _keep_unescaped(
    text: np.ndarray, at: int, end: int, code: int, type_code: int, kept: np.ndarray,
    unescaped: np.ndarray, state: np.ndarray,
) -> None:  # fmt: skip
    """Keep a string without its escapes; ``end`` as string_end gave it."""
    begin = state[_S_UNESCAPED]
    stop = unescape(text, at, end >> 1, unescaped, begin)
    if stop < 0:
        state[_S_FULL] = 1 + _S_UNESCAPED
        return
    _keep(kept, state, code, type_code, text.size + begin, stop - begin)
    state[_S_UNESCAPED] = stop


@inner
def _keep_value(
    text: np.ndarray, code: int, type_code: int, types: np.ndarray, work: np.ndarray,
    kept: np.ndarray, unescaped: np.ndarray, state: np.ndarray,
) -> bool:  # fmt: skip
    """Keep an attribute's value by its type; False if it does not fit or is a fraction."""
    at, kind = work[_A_VALUE], types[type_code, 0]
    c = text[at]
    if c == _QUOTE:
        if kind != STRING:
            return False
        end = work[_A_VALUE_END]
        if end & 1 == 0:
            _keep(kept, state, code, type_code, at + 1, (end >> 1) - at - 1)
        else:
            _keep_unescaped(text, at + 1, end, code, type_code, kept, unescaped, state)
        return True
    if c == _T or c == _F:
        if kind != BOOL:
            return False
        _keep(kept, state, code, type_code, c == _T, 0)
        return True
    if kind > UNSIGNED:
        return False
    _, value, flag = read_integer(text, at)
    if flag == 0:
        if value < types[type_code, 1] or value > types[type_code, 2]:
            return False
    elif flag == NOT_AN_INTEGER or kind != UNSIGNED or c == _MINUS:
        return False
    else:
        value, fits = _read_unsigned(text, at)
        if fits == 0:
            return False
    _keep(kept, state, code, type_code, value, 0)
    return True


@inner
def _note_number(text: np.ndarray, code: int, work: np.ndarray) -> None:
    """Take rf_id, seq_id and scope, whatever their type is said to be."""
    if code == _RF_ID or code == _SEQ_ID or code == _SCOPE:
        _, value, flag = read_integer(text, work[_A_VALUE])
        if flag == 0 and -_LIMIT < value < _LIMIT:
            work[code] = value


@inner
def _finish_attr(
    text: np.ndarray, begin: int, end: int, names: np.ndarray, type_words: np.ndarray,
    types: np.ndarray, work: np.ndarray, found_kept: np.ndarray, keys: np.ndarray,
    doubles: np.ndarray, unescaped: np.ndarray, stack: np.ndarray, state: np.ndarray,
) -> None:  # fmt: skip
    """Keep an attribute by name, type and value; or all of it, if it has not these three."""
    name_at, name_end = work[_A_NAME], work[_A_NAME_END]
    code = word_of_string(text, name_at, name_end, names, stack)
    if work[_A_VALUE] >= 0:
        _note_number(text, code, work)
    if work[_A_KEYS] == 3 and work[_A_TYPE] >= 0 and work[_A_VALUE] >= 0:
        type_end = string_end(text, work[_A_TYPE])
        type_code = word_of_string(text, work[_A_TYPE], type_end, type_words, stack)
        if type_code >= 0:
            first_key = state[_S_KEYS]
            if code < 0:
                code = _add_key(keys, state, name_at, name_end >> 1, 0)
            c = text[work[_A_VALUE]]
            if types[type_code, 0] == DOUBLE and (c == _MINUS or _ZERO <= c <= _NINE):
                place = state[_S_DOUBLES]
                if place >= doubles.shape[0]:
                    state[_S_FULL] = 1 + _S_DOUBLES
                    return
                doubles[place, 0] = state[_S_KEPT]
                doubles[place, 1] = work[_A_VALUE]
                doubles[place, 2] = work[_A_VALUE_END] - work[_A_VALUE]
                doubles[place, 3] = begin
                doubles[place, 4] = end - begin
                state[_S_DOUBLES] = place + 1
                _keep(found_kept, state, code, type_code, 0, 0)
                return
            if _keep_value(text, code, type_code, types, work, found_kept, unescaped, state):
                return
            state[_S_KEYS] = first_key
    _keep(found_kept, state, _ATTRS, TYPE_JSON, begin, end - begin)


@inner
def _read_attr(
    text: np.ndarray, at: int, words: np.ndarray, work: np.ndarray, stack: np.ndarray
) -> int:
    """Find name, type and value of an attribute from its opening brace; gives what is after it."""
    begin = at
    work[_A_NAME] = work[_A_TYPE] = work[_A_VALUE] = -1
    work[_A_KEYS] = 0
    at += 1
    is_first = True
    while True:
        at, key, _, _ = read_member(text, at, is_first, words, stack)
        if at < 0:
            return at
        if key == END:
            break
        is_first = False
        value = at
        work[_A_KEYS] += 1
        if text[at] == _QUOTE:
            end = string_end(text, at + 1)
            if end < 0:
                return end
            at = (end >> 1) + 1
        else:
            at = skip_value(text, at, stack)
            if at < 0:
                return at
            end = at
        if key == 2:
            work[_A_VALUE], work[_A_VALUE_END] = value, end
        elif key == 0:
            if text[value] != _QUOTE:
                return _wrong(work, _NAME, IS_WRONG_TYPE, value)
            work[_A_NAME], work[_A_NAME_END] = value + 1, end
        elif key == 1:
            work[_A_TYPE] = value + 1 if text[value] == _QUOTE else -1
    if work[_A_NAME] < 0:
        return _wrong(work, _NAME, IS_MISSING, begin)
    return at + 1


@inner
def _read_attrs(
    text: np.ndarray, at: int, attr_words: np.ndarray, names: np.ndarray, type_words: np.ndarray,
    types: np.ndarray, work: np.ndarray, kept: np.ndarray, keys: np.ndarray, doubles: np.ndarray,
    unescaped: np.ndarray, stack: np.ndarray, state: np.ndarray,
) -> int:  # fmt: skip
    """Read the list of attributes."""
    if text[at] != _OPEN_LIST:
        return _wrong(work, _ATTRS, IS_WRONG_TYPE, at)
    at += 1
    number = 0
    while True:
        begin = next_item(text, at, number == 0)
        if begin < 0:
            return begin
        if text[begin] == _CLOSE_LIST:
            work[ATTR] = -1
            return begin + 1
        work[ATTR] = number
        if text[begin] != _OPEN:
            return _wrong(work, -1, IS_WRONG_TYPE, begin)
        at = _read_attr(text, begin, attr_words, work, stack)
        if at < 0:
            return at
        _finish_attr(
            text, begin, at, names, type_words, types, work, kept, keys, doubles, unescaped,
            stack, state,
        )  # fmt: skip
        number += 1


@inner
def _read_operands(
    text: np.ndarray, at: int, first: int, words: np.ndarray, work: np.ndarray,
    kept: np.ndarray, keys: np.ndarray, stack: np.ndarray, state: np.ndarray,
) -> int:  # fmt: skip
    """Read inputs (``first`` is the code of their values) or outputs."""
    begin = at
    if text[at] != _OPEN:
        at = skip_value(text, at, stack)
        if at < 0:
            return at
        if text[begin] != _OPEN_LIST:
            code = _INPUTS if first == _FIRST_INPUT else _OUTPUTS
            _keep(kept, state, code, TYPE_JSON, begin, at - begin)
            return at
        if first == _FIRST_INPUT:
            work[_VALUES_AT], work[_VALUES_AT + 1] = begin, at - begin
        _keep(kept, state, first, TYPE_OPERAND, begin, at - begin)
        return at
    at += 1
    is_first = True
    while True:
        at, key, key_at, key_end = read_member(text, at, is_first, words, stack)
        if at < 0:
            return at
        if key == END:
            return at + 1
        is_first = False
        begin = at
        at = skip_value(text, at, stack)
        if at < 0:
            return at
        if key < 0:
            code = _add_key(keys, state, key_at, key_end, 1 if first == _FIRST_INPUT else 2)
            _keep(kept, state, code, TYPE_JSON, begin, at - begin)
            continue
        if key == 0 and first == _FIRST_INPUT:
            work[_VALUES_AT], work[_VALUES_AT + 1] = begin, at - begin
        _keep(kept, state, first + key, TYPE_OPERAND, begin, at - begin)


@inner
def _read_reference(text: np.ndarray, at: int, key: int, work: np.ndarray) -> int:
    """Read an id, or what is given as one, into its column."""
    end, value, flag = read_integer(text, at)
    if flag == NOT_AN_INTEGER:
        return _wrong(work, key, IS_WRONG_TYPE, at)
    if flag != 0 or value >= _LIMIT or value < -_LIMIT or (key == _ID and value < 0):
        return _wrong(work, key, IS_OUT_OF_RANGE, at)
    work[key] = value
    if key == _ID:
        work[_HAS_ID] = 1
    return end


@inner
def _read_time(text: np.ndarray, at: int, key: int, work: np.ndarray, stack: np.ndarray) -> int:
    """Read ts, inclusive_dur or exclusive_dur; null is none."""
    end, value, flag = read_microseconds(text, at)
    if flag != 0:
        end = skip_value(text, at, stack)
        if end < 0:
            return end
        c = text[at]
        if c == _N:
            return end
        if c != _MINUS and not _ZERO <= c <= _NINE:
            return _wrong(work, key, IS_WRONG_TYPE, at)
    work[_START + key - _TS] = value
    work[_SPANS + 2 * (key - _TS)], work[_SPANS + 2 * (key - _TS) + 1] = at, end
    work[_AGAIN + key - _TS] = flag != 0 or value < 0
    return end


@called
def _read_old(
    text: np.ndarray, at: int, key: int, types: np.ndarray, work: np.ndarray, kept: np.ndarray,
    unescaped: np.ndarray, stack: np.ndarray, state: np.ndarray, old_types: np.ndarray,
) -> int:  # fmt: skip
    """Read a key that schema 1.0.1 has on the node and newer ones have in ``attrs``."""
    begin = at
    if text[at] == _QUOTE:
        end = string_end(text, at + 1)
        if end < 0:
            return end
        at = (end >> 1) + 1
    else:
        at = end = skip_value(text, at, stack)
        if at < 0:
            return at
    if key >= _INPUT_SHAPES:
        code = _FIRST_INPUT + 1 + key - _INPUT_SHAPES
        if key >= _OUTPUT_SHAPES:
            code = _FIRST_OUTPUT + 1 + key - _OUTPUT_SHAPES
        _keep(kept, state, code, TYPE_OPERAND, begin, at - begin)
        return at
    work[_A_VALUE], work[_A_VALUE_END] = begin, end
    if not _keep_value(text, key, old_types[key], types, work, kept, unescaped, state):
        _keep(kept, state, key, TYPE_JSON, begin, at - begin)
    return at


@inner
def _read_linked(
    text: np.ndarray, at: int, key: int, categories: np.ndarray, work: np.ndarray,
    kept: np.ndarray, stack: np.ndarray, state: np.ndarray,
) -> int:  # fmt: skip
    """Read a key that only linked traces have, other than times."""
    begin = at
    at = skip_value(text, at, stack)
    if at < 0:
        return at
    if key == _CAT:
        if text[begin] == _QUOTE:
            end = string_end(text, begin + 1)
            work[_CATEGORY] = word_of_string(text, begin + 1, end, categories, stack)
        _keep(kept, state, key, TYPE_JSON, begin, at - begin)
        return at
    _, value, flag = read_integer(text, begin)
    if key == _THREAD_DEP:
        if flag == 0 and value >= 0:
            work[_W_THREAD_DEP] = value
        elif text[begin] != _N:
            _keep(kept, state, key, TYPE_JSON, begin, at - begin)
        return at
    place = 3 + key - _STREAM
    work[_SPANS + 2 * place], work[_SPANS + 2 * place + 1] = begin, at
    work[_W_STREAM + key - _STREAM] = value if flag == 0 and value >= 0 else -1
    return at


@inner
def _finish_node(
    begin: int, first_device: int, work: np.ndarray, numbers: np.ndarray, kept: np.ndarray,
    again: np.ndarray, state: np.ndarray,
) -> int:  # fmt: skip
    """Put a node's row in its place; 0, or the failure that it has no id or name."""
    if work[_HAS_ID] == 0:
        return _wrong(work, _ID, IS_MISSING, begin)
    if work[_HAS_NAME] == 0:
        return _wrong(work, _NAME, IS_MISSING, begin)
    row = state[_S_ROW]
    is_timed = work[_SPANS] >= 0 and work[_SPANS + 2] >= 0
    for i in range(5):
        at, end = work[_SPANS + 2 * i], work[_SPANS + 2 * i + 1]
        if at < 0:
            continue
        column = _START + i if i < 3 else _W_STREAM + i - 3
        told = is_timed if i < 3 else work[_CATEGORY] >= first_device and work[column] >= 0
        if not told:  # no column tells it
            _keep(kept, state, _TS + i if i < 3 else _STREAM + i - 3, TYPE_JSON, at, end - at)
            work[column] = -1
        elif i < 3 and work[_AGAIN + i] != 0:
            place = state[_S_AGAIN]
            if place >= again.shape[0]:
                state[_S_FULL] = 1 + _S_AGAIN
                return 0
            again[place, 0], again[place, 1] = row, column
            again[place, 2], again[place, 3] = at, end - at
            state[_S_AGAIN] = place + 1
    for column in range(_WIDTH):
        numbers[row, column] = work[column]
    return 0


@inner
def _read_node(  # noqa: C901  one branch per kind of key
    text: np.ndarray, at: int, words: np.ndarray, operand_words: np.ndarray,
    attr_words: np.ndarray, names: np.ndarray, type_words: np.ndarray, types: np.ndarray,
    old_types: np.ndarray, categories: np.ndarray, work: np.ndarray, kept: np.ndarray,
    keys: np.ndarray, doubles: np.ndarray, unescaped: np.ndarray, stack: np.ndarray,
    state: np.ndarray,
) -> int:  # fmt: skip
    """Read one node from its opening brace; gives the byte after it."""
    for place in range(WORK_SIZE):
        work[place] = -1
    work[_HAS_ID] = work[_HAS_NAME] = 0
    at += 1
    is_first = True
    while True:
        at, key, key_at, key_end = read_member(text, at, is_first, words, stack)
        if at < 0:
            return at
        if key == END:
            return at + 1
        is_first = False
        begin = at
        if key < 0:
            at = skip_value(text, at, stack)
            code = _add_key(keys, state, key_at, key_end, 0)
            _keep(kept, state, code, TYPE_JSON, begin, at - begin)
        elif key <= _SCOPE:
            at = _read_reference(text, at, key, work)
            if key >= _RF_ID and at >= 0:
                work[_A_VALUE] = begin
                if not _keep_value(text, key, old_types[key], types, work, kept, unescaped, state):
                    _keep(kept, state, key, TYPE_JSON, begin, at - begin)
        elif key == _NAME:
            if text[at] != _QUOTE:
                return _wrong(work, _NAME, IS_WRONG_TYPE, at)
            end = string_end(text, at + 1)
            if end < 0:
                return end
            work[_NAME_AT], work[_NAME_AT + 1] = at + 1, (end >> 1) - at - 1
            work[_HAS_NAME] = 1
            at = (end >> 1) + 1
        elif key == _INPUTS or key == _OUTPUTS:
            first = _FIRST_INPUT if key == _INPUTS else _FIRST_OUTPUT
            at = _read_operands(text, at, first, operand_words, work, kept, keys, stack, state)
        elif key == _ATTRS:
            at = _read_attrs(
                text, at, attr_words, names, type_words, types, work, kept, keys, doubles,
                unescaped, stack, state,
            )  # fmt: skip
        elif key < _TS:
            at = _read_old(text, at, key, types, work, kept, unescaped, stack, state, old_types)
        elif key <= _EXCLUSIVE:
            at = _read_time(text, at, key, work, stack)
        else:
            at = _read_linked(text, at, key, categories, work, kept, stack, state)
        if at < 0:
            return at


@kernel
def scan_nodes(
    text: np.ndarray, at: int, stop: int, words: tuple[np.ndarray, ...], types: np.ndarray,
    old_types: np.ndarray, first_device: int, found: Found, work: np.ndarray, stack: np.ndarray,
    state: np.ndarray,
) -> int:  # fmt: skip
    """Read the nodes of a list until it ends, until ``stop``, or until there is no room.

    Parameters
    ----------
    text
        uint8, shape (bytes,).
    at
        Where to go on: after the opening bracket, or where the last call ended.
    stop
        The first node that begins at this byte or later is not read any more.
    words
        Those of ``WORDS``, of the names of types, and of categories.
    types
        int64, shape (types, 3): the kind of each type, and its least and greatest number.
    old_types
        int64, shape (``len(NODE_KEYS)``,): the types of keys that newer schemas have in
        ``attrs``.
    first_device
        The least category of work on a device.
    found
        Filled on from what the state says.
    work
        int64, shape (``WORK_SIZE``,): space to work in; after a failure its places ``KEY``
        and ``ATTR`` say which key and which attribute of the node it is about, or are -1.
    stack
        uint8, shape (``MAX_DEPTH``,): space to work in.
    state
        int64, shape (``len(STATE)``,): how much is filled. After a call that found no
        room, ``is_full`` is the number of the array that needs some, counted from 1.

    Returns
    -------
    int
        The byte of the next node or of the closing bracket; or a failure. O(bytes).
    """
    text, stack, work, state = borrowed(text), borrowed(stack), borrowed(work), borrowed(state)
    node_words, operand_words = borrowed(words[0]), borrowed(words[1])
    attr_words, names, type_words = borrowed(words[2]), borrowed(words[3]), borrowed(words[4])
    types, old_types, categories = borrowed(types), borrowed(old_types), borrowed(words[5])
    numbers, kept, keys = borrowed(found[0]), borrowed(found[1]), borrowed(found[2])
    doubles, again, unescaped = borrowed(found[3]), borrowed(found[4]), borrowed(found[5])
    state[_S_FULL] = 0
    while True:
        work[KEY] = work[ATTR] = -1
        begin = next_item(text, at, state[_S_BEGAN] == 0)
        if begin < 0 or text[begin] == _CLOSE_LIST:
            return begin
        if begin >= stop:
            return at
        if state[_S_ROW] >= numbers.shape[0]:
            state[_S_FULL] = 1 + _S_ROW
            return at
        if text[begin] != _OPEN:
            return _wrong(work, -1, IS_WRONG_TYPE, begin)
        num_kept, num_keys, num_doubles = state[_S_KEPT], state[_S_KEYS], state[_S_DOUBLES]
        num_again, num_unescaped = state[_S_AGAIN], state[_S_UNESCAPED]
        end = _read_node(
            text, begin, node_words, operand_words, attr_words, names, type_words, types,
            old_types, categories, work, kept, keys, doubles, unescaped, stack, state,
        )  # fmt: skip
        if end < 0:
            return end
        failed = _finish_node(begin, first_device, work, numbers, kept, again, state)
        if failed < 0:
            return failed
        if state[_S_FULL] != 0:
            state[_S_KEPT], state[_S_KEYS], state[_S_DOUBLES] = num_kept, num_keys, num_doubles
            state[_S_AGAIN], state[_S_UNESCAPED] = num_again, num_unescaped
            return at
        state[_S_ROW] += 1
        state[_S_BEGAN] = 1
        at = end
