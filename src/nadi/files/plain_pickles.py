"""Read pickles of plain values: dictionaries, lists, tuples, texts, numbers. Nothing else is made.

PyTorch writes memory snapshots and NCCL's flight recorder as pickles. A pickle can call any
function, so Python's own reader is not used: this one knows no instruction that names a class, and
keeps what was read before in a dictionary, because a list of any stated length can take all memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from nadi.errors import FormatError

_NEWEST = 5
_TEXT = frozenset((b"X", b"\x8c", b"\x8d", b"U", b"T"))
_LONGEST_NUMBER = 16  # bytes: more than any counter, time or address has
_LENGTHS = {
    b"X": 4, b"\x8c": 1, b"\x8d": 8, b"U": 1, b"T": 4, b"C": 1, b"B": 4, b"\x8e": 8,
    b"\x8a": 1, b"\x8b": 4,
}  # fmt: skip
_CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False, b")": ()}
_NUMBERS = {b"K": "<B", b"M": "<H", b"J": "<i", b"G": ">d"}


def is_pickle(head: bytes) -> bool:
    """Return whether a file begins as a pickle of protocol 2 or newer does."""
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= _NEWEST


def read_plain(content: bytes, name: str) -> Any:
    """Read a pickle; ``name`` is the file's, for errors.

    Returns
    -------
    object
        dict, list, tuple, str, bytes, int, float, bool, None.

    Raises
    ------
    FormatError
        If the pickle is cut off or broken, or has anything but plain values; the error says at
        which byte. No object is made and nothing is called.
    """
    reader = _Reader(content)
    try:
        return reader.read()
    except _RefusedError as error:
        raise FormatError(
            f"{name}, byte {reader.at - 1}", str(error),
            "only plain values are read from a pickle, because others could run any program",
        ) from None  # fmt: skip
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error):
        raise FormatError(
            f"{name}, byte {reader.at}", "the pickle is broken or was cut off", "write it again"
        ) from None


class _RefusedError(Exception):
    """An instruction that is not for plain values."""


class _Reader:
    """Where a pickle is read, what it has on its stack, and what it refers to again."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.steps: dict[int, Callable[[], None]] = {
            ord(code): step
            for code, step in (
                (b"\x80", self.skip(1)), (b"\x95", self.skip(8)),
                (b"}", lambda: self.stack.append({})), (b"]", lambda: self.stack.append([])),
                (b"(", lambda: self.marks.append(len(self.stack))),
                (b"\x94", self.memoize), (b"q", self.put(1)), (b"r", self.put(4)),
                (b"h", self.get(1)), (b"j", self.get(4)),
                (b"s", self.set_item), (b"u", self.set_items),
                (b"a", self.append), (b"e", self.extend), (b"t", self.marked_tuple),
                (b"\x85", self.tuple_of(1)), (b"\x86", self.tuple_of(2)),
                (b"\x87", self.tuple_of(3)),
            )
        }  # fmt: skip
        for code, value in _CONSTANTS.items():
            self.steps[ord(code)] = self.constant(value)
        for code, layout in _NUMBERS.items():
            self.steps[ord(code)] = self.number(layout)
        for code, size in _LENGTHS.items():
            self.steps[ord(code)] = self.span(code, size)

    def read(self) -> Any:
        content, steps = self.content, self.steps
        while (code := content[self.at]) != ord("."):
            self.at += 1
            step = steps.get(code)
            if step is None:
                raise _RefusedError(f"the instruction {bytes([code])!r} is none of a plain value")
            step()
        (value,) = self.stack
        return value

    def taken(self, size: int) -> bytes:
        """Return the next bytes."""
        begin = self.at
        self.at = end = begin + size
        if end > len(self.content):
            raise IndexError
        return self.content[begin:end]

    def skip(self, size: int) -> Callable[[], None]:
        def step() -> None:
            self.at += size

        return step

    def constant(self, value: Any) -> Callable[[], None]:
        return lambda: self.stack.append(value)

    def number(self, layout: str) -> Callable[[], None]:
        unpack, size = struct.Struct(layout).unpack_from, struct.calcsize(layout)

        def step() -> None:
            self.stack.append(unpack(self.content, self.at)[0])
            self.at += size

        return step

    def span(self, code: bytes, size: int) -> Callable[[], None]:
        """Return the step of what states its length: a text, bytes, or a long number."""
        is_text, is_number = code in _TEXT, code in (b"\x8a", b"\x8b")

        def step() -> None:
            length = int.from_bytes(self.taken(size), "little")
            if is_number and length > _LONGEST_NUMBER:
                raise _RefusedError(f"a number has {length} bytes")
            value = self.taken(length)
            if is_number:
                self.stack.append(int.from_bytes(value, "little", signed=True))
            else:
                self.stack.append(value.decode(errors="replace") if is_text else value)

        return step

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def put(self, size: int) -> Callable[[], None]:
        def step() -> None:
            self.memo[int.from_bytes(self.taken(size), "little")] = self.stack[-1]

        return step

    def get(self, size: int) -> Callable[[], None]:
        def step() -> None:
            self.stack.append(self.memo[int.from_bytes(self.taken(size), "little")])

        return step

    def since_mark(self) -> list[Any]:
        begin = self.marks.pop()
        values = self.stack[begin:]
        if begin > len(self.stack):
            raise IndexError
        del self.stack[begin:]
        return values

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _of_kind(self.stack[-1], dict)[key] = value

    def set_items(self) -> None:
        values = self.since_mark()
        pairs = zip(values[::2], values[1::2], strict=True)
        _of_kind(self.stack[-1], dict).update(pairs)

    def append(self) -> None:
        value = self.stack.pop()
        _of_kind(self.stack[-1], list).append(value)

    def extend(self) -> None:
        values = self.since_mark()
        _of_kind(self.stack[-1], list).extend(values)

    def marked_tuple(self) -> None:
        self.stack.append(tuple(self.since_mark()))

    def tuple_of(self, size: int) -> Callable[[], None]:
        def step() -> None:
            values = tuple(self.stack[-size:])
            if len(values) < size:
                raise IndexError
            self.stack[-size:] = [values]

        return step


def _of_kind(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value
