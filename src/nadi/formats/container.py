"""Files: their bytes, plain or gzip; JSON into typed structs; writing all of a file or none."""

from __future__ import annotations

import gc
import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

import msgspec
from isal import igzip, isal_zlib

from nadi.errors import FormatError, InputError
from nadi.provenance import Source

__all__ = [
    "check_writable",
    "decode_json",
    "describe_source",
    "garbage_collection_paused",
    "read_bytes",
    "read_head",
    "write_beside",
]

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD = 1 << 16
_MAX_RATIO = 200  # of content to gzip; traces have 20 to 40
_SMALLEST_LIMIT = 1 << 28
_Struct = TypeVar("_Struct")


def read_head(path: Path, size: int = _HEAD) -> bytes:
    """Read the first ``size`` bytes of the content, decompressed if need be."""
    try:
        with path.open("rb") as file:
            head = file.read(size)
    except OSError as error:
        raise _unreadable(path, error) from None
    if not head.startswith(_GZIP_MAGIC):
        return head
    try:
        content = isal_zlib.decompressobj(wbits=31).decompress(head, size)
    except isal_zlib.error as error:  # type: ignore[misc]
        raise _broken_gzip(path, error) from None
    return bytes(content)


def read_bytes(path: Path) -> tuple[bytes, bytes]:
    """Read a whole file.

    Returns
    -------
    stored, content
        The bytes as stored, and decompressed if they are gzip.
    """
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None
    if not stored.startswith(_GZIP_MAGIC):
        return stored, stored.removeprefix(_BYTE_ORDER_MARK)
    largest = max(_SMALLEST_LIMIT, _MAX_RATIO * len(stored))
    try:
        with igzip.open(io.BytesIO(stored)) as file:
            content = file.read(largest + 1)
    except (EOFError, OSError, isal_zlib.error) as error:  # type: ignore[misc]
        raise _broken_gzip(path, error) from None
    if len(content) > largest:
        raise FormatError(
            str(path),
            f"its gzip content is over {_MAX_RATIO} times its size; traces are at most 100 times",
            "decompress it yourself if it is what you want",
        )
    return stored, content.removeprefix(_BYTE_ORDER_MARK)


def describe_source(path: Path, stored: bytes, format_name: str) -> Source:
    """Describe an input file for the provenance of what is made from it."""
    digest = hashlib.blake2b(stored, digest_size=16).hexdigest()
    name = str(path).encode(errors="surrogateescape").decode(errors="replace")
    return Source(name, format_name, len(stored), digest)


def decode_json(path: Path, content: bytes, decoder: msgspec.json.Decoder[_Struct]) -> _Struct:
    """Decode JSON into the decoder's struct.

    Raises
    ------
    FormatError
        With the file, and the byte or the JSON path at fault.
    """
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        what, remedy = _lower_first(str(error)), "PyTorch does not write this: record it again"
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            what = f"the JSON ends too early, after {len(content):,} bytes"
        else:
            what = f"not valid JSON: {_lower_first(str(error))}"
        remedy = "the recording was cut off or damaged: record it again"
    except UnicodeDecodeError:
        what = f"not valid UTF-8: byte {_first_bad_byte(content):,}"
        remedy = "the recording was damaged: record it again"
    except RecursionError:
        what, remedy = "nested too deeply to be a trace", "record it again"
    raise FormatError(str(path), what, remedy)


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the cyclic collector: decoding makes millions of objects, and no cycles.

    Looking through them all again and again takes as long as the decoding itself.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def write_beside(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write that takes the place of ``path`` only when all of it is written."""
    check_writable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, str(error.strerror)) from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, str(error.strerror or error)) from None
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise InputError if a file at ``path`` cannot be made or replaced; makes nothing."""
    try:
        taken = path.is_dir()
        nearest = next(parent for parent in path.absolute().parents if parent.exists())
    except OSError as error:
        raise _unwritable(path, str(error.strerror)) from None
    if taken:
        raise _unwritable(path, "there is a folder of this name")
    if not nearest.is_dir():
        raise _unwritable(path, f"{nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise _unwritable(path, f"no permission to write in {nearest}")


def _unwritable(path: Path, reason: str) -> InputError:
    return InputError(str(path), f"cannot be written: {reason}", "give another place")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(str(path), f"cannot be read: {error.strerror or error}", "check the path")


def _broken_gzip(path: Path, error: Exception) -> FormatError:
    return FormatError(
        str(path),
        f"gzip data is truncated or corrupt ({error})",
        "copy or record the file again",
    )


def _first_bad_byte(content: bytes) -> int:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(content)


def _lower_first(text: str) -> str:
    """Write a sentence without its capital, but not an abbreviation."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
