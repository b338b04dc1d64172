"""Attributes of Chakra's messages: each checked, and those of a whole file into columns."""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, called, inner, kernel
from nadi.kernels.protobuf import (
    int64,
    is_utf8,
    read_field,
    read_fixed,
    read_varint,
    skip_value,
    uint64,
)

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
OK, CUT, FIELD, NUMBER, TEXT, _LIST, HUGE = range(7)
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIRST_VALUE, _LAST_VALUE = 3, 32
_STRING_FIELD, _STRING_LIST_FIELD, _BYTES_FIELD = 29, 30, 31
STRING = _STRING_FIELD - 3  # as schema.ATTRIBUTE_TYPES counts
_NONE, _OPERAND, _DOC, _UNKNOWN = 30, 32, 34, 35
_VERSION_ROLE = 9
_LAST_KIND = 7
# of an attribute, after the spans of its name and its comment; and its fields not understood
TYPE, VALUE, VALUE_LENGTH, STRANGE = range(4, 8)
WORK_SIZE = 8
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
def decode_attributes(buffer: np.ndarray, columns: AttributeColumns) -> int:
    """Fill the attributes of a whole file in which :func:`decode_nodes` found no problem.

    - ``buffer``: uint8: the whole file.
    - ``columns``: Arrays of the sizes counted.
    - Returns: How many attributes there are. O(bytes).
    """
    c = borrowed(columns)
    filled = np.zeros(1, dtype=np.int64)
    found = np.zeros(WORK_SIZE, dtype=np.int64)
    at, end = skip_value(buffer, 0, buffer.size, _DELIMITED)
    _metadata_attributes(buffer, at, end, c, filled, found)
    c.end[0] = filled[0]
    node = 0
    while end < buffer.size:
        at, end = skip_value(buffer, end, buffer.size, _DELIMITED)
        _node_attributes(buffer, at, end, c, filled, found)
        node += 1
        c.end[node] = filled[0]
    return filled[0]


@inner
def _metadata_attributes(
    buffer: np.ndarray, at: int, end: int, c: AttributeColumns, filled: np.ndarray,
    found: np.ndarray,
) -> None:  # fmt: skip
    has_version = False
    while at < end:
        start = at
        tag, begin, at = read_field(buffer, at, end)
        if tag == 0x0A:
            has_version = True
            _add(c, filled, 0, -_VERSION_ROLE, _OPERAND, begin, at)
        elif tag == 0x12:
            _add_attribute(buffer, begin, at, c, filled, found)
        else:
            _add(c, filled, start, 0, _UNKNOWN, start, at)
    if not has_version:  # the row tells a trace that came from an .et
        _add(c, filled, 0, -_VERSION_ROLE, _OPERAND, end, end)


@inner
def _node_attributes(
    buffer: np.ndarray, at: int, end: int, c: AttributeColumns, filled: np.ndarray,
    found: np.ndarray,
) -> None:  # fmt: skip
    first_row = filled[0]
    while at < end:
        start = at
        tag, begin, at = read_field(buffer, at, end)
        field, wire = tag >> 3, tag & 7
        if field == 10 and wire == _DELIMITED:
            _add_attribute(buffer, begin, at, c, filled, found)
        elif (field == 8 or field == 9) and wire == _DELIMITED:
            _add_operands(buffer, begin, at, first_row, 1 if field == 8 else 5, c, filled)
        elif field == 3 and wire == _VARINT:
            value, _ = read_varint(buffer, begin, at)
            if not 0 <= value <= _LAST_KIND:
                _add(c, filled, start, 0, _UNKNOWN, start, at)
        elif not (
            (wire == _VARINT and (field == 1 or 4 <= field <= 7))
            or (wire == _DELIMITED and (field == 2 or field == 4 or field == 5))
        ):
            _add(c, filled, start, 0, _UNKNOWN, start, at)


@inner
def _add(
    c: AttributeColumns, filled: np.ndarray, name_at: int, name_length: int, type_code: int,
    begin: int, end: int,
) -> None:  # fmt: skip
    """Add the row of an attribute whose value is a span."""
    row = filled[0]
    filled[0] += 1
    c.name_at[row] = name_at
    c.name_length[row] = name_length
    c.type[row] = type_code
    c.value[row] = begin
    c.length[row] = end - begin


@inner
def _add_operands(
    buffer: np.ndarray, at: int, end: int, first_row: int, role: int, c: AttributeColumns,
    filled: np.ndarray,
) -> None:  # fmt: skip
    before = filled[0]
    while at < end:
        tag, begin, at = read_field(buffer, at, end)
        field = tag >> 3
        if tag & 7 != _DELIMITED or field > 3:
            continue
        # a text given again replaces the earlier one
        row = first_row
        while row < filled[0] and c.name_length[row] != 1 - role - field:
            row += 1
        if row < filled[0]:
            c.value[row] = begin
            c.length[row] = at - begin
        else:
            _add(c, filled, 0, 1 - role - field, _OPERAND, begin, at)
    if filled[0] == before:
        _add(c, filled, 0, -role - 3, _OPERAND, end, end)


@inner
def _add_attribute(
    buffer: np.ndarray, at: int, end: int, c: AttributeColumns, filled: np.ndarray,
    found: np.ndarray,
) -> None:  # fmt: skip
    read_attribute(buffer, at, end, found)
    value, length = found[VALUE], found[VALUE_LENGTH]
    _add(c, filled, found[0], found[1], found[TYPE], value, value + length)
    if found[3] > 0:
        _add(c, filled, found[0], found[1], _DOC, found[2], found[2] + found[3])


@called
def read_attribute(buffer: np.ndarray, at: int, end: int, found: np.ndarray) -> tuple[int, int]:
    """Find the spans of an attribute's name and comment, its type, value and length."""
    found[0], found[1], found[2], found[3] = at, 0, at, 0
    found[TYPE], found[VALUE], found[VALUE_LENGTH], found[STRANGE] = _NONE, at, 0, 0
    while at < end:
        start = at
        tag, begin, at = read_field(buffer, at, end)
        if at < 0:
            return FIELD, start
        field, wire = tag >> 3, tag & 7
        if field <= 2 and wire == _DELIMITED:
            if not is_utf8(buffer, begin, at):
                return TEXT, begin
            found[2 * field - 2] = begin
            found[2 * field - 1] = at - begin
        elif _FIRST_VALUE <= field <= _LAST_VALUE and wire == _WIRES[field - 3]:
            found[TYPE] = field - 3
            if wire == _DELIMITED:
                found[VALUE], found[VALUE_LENGTH] = begin, at - begin
                problem = _check_span(buffer, begin, at, field)
                if problem != OK:
                    return problem, begin
            else:
                found[VALUE], found[VALUE_LENGTH] = _read_scalar(buffer, begin, at, field), 0
        else:
            found[STRANGE] += 1
    return OK, at


@inner
def _read_scalar(buffer: np.ndarray, at: int, end: int, field: int) -> int:
    """Read a number of an attribute; floats stay bits."""
    if field == 3 or field == 21 or field == 25:  # double, fixed64, sfixed64
        return read_fixed(buffer, at, 8)
    if field == 5 or field == 19 or field == 23:  # float, fixed32, sfixed32
        bits = read_fixed(buffer, at, 4)
        return (bits ^ 0x80000000) - 0x80000000 if field == 23 else bits
    value, _ = read_varint(buffer, at, end)
    return _signed(value, field)


@inner
def _signed(value: int, field: int) -> int:
    """Give what a number says that is written as one without a sign."""
    if field == 9 or field == 13:  # int64, uint64
        return value
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
    if field == _STRING_FIELD:
        return OK if is_utf8(buffer, at, end) else TEXT
    if field == _BYTES_FIELD:
        return OK
    item = _ITEMS[field - 3]
    while at < end:
        tag, begin, at = read_field(buffer, at, end)
        if at < 0:
            return _LIST
        wire = tag & 7
        if tag >> 3 != 1 or wire == item:
            if tag >> 3 == 1 and field == _STRING_LIST_FIELD and not is_utf8(buffer, begin, at):
                return TEXT
            continue
        if wire != _DELIMITED or not _is_packed(buffer, begin, at, item):
            return _LIST
    return OK


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


@inner
def usual_attribute(buffer: np.ndarray, at: int, end: int) -> tuple[int, int, int, int, int]:
    """Read an attribute that is a short name and then a number or a text, as nearly all are.

    Gives where its name begins and how long it is, its type or -1 if it is not so, its value
    and length. Whether the texts are UTF-8 is not known.
    """
    name_at, name_length = at + 2, int64(0)
    type_code, value, length = int64(-1), int64(0), int64(0)
    if end - at > 3 and buffer[uint64(at)] == 0x0A:
        name_length = int64(buffer[uint64(at + 1)])
        at = name_at + name_length
        if name_length < 0x80 and at < end:
            tag, at = read_varint(buffer, at, end)
            field, wire = tag >> 3, tag & 7
            if at > 0 and wire == _VARINT and _FIRST_VALUE <= field <= _LAST_VALUE:
                value, at = read_varint(buffer, at, end)
                if at == end and _WIRES[field - 3] == _VARINT:
                    value = _signed(value, field)
                    type_code = field - 3
            elif at > 0 and tag == _STRING_FIELD << 3 | _DELIMITED:
                length, value = read_varint(buffer, at, end)
                if value > 0 and length == end - value:
                    type_code = int64(STRING)
    return name_at, name_length, type_code, value, length
