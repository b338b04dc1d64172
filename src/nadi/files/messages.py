"""Protobuf's messages as columns: fields of many messages of a type at once.

A message is a span of a file's bytes. What it means is left to who asks, who knows the numbers of
the fields; those that are not asked for are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nadi.errors import FormatError
from nadi.files.message_kernels import find_inner, read_fields
from nadi.trace.arrays import Bools, Bytes, Ints

_ABSENT, _NUMBER = -2, -1
_LEAST_ROOM, _LIKELY_BYTES = 64, 16  # messages within others, and bytes of one, or more


class FieldValues(NamedTuple):
    """A field of messages; the last one counts where a message has several."""

    # int64, shape (messages,): the number, 64 bits of a fixed one too, or where the content begins;
    # -1 without the field
    value: Ints
    # int64, shape (messages,): where the content ends; -1 for a number, -2 without the field
    end: Ints

    def numbers(self, otherwise: int = -1) -> Ints:
        """Return the numbers; ``otherwise`` where there is none."""
        return np.where(self.end == _NUMBER, self.value, otherwise)

    def is_known(self) -> Bools:
        """Return which messages have the field."""
        return self.end != _ABSENT  # type: ignore[no-any-return]

    def spans(self) -> tuple[Ints, Ints]:
        """Return where contents begin, and their bytes; empty ones where there is none."""
        has = self.end >= 0
        return np.where(has, self.value, 0), np.where(has, self.end - self.value, 0)


@dataclass(frozen=True, eq=False)
class ProtobufMessages:
    """ProtobufMessages of one type in a file."""

    name: str  # the file's, for errors
    text: Bytes  # uint8, shape (bytes,)
    # at, end: int64, shape (messages,): where each begins and ends
    at: Ints
    end: Ints

    def __repr__(self) -> str:
        return f"<ProtobufMessages of {self.name}: {self.at.size}>"

    @classmethod
    def whole(cls, name: str, text: Bytes) -> ProtobufMessages:
        """Return a file as the one message that it is."""
        return cls(name, text, np.array([0]), np.array([text.size]))

    def rows(self, chosen: Ints | Bools | slice) -> ProtobufMessages:
        """Return some of the messages."""
        return ProtobufMessages(
            self.name, self.text, self.at[chosen].copy(), self.end[chosen].copy()
        )

    def fields(self, *numbers: int) -> list[FieldValues]:
        """Return some fields of all messages, each as columns.

        - Raises FormatError if a message is broken.
        """
        shape = (len(numbers), self.at.size)
        values, ends = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        row_of = np.full(max(numbers) + 1, -1, dtype=np.int64)
        row_of[list(numbers)] = np.arange(len(numbers))
        broken = read_fields(self.text, self.at, self.end, row_of, values, ends)
        if broken >= 0:
            raise self.error(broken)
        return [FieldValues(*columns) for columns in zip(values, ends, strict=True)]

    def inner(self, number: int) -> tuple[Ints, ProtobufMessages]:
        """Return the messages that a field holds, which may occur several times.

        - Returns owner: int64, shape (found,): the message that each is in, in order.
        - and found: The messages.
        - Raises FormatError if a message is broken.
        """
        # room that is not used takes no memory
        room = _LEAST_ROOM + int((self.end - self.at).sum()) // _LIKELY_BYTES
        while True:
            columns = [np.empty(room, dtype=np.int64) for _ in range(3)]
            count = find_inner(self.text, self.at, self.end, number, *columns)
            if count < 0:
                raise self.error(-1 - count)
            if count <= room:
                owner, at, end = (column[:count].copy() for column in columns)
                return owner, ProtobufMessages(self.name, self.text, at, end)
            room = count

    def inside(self, values: FieldValues) -> ProtobufMessages:
        """Return a field's contents as messages; empty ones where there is none."""
        at, length = values.spans()
        return ProtobufMessages(self.name, self.text, at, at + length)

    def texts(self, values: FieldValues) -> list[bytes]:
        """Return a field's contents; empty where there is none. For few messages."""
        spans = zip(*(part.tolist() for part in values.spans()), strict=True)
        return [self.text[at : at + length].tobytes() for at, length in spans]

    def error(self, at: int) -> FormatError:
        """Return the error that the message around a byte is broken."""
        return FormatError(
            f"{self.name}, byte {at:,}", "the protobuf message is broken or was cut off",
            "check whether the file was copied whole, or write it again",
        )  # fmt: skip


def plain_fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field of a message, one after the other in Python.

    Fixed numbers are given as their bytes.

    - Raises IndexError, ValueError if the message is cut off or broken.
    """
    at, size = 0, len(message)
    while at < size:
        key, at = plain_varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = plain_varint(message, at)
            yield key >> 3, value
            continue
        if wire == 2:
            length, at = plain_varint(message, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + length > size:
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[at : at + length]
        at += length


def plain_varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return a number without its sign, and where it ends; errors as :func:`plain_fields`."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
