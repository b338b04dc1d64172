"""Answers of a server that breaks off, never ends or leads elsewhere end in one line."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nadi.cli import main
from nadi.files import web_paths
from tests.cli.test_run import assert_one_clear_line

TRACE = b'{"schemaVersion": 1, "traceEvents": []}'
PIECE = b" " * 65536


def _whole(send: Callable[[bytes], None], head: bytes, body: bytes = b"") -> None:
    send(b"HTTP/1.1 " + head + b"\r\nConnection: close\r\n\r\n" + body)


def _endless(send: Callable[[bytes], None], port: int) -> None:
    _whole(send, b"200 OK", TRACE[:-2])
    while True:  # until the reader hangs up
        send(PIECE)


ANSWERS: dict[str, tuple[Callable[[Callable[[bytes], None], int], None], str]] = {
    "truncated": (
        lambda send, port: _whole(send, b"200 OK\r\nContent-Length: 5000", TRACE), "of 5,000 bytes",
    ),
    "chunk": (
        lambda send, port: _whole(send, b"200 OK\r\nTransfer-Encoding: chunked", b"ff\r\nabc"),
        "cut off",
    ),
    "wrong chunk": (
        lambda send, port: _whole(send, b"200 OK\r\nTransfer-Encoding: chunked", b"zz\r\nabc"),
        "cut off",
    ),
    "error": (lambda send, port: _whole(send, b"500 Out of order"), "answers 500"),
    "missing": (lambda send, port: _whole(send, b"404 Not Found"), "No such file"),
    "no answer": (lambda send, port: None, "cannot be read"),
    "no http": (lambda send, port: send(b"\x00\xffhello\r\n\r\n"), "not valid"),
    "loop": (
        lambda send, port: _whole(
            send, f"302 Moved\r\nLocation: http://localhost:{port}/trace.json".encode()
        ),
        "answers 302",
    ),
    "to a file": (
        lambda send, port: _whole(send, b"302 Moved\r\nLocation: file:///etc/passwd"), "302",
    ),
    "endless": (_endless, "the most that is read"),
    "too large": (
        lambda send, port: _whole(send, b"200 OK\r\nContent-Length: 99999999999999"),
        "the most that is read",
    ),
}  # fmt: skip


def _serve(server: socket.socket, answer: Callable[[Callable[[bytes], None], int], None]) -> None:
    port = server.getsockname()[1]
    while True:
        try:
            client, _ = server.accept()
        except OSError:  # the test has ended
            return
        with client:
            try:
                client.recv(65536)
                answer(client.sendall, port)
            except OSError:
                continue


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Serve one kind of answer; gives the address of a trace."""
    monkeypatch.setattr(web_paths, "_LARGEST", 1 << 20)
    servers = []

    def serve(kind: str) -> str:
        server = socket.create_server(("localhost", 0))
        servers.append(server)
        answer = (ANSWERS | _SLOW)[kind][0]
        threading.Thread(target=_serve, args=(server, answer), daemon=True).start()
        return f"http://localhost:{server.getsockname()[1]}/trace.json"

    yield serve
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def _dripping(send: Callable[[bytes], None], port: int) -> None:
    """Send a byte again and again, of the head and of the body alike."""
    for byte in b"HTTP/1.1 200 OK\r\nX: " + b"a" * 9_000:
        send(bytes((byte,)))
        time.sleep(0.05)


def _slow(send: Callable[[bytes], None], port: int) -> None:
    """Send as much as is wanted in each stretch, for ever."""
    _whole(send, b"200 OK", TRACE[:-2])
    while True:
        send(PIECE)
        time.sleep(0.05)


def _leading_on(send: Callable[[bytes], None], port: int) -> None:
    """Send to another address after a while."""
    time.sleep(0.4)
    place = time.monotonic_ns()
    _whole(send, f"302 Moved\r\nLocation: http://localhost:{port}/{place}/trace.json".encode())


_SLOW: dict[str, tuple[Callable[[Callable[[bytes], None], int], None], str]] = {
    "dripping": (_dripping, "bytes in 1 s"),
    "slow": (_slow, "servers took over 2 s for all that is read"),
    "leading on": (_leading_on, "servers took over 2 s for all that is read"),
}


@pytest.mark.parametrize("kind", _SLOW)
def test_a_slow_server_is_not_waited_for(
    kind: str, served: Callable[[str], str], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A byte a second took ten minutes for each head, file and redirect."""
    monkeypatch.setattr(web_paths, "_STRETCH", 1.0)
    monkeypatch.setattr(web_paths, "_LONGEST", 2.0)
    monkeypatch.setattr(web_paths, "_LARGEST", 1 << 30)
    since = time.monotonic()
    code = main(["info", served(kind)])
    shown = capsys.readouterr()
    assert_one_clear_line(code, shown.out, shown.err, "trace.json", _SLOW[kind][1])
    assert time.monotonic() - since < 20


def test_files_of_a_folder_are_waited_for_together() -> None:
    """Each had the whole time for itself, and a page can name thousands."""
    folder = web_paths.WebPath("http://localhost:1/job/")
    one, other = folder / "a.json", folder / "b" / "c.json"
    assert one._patience is other._patience is other.parent._patience is folder._patience
    assert web_paths.WebPath(str(one))._patience is not one._patience


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_bad_answer_is_one_line(
    kind: str, served: Callable[[str], str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "out.json"
    code = main(["convert", served(kind), str(target)])
    shown = capsys.readouterr()
    assert_one_clear_line(code, shown.out, shown.err, "trace.json", ANSWERS[kind][1])
    assert not target.exists()
