"""Nodes of a PyTorch execution trace, from the bytes of its JSON to columns and attributes.

As in :mod:`nadi.files.kineto.kineto_event_kernels`, what is read of one node goes to
``work`` first.
"""

import numpy as np

from nadi.files.pytorch.host_layout_kernels import (
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
    NodeScan,
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


@inner
def _note_number(text: np.ndarray, code: int, work: np.ndarray) -> None:
    """Take rf_id, seq_id and scope, whatever their type is said to be."""
    if code == RF_ID or code == SEQ_ID or code == SCOPE:
        _, value, flag = read_integer(text, work[A_VALUE])
        if flag == 0 and -LIMIT < value < LIMIT:
            work[code] = value


@inner
def _finish_attr(scan: NodeScan, begin: int, end: int) -> None:
    """Keep an attribute by name, type and value; or all of it, if it has not these three."""
    text, work, stack, state = scan.text, scan.work, scan.stack, scan.state
    name_at, name_end = work[A_NAME], work[A_NAME_END]
    code = word_of_string(text, name_at, name_end, scan.words.names, stack)
    if work[A_VALUE] >= 0:
        _note_number(text, code, work)
    if work[A_KEYS] == 3 and work[A_TYPE] >= 0 and work[A_VALUE] >= 0:
        type_end = string_end(text, work[A_TYPE])
        type_code = word_of_string(text, work[A_TYPE], type_end, scan.words.types, stack)
        if type_code >= 0:
            first_key = state[S_KEYS]
            if code < 0:
                code = add_key(scan.found.keys, state, name_at, name_end >> 1, 0)
            c = text[work[A_VALUE]]
            if scan.types[type_code, 0] == DOUBLE and (c == MINUS or ZERO <= c <= NINE):
                _keep_double(scan, code, type_code, begin, end)
                return
            if keep_value(scan, code, type_code):
                return
            state[S_KEYS] = first_key
    keep(scan, ATTRS, TYPE_JSON, begin, end - begin)


@inner
def _keep_double(scan: NodeScan, code: int, type_code: int, begin: int, end: int) -> None:
    """Keep an attribute whose number is still to be read."""
    doubles, work, state = scan.found.doubles, scan.work, scan.state
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
    keep(scan, code, type_code, 0, 0)


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
def _read_attrs(scan: NodeScan, at: int) -> int:
    """Read the list of attributes."""
    text, work = scan.text, scan.work
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
        at = _read_attr(text, begin, scan.words.attributes, work, scan.stack)
        if at < 0:
            return at
        _finish_attr(scan, begin, at)
        number += 1


@inner
def _read_operands(scan: NodeScan, at: int, first: int) -> int:
    """Read inputs (``first`` is the code of their values) or outputs."""
    text, work, stack = scan.text, scan.work, scan.stack
    begin = at
    if text[at] != OPEN:
        at = skip_value(text, at, stack)
        if at < 0:
            return at
        if text[begin] != OPEN_LIST:
            code = INPUTS_KEY if first == FIRST_INPUT else OUTPUTS_KEY
            keep(scan, code, TYPE_JSON, begin, at - begin)
            return at
        if first == FIRST_INPUT:
            work[VALUES_AT], work[VALUES_AT + 1] = begin, at - begin
        keep(scan, first, TYPE_OPERAND, begin, at - begin)
        return at
    at += 1
    while True:
        at, key, key_at, key_end = read_member(text, at, scan.words.operands, stack)
        if key == END:
            return at
        begin = at
        at = skip_value(text, at, stack)
        if key < 0:
            prefix = 1 if first == FIRST_INPUT else 2
            code = add_key(scan.found.keys, scan.state, key_at, key_end, prefix)
            keep(scan, code, TYPE_JSON, begin, at - begin)
            continue
        if key == 0 and first == FIRST_INPUT:
            work[VALUES_AT], work[VALUES_AT + 1] = begin, at - begin
        keep(scan, first + key, TYPE_OPERAND, begin, at - begin)


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
def _read_old(scan: NodeScan, at: int, key: int) -> int:
    """Read a key that schema 1.0.1 has on the node and newer ones have in ``attrs``."""
    begin = at
    at, end = skip_string_or_value(scan.text, begin, scan.stack)
    if at < 0:
        return at
    if key >= INPUT_SHAPES:
        code = FIRST_INPUT + 1 + key - INPUT_SHAPES
        if key >= OUTPUT_SHAPES:
            code = FIRST_OUTPUT + 1 + key - OUTPUT_SHAPES
        keep(scan, code, TYPE_OPERAND, begin, at - begin)
        return at
    scan.work[A_VALUE], scan.work[A_VALUE_END] = begin, end
    if not keep_value(scan, key, scan.old_types[key]):
        keep(scan, key, TYPE_JSON, begin, at - begin)
    return at


@inner
def _read_linked(scan: NodeScan, at: int, key: int) -> int:
    """Read a key that only linked traces have, other than times."""
    text, work, stack = scan.text, scan.work, scan.stack
    begin = at
    at = skip_value(text, at, stack)
    if at < 0:
        return at
    if key == CAT:
        if text[begin] == QUOTE:
            end = string_end(text, begin + 1)
            categories = scan.words.categories
            work[CATEGORY] = word_of_string(text, begin + 1, end, categories, stack)
        keep(scan, key, TYPE_JSON, begin, at - begin)
        return at
    _, value, flag = read_integer(text, begin)
    if key == THREAD_DEP:
        if flag == 0 and value >= 0:
            work[W_THREAD_DEP] = value
        elif text[begin] != NULL:
            keep(scan, key, TYPE_JSON, begin, at - begin)
        return at
    place = 3 + key - STREAM
    work[SPANS + 2 * place], work[SPANS + 2 * place + 1] = begin, at
    work[W_STREAM + key - STREAM] = value if flag == 0 and value >= 0 else -1
    return at


@inner
def _finish_node(scan: NodeScan, begin: int, first_device: int) -> int:
    """Put a node's row in its place; 0, or the failure that it has no id or name."""
    work, state, again = scan.work, scan.state, scan.found.again
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
            keep(scan, TS + i if i < 3 else STREAM + i - 3, TYPE_JSON, at, end - at)
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
        scan.found.numbers[row, column] = work[column]
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
def _read_number(scan: NodeScan, at: int, key: int) -> int:
    """Read an id, or what older schemas have on the node and newer ones in ``attrs``."""
    end = _read_reference(scan.text, at, key, scan.work)
    if key >= RF_ID and end >= 0:
        scan.work[A_VALUE] = at
        if not keep_value(scan, key, scan.old_types[key]):
            keep(scan, key, TYPE_JSON, at, end - at)
    return end


@inner
def _read_node(scan: NodeScan, at: int) -> int:
    """Read one node from its opening brace; gives the byte after it."""
    text, work, stack = scan.text, scan.work, scan.stack
    for place in range(WORK_SIZE):
        work[place] = -1
    work[HAS_ID] = work[HAS_NAME] = 0
    at += 1
    while True:
        at, key, key_at, key_end = read_member(text, at, scan.words.nodes, stack)
        if key == END:
            return at
        begin = at
        if key < 0:
            at = skip_value(text, at, stack)
            code = add_key(scan.found.keys, scan.state, key_at, key_end, 0)
            keep(scan, code, TYPE_JSON, begin, at - begin)
        elif key <= SCOPE:
            at = _read_number(scan, at, key)
        elif key == NAME:
            at = _read_name(text, at, work)
        elif key == INPUTS_KEY or key == OUTPUTS_KEY:
            at = _read_operands(scan, at, FIRST_INPUT if key == INPUTS_KEY else FIRST_OUTPUT)
        elif key == ATTRS:
            at = _read_attrs(scan, at)
        elif key < TS:
            at = _read_old(scan, at, key)
        elif key <= EXCLUSIVE:
            at = _read_time(text, at, key, work, stack)
        else:
            at = _read_linked(scan, at, key)


@kernel
def scan_nodes(scan: NodeScan, at: int, stop: int, first_device: int) -> int:
    """Read the nodes of a list until it ends, until ``stop``, or until there is no room.

    - ``scan``: What is read, and where it goes.
    - ``at``: Where to go on: after the opening bracket, or where the last call ended.
    - ``stop``: The first node that begins at this byte or later is not read any more.
    - ``first_device``: The least category of work on a device.
    - Returns: The byte of the next node or of the closing bracket; or a failure. O(bytes).
    """
    scan = borrowed(scan)
    text, work, state = scan.text, scan.work, scan.state
    state[S_FULL] = 0
    while True:
        work[KEY] = work[ATTR] = -1
        begin = next_item(text, at, state[S_BEGAN] == 0)
        if begin < 0 or text[begin] == CLOSE_LIST:
            return begin
        if begin >= stop:
            return at
        if state[S_ROW] >= scan.found.numbers.shape[0]:
            state[S_FULL] = 1 + S_ROW
            return at
        if text[begin] != OPEN:
            return wrong(work, -1, IS_WRONG_TYPE, begin)
        num_kept, num_keys, num_doubles = state[S_KEPT], state[S_KEYS], state[S_DOUBLES]
        num_again, num_unescaped = state[S_AGAIN], state[S_UNESCAPED]
        end = _read_node(scan, begin)
        if end < 0:
            return end
        failed = _finish_node(scan, begin, first_device)
        if failed < 0:
            return failed
        if state[S_FULL] != 0:
            state[S_KEPT], state[S_KEYS], state[S_DOUBLES] = num_kept, num_keys, num_doubles
            state[S_AGAIN], state[S_UNESCAPED] = num_again, num_unescaped
            return at
        state[S_ROW] += 1
        state[S_BEGAN] = 1
        at = end
