"""Compute how much memory an Arrow file needs, before anything is decompressed.

polars allocates the size that a compressed buffer claims. If that exceeds the memory of the
machine, the process aborts. This module therefore sums the sizes first, by Arrow's columnar format
(https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format). Its metadata are FlatBuffers.
A FlatBuffers table begins with the distance back to a list of the offsets of its fields; 0 marks
a missing field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["bytes_claimed"]

_MAGIC = b"ARROW1"
_CONTINUES = 0xFFFFFFFF
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # of the union MessageHeader
# fields by their number in Schema.fbs, Message.fbs and File.fbs
_FOOTER_DICTIONARIES, _FOOTER_BATCHES = 2, 3
_MESSAGE_TYPE, _MESSAGE_HEADER = 1, 2
_DICTIONARY_DATA = 1
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3
_BLOCK = struct.Struct("<qi4xq")  # offset, bytes of metadata, bytes of the body
_BUFFER = struct.Struct("<qq")  # offset in the body, bytes
_RAW = -1  # the size of a buffer that is not compressed after all


def bytes_claimed(content: bytes) -> int:
    """Return the total size of the buffers of an Arrow file, as it claims. O(buffers).

    Raises
    ------
    ValueError
        If it is not an Arrow file, or an offset points outside of it.
    """
    try:
        return sum(_sizes(content))
    except (struct.error, IndexError, OverflowError):
        raise ValueError("the Arrow file is incomplete") from None


def _sizes(content: bytes) -> Iterator[int]:
    end = len(content) - len(_MAGIC) - 4
    if not content.startswith(_MAGIC) or not content.endswith(_MAGIC) or end < 0:
        raise ValueError("the Arrow file is incomplete")
    footer_size = struct.unpack_from("<i", content, end)[0]
    if footer_size < 0:
        raise ValueError("the Arrow file is incomplete")
    footer = _indirect(content, _inside(content, end - footer_size))
    for field in (_FOOTER_DICTIONARIES, _FOOTER_BATCHES):
        for block in _entries(content, footer, field, _BLOCK):
            yield from _sizes_of_block(content, *block)


def _sizes_of_block(content: bytes, offset: int, metadata: int, body_size: int) -> Iterator[int]:
    if metadata < 0 or body_size < 0:
        raise ValueError("a block of the Arrow file has a negative size")
    body = _inside(content, offset + metadata)
    _inside(content, body + body_size)
    marker = struct.unpack_from("<I", content, _inside(content, offset))[0]
    message = _indirect(content, offset + (8 if marker == _CONTINUES else 4))
    kind = content[_field(content, message, _MESSAGE_TYPE)]
    batch = _indirect(content, _field(content, message, _MESSAGE_HEADER))
    if kind == _DICTIONARY_BATCH:
        batch = _indirect(content, _field(content, batch, _DICTIONARY_DATA))
    elif kind != _RECORD_BATCH:
        raise ValueError("a block of the Arrow file is not a table")
    is_compressed = _field(content, batch, _BATCH_COMPRESSION) > 0
    for at, size in _entries(content, batch, _BATCH_BUFFERS, _BUFFER):
        if at < 0 or size < 0 or at + size > body_size or (is_compressed and 0 < size < 8):
            raise ValueError("a buffer lies outside of the Arrow file")
        if is_compressed and size:
            stated = struct.unpack_from("<q", content, body + at)[0]
            size = size if stated == _RAW else stated
            if size < 0:
                raise ValueError("a buffer of the Arrow file has a negative size")
        yield size


def _inside(content: bytes, at: int) -> int:
    if not 0 <= at <= len(content):
        raise ValueError("an offset points outside of the Arrow file")
    return at


def _indirect(content: bytes, at: int) -> int:
    """Return the position to which an offset points."""
    return _inside(content, at + struct.unpack_from("<I", content, _inside(content, at))[0])


def _field(content: bytes, table: int, number: int) -> int:
    """Return the position of a field of a table; 0 if it is missing."""
    vtable = _inside(content, table - struct.unpack_from("<i", content, table)[0])
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", content, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", content, vtable + place)[0]
    return _inside(content, table + offset) if offset else 0


def _entries(
    content: bytes, table: int, number: int, layout: struct.Struct
) -> Iterator[tuple[int, ...]]:
    """Return the structs of a vector; none if it is missing."""
    field = _field(content, table, number)
    if not field:
        return iter(())
    vector = _indirect(content, field)
    count = struct.unpack_from("<I", content, vector)[0]
    end = _inside(content, vector + 4 + count * layout.size)
    return layout.iter_unpack(memoryview(content)[vector + 4 : end])
