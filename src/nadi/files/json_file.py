"""Shared by JSON readers: the outermost object, errors, lists and text tables."""

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.kernels import json_tokens
from nadi.kernels.json_tokens import failure_of, read_key, skip
from nadi.kernels.strings import intern_spans
from nadi.trace.arrays import Bytes, Ints, Ints32
from nadi.units import lowered

_Value = TypeVar("_Value")
_DAMAGED = "the file is cut off or damaged: record the trace again"
_UNLIKE_PYTORCH = "record the trace again"
_INVALID = {
    json_tokens.BAD_CHARACTER: "invalid character",
    json_tokens.BAD_NUMBER: "invalid number",
    json_tokens.BAD_ESCAPE: "invalid escape in a string",
}
_BOUNDARY = rb'\}\s*(?P<comma>,)\s*\{\s*"(?:%s)"\s*:'
_WORTH_SPLITTING = 1 << 22
_WINDOW = 1 << 20
_TYPE_NAMES = {
    ord("{"): "object", ord("["): "array", ord('"'): "str", ord("t"): "bool", ord("f"): "bool",
    ord("n"): "null",
}  # fmt: skip


class Span(NamedTuple):
    """A range of bytes of a file: begin and exclusive end."""

    at: int
    end: int


def json_error(raw: RawFile, code: int, at: int) -> FormatError:
    """Return the error for a failure of :mod:`nadi.kernels.json_tokens`."""
    if code == json_tokens.TRUNCATED:
        what = f"the JSON ends too early, after {raw.content.size:,} bytes"
    elif code == json_tokens.BAD_UTF8:
        return FormatError(
            raw.name, f"not valid UTF-8: byte {at:,}", "the file is damaged: record the trace again"
        )
    elif code == json_tokens.TOO_DEEP:
        return FormatError(raw.name, "nested too deeply to be a trace", "record the trace again")
    else:
        what = f"not valid JSON: {_INVALID[code]} (byte {at:,})"
    return FormatError(raw.name, what, _DAMAGED)


def type_error(raw: RawFile, at: int, expected: str, path: str) -> FormatError:
    """Return the error for a value at a JSON path that is of another type, or not valid JSON."""
    if (end := skip(raw.content, at)) < 0:
        return json_error(raw, *failure_of(end))
    first = int(raw.content[at])
    if first in _TYPE_NAMES:
        got = _TYPE_NAMES[first]
    else:
        number = raw.content[at:end].tobytes()
        got = "int" if number.lstrip(b"-").isdigit() else "float"
    return FormatError(raw.name, f"expected {expected}, got `{got}` - at {path}", _UNLIKE_PYTORCH)


def doubled(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of an array with twice its length."""
    larger = np.empty((2 * len(array), *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


class ListReader(Protocol):
    """Reads the objects of a list, from ``at`` on."""

    at: int

    def read(self, stop: int) -> bool:
        """Read objects that begin before ``stop``; return False if one is broken."""

    def error(self) -> FormatError:
        """Return the error that stopped the reading."""


_Reader = TypeVar("_Reader", bound=ListReader)


def read_list(
    text: Bytes,
    begin: int,
    make: Callable[[int, int, bool], _Reader],
    first_keys: bytes,
) -> list[_Reader]:
    """Read a list of objects; a long list in two threads.

    The boundary between the halves is a guess, because only reading from the start shows what
    is inside a string. The second half counts only if the first half ends exactly there.

    - ``text``, ``begin``: The text, and the position of the opening bracket of the list.
    - ``make``: Creates a reader, from its begin, the number of bytes to read, and whether it begins
      after the opening bracket and not before a comma.
    - ``first_keys``: Keys with which objects of the list may begin, but no nested object, as
      ``id|name``.
    - Returns: One reader, or two consecutive ones; the last ends at the closing bracket.
    - Raises FormatError: For the first broken object.
    """
    size = text.size - begin
    boundary = _likely_boundary(text, begin, first_keys) if size > _WORTH_SPLITTING else -1
    reader = make(begin + 1, size if boundary < 0 else size // 2, True)
    if boundary >= 0:
        second = make(boundary, size // 2, False)
        with ThreadPoolExecutor(1) as executor:
            is_read = executor.submit(second.read, text.size)
            if not reader.read(boundary + 1):
                raise reader.error()
        between = text[reader.at : boundary].tobytes()
        if is_read.result() and reader.at <= boundary and not between.strip():
            return [reader, second]
    if not reader.read(text.size):
        raise reader.error()
    return [reader]


def _likely_boundary(text: Bytes, begin: int, first_keys: bytes) -> int:
    """Guess a comma between two objects in the middle; -1 if none is found."""
    middle = (begin + text.size) // 2
    found = re.search(_BOUNDARY % first_keys, text[middle : middle + _WINDOW].data)
    return middle + found.start("comma") if found else -1


def walk_members(
    raw: RawFile, readers: Mapping[str, Callable[[int], int]]
) -> list[tuple[str, Span]]:
    """Visit the members of the outermost object, once and in order.

    - ``readers``: Per key, the function that reads its value: it takes the byte where the value
      begins and returns the byte after it. Other values are skipped.
    - Returns: Key and span of every value that no reader read.
    - Raises FormatError if the outermost value is not an object, or not valid JSON.
    """
    found: list[tuple[str, Span]] = []

    def read(key: str, begin: int) -> int:
        if key in readers:
            return readers[key](begin)
        end = value_end(raw, begin)
        found.append((key, Span(begin, end)))
        return end

    read_members(raw, read)
    return found


def read_members(raw: RawFile, read: Callable[[str, int], int]) -> None:
    """Call ``read`` for every member of the outermost object, in order.

    - ``read``: Takes a key and the byte where its value begins; returns the byte after the value.
    - Raises FormatError if the outermost value is not an object, or not valid JSON.
    """
    text = raw.content
    key_span = np.empty(2, dtype=np.int64)
    at = skip_blanks(text, 0)
    if text[at : at + 1].tobytes() != b"{":
        code = json_tokens.TRUNCATED if at == text.size else json_tokens.BAD_CHARACTER
        raise json_error(raw, code, at)
    at += 1
    is_first = True
    while True:
        begin = _checked(raw, read_key(text, at, is_first, key_span))
        if key_span[0] < 0:
            break
        at = read(text_of(text[key_span[0] : key_span[1]].tobytes()), begin)
        is_first = False
    end = skip_blanks(text, begin + 1)
    if end < text.size:
        raise json_error(raw, json_tokens.BAD_CHARACTER, end)


def value_end(raw: RawFile, begin: int) -> int:
    """Return the byte after a value; raises FormatError if it is not valid JSON."""
    return _checked(raw, skip(raw.content, begin))


def _checked(raw: RawFile, result: int) -> int:
    if result < 0:
        raise json_error(raw, *failure_of(result))
    return result


def skip_blanks(text: Bytes, at: int) -> int:
    """Return the next byte that is not white space."""
    while at < text.size and text[at] in b" \t\n\r":
        at += 1
    return at


def text_of(content: bytes) -> str:
    """Decode the bytes of a JSON string that the kernels found valid."""
    if b"\\" in content:
        return msgspec.json.decode(b'"' + content + b'"', type=str)
    return content.decode()


def unescaped_text(content: bytes) -> str:
    """Return a JSON string in quotes but without escapes, and any other value unchanged."""
    inside = content[1:-1]
    return f'"{text_of(inside)}"' if content.startswith(b'"') else content.decode()


def decode_span(
    raw: RawFile, span: Span, decoder: msgspec.json.Decoder[_Value], path: str
) -> _Value:
    """Decode a value that the kernels found to be valid JSON.

    - Raises FormatError if it does not have the decoder's type; the error states its JSON path,
      after ``path``.
    """
    try:
        return decoder.decode(raw.content[span.at : span.end].data)
    except RecursionError:
        raise json_error(raw, json_tokens.TOO_DEEP, span.at) from None
    except msgspec.MsgspecError as error:
        what = lowered(str(error))
        what = what.replace("`$", path).rstrip("`") if "`$" in what else f"{what} - at {path}"
        raise FormatError(raw.name, what, _UNLIKE_PYTORCH) from None


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts with few distinct values: int32 codes, shape (rows,), and each text once."""

    codes: Ints32
    unique: tuple[str, ...]

    def series(self) -> pl.Series:
        """Return the texts as a series that stores each once; null where the code is -1."""
        codes = np.where(self.codes < 0, len(self.unique), self.codes)
        return _once(self.unique)[pl.Series(codes.astype(np.uint32))]

    def numbers(self, number_of: Callable[[str], int]) -> Ints:
        """Return the number of each row's text, with one lookup per distinct text."""
        return np.array([number_of(text) for text in self.unique], dtype=np.int64)[self.codes]


@lru_cache(64)
def _once(texts: tuple[str, ...]) -> pl.Series:
    """Return texts as a column, and null after them; the files of a job have the same names."""
    return pl.Series((*texts, None), dtype=pl.String)


def find_texts(
    raw: RawFile, at: Ints, length: Ints, read: Callable[[bytes], str] = text_of
) -> Texts:
    """Read the texts of spans, each distinct text once.

    - ``at``, ``length``: int64, shape (rows,): begin and length of the spans.
    - ``read``: Returns the text of a span; by default decodes the inside of a JSON string.
    """
    codes, first = intern_spans(raw.content, at, length)
    spans = zip(at[first].tolist(), length[first].tolist(), strict=True)
    return Texts(codes, tuple(read(raw.content[a : a + n].tobytes()) for a, n in spans))
