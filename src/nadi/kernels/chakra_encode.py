"""Columns into Chakra's .et: the way back from :mod:`nadi.kernels.chakra_decode`.

Every function writes its part at a position and gives the position after it. Into an
array of size 0 nothing is written, so that the same code tells how long a part will be:
protobuf wants the length of a message before the message.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.kernels._jit import inner, kernel
from nadi.kernels.protobuf import put_fixed, put_varint, uint64, varint_size

__all__ = ["MessageColumns", "encode_messages", "measure_messages"]

_DELIMITED = 2
_STRING = 29
_NONE, _OPERAND, _DOC, _UNKNOWN = 30, 32, 34, 35  # as schema.ATTRIBUTE_TYPES counts
_VERSION_ROLE = 9
_NAME_AT, _NAME_LENGTH, _TYPE, _VALUE, _LENGTH = range(5)


class MessageColumns(NamedTuple):
    """What is written; the metadata's attributes come first, then each node's."""

    nodes: np.ndarray  # int64, (nodes, 6): id, kind, where its name begins, its length, us, us
    ctrl_first: np.ndarray
    ctrl: np.ndarray
    data_first: np.ndarray
    data: np.ndarray
    attr_first: np.ndarray  # per message
    attrs: np.ndarray  # as kernels.chakra_decode.NodeColumns has them
    attr_sizes: np.ndarray  # int64: bytes of each attribute's message, filled when measured
    names: np.ndarray  # uint8: the bytes of names
    buffer: np.ndarray  # uint8: the bytes of values


@kernel
def measure_messages(columns: MessageColumns, sizes: np.ndarray) -> int:
    """Find the length of every message.

    Parameters
    ----------
    columns
        What is to be written.
    sizes
        int64, shape (1 + nodes,), filled: bytes of each message without its length prefix.

    Returns
    -------
    int
        Bytes of the file. O(bytes).
    """
    nothing = np.empty(0, dtype=np.uint8)
    total = 0
    for message in range(sizes.size):
        sizes[message] = _put_message(columns, message, nothing, 0)
        total += varint_size(sizes[message]) + sizes[message]
    return total


@kernel
def encode_messages(columns: MessageColumns, sizes: np.ndarray, out: np.ndarray) -> int:
    """Write the file into ``out``, uint8, as :func:`measure_messages` measured it.

    Returns
    -------
    int
        Bytes written. O(bytes).
    """
    at = 0
    for message in range(sizes.size):
        at = put_varint(out, at, sizes[message])
        at = _put_message(columns, message, out, at)
    return at


@inner
def _put_message(c: MessageColumns, message: int, out: np.ndarray, at: int) -> int:
    # further inner functions get few arrays each: handing over all takes longer than the work
    attrs, attr_sizes, names, buffer = c.attrs, c.attr_sizes, c.names, c.buffer
    first, end = c.attr_first[message], c.attr_first[message + 1]
    if message == 0:
        at = _put_role(attrs, buffer, first, end, _VERSION_ROLE, 1, out, at)
        at = _put_attributes(attrs, attr_sizes, names, buffer, first, end, 2, out, at)
        return _put_unknown(attrs, buffer, first, end, out, at)
    row = message - 1
    at = _put_number(1, c.nodes[row, 0], out, at)
    at = _put_bytes(2, names, c.nodes[row, 2], c.nodes[row, 3], out, at)
    at = _put_number(3, c.nodes[row, 1], out, at)
    at = _put_packed(4, c.ctrl, c.ctrl_first[row], c.ctrl_first[row + 1], out, at)
    at = _put_packed(5, c.data, c.data_first[row], c.data_first[row + 1], out, at)
    at = _put_number(6, c.nodes[row, 4], out, at)
    at = _put_number(7, c.nodes[row, 5], out, at)
    at = _put_operands(attrs, buffer, first, end, 1, 8, out, at)
    at = _put_operands(attrs, buffer, first, end, 5, 9, out, at)
    at = _put_attributes(attrs, attr_sizes, names, buffer, first, end, 10, out, at)
    return _put_unknown(attrs, buffer, first, end, out, at)


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
def _put_role(
    attrs: np.ndarray, buffer: np.ndarray, first: int, end: int, role: int, field: int,
    out: np.ndarray, at: int,
) -> int:  # fmt: skip
    """Write the text of one role among a node's attributes, if it is there."""
    for row in range(first, end):
        if attrs[row, _NAME_LENGTH] == -role:
            return _put_bytes(field, buffer, attrs[row, _VALUE], attrs[row, _LENGTH], out, at)
    return at


@inner
def _put_operands(
    attrs: np.ndarray, buffer: np.ndarray, first: int, end: int, role: int, field: int,
    out: np.ndarray, at: int,
) -> int:  # fmt: skip
    """Write an IOInfo if any of its four roles is there."""
    size = 0
    is_there = False
    for row in range(first, end):
        if role <= -attrs[row, _NAME_LENGTH] < role + 4:
            is_there = True
            length = attrs[row, _LENGTH]
            size += length + 1 + varint_size(length) if length else 0
    if not is_there:
        return at
    at = _varint(size, out, _tag(field, _DELIMITED, out, at))
    if out.size == 0:
        return at + size
    for text in range(3):
        at = _put_role(attrs, buffer, first, end, role + text, text + 1, out, at)
    return at


@inner
def _put_attributes(
    attrs: np.ndarray, sizes: np.ndarray, names: np.ndarray, buffer: np.ndarray, first: int,
    end: int, field: int, out: np.ndarray, at: int,
) -> int:  # fmt: skip
    for row in range(first, end):
        if attrs[row, _TYPE] > _NONE:
            continue
        doc = row + 1 if row + 1 < end and attrs[row + 1, _TYPE] == _DOC else -1
        if out.size == 0:
            sizes[row] = _put_attribute(attrs, names, buffer, row, doc, out, 0)
        at = _varint(sizes[row], out, _tag(field, _DELIMITED, out, at))
        if out.size == 0:
            at += sizes[row]
        else:
            at = _put_attribute(attrs, names, buffer, row, doc, out, at)
    return at


@inner
def _put_attribute(
    attrs: np.ndarray, names: np.ndarray, buffer: np.ndarray, row: int, doc: int,
    out: np.ndarray, at: int,
) -> int:  # fmt: skip
    at = _put_bytes(1, names, attrs[row, _NAME_AT], attrs[row, _NAME_LENGTH], out, at)
    if doc >= 0:
        at = _put_bytes(2, buffer, attrs[doc, _VALUE], attrs[doc, _LENGTH], out, at)
    if attrs[row, _TYPE] == _NONE:
        return at
    field, value = attrs[row, _TYPE] + 3, attrs[row, _VALUE]
    if field % 2 == 0 or field >= _STRING:  # a list or a text, which may be empty
        length = attrs[row, _LENGTH]
        at = _varint(length, out, _tag(field, _DELIMITED, out, at))
        return _copy(buffer, value, length, out, at)
    if field == 3 or field == 21 or field == 25:  # double, fixed64, sfixed64
        at = _tag(field, 1, out, at)
        return put_fixed(out, at, value, 8) if out.size else at + 8
    if field == 5 or field == 19 or field == 23:  # float, fixed32, sfixed32
        at = _tag(field, 5, out, at)
        return put_fixed(out, at, value, 4) if out.size else at + 4
    if field == 15 or field == 17:  # sint32, sint64
        value = (value << 1) ^ (value >> 63)
    return _varint(value, out, _tag(field, 0, out, at))


@inner
def _put_unknown(
    attrs: np.ndarray, buffer: np.ndarray, first: int, end: int, out: np.ndarray, at: int
) -> int:
    """Write fields that were not understood as they were read."""
    for row in range(first, end):
        if attrs[row, _TYPE] == _UNKNOWN:
            at = _copy(buffer, attrs[row, _VALUE], attrs[row, _LENGTH], out, at)
    return at
