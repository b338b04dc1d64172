"""Columns into Chakra's .et: the way back from :mod:`nadi.files.chakra.et_decode_kernels`.

Every function writes its part at a position and gives the position after it. Into an
array of size 0 nothing is written, so that the same code tells how long a part will be:
protobuf wants the length of a message before the message.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, called, inner, kernel
from nadi.kernels.protobuf import put_fixed, put_varint, uint64, varint_size

_DELIMITED = 2
_STRING = 29
_NONE, _OPERAND, _DOC, _UNKNOWN = 30, 32, 34, 35  # as schema.ATTRIBUTE_TYPES counts
_VERSION_ROLE = 9


class GivenAttributes(NamedTuple):
    """Attributes as :class:`nadi.trace.attributes.Attributes` has them, and whose they are."""

    first: np.ndarray  # int64, per message: where its attributes begin
    end: np.ndarray  # and end
    name: np.ndarray
    type: np.ndarray
    value: np.ndarray
    length: np.ndarray
    size: np.ndarray  # int32: bytes of each attribute's message, filled when measured


class ColumnAttributes(NamedTuple):
    """Attributes of one name and type each, of which every node has one or none."""

    value: np.ndarray  # int64, (columns, nodes): a number or the place of a text; -1 for none
    name: np.ndarray  # int64, (columns,)
    type: np.ndarray  # int64, (columns,)
    text_at: np.ndarray  # int64, (texts,): where each begins in names
    text_length: np.ndarray  # int64, (texts,)


class MessageColumns(NamedTuple):
    """What is written; the metadata's message comes first, then each node's."""

    nodes: np.ndarray  # int64, (nodes, 6): id, kind, where its name begins, its length, us, us
    ctrl_first: np.ndarray
    ctrl: np.ndarray
    data_first: np.ndarray
    data: np.ndarray
    given: GivenAttributes  # among them all operands
    more: GivenAttributes  # these come next
    columns: ColumnAttributes  # and these last
    name_at: np.ndarray  # int64: of each name of an attribute, where it begins in names
    name_length: np.ndarray
    name_role: np.ndarray  # its number among kernels.chakra_decode.ROLES, from 1; 0 for none
    names: np.ndarray  # uint8: the bytes of names and of texts of columns
    buffer: np.ndarray  # uint8: the bytes of values
    rest: np.ndarray  # uint8: those beyond, as if they stood after it


@kernel
def measure_messages(columns: MessageColumns, sizes: np.ndarray) -> None:
    """Find the length of every message.

    - ``columns``: What is to be written.
    - ``sizes``: int64, shape (1 + nodes,), filled: bytes of each message without its length prefix.
      O(bytes).
    """
    c = borrowed(columns)
    nothing = np.empty(0, dtype=np.uint8)
    for message in range(sizes.size):
        sizes[message] = _put_message(c, message, nothing, 0)


@kernel
def encode_messages(
    columns: MessageColumns, sizes: np.ndarray, first: int, end: int, out: np.ndarray
) -> int:
    """Write messages into ``out``, uint8, as :func:`measure_messages` measured them.

    - Returns: Bytes written. O(bytes).
    """
    c = borrowed(columns)
    to = borrowed(out)
    at = 0
    for message in range(first, end):
        at = put_varint(to, at, sizes[message])
        at = _put_message(c, message, to, at)
    return at


@inner
def _put_message(c: MessageColumns, message: int, out: np.ndarray, at: int) -> int:
    if message == 0:
        at = _put_role(c, c.given, 0, _VERSION_ROLE, 1, out, at)
        at = _put_role(c, c.more, 0, _VERSION_ROLE, 1, out, at)
        at = _put_attributes(c, c.given, 0, 2, out, at)
        at = _put_attributes(c, c.more, 0, 2, out, at)
    else:
        row = message - 1
        at = _put_number(1, c.nodes[row, 0], out, at)
        at = _put_bytes(2, c.names, c.nodes[row, 2], c.nodes[row, 3], out, at)
        at = _put_number(3, c.nodes[row, 1], out, at)
        at = _put_packed(4, c.ctrl, c.ctrl_first[row], c.ctrl_first[row + 1], out, at)
        at = _put_packed(5, c.data, c.data_first[row], c.data_first[row + 1], out, at)
        at = _put_number(6, c.nodes[row, 4], out, at)
        at = _put_number(7, c.nodes[row, 5], out, at)
        at = _put_operands(c, message, 1, 8, out, at)
        at = _put_operands(c, message, 5, 9, out, at)
        at = _put_attributes(c, c.given, message, 10, out, at)
        at = _put_attributes(c, c.more, message, 10, out, at)
        at = _put_columns(c, row, 10, out, at)
    at = _put_unknown(c, c.given, message, out, at)
    return _put_unknown(c, c.more, message, out, at)


@inner
def _tag(field: int, wire: int, out: np.ndarray, at: int) -> int:
    return _varint(field << 3 | wire, out, at)


@inner
def _varint(value: int, out: np.ndarray, at: int) -> int:
    return put_varint(out, at, value) if out.size else at + varint_size(value)


@inner
def _put_number(field: int, value: int, out: np.ndarray, at: int) -> int:
    """Write a number that is not protobuf's default, 0."""
    if value == 0:
        return at
    return _varint(value, out, _tag(field, 0, out, at))


@inner
def _copy(source: np.ndarray, begin: int, length: int, out: np.ndarray, at: int) -> int:
    if out.size:
        to, of = uint64(at), uint64(begin)
        for i in range(uint64(length)):
            out[to + i] = source[of + i]
    return at + length


@inner
def _put_bytes(
    field: int, source: np.ndarray, begin: int, length: int, out: np.ndarray, at: int
) -> int:
    """Write a text that is not empty."""
    if length == 0:
        return at
    at = _varint(length, out, _tag(field, _DELIMITED, out, at))
    return _copy(source, begin, length, out, at)


@inner
def _copy_span(c: MessageColumns, begin: int, length: int, out: np.ndarray, at: int) -> int:
    """Copy from where the bytes are."""
    if begin < c.buffer.size:
        return _copy(c.buffer, begin, length, out, at)
    return _copy(c.rest, begin - c.buffer.size, length, out, at)


@inner
def _put_span(
    field: int, c: MessageColumns, begin: int, length: int, out: np.ndarray, at: int
) -> int:
    """Write a text that is not empty, from where its bytes are."""
    if length == 0:
        return at
    at = _varint(length, out, _tag(field, _DELIMITED, out, at))
    return _copy_span(c, begin, length, out, at)


@inner
def _put_packed(
    field: int, values: np.ndarray, begin: int, end: int, out: np.ndarray, at: int
) -> int:
    if begin == end:
        return at
    size = 0
    for i in range(begin, end):
        size += varint_size(values[i])
    at = _varint(size, out, _tag(field, _DELIMITED, out, at))
    for i in range(begin, end):
        at = _varint(values[i], out, at)
    return at


@inner
def _role(c: MessageColumns, a: GivenAttributes, row: int) -> int:
    return c.name_role[a.name[row]] if a.type[row] == _OPERAND else 0


@called
def _put_role(
    c: MessageColumns, a: GivenAttributes, message: int, role: int, field: int, out: np.ndarray,
    at: int,
) -> int:  # fmt: skip
    """Write the text of one role among a message's attributes, if it is there."""
    for row in range(a.first[message], a.end[message]):
        if _role(c, a, row) == role:
            return _put_span(field, c, a.value[row], a.length[row], out, at)
    return at


@called
def _put_operands(
    c: MessageColumns, message: int, role: int, field: int, out: np.ndarray, at: int
) -> int:
    """Write an IOInfo if any of its four roles is there."""
    size = 0
    is_there = False
    for row in range(c.given.first[message], c.given.end[message]):
        if role <= _role(c, c.given, row) < role + 4:
            is_there = True
            length = np.int64(c.given.length[row])
            size += length + 1 + varint_size(length) if length else 0
    if not is_there:
        return at
    at = _varint(size, out, _tag(field, _DELIMITED, out, at))
    if out.size == 0:
        return at + size
    for text in range(3):
        at = _put_role(c, c.given, message, role + text, text + 1, out, at)
    return at


@called
def _put_attributes(
    c: MessageColumns, a: GivenAttributes, message: int, field: int, out: np.ndarray, at: int
) -> int:
    end = a.end[message]
    for row in range(a.first[message], end):
        if a.type[row] > _NONE:
            continue
        doc = row + 1 if row + 1 < end and a.type[row + 1] == _DOC else -1
        if out.size == 0:
            a.size[row] = _put_attribute(c, a, row, doc, out, 0)
        at = _varint(a.size[row], out, _tag(field, _DELIMITED, out, at))
        if out.size == 0:
            at += a.size[row]
        else:
            at = _put_attribute(c, a, row, doc, out, at)
    return at


@called
def _put_attribute(
    c: MessageColumns, a: GivenAttributes, row: int, doc: int, out: np.ndarray, at: int
) -> int:
    name = a.name[row]
    at = _put_bytes(1, c.names, c.name_at[name], c.name_length[name], out, at)
    if doc >= 0:
        at = _put_span(2, c, a.value[doc], a.length[doc], out, at)
    if a.type[row] == _NONE:
        return at
    field, value = np.int64(a.type[row]) + 3, a.value[row]
    if field % 2 == 0 or field >= _STRING:  # a list or a text, which may be empty
        length = np.int64(a.length[row])
        at = _varint(length, out, _tag(field, _DELIMITED, out, at))
        return _copy_span(c, value, length, out, at)
    if field == 3 or field == 21 or field == 25:  # double, fixed64, sfixed64
        at = _tag(field, 1, out, at)
        return put_fixed(out, at, value, 8) if out.size else at + 8
    if field == 5 or field == 19 or field == 23:  # float, fixed32, sfixed32
        at = _tag(field, 5, out, at)
        return put_fixed(out, at, value, 4) if out.size else at + 4
    if field == 15 or field == 17:  # sint32, sint64
        value = (value << 1) ^ (value >> 63)
    return _varint(value, out, _tag(field, 0, out, at))


@called
def _put_columns(c: MessageColumns, row: int, field: int, out: np.ndarray, at: int) -> int:
    """Write what columns say of a node: integers that are not negative, and texts."""
    for column in range(c.columns.name.size):
        value = c.columns.value[column, row]
        if value < 0:
            continue
        name, value_field = c.columns.name[column], c.columns.type[column] + 3
        name_length, length = c.name_length[name], 0
        size = 1 + varint_size(name_length) + name_length + varint_size(value_field << 3)
        if value_field == _STRING:
            length = c.columns.text_length[value]
            size += varint_size(length) + length
        else:
            size += varint_size(value)
        at = _varint(size, out, _tag(field, _DELIMITED, out, at))
        if out.size == 0:
            at += size
            continue
        at = _put_bytes(1, c.names, c.name_at[name], name_length, out, at)
        if value_field == _STRING:
            at = _varint(length, out, _tag(value_field, _DELIMITED, out, at))
            at = _copy(c.names, c.columns.text_at[value], length, out, at)
        else:
            at = _varint(value, out, _tag(value_field, 0, out, at))
    return at


@inner
def _put_unknown(
    c: MessageColumns, a: GivenAttributes, message: int, out: np.ndarray, at: int
) -> int:
    """Write fields that were not understood as they were read."""
    for row in range(a.first[message], a.end[message]):
        if a.type[row] == _UNKNOWN:
            at = _copy_span(c, a.value[row], a.length[row], out, at)
    return at
