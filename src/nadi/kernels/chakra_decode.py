"""Chakra's .et, messages of protobuf one after the other, into columns.

A file is a GlobalMetadata and then a Node each, every one with its length before it.
Two passes over the bytes: one counts, so that the arrays can be made, one fills them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.kernels._jit import borrowed, inner, kernel
from nadi.kernels.protobuf import is_utf8, read_fixed, read_varint, skip_value

__all__ = [
    "NUM_COUNTS",
    "PROBLEMS",
    "ROLES",
    "NodeColumns",
    "count_messages",
    "decode_messages",
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
# nodes, control dependencies, data dependencies, at most so many attributes, and fields inside
# of attributes and operands that are not understood
NUM_COUNTS = 5

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIRST_VALUE, _LAST_VALUE = 3, 32
_STRING, _STRING_LIST, _BYTES, _BYTES_LIST = 29, 30, 31, 32
_NONE, _OPERAND, _DOC, _UNKNOWN = 30, 32, 34, 35  # as schema.ATTRIBUTE_TYPES counts
_VERSION_ROLE = 9
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
    """The arrays that a file is decoded into; names and texts are spans of the file.

    With a length of its name below 0, an attribute's name is one of ROLES by its number.
    """

    id: np.ndarray
    kind: np.ndarray
    name_at: np.ndarray
    name_length: np.ndarray
    start: np.ndarray
    duration: np.ndarray
    ctrl_first: np.ndarray  # of each node, and where the last ends
    ctrl: np.ndarray
    data_first: np.ndarray
    data: np.ndarray
    attr_first: np.ndarray  # of the metadata, then as ctrl_first
    attr_name_at: np.ndarray
    attr_name_length: np.ndarray
    attr_type: np.ndarray
    attr_value: np.ndarray
    attr_length: np.ndarray


@kernel
def count_messages(buffer: np.ndarray, counts: np.ndarray) -> tuple[int, int]:
    """Count what a file holds.

    Parameters
    ----------
    buffer
        uint8: the whole file.
    counts
        int64, shape (NUM_COUNTS,), filled.

    Returns
    -------
    problem, position
        0, or a position in :data:`PROBLEMS` and the byte where it was met. O(bytes).
    """
    counts[:] = 0
    counts[3] = 1  # the version
    at = 0
    first = True
    while at < buffer.size:
        start = at
        at, end = skip_value(buffer, at, buffer.size, _DELIMITED)
        if end < 0:
            return _CUT, start
        if not first:
            counts[0] += 1
        problem, at = _count_fields(buffer, at, end, first, counts)
        if problem != _OK:
            return problem, at
        first = False
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
def decode_messages(
    buffer: np.ndarray, columns: NodeColumns, counts: np.ndarray
) -> tuple[int, int]:
    """Fill the columns; a scalar given twice counts as the later one, as in protobuf.

    Parameters
    ----------
    buffer
        uint8: the whole file, for which :func:`count_messages` found no problem.
    columns
        Arrays of the sizes counted, zero where protobuf's default is.
    counts
        int64, shape (NUM_COUNTS,), filled with what is there indeed.

    Returns
    -------
    problem, position
        As of :func:`count_messages`. O(bytes).
    """
    c = NodeColumns(
        borrowed(columns.id), borrowed(columns.kind), borrowed(columns.name_at),
        borrowed(columns.name_length), borrowed(columns.start), borrowed(columns.duration),
        borrowed(columns.ctrl_first), borrowed(columns.ctrl), borrowed(columns.data_first),
        borrowed(columns.data), borrowed(columns.attr_first), borrowed(columns.attr_name_at),
        borrowed(columns.attr_name_length), borrowed(columns.attr_type),
        borrowed(columns.attr_value), borrowed(columns.attr_length),
    )  # fmt: skip
    counts[:] = 0
    at, end = skip_value(buffer, 0, buffer.size, _DELIMITED)
    problem, at = _decode_metadata(buffer, at, end, c, counts)
    c.attr_first[1] = counts[3]
    while problem == _OK and at < buffer.size:
        at, end = skip_value(buffer, at, buffer.size, _DELIMITED)
        problem, at = _decode_node(buffer, at, end, c, counts)
        counts[0] += 1
        c.ctrl_first[counts[0]] = counts[1]
        c.data_first[counts[0]] = counts[2]
        c.attr_first[counts[0] + 1] = counts[3]
    return problem, at


@inner
def _decode_metadata(
    buffer: np.ndarray, at: int, end: int, c: NodeColumns, counts: np.ndarray
) -> tuple[int, int]:
    has_version = False
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        field, wire = tag >> 3, tag & 7
        begin, at = skip_value(buffer, at, end, wire)
        if field == 1 and wire == _DELIMITED:
            if not is_utf8(buffer, begin, at):
                return _TEXT, begin
            has_version = True
            _add(c, counts, 0, -_VERSION_ROLE, _OPERAND, begin, at)
        elif field == 2 and wire == _DELIMITED:
            problem, where = _decode_attribute(buffer, begin, at, c, counts)
            if problem != _OK:
                return problem, where
        else:
            _add(c, counts, start, 0, _UNKNOWN, start, at)
    if not has_version:  # the row tells a trace that came from an .et
        _add(c, counts, 0, -_VERSION_ROLE, _OPERAND, end, end)
    return _OK, at


@inner
def _add(
    c: NodeColumns, counts: np.ndarray, name_at: int, name_length: int, type_code: int,
    begin: int, end: int,
) -> None:  # fmt: skip
    """Add the row of an attribute whose value is a span."""
    row = counts[3]
    counts[3] += 1
    c.attr_name_at[row] = name_at
    c.attr_name_length[row] = name_length
    c.attr_type[row] = type_code
    c.attr_value[row] = begin
    c.attr_length[row] = end - begin


@inner
def _decode_node(
    buffer: np.ndarray, at: int, end: int, c: NodeColumns, counts: np.ndarray
) -> tuple[int, int]:
    node, first_row = counts[0], counts[3]
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        field, wire = tag >> 3, tag & 7
        begin, at = skip_value(buffer, at, end, wire)
        problem, where = _OK, start
        if field == 10 and wire == _DELIMITED:
            problem, where = _decode_attribute(buffer, begin, at, c, counts)
        elif wire == _VARINT and (field == 1 or field == 3 or field == 6 or field == 7):
            value, _ = read_varint(buffer, begin, at)
            problem = _set_number(c, node, field, value)
            if field == 3 and value != c.kind[node]:
                _add(c, counts, start, 0, _UNKNOWN, start, at)
        elif field == 2 and wire == _DELIMITED:
            problem = _OK if is_utf8(buffer, begin, at) else _TEXT
            c.name_at[node] = begin
            c.name_length[node] = at - begin
        elif field == 4 and wire in (_DELIMITED, _VARINT):
            problem = _read_ids(buffer, begin, at, c.ctrl, counts, 1)
        elif field == 5 and wire in (_DELIMITED, _VARINT):
            problem = _read_ids(buffer, begin, at, c.data, counts, 2)
        elif (field == 8 or field == 9) and wire == _DELIMITED:
            role = 1 if field == 8 else 5
            problem, where = _decode_operands(buffer, begin, at, first_row, role, c, counts)
        else:
            _add(c, counts, start, 0, _UNKNOWN, start, at)
        if problem != _OK:
            return problem, where
    return _OK, at


@inner
def _set_number(c: NodeColumns, node: int, field: int, value: int) -> int:
    if field == 1:
        c.id[node] = value
        return _OK if 0 <= value < _LARGEST_ID else _HUGE
    if field == 3:  # of a kind that is not known the caller keeps the field
        c.kind[node] = value if 0 <= value <= 7 else 0
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
def _decode_operands(
    buffer: np.ndarray, at: int, end: int, first_row: int, role: int, c: NodeColumns,
    counts: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    before = counts[3]
    while at < end:
        start = at
        tag, at = read_varint(buffer, at, end)
        if at < 0 or tag <= 7:
            return _FIELD, start
        field, wire = tag >> 3, tag & 7
        begin, at = skip_value(buffer, at, end, wire)
        if at < 0:
            return _FIELD, start
        if 1 <= field <= 3 and wire == _DELIMITED:
            if not is_utf8(buffer, begin, at):
                return _TEXT, begin
            # a text given again replaces the earlier one
            row = first_row
            while row < counts[3] and c.attr_name_length[row] != 1 - role - field:
                row += 1
            if row < counts[3]:
                c.attr_value[row] = begin
                c.attr_length[row] = at - begin
            else:
                _add(c, counts, 0, 1 - role - field, _OPERAND, begin, at)
        else:
            counts[4] += 1
    if counts[3] == before:
        _add(c, counts, 0, -role - 3, _OPERAND, end, end)
    return _OK, at


@inner
def _decode_attribute(
    buffer: np.ndarray, at: int, end: int, c: NodeColumns, counts: np.ndarray
) -> tuple[int, int]:
    name_at, name_length, doc_at, doc_length = at, 0, at, 0
    type_code, value, length = _NONE, at, 0
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
            if field == 1:
                name_at, name_length = begin, at - begin
            else:
                doc_at, doc_length = begin, at - begin
        elif _FIRST_VALUE <= field <= _LAST_VALUE and wire == _WIRES[field - 3]:
            type_code = field - 3
            if wire == _DELIMITED:
                value, length = begin, at - begin
                problem = _check_span(buffer, begin, at, field)
                if problem != _OK:
                    return problem, begin
            else:
                value, length = _read_scalar(buffer, begin, at, field), 0
        else:
            counts[4] += 1
    _add(c, counts, name_at, name_length, type_code, value, value + length)
    if doc_length > 0:
        _add(c, counts, name_at, name_length, _DOC, doc_at, doc_at + doc_length)
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
