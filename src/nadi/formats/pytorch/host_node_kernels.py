"""Nodes of a PyTorch execution trace, from the bytes of its JSON to columns and attributes.

As in :mod:`nadi.formats.kineto.kineto_event_kernels`, what is read of one node goes to
``work`` first.
"""

from __future__ import annotations

import numpy as np

from nadi.formats.pytorch.host_layout_kernels import (
    A_KEYS,
    A_NAME,
    A_NAME_END,
    A_TYPE,
    A_VALUE,
    A_VALUE_END,
    AGAIN,
    ATTR,
    ATTRS,
    CAT,
    CATEGORY,
    CLOSE_LIST,
    DOUBLE,
    EXCLUSIVE,
    FIRST_INPUT,
    FIRST_OUTPUT,
    HAS_ID,
    HAS_NAME,
    ID,
    INPUT_SHAPES,
    INPUTS_KEY,
    IS_MISSING,
    IS_OUT_OF_RANGE,
    IS_WRONG_TYPE,
    KEY,
    LIMIT,
    MINUS,
    NAME,
    NAME_AT,
    NINE,
    NULL,
    OPEN,
    OPEN_LIST,
    OUTPUT_SHAPES,
    OUTPUTS_KEY,
    QUOTE,
    RF_ID,
    S_AGAIN,
    S_BEGAN,
    S_DOUBLES,
    S_FULL,
    S_KEPT,
    S_KEYS,
    S_ROW,
    S_UNESCAPED,
    SCOPE,
    SEQ_ID,
    SPANS,
    START,
    STREAM,
    THREAD_DEP,
    TS,
    TYPE_JSON,
    TYPE_OPERAND,
    VALUES_AT,
    W_STREAM,
    W_THREAD_DEP,
    WIDTH,
    WORK_SIZE,
    ZERO,
    Found,
    add_key,
    keep,
    keep_value,
    wrong,
)
from nadi.kernels.jit import borrowed, called, inner, kernel
from nadi.kernels.json_tokens import (
    NOT_AN_INTEGER,
    next_item,
    read_integer,
    read_microseconds,
    skip_value,
    string_end,
)
from nadi.kernels.strings import END, read_member, skip_string_or_value, word_of_string

__all__ = ["scan_nodes"]


@inner
def _note_number(text: np.ndarray, code: int, work: np.ndarray) -> None:
    """Take rf_id, seq_id and scope, whatever their type is said to be."""
    if code == RF_ID or code == SEQ_ID or code == SCOPE:
        _, value, flag = read_integer(text, work[A_VALUE])
        if flag == 0 and -LIMIT < value < LIMIT:
            work[code] = value


@inner
def _finish_attr(
    text: np.ndarray, begin: int, end: int, names: np.ndarray, type_words: np.ndarray,
    types: np.ndarray, work: np.ndarray, found_kept: np.ndarray, keys: np.ndarray,
    doubles: np.ndarray, unescaped: np.ndarray, stack: np.ndarray, state: np.ndarray,
) -> None:  # fmt: skip
    """Keep an attribute by name, type and value; or all of it, if it has not these three."""
    name_at, name_end = work[A_NAME], work[A_NAME_END]
    code = word_of_string(text, name_at, name_end, names, stack)
    if work[A_VALUE] >= 0:
        _note_number(text, code, work)
    if work[A_KEYS] == 3 and work[A_TYPE] >= 0 and work[A_VALUE] >= 0:
        type_end = string_end(text, work[A_TYPE])
        type_code = word_of_string(text, work[A_TYPE], type_end, type_words, stack)
        if type_code >= 0:
            first_key = state[S_KEYS]
            if code < 0:
                code = add_key(keys, state, name_at, name_end >> 1, 0)
            c = text[work[A_VALUE]]
            if types[type_code, 0] == DOUBLE and (c == MINUS or ZERO <= c <= NINE):
                place = state[S_DOUBLES]
                if place >= doubles.shape[0]:
                    state[S_FULL] = 1 + S_DOUBLES
                    return
                doubles[place, 0] = state[S_KEPT]
                doubles[place, 1] = work[A_VALUE]
                doubles[place, 2] = work[A_VALUE_END] - work[A_VALUE]
                doubles[place, 3] = begin
                doubles[place, 4] = end - begin
                state[S_DOUBLES] = place + 1
                keep(found_kept, state, code, type_code, 0, 0)
                return
            if keep_value(text, code, type_code, types, work, found_kept, unescaped, state):
                return
            state[S_KEYS] = first_key
    keep(found_kept, state, ATTRS, TYPE_JSON, begin, end - begin)


@inner
def _read_attr(
    text: np.ndarray, at: int, words: np.ndarray, work: np.ndarray, stack: np.ndarray
) -> int:
    """Find name, type and value of an attribute from its opening brace; gives what is after it."""
    begin = at
    work[A_NAME] = work[A_TYPE] = work[A_VALUE] = -1
    work[A_KEYS] = 0
    at += 1
    while True:
        at, key, _, _ = read_member(text, at, words, stack)
        if key == END:
            return at if at < 0 or work[A_NAME] >= 0 else wrong(work, NAME, IS_MISSING, begin)
        value = at
        work[A_KEYS] += 1
        at, end = skip_string_or_value(text, value, stack)
        if key == 2:
            work[A_VALUE], work[A_VALUE_END] = value, end
        elif key == 0:
            if text[value] != QUOTE and at >= 0:
                return wrong(work, NAME, IS_WRONG_TYPE, value)
            work[A_NAME], work[A_NAME_END] = value + 1, end
        elif key == 1:
            work[A_TYPE] = value + 1 if text[value] == QUOTE else -1


@inner
def _read_attrs(
    text: np.ndarray, at: int, attr_words: np.ndarray, names: np.ndarray, type_words: np.ndarray,
    types: np.ndarray, work: np.ndarray, kept: np.ndarray, keys: np.ndarray, doubles: np.ndarray,
    unescaped: np.ndarray, stack: np.ndarray, state: np.ndarray,
) -> int:  # fmt: skip
    """Read the list of attributes."""
    if text[at] != OPEN_LIST:
        return wrong(work, ATTRS, IS_WRONG_TYPE, at)
    at += 1
    number = 0
    while True:
        begin = next_item(text, at, number == 0)
        if begin < 0:
            return begin
        if text[begin] == CLOSE_LIST:
            work[ATTR] = -1
            return begin + 1
        work[ATTR] = number
        if text[begin] != OPEN:
            return wrong(work, -1, IS_WRONG_TYPE, begin)
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
    if text[at] != OPEN:
        at = skip_value(text, at, stack)
        if at < 0:
            return at
        if text[begin] != OPEN_LIST:
            code = INPUTS_KEY if first == FIRST_INPUT else OUTPUTS_KEY
            keep(kept, state, code, TYPE_JSON, begin, at - begin)
            return at
        if first == FIRST_INPUT:
            work[VALUES_AT], work[VALUES_AT + 1] = begin, at - begin
        keep(kept, state, first, TYPE_OPERAND, begin, at - begin)
        return at
    at += 1
    while True:
        at, key, key_at, key_end = read_member(text, at, words, stack)
        if key == END:
            return at
        begin = at
        at = skip_value(text, at, stack)
        if key < 0:
            code = add_key(keys, state, key_at, key_end, 1 if first == FIRST_INPUT else 2)
            keep(kept, state, code, TYPE_JSON, begin, at - begin)
            continue
        if key == 0 and first == FIRST_INPUT:
            work[VALUES_AT], work[VALUES_AT + 1] = begin, at - begin
        keep(kept, state, first + key, TYPE_OPERAND, begin, at - begin)


@inner
def _read_reference(text: np.ndarray, at: int, key: int, work: np.ndarray) -> int:
    """Read an id, or what is given as one, into its column."""
    end, value, flag = read_integer(text, at)
    if flag == NOT_AN_INTEGER:
        return wrong(work, key, IS_WRONG_TYPE, at)
    if flag != 0 or value >= LIMIT or value < -LIMIT or (key == ID and value < 0):
        return wrong(work, key, IS_OUT_OF_RANGE, at)
    work[key] = value
    if key == ID:
        work[HAS_ID] = 1
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
        if c == NULL:
            return end
        if c != MINUS and not ZERO <= c <= NINE:
            return wrong(work, key, IS_WRONG_TYPE, at)
    work[START + key - TS] = value
    work[SPANS + 2 * (key - TS)], work[SPANS + 2 * (key - TS) + 1] = at, end
    work[AGAIN + key - TS] = flag != 0 or value < 0
    return end


@called
def _read_old(
    text: np.ndarray, at: int, key: int, types: np.ndarray, work: np.ndarray, kept: np.ndarray,
    unescaped: np.ndarray, stack: np.ndarray, state: np.ndarray, old_types: np.ndarray,
) -> int:  # fmt: skip
    """Read a key that schema 1.0.1 has on the node and newer ones have in ``attrs``."""
    begin = at
    at, end = skip_string_or_value(text, begin, stack)
    if at < 0:
        return at
    if key >= INPUT_SHAPES:
        code = FIRST_INPUT + 1 + key - INPUT_SHAPES
        if key >= OUTPUT_SHAPES:
            code = FIRST_OUTPUT + 1 + key - OUTPUT_SHAPES
        keep(kept, state, code, TYPE_OPERAND, begin, at - begin)
        return at
    work[A_VALUE], work[A_VALUE_END] = begin, end
    if not keep_value(text, key, old_types[key], types, work, kept, unescaped, state):
        keep(kept, state, key, TYPE_JSON, begin, at - begin)
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
    if key == CAT:
        if text[begin] == QUOTE:
            end = string_end(text, begin + 1)
            work[CATEGORY] = word_of_string(text, begin + 1, end, categories, stack)
        keep(kept, state, key, TYPE_JSON, begin, at - begin)
        return at
    _, value, flag = read_integer(text, begin)
    if key == THREAD_DEP:
        if flag == 0 and value >= 0:
            work[W_THREAD_DEP] = value
        elif text[begin] != NULL:
            keep(kept, state, key, TYPE_JSON, begin, at - begin)
        return at
    place = 3 + key - STREAM
    work[SPANS + 2 * place], work[SPANS + 2 * place + 1] = begin, at
    work[W_STREAM + key - STREAM] = value if flag == 0 and value >= 0 else -1
    return at


@inner
def _finish_node(
    begin: int, first_device: int, work: np.ndarray, numbers: np.ndarray, kept: np.ndarray,
    again: np.ndarray, state: np.ndarray,
) -> int:  # fmt: skip
    """Put a node's row in its place; 0, or the failure that it has no id or name."""
    if work[HAS_ID] == 0:
        return wrong(work, ID, IS_MISSING, begin)
    if work[HAS_NAME] == 0:
        return wrong(work, NAME, IS_MISSING, begin)
    row = state[S_ROW]
    is_timed = work[SPANS] >= 0 and work[SPANS + 2] >= 0
    for i in range(5):
        at, end = work[SPANS + 2 * i], work[SPANS + 2 * i + 1]
        if at < 0:
            continue
        column = START + i if i < 3 else W_STREAM + i - 3
        told = is_timed if i < 3 else work[CATEGORY] >= first_device and work[column] >= 0
        if not told:  # no column tells it
            keep(kept, state, TS + i if i < 3 else STREAM + i - 3, TYPE_JSON, at, end - at)
            work[column] = -1
        elif i < 3 and work[AGAIN + i] != 0:
            place = state[S_AGAIN]
            if place >= again.shape[0]:
                state[S_FULL] = 1 + S_AGAIN
                return 0
            again[place, 0], again[place, 1] = row, column
            again[place, 2], again[place, 3] = at, end - at
            state[S_AGAIN] = place + 1
    for column in range(WIDTH):
        numbers[row, column] = work[column]
    return 0


@inner
def _read_name(text: np.ndarray, at: int, work: np.ndarray) -> int:
    if text[at] != QUOTE:
        return wrong(work, NAME, IS_WRONG_TYPE, at)
    end = string_end(text, at + 1)
    if end < 0:
        return end
    work[NAME_AT], work[NAME_AT + 1] = at + 1, (end >> 1) - at - 1
    work[HAS_NAME] = 1
    return (end >> 1) + 1


@inner
def _read_number(
    text: np.ndarray, at: int, key: int, types: np.ndarray, old_types: np.ndarray,
    work: np.ndarray, kept: np.ndarray, unescaped: np.ndarray, state: np.ndarray,
) -> int:  # fmt: skip
    """Read an id, or what older schemas have on the node and newer ones in ``attrs``."""
    end = _read_reference(text, at, key, work)
    if key >= RF_ID and end >= 0:
        work[A_VALUE] = at
        if not keep_value(text, key, old_types[key], types, work, kept, unescaped, state):
            keep(kept, state, key, TYPE_JSON, at, end - at)
    return end


@inner
def _read_node(
    text: np.ndarray, at: int, words: np.ndarray, operand_words: np.ndarray,
    attr_words: np.ndarray, names: np.ndarray, type_words: np.ndarray, types: np.ndarray,
    old_types: np.ndarray, categories: np.ndarray, work: np.ndarray, kept: np.ndarray,
    keys: np.ndarray, doubles: np.ndarray, unescaped: np.ndarray, stack: np.ndarray,
    state: np.ndarray,
) -> int:  # fmt: skip
    """Read one node from its opening brace; gives the byte after it."""
    for place in range(WORK_SIZE):
        work[place] = -1
    work[HAS_ID] = work[HAS_NAME] = 0
    at += 1
    while True:
        at, key, key_at, key_end = read_member(text, at, words, stack)
        if key == END:
            return at
        begin = at
        if key < 0:
            at = skip_value(text, at, stack)
            code = add_key(keys, state, key_at, key_end, 0)
            keep(kept, state, code, TYPE_JSON, begin, at - begin)
        elif key <= SCOPE:
            at = _read_number(text, at, key, types, old_types, work, kept, unescaped, state)
        elif key == NAME:
            at = _read_name(text, at, work)
        elif key == INPUTS_KEY or key == OUTPUTS_KEY:
            first = FIRST_INPUT if key == INPUTS_KEY else FIRST_OUTPUT
            at = _read_operands(text, at, first, operand_words, work, kept, keys, stack, state)
        elif key == ATTRS:
            at = _read_attrs(
                text, at, attr_words, names, type_words, types, work, kept, keys, doubles,
                unescaped, stack, state,
            )  # fmt: skip
        elif key < TS:
            at = _read_old(text, at, key, types, work, kept, unescaped, stack, state, old_types)
        elif key <= EXCLUSIVE:
            at = _read_time(text, at, key, work, stack)
        else:
            at = _read_linked(text, at, key, categories, work, kept, stack, state)


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
    state[S_FULL] = 0
    while True:
        work[KEY] = work[ATTR] = -1
        begin = next_item(text, at, state[S_BEGAN] == 0)
        if begin < 0 or text[begin] == CLOSE_LIST:
            return begin
        if begin >= stop:
            return at
        if state[S_ROW] >= numbers.shape[0]:
            state[S_FULL] = 1 + S_ROW
            return at
        if text[begin] != OPEN:
            return wrong(work, -1, IS_WRONG_TYPE, begin)
        num_kept, num_keys, num_doubles = state[S_KEPT], state[S_KEYS], state[S_DOUBLES]
        num_again, num_unescaped = state[S_AGAIN], state[S_UNESCAPED]
        end = _read_node(
            text, begin, node_words, operand_words, attr_words, names, type_words, types,
            old_types, categories, work, kept, keys, doubles, unescaped, stack, state,
        )  # fmt: skip
        if end < 0:
            return end
        failed = _finish_node(begin, first_device, work, numbers, kept, again, state)
        if failed < 0:
            return failed
        if state[S_FULL] != 0:
            state[S_KEPT], state[S_KEYS], state[S_DOUBLES] = num_kept, num_keys, num_doubles
            state[S_AGAIN], state[S_UNESCAPED] = num_again, num_unescaped
            return at
        state[S_ROW] += 1
        state[S_BEGAN] = 1
        at = end
