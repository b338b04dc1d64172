"""Read pickles of plain values: dictionaries, lists, tuples, texts, numbers. Nothing else is made.

PyTorch writes memory snapshots and NCCL's flight recorder as pickles. A pickle can call any
function, and make Python take all memory by a list of any stated length. So all instructions are
looked at first, and a pickle is read only if each makes a plain value: by Python's own reader, or
to columns, without an object for each value.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nadi.errors import FormatError
from nadi.files import pickle_kernels as kernels
from nadi.files.files import available_memory
from nadi.files.json_file import Texts
from nadi.kernels.strings import intern_spans
from nadi.trace.arrays import Bools, Bytes, Ints, Ints32
from nadi.units import format_bytes

_NEWEST = 5
# the bytes that follow each instruction of a plain value; of what states its length, those of it
_ARGUMENTS = {
    b"\x80": 1, b"\x95": 8, b"}": 0, b"]": 0, b")": 0, b"(": 0, b"N": 0, b"\x88": 0, b"\x89": 0,
    b"\x94": 0, b"q": 1, b"r": 4, b"h": 1, b"j": 4, b"s": 0, b"u": 0, b"a": 0, b"e": 0, b"t": 0,
    b"\x85": 0, b"\x86": 0, b"\x87": 0, b"K": 1, b"M": 2, b"J": 4, b"G": 8,
}  # fmt: skip
_LENGTHS = {
    b"X": 4, b"\x8c": 1, b"\x8d": 8, b"U": 1, b"T": 4, b"C": 1, b"B": 4, b"\x8e": 8,
    b"\x8a": 1, b"\x8b": 4,
}  # fmt: skip
_REFUSED = -1
_BYTES_OF_VALUE = 72
_MOST_INSTRUCTIONS = 2**31 - 1  # as values have numbers of 32 bits
_KINDS = {
    b"}": kernels.DICTIONARY, b"]": kernels.LIST, b")": kernels.TUPLE, b"N": kernels.NONE,
    b"\x88": kernels.TRUE, b"\x89": kernels.FALSE, b"G": kernels.REAL,
    **dict.fromkeys((b"K", b"M", b"J", b"\x8a", b"\x8b"), kernels.INTEGER),
    **dict.fromkeys((b"X", b"\x8c", b"\x8d", b"U", b"T"), kernels.TEXT),
    **dict.fromkeys((b"C", b"B", b"\x8e"), kernels.OTHER),
    **dict.fromkeys((b"t", b"\x85", b"\x86", b"\x87"), kernels.TUPLE),
}  # fmt: skip
_PUT_INTO = {
    b"s": kernels.DICTIONARY, b"u": kernels.DICTIONARY, b"a": kernels.LIST, b"e": kernels.LIST,
}  # fmt: skip
# what instructions take from the stack: so many values, or -1: all since the latest mark
_TAKES = {
    b"t": -1, b"\x85": 1, b"\x86": 2, b"\x87": 3, b"s": 2, b"u": -1, b"a": 1, b"e": -1,
}  # fmt: skip
_BROKEN = (
    pickle.UnpicklingError, EOFError, IndexError, KeyError, TypeError, ValueError, AttributeError,
    OverflowError,
)  # fmt: skip


def _table(sizes: dict[bytes, int], otherwise: int) -> np.ndarray:
    table = np.full(256, otherwise, dtype=np.int64)
    for code, size in sizes.items():
        table[ord(code)] = size
    return table


_ARGUMENT_BYTES = _table(_ARGUMENTS | dict.fromkeys(_LENGTHS, 0), _REFUSED)
_LENGTH_BYTES = _table(_LENGTHS, 0)
_INSTRUCTIONS = kernels.Instructions(
    _ARGUMENT_BYTES, _LENGTH_BYTES,
    _table(_KINDS | {code: -2 - kind for code, kind in _PUT_INTO.items()}, -1),
    _table(_TAKES, -2),
)  # fmt: skip


class _Reader(pickle.Unpickler):
    """Python's reader, without classes: no pickle that was looked at names any."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def is_pickle(head: bytes) -> bool:
    """Return whether a file begins as a pickle of protocol 2 or newer does."""
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= _NEWEST


def read_plain(content: bytes, name: str) -> Any:
    """Read a pickle; ``name`` is the file's, for errors.

    - Returns: dict, list, tuple, str, bytes, int, float, bool, None. O(bytes).
    - Raises FormatError if the pickle is cut off or broken, or has anything but plain values; the
      error says at which byte. No object is made and nothing is called.
    """
    _look_at(np.frombuffer(content, dtype=np.uint8), name)
    try:
        return _Reader(io.BytesIO(content), encoding="utf-8", errors="replace").load()
    except _BROKEN:
        raise _broken(name, len(content)) from None


def _look_at(text: Bytes, name: str) -> int:
    """Return how many instructions a pickle has; raise FormatError as :func:`read_plain`."""
    count = np.zeros(1, dtype=np.int64)
    found = kernels.find_odd(text, _ARGUMENT_BYTES, _LENGTH_BYTES, count)
    at, is_refused = divmod(found, 2)
    if is_refused:
        code = text[at : at + 1].tobytes()
        what = f"the instruction {code!r} is none of a plain value"
        if code in (b"\x8a", b"\x8b"):
            what = "a number is longer than any counter, time or address"
        raise FormatError(
            f"{name}, byte {at}", what,
            "only plain values are read from a pickle, because others could run any program",
        )  # fmt: skip
    if at < text.size:
        raise _broken(name, at)
    # a byte may be a list, of 64 bytes
    if _BYTES_OF_VALUE * int(count[0]) > (room := available_memory() // 2):
        what = f"a pickle of {int(count[0]):,} instructions, too many for {format_bytes(room)}"
        remedy = "record for a shorter time, or use a machine that has more memory"
        raise FormatError(name, f"{what}, half of the memory that is free", remedy)
    return int(count[0])


def _broken(name: str, at: int) -> FormatError:
    return FormatError(
        f"{name}, byte {at}", "the pickle is broken or was cut off", "write it again"
    )


@dataclass(frozen=True, eq=False)
class PickledValues:
    """The values of a pickle as columns. A value is known by its number; -1 is none."""

    name: str  # the file's, for errors
    text: Bytes  # uint8, shape (bytes,)
    # int64, shape (values, 3): the kind of each, where its content begins, and an integer or the
    # bytes of a text
    values: Ints
    # int32, shape (pairs, 3): a dictionary, the number of a key or -1, and its value
    pairs: Ints32
    runs: Ints32  # int32, shape (runs, 2): a list, and how many of the items are in it
    items: Ints32  # int32, shape (items,): those of one run after the other
    keys: dict[str, int]  # numbers of texts that are keys
    whole: Ints  # int64, shape (1,): the value that has all others in it

    def __repr__(self) -> str:
        return f"<PickledValues of {self.name}: {len(self.values)}>"

    @classmethod
    def read(cls, text: Bytes, name: str) -> PickledValues:
        """Follow a pickle; raises FormatError as :func:`read_plain`. O(bytes)."""
        room = _look_at(text, name)
        if room > _MOST_INSTRUCTIONS:
            raise FormatError(
                name, f"a pickle of over {_MOST_INSTRUCTIONS:,} instructions",
                "record for a shorter time",
            )  # fmt: skip
        made = kernels.Followed(
            values=np.empty((room, 3), np.int64), pairs=np.empty((room, 3), np.int32),
            runs=np.empty((room, 2), np.int32), items=np.empty(room, np.int32),
            stack=np.empty(room, np.int32), kept=np.zeros(room + kernels.AHEAD + 1, np.int32),
            counts=np.zeros(5, np.int64),
        )  # fmt: skip
        broken = kernels.follow(text, _INSTRUCTIONS, made)
        if broken >= 0:
            raise _broken(name, broken)
        count = made.counts
        found = cls(
            name, text, made.values[: count[0]], made.pairs[: count[1]], made.runs[: count[2]],
            made.items[: count[3]], {}, count[4:],
        )  # fmt: skip
        number = np.zeros(count[0], dtype=np.int32)
        number[found.pairs[:, 1]] = 1
        key = np.flatnonzero((number > 0) & (found.values[:, 0] == kernels.TEXT))
        texts = found.texts(key)
        number[:] = -1
        number[key] = texts.codes
        found.pairs[:, 1] = number[found.pairs[:, 1]]
        found.keys.update(zip(texts.unique, range(len(texts.unique)), strict=True))
        return found

    def fields(self, holders: Ints | Ints32, *keys: str, needed: Sequence[str] = ()) -> Ints:
        """Return the values of some keys of dictionaries.

        - ``holders``: int64 or int32, shape (dictionaries,).
        - ``needed``: Those of the keys that every dictionary has.
        - Returns: int64, shape (keys, dictionaries), -1 where a dictionary has not the key.
        - Raises FormatError if one is no dictionary, or lacks a key that is needed.
        """
        self._check(holders, "a dictionary", kernels.DICTIONARY)
        column_of = np.full(len(self.keys) + 1, -1, dtype=np.int32)
        for column, key in enumerate(keys):
            column_of[self.keys.get(key, -1)] = column
        column_of[-1] = -1
        found = np.full((len(keys), holders.size), -1, dtype=np.int64)
        row_of = self._rows(holders)
        kernels.find_values(self.pairs, row_of, column_of, found)
        of_holders = found[:, row_of[holders]]
        for key in needed:
            lacks = np.flatnonzero(of_holders[keys.index(key)] < 0)
            if lacks.size:
                raise self._error(holders[lacks[0]], f"a dictionary with {key!r}")
        return of_holders

    def inside(self, holders: Ints | Ints32) -> tuple[Ints, Ints32]:
        """Return what is in some lists.

        - ``holders``: int64, shape (lists,), of which -1 has nothing in it.
        - Returns first: int64, shape (lists + 1,): where the items of each begin, and the end.
        - and item: int32, shape (items,): the values.
        - Raises FormatError if one is no list, or is given twice.
        """
        known = holders[holders >= 0]
        self._check(known, "a list", kernels.LIST, kernels.TUPLE)
        once, count = np.unique(known, return_counts=True)
        if once.size < known.size:
            raise self._error(once[np.argmax(count > 1)], "a list that belongs to one place")
        first, item = np.zeros(holders.size + 1, np.int64), np.empty(self.items.size, np.int32)
        kernels.find_items(self.runs, self.items, self._rows(holders), first, item)
        return first, item[: first[-1]]

    def integers(self, chosen: Ints, least: int, most: int) -> Ints:
        """Return integers, 0 for -1.

        - ``chosen``: int64, shape (rows,).
        - Returns: int64, shape (rows,).
        - Raises FormatError if a value is no integer from ``least`` to ``most``.
        """
        is_known = chosen >= 0
        expected = f"an integer from {least} to {most}"
        self._check(chosen[is_known], expected, kernels.INTEGER)
        number = np.where(is_known, self.values[chosen, 2], 0)
        if number.min(initial=least) < least or number.max(initial=most) > most:
            wrong = is_known & ((number < least) | (number > most))
            raise self._error(chosen[np.argmax(wrong)], expected)
        return number

    def texts(self, chosen: Ints) -> Texts:
        """Return texts; code -1 for -1.

        - ``chosen``: int64, shape (rows,).
        - Raises FormatError if a value is no text.
        """
        rows = np.flatnonzero(chosen >= 0)
        self._check(chosen[rows], "a text", kernels.TEXT)
        codes = np.full(chosen.size, -1, dtype=np.int32)
        _, at, length = self.values[chosen[rows]].T
        codes[rows], first = intern_spans(self.text, at, length)
        spans = zip(at[first].tolist(), length[first].tolist(), strict=True)
        unique = (self.text[a : a + n].tobytes().decode(errors="replace") for a, n in spans)
        return Texts(codes, tuple(unique))

    def are_true(self, chosen: Ints) -> Bools:
        """Return which values are True."""
        is_true: Bools = (chosen >= 0) & (self.values[chosen, 0] == kernels.TRUE)
        return is_true

    def _rows(self, chosen: Ints | Ints32) -> Ints32:
        row_of = np.full(len(self.values) + 1, -1, dtype=np.int32)
        row_of[chosen] = np.arange(chosen.size)
        row_of[-1] = -1
        return row_of

    def _check(self, chosen: Ints | Ints32, expected: str, *kinds: int) -> None:
        kind = self.values[chosen, 0]
        is_right = np.logical_or.reduce([kind == one for one in kinds])
        if not is_right.all():
            raise self._error(chosen[np.argmin(is_right)], expected)

    def _error(self, value: int, expected: str) -> FormatError:
        return FormatError(
            f"{self.name}, byte {self.values[value, 1]}", f"expected {expected}", "write it again"
        )
