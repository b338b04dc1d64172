"""Files: their bytes, plain or gzip; writing all of a file or none."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from isal import igzip, isal_zlib

from nadi.errors import FormatError, InputError
from nadi.provenance import Source

__all__ = [
    "RawFile",
    "check_writable",
    "read_file",
    "read_head",
    "write_beside",
]

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD = 1 << 16
_MAX_RATIO = 200  # of content to gzip; traces have 20 to 40
_LIKELY_RATIO = 30
_PIECE = 1 << 20  # of content at a time: one that stays in the processor's cache
_SMALLEST_LIMIT = 1 << 28


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


@dataclass(frozen=True, eq=False)
class RawFile:
    """A file's content, decompressed, and what is said of it in errors and provenance.

    Attributes
    ----------
    name
        Its path or address, as the user gave it.
    content
        uint8, shape (bytes,): writable, because kernels compile anew for read-only arrays.
    stored_size
        Bytes as stored.
    stored_hash
        BLAKE2b-128 of the bytes as stored, on its way.
    """

    name: str
    content: npt.NDArray[np.uint8]
    stored_size: int
    stored_hash: Future[str]

    def source(self, format_name: str) -> Source:
        """Describe the file for the provenance of what is made from it."""
        name = self.name.encode(errors="surrogateescape").decode(errors="replace")
        return Source(name, format_name, self.stored_size, self.stored_hash.result())


def read_file(path: Path) -> RawFile:
    """Read a whole file, decompressed if it is gzip.

    Raises
    ------
    InputError
        If it cannot be read, or its gzip data are broken or far larger than a trace's.
    """
    try:
        stored = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise _unreadable(path, error) from None
    future: Future[str] = Future()
    # hashing takes as long as decoding; the other processor does it meanwhile
    threading.Thread(target=lambda: future.set_result(_hash(stored)), daemon=True).start()
    is_gzip = stored[: len(_GZIP_MAGIC)].tobytes() == _GZIP_MAGIC
    content = _gunzip(path, stored.tobytes()) if is_gzip else stored
    if content[:3].tobytes() == _BYTE_ORDER_MARK:
        content = content[3:]
    return RawFile(str(path), content, stored.size, future)


def _hash(stored: npt.NDArray[np.uint8]) -> str:
    return hashlib.blake2b(stored.data, digest_size=16).hexdigest()


def _gunzip(path: Path, stored: bytes) -> npt.NDArray[np.uint8]:
    """Decompress into an array that grows by doubling, up to what a trace may have."""
    largest = max(_SMALLEST_LIMIT, _MAX_RATIO * len(stored))
    content = np.empty(min(largest, _LIKELY_RATIO * len(stored)) + 1, dtype=np.uint8)
    filled = 0
    try:
        with igzip.open(io.BytesIO(stored)) as file:
            while count := file.readinto(content[filled : filled + _PIECE]):
                filled += count
                if filled > largest:
                    raise FormatError(
                        str(path),
                        f"its gzip content is over {_MAX_RATIO} times its size; traces are at "
                        "most 100 times",
                        "decompress it yourself if it is what you want",
                    )
                if filled == content.size:
                    content.resize(min(largest + 1, 2 * filled), refcheck=False)
    except (EOFError, OSError, isal_zlib.error) as error:  # type: ignore[misc]
        raise _broken_gzip(path, error) from None
    return content[:filled]


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
