"""Files behind http:// and https:// addresses, of servers that nobody vouches for.

A download has a largest size and a longest time, and says why it ended; a folder is an address that
ends with a slash, so that no file is read through to see whether it lists others.
"""

from __future__ import annotations

import http.client
import io
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urljoin, urlsplit

from nadi.errors import InputError

_LARGEST = 1 << 31  # bytes
_LONGEST = 600.0  # seconds of waiting for all that is read of an address and those below it
_MISSING = 404
_STRETCH = 20.0  # seconds of waiting, in which at least so many bytes have to come:
_LEAST = 1 << 14
_LARGEST_PAGE = 1 << 20  # bytes of a folder's page
_LINK = re.compile(r"""href=["']([^"'?#]{1,500})["']""")


class _Patience:
    """How long servers are waited for: in all, for every file, redirect and head; and at once.

    Only what is waited counts, and not what is done with the bytes meanwhile.
    """

    def __init__(self) -> None:
        self.waited = 0.0  # seconds
        self._stretch, self._bytes = 0.0, 0

    def begin(self) -> None:
        """Note that another answer begins."""
        self._stretch, self._bytes = 0.0, 0

    def wait(self, seconds: float) -> None:
        """Note that a server was waited for; raises OSError if that was too long in all."""
        self.waited += seconds
        if self.waited > _LONGEST:
            raise OSError(f"servers took over {_LONGEST:.0f} s for all that is read: download it")

    def receive(self, seconds: float, count: int) -> None:
        """Note that bytes came; raises OSError if there are too few of them in a stretch."""
        self.wait(seconds)
        self._stretch += seconds
        self._bytes += count
        if self._stretch > _STRETCH:
            if self._bytes < _LEAST:
                raise OSError(f"the server sent {self._bytes} bytes in {self._stretch:.0f} s")
            self.begin()


class _Arriving(io.RawIOBase):
    """The bytes of an answer as they arrive, its head too."""

    def __init__(self, raw: Any, patience: _Patience) -> None:
        super().__init__()
        self._raw = raw
        self._patience = patience
        patience.begin()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        since = time.monotonic()
        count = int(self._raw.readinto(buffer))
        self._patience.receive(time.monotonic() - since, count)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: Any, *arguments: Any, patience: _Patience, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Arriving(sock.makefile("rb", buffering=0), patience))


def _connection(kind: Any, patience: _Patience, *arguments: Any, **options: Any) -> Any:
    made = kind(*arguments, **options)
    made.response_class = partial(_Answer, patience=patience)
    return made


class _Opener(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Open addresses of both kinds; what connecting takes counts as waiting, too."""

    def __init__(self, patience: _Patience) -> None:
        super().__init__()
        self._patience = patience

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self._answered(http.client.HTTPConnection, request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self._answered(http.client.HTTPSConnection, request)

    def _answered(self, kind: Any, request: urllib.request.Request) -> http.client.HTTPResponse:
        since, before = time.monotonic(), self._patience.waited
        try:
            return self.do_open(partial(_connection, kind, self._patience), request)
        finally:  # also where nobody answers
            counted = self._patience.waited - before
            self._patience.wait(max(time.monotonic() - since - counted, 0.0))


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow to another address; what comes with the answer may be endless, and is not read."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        fp.close()
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


_HANDLERS = (
    urllib.request.ProxyHandler, _Redirects, urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
)  # fmt: skip


class WebPath:
    """An address that is opened within limits, with what of a ``Path`` readers use."""

    def __init__(self, address: str, patience: _Patience | None = None) -> None:
        self._address = address
        self._parts = urlsplit(address)
        self._patience = patience or _Patience()  # that of the address which was named

    def __str__(self) -> str:
        return self._address

    def __repr__(self) -> str:
        return f"WebPath({self._address!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WebPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self._address)

    def __lt__(self, other: WebPath) -> bool:
        return self._address < other._address

    def __truediv__(self, name: str) -> WebPath:
        folder = self._parts.path.rstrip("/")
        return self._beside(self._parts._replace(path=f"{folder}/{quote(name)}").geturl())

    def _beside(self, address: str) -> WebPath:
        return WebPath(address, self._patience)

    @property
    def _path(self) -> PurePosixPath:
        return PurePosixPath(unquote(self._parts.path) or "/")

    @property
    def name(self) -> str:
        """The last part."""
        return self._path.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self._path.stem

    @property
    def suffix(self) -> str:
        """The suffix of the last part."""
        return self._path.suffix

    @property
    def parent(self) -> WebPath:
        """The folder that it is in."""
        path = quote(str(self._path.parent)).rstrip("/")
        return self._beside(self._parts._replace(path=f"{path}/", query="").geturl())

    def with_name(self, name: str) -> WebPath:
        """Return the address of another file of the same folder."""
        return self.parent / name

    def is_dir(self) -> bool:
        """Return whether it is a folder: its address ends with a slash."""
        return self._parts.path.endswith("/") or not self._parts.path

    def exists(self) -> bool:
        """Return whether the server has something there."""
        try:
            with self.open("rb"):
                return True
        except OSError:
            return False

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return not self.is_dir() and self.exists()

    def iterdir(self) -> Iterator[WebPath]:
        """Give the files that the page of a folder links to.

        - Raises InputError if the server gives no page.
        """
        try:
            with self.open("rb") as page:
                links = _LINK.findall(page.read(_LARGEST_PAGE).decode(errors="replace"))
        except OSError as error:
            what = f"cannot be read: {error}"
            raise InputError(self._address, what, "check the address") from None
        folder = f"{self._address.rstrip('/')}/"
        for address in dict.fromkeys(urljoin(folder, link) for link in links):
            if address.startswith(folder) and "/" not in address[len(folder) :]:
                yield self._beside(address)

    def read_bytes(self) -> bytes:
        """Download all of it."""
        with self.open("rb") as file:
            return file.read()

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open it for reading bytes; servers take no files.

        - Raises OSError if the server does not answer, or with an error, or writing is asked for.
        """
        if mode != "rb":
            raise OSError("addresses of servers can only be read")
        return io.BufferedReader(_Download(self._address, self._patience))


class _Download(io.RawIOBase):
    """The body of an answer; going back to its start asks again."""

    def __init__(self, address: str, patience: _Patience) -> None:
        super().__init__()
        self._address = address
        self._patience = patience
        self._begin()

    def _begin(self) -> None:
        opener = urllib.request.OpenerDirector()
        for handler in (*(kind() for kind in _HANDLERS), _Opener(self._patience)):
            opener.add_handler(handler)
        self._at = 0
        try:
            self._answer = opener.open(self._address, timeout=_STRETCH)
        except urllib.error.HTTPError as error:
            error.close()  # it holds the connection
            if error.code == _MISSING:
                raise FileNotFoundError(self._address) from None
            reason = str(error.msg).partition("\n")[0]
            raise OSError(f"the server answers {error.code}: {reason}") from None
        except TimeoutError:
            raise OSError(f"the server sent nothing for {_STRETCH:.0f} s") from None
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"the server's answer is not valid ({error!r})") from None
        self._size: int | None = self._answer.length
        if self._size is not None and self._size > _LARGEST:
            raise OSError(_too_large())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        target = offset if whence == 0 else self._at + offset
        if whence == 2 or target not in (0, self._at):
            raise io.UnsupportedOperation("a download cannot go there")
        if target != self._at:
            self._answer.close()
            self._begin()
        return self._at

    def readinto(self, buffer: Any) -> int:
        try:
            piece = self._answer.read1(len(buffer))
        except TimeoutError:
            raise OSError(f"the server sent nothing for {_STRETCH:.0f} s") from None
        except (http.client.HTTPException, ValueError, OverflowError) as error:
            raise OSError(f"the answer is cut off ({error!r})") from None
        count = len(piece)
        if count > len(buffer):  # of a chunk with a negative size all is read
            raise OSError("the answer is cut off (a chunk has no size)")
        buffer[:count] = piece
        self._at += count
        if not count and self._size is not None and self._at < self._size:
            raise OSError(f"the answer ends after {self._at:,} of {self._size:,} bytes")
        if self._at > _LARGEST:
            raise OSError(_too_large())
        return int(count)

    def close(self) -> None:
        if not self.closed and hasattr(self, "_answer"):  # else no server answered
            self._answer.close()
        super().close()


def _too_large() -> str:
    return (
        f"it has over {_LARGEST >> 30} GiB, the most that is read from a server: download it first"
    )
