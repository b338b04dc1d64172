"""Where nodes of a PyTorch execution trace go: keys, columns and states, and keeping attributes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import called, inner
from nadi.kernels.json_tokens import NOT_AN_INTEGER, byte_at, fail, read_integer, unescape
from nadi.kernels.strings import make_words

# keys of a node; those of schema 1.0.1 and of linked traces after those of today
NODE_KEYS = (
    "id", "ctrl_deps", "parent", "rf_id", "seq_id", "scope", "name", "inputs", "outputs", "attrs",
    "fw_parent", "tid", "fw_tid", "op_schema", "input_shapes", "input_types", "output_shapes",
    "output_types", "ts", "inclusive_dur", "exclusive_dur", "inter_thread_dep", "cat", "stream",
    "device",
)  # fmt: skip
(ID, _CTRL_DEPS, _PARENT, RF_ID, SEQ_ID, SCOPE, NAME, INPUTS_KEY, OUTPUTS_KEY, ATTRS, _FW_PARENT,
 _TID, _FW_TID, _OP_SCHEMA, INPUT_SHAPES, _INPUT_TYPES, OUTPUT_SHAPES, _OUTPUT_TYPES, TS,
 _INCLUSIVE, EXCLUSIVE, THREAD_DEP, CAT, STREAM, _DEVICE) = range(
    len(NODE_KEYS)
)  # fmt: skip
# names of attributes that have a code; others are counted down from -1
INPUTS = ("inputs.values", "inputs.shapes", "inputs.types", "inputs.strides")
OUTPUTS = ("outputs.values", "outputs.shapes", "outputs.types", "outputs.strides")
NAMES = (
    *NODE_KEYS, *INPUTS, *OUTPUTS, "kernel_backend", "kernel_file", "tensor_range",
)  # fmt: skip
FIRST_INPUT = len(NODE_KEYS)
FIRST_OUTPUT = FIRST_INPUT + len(INPUTS)

NUMBERS = {
    name: column
    for column, name in enumerate(
        ("id", "ctrl_deps", "parent", "rf_id", "sequence", "scope", "name_at", "name_length",
         "values_at", "values_length", "start", "duration", "exclusive", "thread_dep", "category",
         "stream", "device")
    )
}  # fmt: skip
WIDTH = len(NUMBERS)
NAME_AT, _, VALUES_AT, _, START, _, _, W_THREAD_DEP, CATEGORY, W_STREAM, _W_DEVICE = range(6, WIDTH)
# where the values of ts, inclusive_dur, exclusive_dur, stream, device begin and end (-1: are not),
# and of the first three whether they are to be read again, with an exponent
SPANS = WIDTH
AGAIN = SPANS + 10
HAS_ID, HAS_NAME, KEY, ITEM, ATTR = range(AGAIN + 3, AGAIN + 8)
# of an attribute: spans of its name, type and value, twice the quote's place as string_end has it
A_NAME, A_NAME_END, A_TYPE, A_VALUE, A_VALUE_END, A_KEYS = range(AGAIN + 8, AGAIN + 14)
WORK_SIZE = A_KEYS + 1

_STATE = ("row", "kept", "keys", "doubles", "again", "unescaped", "is_full", "has_begun")
STATE = {name: place for place, name in enumerate(_STATE)}
S_ROW, S_KEPT, S_KEYS, S_DOUBLES, S_AGAIN, S_UNESCAPED, S_FULL, S_BEGAN = range(len(_STATE))

# failures besides those of JSON
IS_WRONG_TYPE, IS_OUT_OF_RANGE, IS_MISSING = range(16, 19)

# kinds of types of attributes (first column of ``types``), and types that no attribute names
SIGNED, UNSIGNED, BOOL, STRING, DOUBLE, NO_SCALAR = range(6)
TYPE_JSON, TYPE_OPERAND = 15, 16

QUOTE, OPEN, OPEN_LIST, CLOSE_LIST, NULL, _T, _F, MINUS = (ord(c) for c in '"{[]ntf-')
ZERO, NINE = (ord(c) for c in "09")
LIMIT = 2**62
_UINT64_TENTH = np.uint64((2**64 - 1) // 10)


class FoundNodes(NamedTuple):
    """What is found in a list of nodes; arrays with room for more rows than are filled."""

    numbers: np.ndarray  # int64, shape (nodes, ``len(NUMBERS)``)
    # int64, shape (attributes, 3): the node's row times 2^32 and the code of the name; the value,
    # or where its span begins; the span's length times 64 and the type
    kept: np.ndarray
    # int64, shape (names, 3): the spans of names that have no code, and before which of nothing,
    # ``inputs.`` and ``outputs.`` (0, 1, 2) they stand
    keys: np.ndarray
    # int64, shape (numbers, 5): the attribute's row, the span of its number, and that of all of it
    doubles: np.ndarray
    again: np.ndarray  # int64, shape (times, 4): row, column, and span of times with an exponent
    # uint8, shape (bytes,): texts that have escapes, without them; spans in it begin after all of
    # the file
    unescaped: np.ndarray


class Words(NamedTuple):
    """Words and their codes."""

    # nodes, operands, attributes: keys of nodes, of their operands, and of attributes
    nodes: np.ndarray
    operands: np.ndarray
    attributes: np.ndarray
    # names, types: of attributes
    names: np.ndarray
    types: np.ndarray
    categories: np.ndarray  # the values of ``cat``, which only linked traces have

    @classmethod
    def of_nodes(cls, types: np.ndarray, categories: np.ndarray) -> Words:
        """Put the words of types and categories, which come from outside, to the others."""
        return cls(*_WORDS, types, categories)


_WORDS = (
    make_words({key: code for code, key in enumerate(NODE_KEYS)}),
    make_words({key.partition(".")[2]: code for code, key in enumerate(INPUTS)}),
    make_words({"name": 0, "type": 1, "value": 2}),
    make_words({name: code for code, name in enumerate(NAMES) if "." not in name}),
)


class NodeScan(NamedTuple):
    """What is read, and where it goes: what most functions that read nodes are given."""

    text: np.ndarray  # uint8, shape (bytes,): the file
    words: Words  # words that it may have
    # int64, shape (types, 3): the kind of each type, and its least and greatest number
    types: np.ndarray
    # int64, shape (``len(NODE_KEYS)``,): the types of keys that newer schemas have in ``attrs``
    old_types: np.ndarray
    found: FoundNodes  # filled on from what the state says
    # int64, shape (``WORK_SIZE``,): space to work in; after a failure its places ``KEY`` and
    # ``ATTR`` say which key and which attribute of the node it is about, or are -1
    work: np.ndarray
    stack: np.ndarray  # uint8, shape (``MAX_DEPTH``,): space to work in
    # int64, shape (``len(STATE)``,): how much is filled. After a call that found no room,
    # ``is_full`` is the number of the array that needs some, counted from 1.
    state: np.ndarray


@inner
def wrong(work: np.ndarray, key: int, code: int, at: int) -> int:
    """Fail at the value of a key."""
    work[KEY] = key
    return fail(code, at)


@inner
def keep(scan: NodeScan, code: int, type_code: int, value: int, length: int) -> None:
    """Keep an attribute of the node that is read."""
    kept, state = scan.found.kept, scan.state
    place = state[S_KEPT]
    if place >= kept.shape[0]:
        state[S_FULL] = 1 + S_KEPT
        return
    kept[place, 0] = (state[S_ROW] << 32) | (code & 0xFFFFFFFF)
    kept[place, 1] = value
    kept[place, 2] = (length << 6) | type_code
    state[S_KEPT] = place + 1


@called
def add_key(keys: np.ndarray, state: np.ndarray, at: int, end: int, prefix: int) -> int:
    """Give a code to a name that has none."""
    place = state[S_KEYS]
    if place >= keys.shape[0]:
        state[S_FULL] = 1 + S_KEYS
        return -1
    keys[place, 0] = at
    keys[place, 1] = end - at
    keys[place, 2] = prefix
    state[S_KEYS] = place + 1
    return -1 - place


@inner
def _read_unsigned(text: np.ndarray, at: int) -> tuple[int, int]:
    """Read a uint64 of more than 63 bits, as the int64 of the same bits; and 1 if it is one."""
    value = np.uint64(0)
    while ZERO <= byte_at(text, at) <= NINE:
        digit = np.uint64(text[at] - np.uint8(ZERO))
        if value > _UINT64_TENTH or (value == _UINT64_TENTH and digit > np.uint64(5)):
            return np.int64(0), 0
        value = value * np.uint64(10) + digit
        at += 1
    return np.int64(value), 1


@called
def _keep_unescaped(scan: NodeScan, at: int, end: int, code: int, type_code: int) -> None:
    """Keep a string without its escapes; ``end`` as string_end gave it."""
    text, state = scan.text, scan.state
    begin = state[S_UNESCAPED]
    stop = unescape(text, at, end >> 1, scan.found.unescaped, begin)
    if stop < 0:
        state[S_FULL] = 1 + S_UNESCAPED
        return
    keep(scan, code, type_code, text.size + begin, stop - begin)
    state[S_UNESCAPED] = stop


@inner
def keep_value(scan: NodeScan, code: int, type_code: int) -> bool:
    """Keep an attribute's value by its type; False if it does not fit or is a fraction."""
    text, types = scan.text, scan.types
    at, kind = scan.work[A_VALUE], types[type_code, 0]
    c = text[at]
    if c == QUOTE:
        if kind != STRING:
            return False
        end = scan.work[A_VALUE_END]
        if end & 1 == 0:
            keep(scan, code, type_code, at + 1, (end >> 1) - at - 1)
        else:
            _keep_unescaped(scan, at + 1, end, code, type_code)
        return True
    if c == _T or c == _F:
        if kind != BOOL:
            return False
        keep(scan, code, type_code, np.int64(c == _T), 0)
        return True
    if kind > UNSIGNED:
        return False
    _, value, flag = read_integer(text, at)
    if flag == 0:
        if value < types[type_code, 1] or value > types[type_code, 2]:
            return False
    elif flag == NOT_AN_INTEGER or kind != UNSIGNED or c == MINUS:
        return False
    else:
        value, fits = _read_unsigned(text, at)
        if fits == 0:
            return False
    keep(scan, code, type_code, value, 0)
    return True
