"""Chakra's .et, messages of protobuf one after the other, into columns.

A file is a GlobalMetadata and then a Node each, every one with its length before it.
One pass checks every byte and fills what there are columns for; the attributes, which
are most of a file and seldom asked for, are found again in a pass of their own.
"""

from typing import NamedTuple

import numpy as np

from nadi.files.chakra.attribute_message_kernels import (
    CUT,
    FIELD,
    HUGE,
    NUMBER,
    OK,
    STRANGE,
    STRING,
    TEXT,
    TYPE,
    VALUE,
    VALUE_LENGTH,
    WORK_SIZE,
    read_attribute,
    usual_attribute,
)
from nadi.kernels.jit import borrowed, inner, kernel
from nadi.kernels.protobuf import int64, is_utf8, read_field, read_varint, skip_value
from nadi.kernels.strings import find_word, number_of_text, put_into_slots

FULL = -1  # instead of a problem: there is no room for one more node

# places in the state that goes in and out: how much is filled, at most so many attributes, fields
# inside of attributes and operands that are not understood, such fields of nodes, bytes of the
# message that there was no room for, numbers of wanted attributes that have no place in their
# column because they are negative or no integers; after them whether any node has each of the
# numbers wanted
STATE = {
    name: place
    for place, name in enumerate(
        (
            "nodes",
            "ctrl",
            "data",
            "texts",
            "attributes",
            "unknown_inside",
            "unknown",
            "needed",
            "misfit",
        )
    )
}
_S_NODES, _S_CTRL, _S_DATA, _S_TEXTS, _S_ATTRIBUTES, _S_INSIDE, _S_UNKNOWN, _S_NEEDED, _S_MISFIT = (
    range(9)
)
_S_SEEN = 9
# rows of ``NodeColumns.numbers`` before those wanted, and of ``NodeColumns.codes`` before texts
NUMBERS = {"id": 0, "start": 1, "duration": 2, "ctrl_end": 3, "data_end": 4}
FIRST_WANTED = len(NUMBERS)
CODES = {"kind": 0, "name": 1}
FIRST_TEXT = len(CODES)
_ID, _START, _DURATION, _CTRL_END, _DATA_END = range(FIRST_WANTED)
_KIND, _NAME = range(FIRST_TEXT)

_VARINT, _DELIMITED = 0, 2
_ATTRIBUTE_TAG = 10 << 3 | _DELIMITED
_LAST_KIND = 7
_FIRST_INTEGER, _BOOL = 4, 24  # types: int32, and the last of the integers; lists lie between
_LARGEST_MICROSECONDS = (2**63 - 1) // 1000
_LARGEST_ID = 2**62


class NodeColumns(NamedTuple):
    """The arrays that nodes are decoded into, with room for more than are there."""

    # int64, shape (5 + numbers wanted, nodes): by ``NUMBERS`` id, start and duration in us, and
    # where the dependencies of each node end in ``ctrl`` and ``data``; then for each number wanted
    # of attributes its complement, so that 0 means that there is none
    numbers: np.ndarray
    # int32, shape (2 + texts wanted, nodes): by ``CODES`` the kind and the number of the name; then
    # for each text wanted of attributes its number, plus one: 0 means none
    codes: np.ndarray
    # ctrl, data: int64: ids that are waited for
    ctrl: np.ndarray
    data: np.ndarray
    # slots, texts: different texts, as for ``number_of_text``
    slots: np.ndarray
    texts: np.ndarray


@kernel
def likely_message(buffer: np.ndarray, at: int, stop: int, several: int) -> int:
    """Guess where a node begins from ``at`` on: several follow one another from there.

    What stands in a text may look the same, so that only who reads from the start of a file
    knows; gives -1 if nothing before ``stop`` does. O(bytes of the several) for each byte that
    could be the first field of a node.
    """
    while at < stop:
        place, count = at, 0
        while count < several and 0 <= place < buffer.size:
            place = _likely_end(buffer, place)
            count += 1
        if place >= 0:
            return at
        at += 1
    return -1


@kernel
def find_messages(buffer: np.ndarray, at: int, begin: np.ndarray, length: np.ndarray) -> None:
    """Fill where each message's content begins and how long it is. O(messages).

    - ``buffer``: uint8: so many messages one after the other from ``at`` on, in which
      :func:`decode_nodes` met no problem.
    - ``begin``, ``length``: int64, shape (messages,), filled.
    """
    for message in range(begin.size):
        begin[message], end = skip_value(buffer, at, buffer.size, _DELIMITED)
        length[message] = end - begin[message]
        at = end


@inner
def _likely_end(buffer: np.ndarray, at: int) -> int:
    """Give where a message ends that begins with an id and has only fields of nodes, or -1."""
    at, end = skip_value(buffer, at, buffer.size, _DELIMITED)
    if end <= at or buffer[at] != 0x08:
        return -1
    while at < end:
        tag, _, at = read_field(buffer, at, end)
        if at < 0 or tag >> 3 > 10:
            return -1
    return end


@kernel
def decode_nodes(
    buffer: np.ndarray, at: int, stop: int, columns: NodeColumns, words: np.ndarray,
    state: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Read the messages that begin before ``stop``, or until there is no room for one more.

    A field given twice counts as the later one, as in protobuf.

    - ``buffer``: uint8: the whole file.
    - ``at``: Where to go on; at 0 begins the metadata.
    - ``columns``: Filled on from what the state says; 0 beyond that in numbers and codes, -1 in all
      slots.
    - ``words``: Names of the attributes wanted (:func:`nadi.kernels.strings.make_words`): first
      those of numbers, in the order of their rows, then those of texts.
    - ``state``: int64, shape (``len(STATE)`` + numbers wanted,).
    - Returns problem, position: 0 and where the next message begins; :data:`FULL` and where the one
      begins that there was no room for; or a position in :data:`PROBLEMS` and the byte where it was
      met. O(bytes).
    """
    buffer, words, state = borrowed(buffer), borrowed(words), borrowed(state)
    c = borrowed(columns)
    num_texts = c.codes.shape[0] - FIRST_TEXT
    spans = np.zeros(2 * (num_texts + 1), dtype=np.int64)
    found = np.zeros(WORK_SIZE, dtype=np.int64)
    put_into_slots(c.slots, c.texts, state[_S_TEXTS])
    while at < stop:
        start = at
        at, end = skip_value(buffer, start, buffer.size, _DELIMITED)
        if end < 0:
            return CUT, start
        if start == 0:
            problem, at = _check_metadata(buffer, at, end, state, found)
        elif not _has_room(c, end - at, state):
            state[_S_NEEDED] = end - at
            return FULL, start
        else:
            spans[:] = 0
            problem, at = _decode_node(buffer, at, end, c, words, state, found, spans)
            if problem == OK:
                _end_node(buffer, c, state, spans)
        if problem != OK:
            return problem, at
    return OK, at


@inner
def _has_room(c: NodeColumns, length: int, state: np.ndarray) -> bool:
    """Tell whether a node of so many bytes fits, whatever is in it."""
    return (
        state[_S_NODES] < c.numbers.shape[1]
        and state[_S_CTRL] + length <= c.ctrl.size
        and state[_S_DATA] + length <= c.data.size
        and state[_S_TEXTS] + c.codes.shape[0] <= c.texts.shape[0]
    )


@inner
def _check_metadata(
    buffer: np.ndarray, at: int, end: int, state: np.ndarray, found: np.ndarray
) -> tuple[int, int]:
    state[_S_ATTRIBUTES] += 1  # the version
    while at < end:
        start = at
        tag, begin, at = read_field(buffer, at, end)
        if at < 0:
            return FIELD, start
        state[_S_ATTRIBUTES] += 2
        if tag == 0x0A and not is_utf8(buffer, begin, at):
            return TEXT, begin
        if tag == 0x12:
            problem, where = read_attribute(buffer, begin, at, found)
            state[_S_INSIDE] += found[STRANGE]
            if problem != OK:
                return problem, where
    return OK, at


@inner
def _decode_node(
    buffer: np.ndarray, at: int, end: int, c: NodeColumns, words: np.ndarray,
    state: np.ndarray, found: np.ndarray, spans: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        if tag == _ATTRIBUTE_TAG:  # most fields are
            begin, at = skip_value(buffer, at, end, _DELIMITED)
            if at < 0:
                return FIELD, start
            problem, where = _decode_attribute(buffer, begin, at, c, words, state, found, spans)
        else:
            if at < 0 or tag <= 7:
                return FIELD, start
            begin, at = skip_value(buffer, at, end, tag & 7)
            if at < 0:
                return FIELD, start
            problem, where = _decode_field(buffer, start, begin, at, tag, c, state, spans)
        if problem != OK:
            return problem, where
    return OK, at


@inner
def _decode_field(
    buffer: np.ndarray, start: int, at: int, end: int, tag: int, c: NodeColumns,
    state: np.ndarray, spans: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    field, wire = tag >> 3, tag & 7
    problem, where = OK, start
    if (field == 8 or field == 9) and wire == _DELIMITED:
        problem, where = _check_operands(buffer, at, end, state)
        state[_S_ATTRIBUTES] += 3
    elif wire == _VARINT and (field == 1 or field == 3 or field == 6 or field == 7):
        value, _ = read_varint(buffer, at, end)
        problem = _set_number(c, field, value, state)
    elif field == 2 and wire == _DELIMITED:
        problem = OK if is_utf8(buffer, at, end) else TEXT
        spans[0], spans[1] = at, end - at
    elif field == 4 and wire in (_DELIMITED, _VARINT):
        problem = _read_ids(buffer, at, end, c.ctrl, state, _S_CTRL)
    elif field == 5 and wire in (_DELIMITED, _VARINT):
        problem = _read_ids(buffer, at, end, c.data, state, _S_DATA)
    else:
        state[_S_UNKNOWN] += 1
        state[_S_ATTRIBUTES] += 1
    return problem, where


@inner
def _decode_attribute(
    buffer: np.ndarray, at: int, end: int, c: NodeColumns, words: np.ndarray,
    state: np.ndarray, found: np.ndarray, spans: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Check an attribute, and put it where its column is, if it has one and the type for it."""
    state[_S_ATTRIBUTES] += 2  # a value and a comment
    name_at, name_length, type_code, value, length = usual_attribute(buffer, at, end)
    code = int64(-1)
    if type_code >= 0:
        code = find_word(buffer, name_at, name_length, words)
        if code < 0 and not is_utf8(buffer, name_at, name_at + name_length):
            return TEXT, name_at
        if type_code == STRING and not is_utf8(buffer, value, end):
            return TEXT, value
    else:
        problem, where = read_attribute(buffer, at, end, found)
        state[_S_INSIDE] += found[STRANGE]
        if problem != OK:
            return problem, where
        code = find_word(buffer, found[0], found[1], words)
        type_code, value, length = found[TYPE], found[VALUE], found[VALUE_LENGTH]
    if code >= 0:
        num_numbers = c.numbers.shape[0] - FIRST_WANTED
        if code >= num_numbers:
            if type_code == STRING:
                text = 2 * (code - num_numbers + 1)
                spans[text], spans[text + 1] = value, length
        elif _FIRST_INTEGER <= type_code <= _BOOL and type_code % 2 == 0 and value >= 0:
            c.numbers[FIRST_WANTED + code, state[_S_NODES]] = ~value
            state[_S_SEEN + code] = 1
        elif type_code <= _BOOL and type_code % 2 == 0:
            state[_S_MISFIT] += 1
    return OK, end


@inner
def _end_node(buffer: np.ndarray, c: NodeColumns, state: np.ndarray, spans: np.ndarray) -> None:
    """Add up a node: the numbers of its texts, and where its dependencies end."""
    node = state[_S_NODES]
    c.codes[_NAME, node] = _number_of(buffer, spans[0], spans[1], c, state)
    for text in range(1, spans.size // 2):
        if spans[2 * text + 1] > 0:
            number = _number_of(buffer, spans[2 * text], spans[2 * text + 1], c, state)
            c.codes[_NAME + text, node] = number + 1
    c.numbers[_CTRL_END, node] = state[_S_CTRL]
    c.numbers[_DATA_END, node] = state[_S_DATA]
    state[_S_NODES] = node + 1


@inner
def _number_of(buffer: np.ndarray, at: int, length: int, c: NodeColumns, state: np.ndarray) -> int:
    count = state[_S_TEXTS]
    number = number_of_text(buffer, at, length, c.slots, c.texts, count)
    state[_S_TEXTS] += number == count
    return number


@inner
def _set_number(c: NodeColumns, field: int, value: int, state: np.ndarray) -> int:
    node = state[_S_NODES]
    if field == 1:
        c.numbers[_ID, node] = value
        return OK if 0 <= value < _LARGEST_ID else HUGE
    if field == 3:
        is_known = 0 <= value <= _LAST_KIND
        c.codes[_KIND, node] = value if is_known else 0
        if not is_known:  # it stays among the attributes
            state[_S_UNKNOWN] += 1
            state[_S_ATTRIBUTES] += 1
        return OK
    c.numbers[_START if field == 6 else _DURATION, node] = value
    return OK if 0 <= value <= _LARGEST_MICROSECONDS else HUGE


@inner
def _read_ids(
    buffer: np.ndarray, at: int, end: int, ids: np.ndarray, state: np.ndarray, which: int
) -> int:
    while at < end:
        value, at = read_varint(buffer, at, end)
        if at < 0:
            return NUMBER
        if value < 0 or value >= _LARGEST_ID:
            return HUGE
        ids[state[which]] = value
        state[which] += 1
    return OK


@inner
def _check_operands(buffer: np.ndarray, at: int, end: int, state: np.ndarray) -> tuple[int, int]:
    while at < end:
        start = at
        tag, begin, at = read_field(buffer, at, end)
        if at < 0:
            return FIELD, start
        if tag & 7 != _DELIMITED or tag >> 3 > 3:
            state[_S_INSIDE] += 1
        elif not is_utf8(buffer, begin, at):
            return TEXT, begin
    return OK, at
