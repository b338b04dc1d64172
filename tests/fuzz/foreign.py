"""Answers of hostile servers, and recordings whose calls nobody should make, as targets.

A server answers without a network: what it sends is where its socket would be.
"""

from __future__ import annotations

import importlib.util
import io
import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import nadi
from nadi.files import web_paths
from nadi.pytorch.rerunning.recorded_calls import RecordedCalls
from nadi.pytorch.rerunning.replay_plan import plan_replay
from tests.fuzz.commands import run_line
from tests.fuzz.corpus import samples
from tests.fuzz.mutations import changed_value, mutated
from tests.replay.foreign_traces import float_tensor, index_tensor, write_calls

__all__ = ["CALLS", "try_replay", "try_server"]

_HOST = "http://foreign.example"
_LARGEST = 1 << 20  # that is read of an answer here, instead of 2 GiB
_STATUS = (
    b"200 OK", b"200", b"206 Partial Content", b"204 No Content", b"301 Moved", b"302 Found",
    b"304 Not Modified", b"401 Who", b"404 Not Found", b"418 \x1b[2J\x07", b"500 Out", b"999 ?",
    b"-1 no", b"100 Continue", b"200 OK\r\n" + b"X: y\r\n" * 150, b"1e9 \xff",
)  # fmt: skip
_HEADERS = (
    b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 5",
    b"Content-Length: x", b"Content-Length: 5\r\nContent-Length: 7", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Content-Encoding: gzip", b"Location: /again",
    b"Location: file:///etc/passwd", b"Location: //[::1", b"Location: http://foreign.example:x/",
    b"Location: \x00\xff", b"Location: ftp://foreign.example/", b"Connection: close",
    b"Location: http://foreign.example/" + b"a" * 70_000, b": no name", b"\tfolded", b"X" * 70_000,
    b"Content-Type: text/html; charset=utf-7", b"Set-Cookie: " + b"a=b; " * 50,
)  # fmt: skip
_PAGE = b"".join(
    b'<a href="%s">x</a>' % link
    for link in (
        b"rank.0.et",
        b"../up.et",
        b"//other/x.et",
        b"/etc/passwd",
        b"a%00b.et",
        b"%",
        b"[",
    )
)


class _Endless(io.RawIOBase):
    """A body that goes on and on after what it begins with."""

    def __init__(self, begin: bytes) -> None:
        self._begin = io.BytesIO(begin)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._begin.read(len(buffer)) or b"1\r\n\r\n"[: len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


class _Socket:
    """What :mod:`http.client` uses of a socket whose peer has sent all that it ever will."""

    def __init__(self, answer: bytes, is_endless: bool) -> None:
        self._answer, self._is_endless = answer, is_endless

    def makefile(self, _mode: str, buffering: int = -1) -> Any:
        return _Endless(self._answer) if self._is_endless else io.BytesIO(self._answer)

    def sendall(self, *_: Any) -> None:
        pass

    settimeout = setsockopt = sendall

    def close(self) -> None:
        pass


def _answer(chance: random.Random) -> bytes:
    sample = samples()[chance.choice(sorted(samples()))].content
    body = chance.choice((sample, sample, _PAGE, b"", sample[:40]))
    headers = [b"Content-Length: %d" % len(body)]
    if chance.random() < 0.4:
        sizes = (b"%x" % len(body), b"ffffffffffffffffffff", b"-5", b"zz", b"1;" + b"x" * 70_000)
        headers = [b"Transfer-Encoding: chunked"]
        body = chance.choice(sizes) + b"\r\n" + body + b"\r\n0\r\n\r\n"
    if chance.random() < 0.3:
        return b"HTTP/1.1 200 OK\r\n" + headers[0] + b"\r\n\r\n" + body
    headers += chance.choices(_HEADERS, k=chance.choice((0, 0, 1, 1, 2, 4)))
    chance.shuffle(headers)
    status = chance.choice((_STATUS[0], _STATUS[0], chance.choice(_STATUS)))
    whole = b"HTTP/1.1 " + status + b"\r\n" + b"\r\n".join(headers) + b"\r\n\r\n" + body
    return mutated(whole, _PAGE, str(chance.random())) if chance.random() < 0.5 else whole


def try_server(seed: str, folder: Path) -> bool:
    """Read a file, or list a folder, of a server that may send anything, a few answers in turn."""
    chance = random.Random(seed)
    answers = [_answer(chance) for _ in range(chance.choice((1, 1, 2, 3)))]
    asked = [0]

    def connect(*_: Any, **__: Any) -> _Socket:
        asked[0] += 1
        assert asked[0] < 100, "it asks again and again"
        return _Socket(answers[asked[0] % len(answers)], chance.random() < 0.1)

    line = chance.choice((
        f"info {_HOST}/job/", f"info {_HOST}/rank.0.et", f"convert {_HOST}/a.json {folder}/a.nadi",
        f"info --check {_HOST}/", f"run {_HOST}/job/",
    ))  # fmt: skip
    with (
        mock.patch.object(web_paths, "_LARGEST", _LARGEST),
        mock.patch("socket.create_connection", connect),
    ):
        return run_line([*line.split(), *["--overwrite"] * line.startswith("convert")]) != 2


_MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
CALLS: tuple[Any, ...] = (
    (_MM, [float_tensor(1, 4, 4), float_tensor(2, 4, 4)], [float_tensor(3, 4, 4)]),
    ("aten::add_.Scalar(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)",
     [float_tensor(3, 4, 4), 2, 1], [float_tensor(3, 4, 4)]),
    (("aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool "
     "scale_grad_by_freq=False, bool sparse=False) -> Tensor"),
     [float_tensor(2, 4, 4), index_tensor(5, 3), -1, False, False], [float_tensor(6, 3, 4)]),
    ('aten::gelu(Tensor self, *, str approximate="none") -> Tensor', [float_tensor(6, 3, 4), "tanh"],
     [float_tensor(7, 3, 4)]),
    ("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", [float_tensor(7, 3, 4), [12]],
     [float_tensor(7, 12)]),
    ("aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
     [[float_tensor(7, 12), float_tensor(8, 4)], 0], [float_tensor(9, 16)]),
    ("aten::index_select(Tensor self, int dim, Tensor index) -> Tensor",
     [float_tensor(9, 16), 0, index_tensor(5, 3)], [float_tensor(10, 3)]),
)  # fmt: skip


@cache
def _recorded() -> tuple[dict[str, Any], bytes]:
    with tempfile.TemporaryDirectory() as own:
        folder = write_calls(Path(own), CALLS)
        host = json.loads((folder / "host_0.json").read_bytes())
        return host, (folder / "device_0.json").read_bytes()


def try_replay(seed: str, folder: Path) -> bool:
    """Plan the replay of calls of which some values have changed; make them, if torch is there."""
    chance = random.Random(seed)
    host, device = _recorded()
    for _ in range(chance.choice((1, 1, 2, 3))):
        place = chance.randrange(2, len(host["nodes"]))
        part = chance.choice(("inputs", "outputs", "inputs", "attrs"))
        changed = {**host["nodes"][place], part: changed_value(host["nodes"][place][part], chance)}
        nodes = [changed if k == place else one for k, one in enumerate(host["nodes"])]
        host = {**host, "nodes": nodes}
    with tempfile.TemporaryDirectory(dir=folder) as own:
        (Path(own) / "host_0.json").write_bytes(json.dumps(host).encode(errors="replace"))
        (Path(own) / "device_0.json").write_bytes(device)
        if importlib.util.find_spec("torch") and chance.random() < 0.2:
            return run_line(["rerun", own, "--repeats", "1"]) != 2
        try:
            recorded = RecordedCalls(nadi.load_job(own).traces[0])
            plan_replay(recorded.call(row) for row in recorded.outermost())
        except nadi.NadiError as error:
            assert str(error).isprintable(), error
            return False
    return True
