"""Chakra's .et, messages of protobuf one after the other, into columns.

A file is a GlobalMetadata and then a Node each, every one with its length before it.
Two passes over the bytes: one counts, so that the arrays can be made, one fills them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.kernels._jit import borrowed, called, inner, kernel
from nadi.kernels.protobuf import is_utf8, read_fixed, read_varint, skip_value
from nadi.kernels.strings import find_word

__all__ = [
    "NUM_COUNTS",
    "PROBLEMS",
    "ROLES",
    "AttributeColumns",
    "NodeColumns",
    "count_messages",
    "decode_attributes",
    "decode_nodes",
    "message_after",
]

# texts of IOInfo, and the mark of one without any, in the order of their role numbers from 1
ROLES = (
    "inputs.values", "inputs.shapes", "inputs.types", "inputs",
    "outputs.values", "outputs.shapes", "outputs.types", "outputs",
    "version",
)  # fmt: skip
PROBLEMS = (
    "",
    "a message is longer than what is left of the file",
    "a field ends after its message, or is no protobuf field",
    "a number does not end within 10 bytes",
    "a text is not valid UTF-8",
    "a list does not hold what its type says",
    "a number of microseconds or an id is too large",
)
_OK, _CUT, _FIELD, _NUMBER, _TEXT, _LIST, _HUGE = range(7)
# nodes, control dependencies, data dependencies, at most so many attributes, fields inside of
# attributes and operands that are not understood, and such fields of nodes
NUM_COUNTS = 6

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIRST_VALUE, _LAST_VALUE = 3, 32
_STRING, _STRING_LIST, _BYTES, _BYTES_LIST = 29, 30, 31, 32
_NONE, _OPERAND, _DOC, _UNKNOWN = 30, 32, 34, 35  # as schema.ATTRIBUTE_TYPES counts
_VERSION_ROLE = 9
_LAST_KIND = 7
# of an attribute, after the spans of its name and its comment
_TYPE, _VALUE, _LENGTH = range(4, 7)
_FIRST_INTEGER, _BOOL = 4, 24  # types: int32, and the last of the integers; lists lie between
_LARGEST_MICROSECONDS = (2**63 - 1) // 1000
_LARGEST_ID = 2**62
# how each type of value is written, by field number less 3: the scalars, lists between them
_WIRES = np.array(
    [1, 2, 5, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 5, 2, 1, 2, 5, 2, 1, 2, 0, 2, 2, 2, 2, 2],
    dtype=np.int64,
)
# wire types of the items of lists, by the same number
_ITEMS = np.array(
    [0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 1, 0, 5, 0, 1, 0, 0, 0, 2, 0, 2],
    dtype=np.int64,
)


class NodeColumns(NamedTuple):
    """The arrays that nodes are decoded into; names and texts are spans of the file.

    Their rows begin with the first node of the part of the file that is read.
    """

    id: np.ndarray
    kind: np.ndarray
    name_at: np.ndarray
    name_length: np.ndarray
    start: np.ndarray
    duration: np.ndarray
    ctrl_end: np.ndarray  # where the dependencies of each node end in ctrl
    ctrl: np.ndarray
    data_end: np.ndarray
    data: np.ndarray
    numbers: np.ndarray  # int64, (nodes, numbers wanted): of attributes; -1 where there is none
    seen: np.ndarray  # uint8, (numbers wanted,): whether any node has one
    text_at: np.ndarray  # int64, (nodes, texts wanted)
    text_length: np.ndarray


class AttributeColumns(NamedTuple):
    """The arrays that attributes are decoded into.

    With a length of its name below 0, an attribute's name is one of ROLES by its number.
    """

    end: np.ndarray  # where those of the metadata end, and those of each node
    name_at: np.ndarray
    name_length: np.ndarray
    type: np.ndarray
    value: np.ndarray
    length: np.ndarray


@kernel
def message_after(buffer: np.ndarray, target: int) -> int:
    """Give where the first message begins at ``target`` or after it. O(messages)."""
    at = 0
    while at < min(target, buffer.size):
        _, at = skip_value(buffer, at, buffer.size, _DELIMITED)
        if at < 0:
            return buffer.size
    return at


@kernel
def count_messages(buffer: np.ndarray, at: int, stop: int, counts: np.ndarray) -> tuple[int, int]:
    """Count what a part of a file holds.

    Parameters
    ----------
    buffer
        uint8: the whole file.
    at, stop
        Where the part begins and ends; at 0 begins the metadata.
    counts
        int64, shape (NUM_COUNTS,), filled.

    Returns
    -------
    problem, position
        0, or a position in :data:`PROBLEMS` and the byte where it was met. O(bytes).
    """
    counts[:] = 0
    counts[3] = 1  # the version
    while at < stop:
        start = at
        at, end = skip_value(buffer, at, stop, _DELIMITED)
        if end < 0:
            return _CUT, start
        is_metadata = start == 0
        if not is_metadata:
            counts[0] += 1
        problem, at = _count_fields(buffer, at, end, is_metadata, counts)
        if problem != _OK:
            return problem, at
    return _OK, at


@inner
def _count_fields(
    buffer: np.ndarray, at: int, end: int, is_metadata: bool, counts: np.ndarray
) -> tuple[int, int]:
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        if at < 0 or tag <= 7:
            return _FIELD, start
        field, wire = tag >> 3, tag & 7
        begin, at = skip_value(buffer, at, end, wire)
        if at < 0:
            return _FIELD, start
        if not is_metadata and (field == 4 or field == 5):
            number = 1
            if wire == _DELIMITED:
                number = 0
                for i in range(begin, at):
                    number += buffer[i] < 0x80
            counts[field - 3] += number
        # an attribute has a value and a comment; operands have up to three texts
        counts[3] += 2 if field == 10 or field == 2 else 3 if field == 8 or field == 9 else 1
    return _OK, at


@kernel
def decode_nodes(
    buffer: np.ndarray, at: int, stop: int, columns: NodeColumns, words: np.ndarray,
    counts: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Fill the columns of nodes; a field given twice counts as the later one, as in protobuf.

    Parameters
    ----------
    buffer, at, stop
        A part of a file in which :func:`count_messages` found no problem.
    columns
        Arrays of the sizes counted, zero where protobuf's default is.
    words
        Names of the attributes wanted (:func:`nadi.kernels.strings.make_words`): first those
        of numbers, in the order of their columns, then those of texts.
    counts
        int64, shape (NUM_COUNTS,), filled with what is there indeed; no attributes.

    Returns
    -------
    problem, position
        As of :func:`count_messages`. O(bytes).
    """
    c = NodeColumns(
        borrowed(columns.id), borrowed(columns.kind), borrowed(columns.name_at),
        borrowed(columns.name_length), borrowed(columns.start), borrowed(columns.duration),
        borrowed(columns.ctrl_end), borrowed(columns.ctrl), borrowed(columns.data_end),
        borrowed(columns.data), borrowed(columns.numbers), borrowed(columns.seen),
        borrowed(columns.text_at), borrowed(columns.text_length),
    )  # fmt: skip
    counts[:] = 0
    found = np.zeros(7, dtype=np.int64)
    problem = _OK
    while problem == _OK and at < stop:
        is_metadata = at == 0
        at, end = skip_value(buffer, at, stop, _DELIMITED)
        if is_metadata:
            problem, at = _check_metadata(buffer, at, end, counts, found)
            continue
        node = counts[0]
        c.numbers[node] = -1
        problem, at = _decode_node(buffer, at, end, node, c, words, counts, found)
        counts[0] += 1
        c.ctrl_end[node] = counts[1]
        c.data_end[node] = counts[2]
    return problem, at


@inner
def _check_metadata(
    buffer: np.ndarray, at: int, end: int, counts: np.ndarray, found: np.ndarray
) -> tuple[int, int]:
    while at < end:
        tag, at = read_varint(buffer, at, end)
        begin, at = skip_value(buffer, at, end, tag & 7)
        if tag == 0x0A and not is_utf8(buffer, begin, at):
            return _TEXT, begin
        if tag == 0x12:
            problem, where = _read_attribute(buffer, begin, at, counts, found)
            if problem != _OK:
                return problem, where
    return _OK, at


@inner
def _decode_node(
    buffer: np.ndarray, at: int, end: int, node: int, c: NodeColumns, words: np.ndarray,
    counts: np.ndarray, found: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        field, wire = tag >> 3, tag & 7
        begin, at = skip_value(buffer, at, end, wire)
        problem, where = _OK, start
        if field == 10 and wire == _DELIMITED:
            problem, where = _read_attribute(buffer, begin, at, counts, found)
            if problem == _OK:
                _keep_wanted(buffer, node, c, words, found)
        elif wire == _VARINT and (field == 1 or field == 3 or field == 6 or field == 7):
            value, _ = read_varint(buffer, begin, at)
            problem = _set_number(c, node, field, value)
            counts[5] += field == 3 and not 0 <= value <= _LAST_KIND
        elif field == 2 and wire == _DELIMITED:
            problem = _OK if is_utf8(buffer, begin, at) else _TEXT
            c.name_at[node] = begin
            c.name_length[node] = at - begin
        elif field == 4 and wire in (_DELIMITED, _VARINT):
            problem = _read_ids(buffer, begin, at, c.ctrl, counts, 1)
        elif field == 5 and wire in (_DELIMITED, _VARINT):
            problem = _read_ids(buffer, begin, at, c.data, counts, 2)
        elif (field == 8 or field == 9) and wire == _DELIMITED:
            problem, where = _check_operands(buffer, begin, at, counts)
        else:
            counts[5] += 1
        if problem != _OK:
            return problem, where
    return _OK, at


@inner
def _keep_wanted(
    buffer: np.ndarray, node: int, c: NodeColumns, words: np.ndarray, found: np.ndarray
) -> None:
    """Put an attribute where its column is, if it has one and the type for it."""
    code = find_word(buffer, found[0], found[1], words)
    if code < 0:
        return
    num_numbers = c.numbers.shape[1]
    if code >= num_numbers:
        if found[_TYPE] == _STRING - 3:
            c.text_at[node, code - num_numbers] = found[_VALUE]
            c.text_length[node, code - num_numbers] = found[_LENGTH]
    elif _FIRST_INTEGER <= found[_TYPE] <= _BOOL and found[_TYPE] % 2 == 0 and found[_VALUE] >= 0:
        c.numbers[node, code] = found[_VALUE]
        c.seen[code] = 1


@inner
def _set_number(c: NodeColumns, node: int, field: int, value: int) -> int:
    if field == 1:
        c.id[node] = value
        return _OK if 0 <= value < _LARGEST_ID else _HUGE
    if field == 3:  # one that is not known stays among the attributes
        c.kind[node] = value if 0 <= value <= _LAST_KIND else 0
        return _OK
    if field == 6:
        c.start[node] = value
    else:
        c.duration[node] = value
    return _OK if 0 <= value <= _LARGEST_MICROSECONDS else _HUGE


@inner
def _read_ids(
    buffer: np.ndarray, at: int, end: int, ids: np.ndarray, counts: np.ndarray, which: int
) -> int:
    while at < end:
        value, at = read_varint(buffer, at, end)
        if at < 0:
            return _NUMBER
        if value < 0 or value >= _LARGEST_ID:
            return _HUGE
        ids[counts[which]] = value
        counts[which] += 1
    return _OK


@inner
def _check_operands(buffer: np.ndarray, at: int, end: int, counts: np.ndarray) -> tuple[int, int]:
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        if at < 0 or tag <= 7:
            return _FIELD, start
        begin, at = skip_value(buffer, at, end, tag & 7)
        if at < 0:
            return _FIELD, start
        if tag & 7 != _DELIMITED or tag >> 3 > 3:
            counts[4] += 1
        elif not is_utf8(buffer, begin, at):
            return _TEXT, begin
    return _OK, at


@kernel
def decode_attributes(buffer: np.ndarray, columns: AttributeColumns, counts: np.ndarray) -> None:
    """Fill the attributes of a whole file in which :func:`decode_nodes` found no problem.

    Parameters
    ----------
    buffer
        uint8: the whole file.
    columns
        Arrays of the sizes counted.
    counts
        int64, shape (NUM_COUNTS,), filled: the fourth is the number of attributes. O(bytes).
    """
    c = AttributeColumns(
        borrowed(columns.end), borrowed(columns.name_at), borrowed(columns.name_length),
        borrowed(columns.type), borrowed(columns.value), borrowed(columns.length),
    )  # fmt: skip
    counts[:] = 0
    found = np.zeros(7, dtype=np.int64)
    at, end = skip_value(buffer, 0, buffer.size, _DELIMITED)
    _metadata_attributes(buffer, at, end, c, counts, found)
    c.end[0] = counts[3]
    at = end
    while at < buffer.size:
        at, end = skip_value(buffer, at, buffer.size, _DELIMITED)
        _node_attributes(buffer, at, end, c, counts, found)
        at = end
        counts[0] += 1
        c.end[counts[0]] = counts[3]


@inner
def _metadata_attributes(
    buffer: np.ndarray, at: int, end: int, c: AttributeColumns, counts: np.ndarray,
    found: np.ndarray,
) -> None:  # fmt: skip
    has_version = False
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        begin, at = skip_value(buffer, at, end, tag & 7)
        if tag == 0x0A:
            has_version = True
            _add(c, counts, 0, -_VERSION_ROLE, _OPERAND, begin, at)
        elif tag == 0x12:
            _add_attribute(buffer, begin, at, c, counts, found)
        else:
            _add(c, counts, start, 0, _UNKNOWN, start, at)
    if not has_version:  # the row tells a trace that came from an .et
        _add(c, counts, 0, -_VERSION_ROLE, _OPERAND, end, end)


@inner
def _node_attributes(
    buffer: np.ndarray, at: int, end: int, c: AttributeColumns, counts: np.ndarray,
    found: np.ndarray,
) -> None:  # fmt: skip
    first_row = counts[3]
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        field, wire = tag >> 3, tag & 7
        begin, at = skip_value(buffer, at, end, wire)
        if field == 10 and wire == _DELIMITED:
            _add_attribute(buffer, begin, at, c, counts, found)
        elif (field == 8 or field == 9) and wire == _DELIMITED:
            _add_operands(buffer, begin, at, first_row, 1 if field == 8 else 5, c, counts)
        elif field == 3 and wire == _VARINT:
            value, _ = read_varint(buffer, begin, at)
            if not 0 <= value <= _LAST_KIND:
                _add(c, counts, start, 0, _UNKNOWN, start, at)
        elif not (
            (wire == _VARINT and (field == 1 or 4 <= field <= 7))
            or (wire == _DELIMITED and (field == 2 or field == 4 or field == 5))
        ):
            _add(c, counts, start, 0, _UNKNOWN, start, at)


@inner
def _add(
    c: AttributeColumns, counts: np.ndarray, name_at: int, name_length: int, type_code: int,
    begin: int, end: int,
) -> None:  # fmt: skip
    """Add the row of an attribute whose value is a span."""
    row = counts[3]
    counts[3] += 1
    c.name_at[row] = name_at
    c.name_length[row] = name_length
    c.type[row] = type_code
    c.value[row] = begin
    c.length[row] = end - begin


@inner
def _add_operands(
    buffer: np.ndarray, at: int, end: int, first_row: int, role: int, c: AttributeColumns,
    counts: np.ndarray,
) -> None:  # fmt: skip
    before = counts[3]
    while at < end:
        tag, at = read_varint(buffer, at, end)
        begin, at = skip_value(buffer, at, end, tag & 7)
        field = tag >> 3
        if tag & 7 != _DELIMITED or field > 3:
            continue
        # a text given again replaces the earlier one
        row = first_row
        while row < counts[3] and c.name_length[row] != 1 - role - field:
            row += 1
        if row < counts[3]:
            c.value[row] = begin
            c.length[row] = at - begin
        else:
            _add(c, counts, 0, 1 - role - field, _OPERAND, begin, at)
    if counts[3] == before:
        _add(c, counts, 0, -role - 3, _OPERAND, end, end)


@inner
def _add_attribute(
    buffer: np.ndarray, at: int, end: int, c: AttributeColumns, counts: np.ndarray,
    found: np.ndarray,
) -> None:  # fmt: skip
    _read_attribute(buffer, at, end, counts, found)
    value, length = found[_VALUE], found[_LENGTH]
    _add(c, counts, found[0], found[1], found[_TYPE], value, value + length)
    if found[3] > 0:
        _add(c, counts, found[0], found[1], _DOC, found[2], found[2] + found[3])


@called
def _read_attribute(
    buffer: np.ndarray, at: int, end: int, counts: np.ndarray, found: np.ndarray
) -> tuple[int, int]:
    """Find the spans of an attribute's name and comment, its type, value and length."""
    found[0], found[1], found[2], found[3] = at, 0, at, 0
    found[_TYPE], found[_VALUE], found[_LENGTH] = _NONE, at, 0
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        if at < 0 or tag <= 7:
            return _FIELD, start
        field, wire = tag >> 3, tag & 7
        begin, at = skip_value(buffer, at, end, wire)
        if at < 0:
            return _FIELD, start
        if field <= 2 and wire == _DELIMITED:
            if not is_utf8(buffer, begin, at):
                return _TEXT, begin
            found[2 * field - 2] = begin
            found[2 * field - 1] = at - begin
        elif _FIRST_VALUE <= field <= _LAST_VALUE and wire == _WIRES[field - 3]:
            found[_TYPE] = field - 3
            if wire == _DELIMITED:
                found[_VALUE], found[_LENGTH] = begin, at - begin
                problem = _check_span(buffer, begin, at, field)
                if problem != _OK:
                    return problem, begin
            else:
                found[_VALUE], found[_LENGTH] = _read_scalar(buffer, begin, at, field), 0
        else:
            counts[4] += 1
    return _OK, at


@inner
def _read_scalar(buffer: np.ndarray, at: int, end: int, field: int) -> int:
    """Read a number of an attribute; floats stay bits."""
    if field == 3 or field == 21 or field == 25:  # double, fixed64, sfixed64
        return read_fixed(buffer, at, 8)
    if field == 5 or field == 19 or field == 23:  # float, fixed32, sfixed32
        bits = read_fixed(buffer, at, 4)
        return (bits ^ 0x80000000) - 0x80000000 if field == 23 else bits
    value, _ = read_varint(buffer, at, end)
    if field == 7:  # int32
        return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    if field == 11:  # uint32
        return value & 0xFFFFFFFF
    if field == 15:  # sint32
        value &= 0xFFFFFFFF
        return (value >> 1) ^ -(value & 1)
    if field == 17:  # sint64
        return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
    if field == 27:  # bool
        return 1 if value != 0 else 0
    return value


@inner
def _check_span(buffer: np.ndarray, at: int, end: int, field: int) -> int:
    """Check the content of a text, or of a list and its items."""
    if field == _STRING:
        return _OK if is_utf8(buffer, at, end) else _TEXT
    if field == _BYTES:
        return _OK
    item = _ITEMS[field - 3]
    while at < end:
        tag, at = read_varint(buffer, at, end)
        if at < 0 or tag <= 7:
            return _LIST
        wire = tag & 7
        begin, at = skip_value(buffer, at, end, wire)
        if at < 0:
            return _LIST
        if tag >> 3 != 1 or wire == item:
            if tag >> 3 == 1 and field == _STRING_LIST and not is_utf8(buffer, begin, at):
                return _TEXT
            continue
        if wire != _DELIMITED or not _is_packed(buffer, begin, at, item):
            return _LIST
    return _OK


@inner
def _is_packed(buffer: np.ndarray, at: int, end: int, item: int) -> bool:
    if item == _FIXED64:
        return (end - at) % 8 == 0
    if item == _FIXED32:
        return (end - at) % 4 == 0
    if item == _DELIMITED:
        return False
    while at < end:
        _, at = read_varint(buffer, at, end)
        if at < 0:
            return False
    return True
