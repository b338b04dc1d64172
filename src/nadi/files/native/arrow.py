"""Read the metadata of an Arrow file: its columns, and where the buffers of each batch are.

By Arrow's columnar format (https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format).
The metadata are FlatBuffers. A FlatBuffers table begins with the distance back to a list of the
offsets of its fields; 0 marks a missing field. Numbers of fields are those in Schema.fbs,
Message.fbs and File.fbs.

Check an Arrow file before polars reads it, and compute how much memory it needs.

polars allocates the size that a compressed buffer claims: if that exceeds the memory of the
machine, the process aborts. Where a buffer is shorter than its column it panics, which prints a
trace of its own code. This module therefore compares all sizes first, by the layouts of
https://arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_MAGIC = b"ARROW1"
_CONTINUES = 0xFFFFFFFF
_SCHEMA, _DICTIONARIES, _BATCHES = 1, 2, 3  # of the footer
_COLUMNS = 1  # of the schema
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # of the union MessageHeader
_BLOCK = struct.Struct("<qi4xq")  # offset, bytes of metadata, bytes of the body
_PAIR = struct.Struct("<qq")  # of a buffer: offset, bytes; of an array: rows, nulls
_LONG = struct.Struct("<q")
_DEEPEST = 64  # columns within columns


class ArrowColumn(NamedTuple):
    """A column as the schema declares it."""

    name: bytes  # in UTF-8
    type: int  # the number of its type in the union Type
    # of an integer its width, of a floating point number 0 to 2 for half to double; else 0
    bits: int
    # the width of the indices into a dictionary, 0 if there is none: then ``type`` is that of the
    # array itself, else that of the dictionary's values
    index_bits: int
    dictionary: int  # the id of the dictionary
    children: tuple[ArrowColumn, ...]  # the columns within, such as the values of lists
    notes: tuple[tuple[bytes, bytes], ...]  # the keys and values of its metadata


class Batch(NamedTuple):
    """Rows of all columns, or the values of a dictionary."""

    dictionary: int  # the id of the dictionary; -1 for rows
    num_rows: int  # how many rows it has
    arrays: tuple[tuple[int, ...], ...]  # rows and nulls of each array
    buffers: tuple[tuple[int, ...], ...]  # offset in the file and bytes of each buffer
    num_extra: tuple[int, ...]  # how many buffers of texts each column of views has
    is_compressed: bool  # whether the size before compression precedes each buffer


def read_metadata(content: bytes) -> tuple[tuple[ArrowColumn, ...], list[Batch]]:
    """Return the columns of an Arrow file, and its batches, dictionaries first. O(buffers).

    - Raises ValueError if it is not an Arrow file, or an offset points outside of it.
    """
    try:
        return _read(content)
    except (struct.error, IndexError, OverflowError):
        raise ValueError("the Arrow file is incomplete") from None


def _read(content: bytes) -> tuple[tuple[ArrowColumn, ...], list[Batch]]:
    end = len(content) - len(_MAGIC) - 4
    if not content.startswith(_MAGIC) or not content.endswith(_MAGIC) or end < 0:
        raise ValueError("the Arrow file is incomplete")
    footer_size = struct.unpack_from("<i", content, end)[0]
    if footer_size < 0:
        raise ValueError("the Arrow file is incomplete")
    footer = _Table(content, _indirect(content, _inside(content, end - footer_size)))
    batches = [
        _batch(content, *block)
        for number in (_DICTIONARIES, _BATCHES)
        for block in footer.structs(number, _BLOCK)
    ]
    columns = footer.table(_SCHEMA).tables(_COLUMNS)
    return tuple(_column(table, _DEEPEST) for table in columns), batches


def _column(table: _Table, depth: int) -> ArrowColumn:
    if not depth:
        raise ValueError("columns of the Arrow file lie too deep within each other")
    kind, dictionary = table.uint8(2), table.optional(4)
    bits = index_bits = number = 0
    if kind in (2, 3):  # an integer or a floating point number
        bits = table.table(3).int16(0) if kind == 3 else table.table(3).int32(0)
    if dictionary is not None:
        index = dictionary.optional(1)
        number, index_bits = dictionary.int64(0), index.int32(0) if index is not None else 32
    notes = [(note.text(0), note.text(1)) for note in table.tables(6)]
    children = tuple(_column(child, depth - 1) for child in table.tables(5))
    return ArrowColumn(table.text(0), kind, bits, index_bits, number, children, tuple(notes))


def _batch(content: bytes, offset: int, metadata: int, body_size: int) -> Batch:
    if metadata < 0 or body_size < 0:
        raise ValueError("a block of the Arrow file has a negative size")
    body = _inside(content, offset + metadata)
    _inside(content, body + body_size)
    marker = struct.unpack_from("<I", content, _inside(content, offset))[0]
    message = _Table(content, _indirect(content, offset + (8 if marker == _CONTINUES else 4)))
    if not 0 <= message.int64(3) <= body_size:
        raise ValueError("a block of the Arrow file states two sizes")
    kind, batch, dictionary = message.uint8(1), message.table(2), -1
    if kind == _DICTIONARY_BATCH:
        dictionary, batch = batch.int64(0), batch.table(1)
    elif kind != _RECORD_BATCH:
        raise ValueError("a block of the Arrow file is not a table")
    buffers = []
    for at, size in batch.structs(2, _PAIR):
        if at < 0 or size < 0 or at + size > body_size:
            raise ValueError("a buffer lies outside of the Arrow file")
        buffers.append((body + at, size))
    arrays = tuple(batch.structs(1, _PAIR))
    num_extra = tuple(count for (count,) in batch.structs(4, _LONG))
    is_compressed = batch.optional(3) is not None
    return Batch(dictionary, batch.int64(0), arrays, tuple(buffers), num_extra, is_compressed)


class _Table:
    """A FlatBuffers table, whose fields are asked for by number."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content = content
        self._at = at
        self._offsets = _inside(content, at - struct.unpack_from("<i", content, at)[0])
        self._size = struct.unpack_from("<H", content, self._offsets)[0]

    def uint8(self, number: int) -> int:
        """Return a field of one byte; a missing number is 0."""
        return self._number(number, "<B")

    def int16(self, number: int) -> int:
        """Return a field of two bytes."""
        return self._number(number, "<h")

    def int32(self, number: int) -> int:
        """Return a field of four bytes."""
        return self._number(number, "<i")

    def int64(self, number: int) -> int:
        """Return a field of eight bytes."""
        return self._number(number, "<q")

    def text(self, number: int) -> bytes:
        """Return a text; empty if it is missing."""
        begin, count = self._vector(number)
        return self._content[begin : _inside(self._content, begin + count)]

    def optional(self, number: int) -> _Table | None:
        """Return a table, or None if it is missing."""
        at = self._place(number)
        return _Table(self._content, _indirect(self._content, at)) if at else None

    def table(self, number: int) -> _Table:
        """Return a table that has to be there."""
        found = self.optional(number)
        if found is None:
            raise ValueError("the metadata of the Arrow file have a gap")
        return found

    def tables(self, number: int) -> Iterator[_Table]:
        """Return the tables of a vector; none if it is missing."""
        vector, count = self._vector(number)
        for at in range(vector, _inside(self._content, vector + 4 * count), 4):
            yield _Table(self._content, _indirect(self._content, at))

    def structs(self, number: int, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
        """Return the structs of a vector; none if it is missing."""
        vector, count = self._vector(number)
        end = _inside(self._content, vector + count * layout.size)
        return layout.iter_unpack(memoryview(self._content)[vector:end])

    def _vector(self, number: int) -> tuple[int, int]:
        at = self._place(number)
        if not at:
            return 0, 0
        vector = _indirect(self._content, at)
        return vector + 4, struct.unpack_from("<I", self._content, vector)[0]

    def _number(self, number: int, layout: str) -> int:
        at = self._place(number)
        return struct.unpack_from(layout, self._content, at)[0] if at else 0

    def _place(self, number: int) -> int:
        """Return the position of a field; 0 if it is missing."""
        place = 4 + 2 * number
        if place >= self._size:
            return 0
        offset = struct.unpack_from("<H", self._content, self._offsets + place)[0]
        return _inside(self._content, self._at + offset) if offset else 0


def _inside(content: bytes, at: int) -> int:
    if not 0 <= at <= len(content):
        raise ValueError("an offset points outside of the Arrow file")
    return at


def _indirect(content: bytes, at: int) -> int:
    """Return the position to which an offset points."""
    return _inside(content, at + struct.unpack_from("<I", content, _inside(content, at))[0])


_RAW = -1  # the size of a buffer that is not compressed after all
# types by their number in the union Type
_NULL, _INTEGER, _REAL, _BOOL = 1, 2, 3, 6
_OFFSET_BYTES = {4: 4, 5: 4, 12: 4, 19: 8, 20: 8, 21: 8}  # of bytes, texts and lists
_LISTS, _VIEWS = (12, 21), (23, 24)
_VIEW_BYTES = 16
_PHYSICAL = (b"u8", b"u16", b"u32")


def bytes_claimed(content: bytes) -> int:
    """Return the total size of the buffers of an Arrow file, as it claims. O(buffers).

    - Raises ValueError if it is not an Arrow file, if an offset points outside of it, or if a
      column has fewer or shorter buffers than its rows need, a type that no table of Nadi has, or
      the name of another.
    """
    columns, batches = read_metadata(content)
    if len({column.name for column in columns}) < len(columns):
        raise ValueError("two columns of the Arrow file have one name")
    values = {}  # of dictionaries, by id
    for column in _every(columns):
        _check_notes(column.notes)
        if column.index_bits:
            values[column.dictionary] = column._replace(index_bits=0)
    claimed = 0
    for batch in batches:
        sizes = [_size(content, batch, *buffer) for buffer in batch.buffers]
        claimed += sum(sizes)
        if batch.dictionary >= 0:
            if batch.dictionary not in values:
                raise ValueError("a dictionary belongs to no column")
            _Shapes(batch, sizes).check((values[batch.dictionary],))
        else:
            _Shapes(batch, sizes).check(columns)
    return claimed


def _every(columns: tuple[ArrowColumn, ...]) -> Iterator[ArrowColumn]:
    """Yield columns and those within them."""
    for column in columns:
        yield column
        yield from _every(column.children)


def _size(content: bytes, batch: Batch, at: int, size: int) -> int:
    """Return the size of a buffer after decompression, as it states."""
    if not batch.is_compressed or not size:
        return size
    if size < 8:
        raise ValueError("a buffer lies outside of the Arrow file")
    stated: int = struct.unpack_from("<q", content, at)[0]
    if stated == _RAW:
        return size - 8
    if stated < 0:
        raise ValueError("a buffer of the Arrow file has a negative size")
    return stated


class _Shapes:
    """Compares the buffers of a batch with what its columns need."""

    def __init__(self, batch: Batch, sizes: list[int]) -> None:
        self._batch = batch
        self._sizes = iter(sizes)
        self._arrays = iter(batch.arrays)
        self._num_extra = iter(batch.num_extra)

    def check(self, columns: tuple[ArrowColumn, ...]) -> None:
        """Raise ValueError if a column lacks rows, a buffer, or bytes of one."""
        if self._batch.num_rows < 0:
            raise ValueError("a batch of the Arrow file has a negative number of rows")
        for column in columns:
            self._check_array(column, self._batch.num_rows)
        rest = (self._sizes, self._arrays, self._num_extra)
        if any(next(one, None) is not None for one in rest):
            raise ValueError("a batch of the Arrow file has more than its columns")

    def _check_array(self, column: ArrowColumn, num_rows: int) -> None:
        """Check an array; ``num_rows`` is -1 where lists may have any number of values."""
        rows, nulls = next(self._arrays, (-1, -1))
        if (num_rows >= 0 and rows != num_rows) or not 0 <= nulls <= rows:
            raise ValueError("columns of the Arrow file differ in their number of rows")
        if column.type == _NULL and not column.index_bits:
            return  # without buffers
        self._check_buffer((rows + 7) // 8 if nulls else 0)
        if column.index_bits or column.type in (_INTEGER, _REAL):
            self._check_buffer(rows * _bits_of(column) // 8)
        elif column.type == _BOOL:
            self._check_buffer((rows + 7) // 8)
        elif column.type in _VIEWS:
            self._check_buffer(rows * _VIEW_BYTES)
            for _ in range(self._count_extra()):
                self._check_buffer(0)
        elif column.type in _OFFSET_BYTES:
            # without rows, the first offset may be left out too
            self._check_buffer((rows + 1) * _OFFSET_BYTES[column.type] if rows else 0)
            if column.type not in _LISTS:
                self._check_buffer(0)
            elif len(column.children) == 1:
                self._check_array(column.children[0], -1)
            else:
                raise ValueError("a list of the Arrow file has no values")
        else:
            raise ValueError("a column of the Arrow file has a type that Nadi does not write")

    def _check_buffer(self, needed: int) -> None:
        if next(self._sizes, -1) < needed:
            raise ValueError("a buffer of the Arrow file is shorter than its column")

    def _count_extra(self) -> int:
        count = next(self._num_extra, -1)
        if not 0 <= count <= len(self._batch.buffers):
            raise ValueError("the buffers of a column of the Arrow file are not counted")
        return count


def _bits_of(column: ArrowColumn) -> int:
    if not column.index_bits and column.type == _REAL:
        bits = {1: 32, 2: 64}.get(column.bits, 0)
    else:
        bits = column.index_bits or column.bits
    if bits not in (8, 16, 32, 64):
        raise ValueError("a column of the Arrow file has a type that Nadi does not write")
    return bits


def _check_notes(notes: tuple[tuple[bytes, bytes], ...]) -> None:
    """Raise ValueError if polars's own notes on a column do not have the form that it writes."""
    for key, value in notes:
        if key == b"_PL_ENUM_VALUES2":
            _check_counted(value, 1 << 32)
        elif key == b"_PL_CATEGORICAL2":
            name, space, physical, texts = [*value.split(b";", 3), b"", b"", b""][:4]
            lengths = [int(one) if one.isdigit() else -1 for one in (name, space)]
            if min(lengths) < 0 or sum(lengths) != len(texts) or physical not in _PHYSICAL:
                raise ValueError("the categories of a column are damaged")


def _check_counted(value: bytes, most: int) -> None:
    """Check texts that each follow their number of bytes and a semicolon."""
    while value:
        length, _, rest = value.partition(b";")
        if not length.isdigit() or not int(length) <= min(len(rest), most):
            raise ValueError("the categories of a column are damaged")
        rest[: int(length)].decode()
        value = rest[int(length) :]
