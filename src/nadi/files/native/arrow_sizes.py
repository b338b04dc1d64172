"""Check an Arrow file before polars reads it, and compute how much memory it needs.

polars allocates the size that a compressed buffer claims: if that exceeds the memory of the
machine, the process aborts. Where a buffer is shorter than its column it panics, which prints a
trace of its own code. This module therefore compares all sizes first, by the layouts of
https://arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from nadi.files.native.arrow import Batch, Column, read_metadata

__all__ = ["bytes_claimed"]

_RAW = -1  # the size of a buffer that is not compressed after all
# types by their number in the union Type
_NULL, _INTEGER, _REAL, _BOOL = 1, 2, 3, 6
_OFFSET_BYTES = {4: 4, 5: 4, 12: 4, 19: 8, 20: 8, 21: 8}  # of bytes, texts and lists
_LISTS, _VIEWS = (12, 21), (23, 24)
_VIEW_BYTES = 16
_PHYSICAL = (b"u8", b"u16", b"u32")


def bytes_claimed(content: bytes) -> int:
    """Return the total size of the buffers of an Arrow file, as it claims. O(buffers).

    Raises
    ------
    ValueError
        If it is not an Arrow file, if an offset points outside of it, or if a column has fewer
        or shorter buffers than its rows need, a type that no table of Nadi has, or the name of
        another.
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


def _every(columns: tuple[Column, ...]) -> Iterator[Column]:
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

    def check(self, columns: tuple[Column, ...]) -> None:
        """Raise ValueError if a column lacks rows, a buffer, or bytes of one."""
        if self._batch.num_rows < 0:
            raise ValueError("a batch of the Arrow file has a negative number of rows")
        for column in columns:
            self._check_array(column, self._batch.num_rows)
        rest = (self._sizes, self._arrays, self._num_extra)
        if any(next(one, None) is not None for one in rest):
            raise ValueError("a batch of the Arrow file has more than its columns")

    def _check_array(self, column: Column, num_rows: int) -> None:
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


def _bits_of(column: Column) -> int:
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
