"""Read files, plain or gzip, and write files atomically.

Locate files on this machine, or at an address such as s3://bucket/trace.et.
"""

from __future__ import annotations

import ctypes
import gc
import io
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import numpy as np
from isal import igzip, isal_zlib

from nadi import progress
from nadi.errors import FormatError, InputError, Parameter, UsageError
from nadi.forks import refuse_in_fork
from nadi.trace.arrays import Bytes
from nadi.trace.trace import Source
from nadi.units import format_bytes

if TYPE_CHECKING:
    import polars as pl


_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "http": "http", "https": "http"}


def locate(place: Path | str) -> Path:
    """Return a path that can be opened and listed, for a local path or an address.

    - Raises InputError if it is no text or empty, the protocol unknown, or the package that it
      needs not installed.
    """
    if place == "":  # which a Path would take for this folder: often a variable that is not set
        raise InputError("''", "is no path", "name a file or a folder")
    if not isinstance(place, str | os.PathLike) and not hasattr(place, "open"):
        what = f"it is of type {type(place).__name__}, neither a text nor a Path"
        raise InputError("path", what, "name a file or a folder")
    if isinstance(place, Path) or "://" not in str(place):
        path = Path(place)
        try:
            path.exists()
        except OSError as error:  # a name that is too long, or a folder that hides what it has
            raise InputError(str(path), f"cannot be read: {error.strerror}", "check it") from None
        return path
    protocol = str(place).partition("://")[0]
    try:
        if protocol in ("http", "https"):
            from nadi.files.web_paths import WebPath

            return cast("Path", WebPath(str(place)))
        from upath import UPath

        found = UPath(str(place))
        _ = found.fs  # imports the package that serves the protocol
    except ImportError as error:
        extra = _EXTRAS.get(protocol)
        remedy = f"pip install 'nadi[{extra}]'" if extra else str(error)
        raise InputError(str(place), f"{protocol}:// needs an optional package", remedy) from None
    except Exception as error:
        raise InputError(str(place), f"cannot be opened: {error}", "check the address") from None
    return cast("Path", found)


def is_local(path: Path) -> bool:
    """Return whether a path is on this machine's own file system."""
    return isinstance(path, Path)


def check_target(target: Path, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Check that an output file may be written, before it is computed from ``sources``.

    - Raises UsageError if it is one of the input files.
    - Raises InputError if it exists already and ``overwrite`` is not given, or cannot be written.
    """
    for source in sources:
        if target == source or (is_local(target) and target.exists() and source.exists()
                                and is_local(source) and target.samefile(source)):  # fmt: skip
            raise UsageError(
                str(target), "the output would replace an input file", "give another name"
            )
    if not overwrite and target.is_file():
        raise InputError(
            str(target), "exists already", ["give another name, or ", Parameter("overwrite", True)]
        )
    if is_local(target):
        check_writable(target)


_GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEAD_SIZE = 1 << 16
_MAX_RATIO = 200  # of content to gzip; traces have 20 to 40
_LIKELY_RATIO = 30
_MOST_AT_FIRST = 1 << 32  # bytes that are asked for before it is known how many there are
_MANY_OBJECTS = 100_000  # a collection of as many takes milliseconds
_WORTH_SPLITTING = 1 << 24  # reading it with two threads
_LINES_AT_ONCE = 100_000
_PIECE = 1 << 20  # of content at a time: one that stays in the processor's cache
_SMALLEST_LIMIT = 1 << 28
_LEVEL = 1  # of isal: three times as fast as the next, and a tenth larger
_LARGEST_SETTINGS = 1 << 26  # bytes of a file that says how something is set up
TEMPORARY = ".nadi-{}.part"  # hidden, and short: a name may be as long as a file system allows
_LEFT_BEHIND = 60  # seconds since the last byte; then nobody writes it, on another machine either
_SYSTEM = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # of a container
_AVAILABLE = re.compile(r"MemAvailable:\s+(\d+) kB")
# what opening and reading may raise; what serves addresses wraps its own errors in these
_FAILURES = (OSError, ImportError, ValueError, RuntimeError, NotImplementedError)


def read_head(path: Path, size: int = HEAD_SIZE) -> bytes:
    """Read the first ``size`` bytes of the content, decompressed if necessary."""
    refuse_in_fork()
    try:
        with _opened(path) as file:
            head = file.read(size)
    except _FAILURES as error:
        raise _unreadable(path, error) from None
    if not head.startswith(_GZIP_MAGIC):
        return head
    content = b""
    while head.startswith(_GZIP_MAGIC) and len(content) < size:  # it may have several members
        member = isal_zlib.decompressobj(wbits=31)
        try:
            content += member.decompress(head, size - len(content))
        except isal_zlib.error as error:  # type: ignore[misc]
            raise _broken_gzip(path, error) from None
        head = member.unused_data
    return content


@dataclass(frozen=True, eq=False)
class RawFile:
    """A file's decompressed content, and its description for errors and provenance."""

    name: str  # its path or address, as the user passed it
    # uint8, shape (bytes,): writable, because kernels would compile again for read-only arrays
    content: Bytes
    stored: Bytes  # uint8, shape (bytes,): the bytes as stored, compressed or not

    def with_content(self, content: bytes | bytearray) -> RawFile:
        """Return the file as if it held other bytes, which were made of its own."""
        owned = content if isinstance(content, bytearray) else bytearray(content)
        return replace(self, content=np.frombuffer(owned, dtype=np.uint8))

    def source(self, format_name: str) -> Source:
        """Return the file's entry in the provenance of a trace."""
        name = self.name.encode(errors="surrogateescape").decode(errors="replace")
        return Source.of(name, format_name, self.stored)


def read_file(path: Path) -> RawFile:
    """Read a whole file, decompressed if it is gzip.

    - Raises InputError if it cannot be read or is larger than the memory that is free, or its gzip
      data are broken or expand far more than a trace's.
    """
    try:
        _check_end(path)
        stored = _stored(path)
    except _FAILURES as error:
        raise _unreadable(path, error) from None
    is_gzip = stored[: len(_GZIP_MAGIC)].tobytes() == _GZIP_MAGIC
    content = _gunzip(path, stored.tobytes()) if is_gzip else stored
    if content[:3].tobytes() == BYTE_ORDER_MARK:
        content = content[3:]
    return RawFile(str(path), content, stored)


def read_pieces(path: Path, size: int) -> Iterator[Bytes]:
    """Read a file piece by piece, decompressed if it is gzip; never the whole file at once.

    - Yields: uint8: at most ``size`` bytes, in order; the caller owns them and may change them.
    - Raises InputError if it cannot be read, or its gzip data are broken.
    """
    try:
        _check_end(path)
        file = _opened(path)
    except _FAILURES as error:
        raise _unreadable(path, error) from None
    with file:
        try:
            is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            file.seek(0)
        except _FAILURES as error:
            raise _unreadable(path, error) from None
        done = 0
        with igzip.open(file) if is_gzip else nullcontext(file) as content:
            while True:
                piece = np.empty(size, dtype=np.uint8)
                try:
                    count = content.readinto(piece.data)
                except (EOFError, OSError, isal_zlib.error) as error:  # type: ignore[misc]
                    if is_gzip:
                        raise _broken_gzip(path, error) from None
                    raise _unreadable(path, error) from None
                if not count:
                    return
                done += count
                if is_gzip and done > largest_content(file.tell()):
                    raise _too_large(path)
                yield piece[:count]


def read_settings(path: Path, remedy: str = "check the path") -> bytes:
    """Read a configuration file, such as a system.

    - Raises InputError if it cannot be read, is not a regular file, or is over 64 MiB.
    """
    try:
        with _opened(path) as file:
            content = file.read(_LARGEST_SETTINGS + 1)
    except _FAILURES as error:
        raise _unreadable(path, error, remedy) from None
    if len(content) > _LARGEST_SETTINGS:
        raise InputError(str(path), "is over 64 MiB, too large for a configuration file", remedy)
    return content


def check_regular(path: Path) -> None:
    """Raise InputError for a pipe or device, which may never end; OSError if the path is missing.

    A folder passes: opening it raises a clearer error.
    """
    if is_local(path):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise InputError(str(path), "is not a regular file", "save its content to a file first")


def _opened(path: Path) -> io.BufferedIOBase:
    """Open a file to read it, as :func:`check_regular` allows."""
    check_regular(path)
    # reading what says that it is empty may wait for ever, as that of /proc/kmsg does
    is_empty = is_local(path) and path.is_file() and not path.stat().st_size
    return io.BytesIO() if is_empty else path.open("rb")


def _check_end(path: Path) -> None:
    """Raise FormatError for a large file that ends in zeros, as one that was never written whole.

    No format of traces does. Such a file claims any size without taking room on the disk.
    """
    check_regular(path)
    if is_local(path) and path.is_file() and path.stat().st_size > _WORTH_SPLITTING:
        with path.open("rb") as file:
            file.seek(-_PIECE, os.SEEK_END)
            if not any(file.read(_PIECE)):
                what = f"its last {format_bytes(_PIECE)} are zeros: it was not written to its end"
                raise FormatError(str(path), what, "copy or record the file again")


def _stored(path: Path) -> Bytes:
    # servers of the web have a limit of their own
    size = int(path.stat().st_size or 0) if hasattr(path, "stat") else 0
    # else Linux ends the process that uses it
    if size >= _WORTH_SPLITTING and size > (room := available_memory()):
        raise _too_large_for_memory(path, f"it has {format_bytes(size)}", room)
    if not is_local(path):
        return np.frombuffer(path.read_bytes(), dtype=np.uint8).copy()
    if size < _WORTH_SPLITTING:
        with _opened(path) as file:
            return np.frombuffer(bytearray(file.read()), dtype=np.uint8)
    with path.open("rb") as file:
        content = np.empty(size, dtype=np.uint8)
        middle = size // 2 // _PIECE * _PIECE
        # most of the time goes into page faults of the new memory
        with ThreadPoolExecutor(1) as executor:
            second = executor.submit(_read_into, file.fileno(), content, middle, size)
            end = _read_into(file.fileno(), content, 0, middle)
            if end == middle:
                end = second.result()
    return content[:end]


def _read_into(file: int, content: Bytes, at: int, stop: int) -> int:
    """Read a part of a file in place; return its end, before ``stop`` if the file is shorter."""
    while at < stop and (count := os.preadv(file, [content[at:stop].data], at)):
        at += count
    return at


def _gunzip(path: Path, stored: bytes) -> Bytes:
    """Decompress into an array that grows by doubling, up to the largest content of a trace."""
    largest, room = largest_content(len(stored)), available_memory()
    first = min(largest, room, _LIKELY_RATIO * len(stored), _MOST_AT_FIRST)
    content = np.empty(first + 1, dtype=np.uint8)
    filled = 0
    expected = int.from_bytes(
        stored[-4:], "little"
    )  # a gzip file ends with the size of its content
    try:
        with igzip.open(io.BytesIO(stored)) as file:
            while count := file.readinto(content[filled : filled + _PIECE]):
                filled += count
                progress.tell(filled, expected)
                if filled > largest:
                    raise _too_large(path)
                if filled > room:
                    what = f"its content has over {format_bytes(filled)}"
                    raise _too_large_for_memory(path, what, room)
                if filled == content.size:
                    content.resize(min(largest + 1, 2 * filled), refcheck=False)
    except (EOFError, OSError, isal_zlib.error) as error:  # type: ignore[misc]
        raise _broken_gzip(path, error) from None
    return content[:filled]


def largest_content(stored: int) -> int:
    """Return the largest content that a compressed file of a size may have, in bytes."""
    return max(_SMALLEST_LIMIT, _MAX_RATIO * stored)


def _too_large(path: Path) -> FormatError:
    return FormatError(
        str(path),
        f"its content is over {_MAX_RATIO} times its gzip size; for traces it is at most 100 times",
        "decompress the file first if its content is valid",
    )


def _too_large_for_memory(path: Path, what: str, room: int) -> InputError:
    return InputError(
        str(path),
        f"{what}, and {format_bytes(room)} of memory are free",
        "use a machine that has more memory; nadi analyze reads recordings larger than memory",
    )


def available_memory() -> int:
    """Return the bytes that are free or can be freed, at most those of the container.

    Where the system does not say, the memory that is installed.
    """
    free = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    if (found := _AVAILABLE.search(_text(_SYSTEM))) is not None:
        free.append(int(found[1]) * 1024)
    limit, used = (_text(_GROUP / f"memory.{name}").strip() for name in ("max", "current"))
    if limit.isdecimal() and used.isdecimal():
        free.append(max(int(limit) - int(used), 0))
    return min(free)


def free_memory() -> None:
    """Return free memory to the operating system; glibc would keep a tenth of the peak."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: decoding creates millions of objects, but no cycles.

    Collecting repeatedly would take as long as the decoding itself.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Python counts what is frozen one by one, which takes longer than to read a small file
            if gc.get_count()[0] > _MANY_OBJECTS and not gc.get_freeze_count():
                # all that was made is old now: the next collection, of what is young, is quick
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file, compressed if its name ends in .gz, replacing an existing file.

    - Raises InputError if it cannot be written.
    """
    with write_beside(path) as raw:
        compressed = path.name.endswith(".gz")
        with _compressing(raw) if compressed else nullcontext(raw) as file:
            done = 0
            for piece in pieces:
                file.write(piece)
                done += len(piece)
                progress.tell(done)


def _compressing(raw: IO[bytes]) -> igzip.IGzipFile:
    """Compress a stream without a timestamp, so that equal input gives equal bytes."""
    return igzip.IGzipFile("", "wb", _LEVEL, raw, mtime=0)


@contextmanager
def write_beside(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing that replaces ``path`` only when it is complete.

    The permissions of a file that is replaced stay. A device or a pipe is never replaced: the
    content is written into it when it is complete.

    - Raises InputError if it cannot be written, or is a socket or a disk.
    """
    if not is_local(path) or _is_special(path):
        if is_local(path):
            check_writable(path)
        with tempfile.TemporaryFile() as file:
            yield file
            _send(file, path)
        return
    check_writable(path)
    temporary = path.with_name(TEMPORARY.format(secrets.token_hex(8)))
    with unfinished(temporary):
        yield from _written_beside(path, temporary)


def _written_beside(path: Path, temporary: Path) -> Iterator[IO[bytes]]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_left_behind(path.absolute().parent)
        # which the system gives the permissions that the user's files have
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
    except OSError as error:
        raise unwritable(path, str(error.strerror)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            with suppress(OSError):  # where there are no locks, none is removed either
                _lock(handle)
            _take_over(path, handle)
            yield file
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, str(error.strerror or error)) from None
    finally:
        temporary.unlink(missing_ok=True)


_BINARY = getattr(os, "O_BINARY", 0)  # on Windows


_unfinished: dict[Path, None] = {}


@contextmanager
def unfinished(path: Path) -> Iterator[None]:
    """Note a temporary file or folder while it is written to."""
    _unfinished[path] = None
    try:
        yield
    finally:
        del _unfinished[path]


def remove_unfinished() -> None:
    """Remove what this process is writing, before it ends without a chance to do so itself."""
    for path in list(_unfinished):
        with suppress(OSError):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def _is_special(path: Path) -> bool:
    """Return whether something is at a path that is no file and no folder, also by a link."""
    try:
        mode = path.stat().st_mode
    except OSError:  # nothing is there
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _take_over(path: Path, handle: int) -> None:
    """Give a new file the permissions, and if possible the owner, of the one that it replaces."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        before, now = path.lstat(), os.fstat(handle)
        if stat.S_ISREG(before.st_mode):
            os.fchmod(handle, stat.S_IMODE(before.st_mode) & 0o777)
            if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
                os.fchown(handle, before.st_uid, before.st_gid)


@lru_cache(maxsize=64)  # once in a process: a job of many ranks is as many files in a folder
def remove_left_behind(folder: Path) -> None:
    """Remove temporary files and folders of writers that were killed."""
    for path in folder.glob(TEMPORARY.format("*")):
        with suppress(OSError):  # somebody else's, or removed by another process meanwhile
            if time.time() - path.stat().st_mtime <= _LEFT_BEHIND:
                continue
            if path.is_dir():
                with locked_folder(path):
                    shutil.rmtree(path)
                continue
            with path.open("r+b") as file:
                _lock(file.fileno())
                path.unlink()


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder of temporary files; OSError if another process writes to it."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def _lock(file: int) -> None:
    """Lock a file while it is open; OSError if another process holds the lock.

    Windows needs no lock, because it does not remove an open file.
    """
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _send(file: IO[bytes], path: Path) -> None:
    """Copy a file to a device, a pipe or an address, which shows it when the copy is complete."""
    file.seek(0)
    try:
        if not is_local(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as target:
            shutil.copyfileobj(file, target, _PIECE)
    except Exception as error:  # of many kinds: those of whatever serves the address
        raise unwritable(path, str(error)) from None


def check_new_file(path: Path, suffixes: Sequence[str], *, overwrite: bool) -> None:
    """Check that a file of one of several kinds can be written, before its content is computed.

    - Raises UsageError if its suffix is none of ``suffixes``.
    - Raises InputError if the file exists already and ``overwrite`` is not given, or cannot be
      written.
    """
    check_suffix(path, suffixes)
    check_target(path, [], overwrite=overwrite)


def check_suffix(path: Path, suffixes: Sequence[str]) -> None:
    """Raise UsageError if the suffix of a file, which says its kind, is none of ``suffixes``."""
    if path.suffix not in suffixes:
        what = f"{path.suffix or 'no suffix'} is not known"
        raise UsageError(str(path), what, f"use one of {', '.join(suffixes)}")


def check_writable(path: Path) -> None:
    """Raise InputError if a file at ``path`` cannot be created or replaced; creates nothing."""
    try:
        mode = path.stat().st_mode if path.exists() else 0
        nearest = next(parent for parent in path.absolute().parents if parent.exists())
    except OSError as error:
        raise unwritable(path, str(error.strerror)) from None
    if stat.S_ISDIR(mode):
        raise unwritable(path, "a folder has this name")
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
        raise unwritable(path, f"it is a {'socket' if stat.S_ISSOCK(mode) else 'disk'}")
    if mode and not stat.S_ISREG(mode):  # a device or a pipe, which is written into
        if not os.access(path, os.W_OK):
            raise unwritable(path, "no permission to write to it")
        return
    if not nearest.is_dir():
        raise unwritable(path, f"{nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise unwritable(path, f"no permission to write in {nearest}")


def unwritable(path: Path, reason: str) -> InputError:
    """Return the error about a file that cannot be written."""
    return InputError(str(path), f"cannot be written: {reason}", "choose another path")


def _unreadable(path: Path, error: Exception, remedy: str = "check the path") -> InputError:
    # errors of file systems behind addresses contain only the file name
    missing = "No such file or directory" if isinstance(error, FileNotFoundError) else error
    reason = getattr(error, "strerror", None) or missing
    return InputError(str(path), f"cannot be read: {reason}", remedy)


def _broken_gzip(path: Path, error: Exception) -> FormatError:
    return FormatError(
        str(path),
        f"gzip data is truncated or corrupt ({error})",
        "copy or record the file again",
    )


def line_pieces(lines: pl.Series) -> Iterator[bytes]:
    """Return lines of text, each with its line end, as bytes of many lines at a time."""
    for start in range(0, len(lines), _LINES_AT_ONCE):
        text = lines.slice(start, _LINES_AT_ONCE).str.join("\n").item()
        yield f"{text}\n".encode()
