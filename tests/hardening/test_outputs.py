"""Where output goes: never in place of a device, whole or not at all, no formula in a table."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.cli import main
from nadi.errors import InputError
from nadi.files import files
from nadi.files.csv_tables import as_written, csv_bytes
from nadi.files.files import TEMPORARY, remove_unfinished, write_pieces
from nadi.files.whole_folders import FILE_LIST, missing_files, whole_folder
from nadi.pytorch.collecting.collected_runs import Collected
from nadi.pytorch.collecting.command import _say
from nadi.results.terminal.options import output_console
from nadi.results.text import to_json
from tests.conftest import DEMO
from tests.fuzz.commands import COMMANDS, run_line

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="POSIX has these")


@posix_only
def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "out.pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_pieces(pipe, [b"all of ", b"it"])
    reader.join(60)
    assert read == [b"all of it"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix_only
def test_a_device_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        write_pieces(device, [b"gone"])
    except (PermissionError, InputError):
        pytest.skip("this user, or this file system, may not have devices")
    assert stat.S_ISCHR(device.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["null"]


@posix_only
def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        with pytest.raises(InputError, match="it is a socket"):
            write_pieces(Path("s"), [b"x"])
    assert stat.S_ISSOCK(Path("s").stat().st_mode)


@posix_only
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_stay(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    path.chmod(mode)
    write_pieces(path, [b"new"])
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", mode)


def fill(folder: Path, names: str, *, overwrite: bool = False) -> None:
    with whole_folder(folder, overwrite=overwrite) as inside:
        for name in names.split():
            write_pieces(inside / name, [name.encode()])


def interrupted(folder: Path) -> None:
    with whole_folder(folder) as inside:
        write_pieces(inside / "a", [b"a"])
        raise KeyboardInterrupt


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    place = tmp_path / "job"
    with pytest.raises(KeyboardInterrupt):
        interrupted(place)
    assert not place.exists()
    fill(place, "a b")
    assert sorted(path.name for path in place.iterdir()) == [FILE_LIST, "a", "b"]
    with pytest.raises(InputError, match="exists already"):
        fill(place, "c b")
    assert not (place / "c").exists()
    fill(place, "c b", overwrite=True)
    assert missing_files(place) == []
    assert not list(place.glob(TEMPORARY.format("*")))


def test_an_error_names_the_place_and_not_where_it_is_written(tmp_path: Path) -> None:
    def full() -> Iterator[bytes]:
        yield b"a"
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(InputError, match=r"job/a: cannot be written: No space left"),
        whole_folder(tmp_path / "job") as inside,
    ):
        write_pieces(inside / "a", full())
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("moved", range(4))
def test_a_folder_whose_writer_was_killed_is_refused(
    moved: int, tmp_path: Path, demo_folder: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Killed between two moves, of the list or of a file: the folder is refused, or as it was."""
    place = tmp_path / "out"
    assert main(["convert", str(demo_folder), str(place), "--to", "nadi"]) == 0
    first = sorted(place.glob("[!.]*"))
    for path in first[moved:]:  # as it is after so many moves
        path.unlink()
    assert main(["info", "--check", str(place)]) == 2
    assert f"is incomplete: {first[moved].name}" in capsys.readouterr().err
    assert main(["simulate", str(place), "--system", "dgx-h100"]) == 2
    (place / FILE_LIST).unlink()
    if moved:
        assert main(["info", str(place)]) == 0  # the rest is meant


def test_a_partial_obfuscated_folder_is_refused(tmp_path: Path, demo_folder: Path) -> None:
    key, out = tmp_path / "key", tmp_path / "out"
    key.write_bytes(bytes(range(32)))
    done = nadi.obfuscate(demo_folder, key, "names")
    nadi.sharing.write_obfuscated(done, out)
    next(iter(sorted(out.glob("*.nadi")))).unlink()
    with pytest.raises(InputError, match="is incomplete"):
        nadi.sharing.reveal(demo_folder, key, out)


def test_what_is_unfinished_can_be_removed_at_any_moment(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        remove_unfinished()
        assert not list(tmp_path.iterdir())

    with pytest.raises(InputError):
        write_pieces(tmp_path / "a", pieces())
    assert not files._unfinished


_BUSY = """
import os, sys, time
sys.argv = ["nadi", "systems"]
import nadi.cli
from nadi.files.files import write_beside
from pathlib import Path
def busy(**_):
    import ctypes
    with write_beside(Path({place!r})):
        os.write(1, b"here")
        getattr(ctypes.CDLL(None), "sleep")(50)  # as a kernel: other threads run, signals wait
        getattr(ctypes.CDLL(None), "sleep")(50)
class Command:
    def __call__(self, **_): busy()
nadi.cli._command = lambda _: Command()
nadi.cli.run()
"""


@posix_only
def test_compiled_code_that_runs_long_is_interrupted(tmp_path: Path) -> None:
    program = _BUSY.replace("{place!r}", repr(str(tmp_path / "a.json")))
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.read(4) == b"here"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (130, b"nadi: interrupted\n")
    assert not list(tmp_path.iterdir())


NAMES = [
    "=1+1",
    "+a",
    "-x",
    "@y",
    "\tz",
    "'=q",
    "''@",
    "-1",
    "+2.5e3",
    "-0.5",
    "a=b",
    "",
    "-",
    "'a",
    "\uff1d1+1",
    "\uff20y",
]


def test_cells_are_no_formulas(tmp_path: Path) -> None:
    written = csv_bytes(pl.DataFrame({"name": NAMES, "n": range(len(NAMES))})).decode()
    (tmp_path / "a.csv").write_text(written)
    with (tmp_path / "a.csv").open(newline="") as file:
        cells = [row["name"] for row in csv.DictReader(file)]
    for cell, name in zip(cells, NAMES, strict=True):
        is_number = name in ("-1", "+2.5e3", "-0.5")
        assert is_number or cell[:1] not in ("=", "+", "-", "@", "\t", "\uff1d", "\uff20")
        assert not is_number or cell == name
    back = pl.DataFrame({"name": cells}).select(as_written(pl.col("name")))["name"].to_list()
    assert back == NAMES
    assert b"\x1b" not in csv_bytes(pl.DataFrame({"name": ["a\x1b[2J", "\x00"]}))


_TURNED = "safe\u202eexe.txt\u2066 a\u200fb\u061c"
_OPENED = ("analyze all @ -o @/made", "waits @ -o @/waits.html", "report @ -o @/page.html",
           "draw graph @ -o @/graph.dot", "draw graph @ -o @/graph.graphml")  # fmt: skip


def _texts_of(folder: Path) -> Iterator[str]:
    """Give the texts of files, and what is packed in pages."""
    for path in folder.rglob("*"):
        if path.suffix in (".html", ".csv", ".svg", ".dot", ".graphml"):
            text = path.read_text()
            yield text
            for packed in re.findall(r">(H4sI[\w+/=]+)<", text):
                yield gzip.decompress(base64.b64decode(packed)).decode(errors="replace")


@pytest.mark.parametrize("line", _OPENED)
def test_names_do_not_turn_the_text_that_others_open(line: str, tmp_path: Path) -> None:
    """``charts.html`` had U+202E of a name, after which a browser shows a text backwards."""
    for name, content in COMMANDS["recording"].files().items():
        if name.startswith("job/"):
            place = tmp_path / name.removeprefix("job/")
            place.write_text(content.decode().replace("aten::mm", _TURNED).replace("gemm", _TURNED))
    before = {path.name for path in tmp_path.iterdir()}
    assert run_line([word.replace("@", str(tmp_path)) for word in line.split()]) == 0
    assert before < {path.name for path in tmp_path.iterdir()}
    texts = list(_texts_of(tmp_path))
    said = any("safe\ufffdexe" in text or "safe\\u202eexe" in text for text in texts)
    assert said or not line.startswith(("analyze", "report"))  # others have few names, shortened
    assert not [text for text in texts if re.search("[\u202e\u2066\u200f\u061c]", text)]


def test_tables_of_a_trace_have_none(tmp_path: Path) -> None:
    with nadi.JobBuilder(world_size=1) as job:
        job.ranks[0].compute("=cmd|' /C calc'!A0", duration="1 ms")
    nadi.write(job.job.traces[0], tmp_path / "a.csv")
    assert "'=cmd" in (tmp_path / "a.nodes.csv").read_text()


# a title, a color, two commands of one character, a text from right to left, and markup
COMMANDS_OF_TERMINALS = "\x1b]0;t\x07\x1b[31m\x9b2J\x7f\u202e\u2028 [red][/nothing]\n\r\u2067"


def _named_by_others(value: Any) -> Any:
    """Put commands of terminals into each text that names something."""
    if isinstance(value, dict):
        named = {key: _named_by_others(inner) for key, inner in value.items()}
        names = ("name", "Process Group Name", "Process Group Description", "Collective name")
        return named | {
            key: named[key] + COMMANDS_OF_TERMINALS
            for key in names
            if isinstance(named.get(key), str) and value.get("ph") != "M"
        }
    return [_named_by_others(one) for one in value] if isinstance(value, list) else value


LINES = [
    "info @", "run @", "waits @", "analyze all @", "critical-path @", "what-if @ no-gaps",
    "simulate @ --system dgx-h100", "similarity @ @", "check @ @ --budget 'step 3%'",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("option", ["", "--json"])
def test_names_are_no_commands_of_a_terminal(line: str, option: str, tmp_path: Path) -> None:
    """``nadi info`` printed the names of groups as they were, and JSON commands of one character."""
    for name, content in COMMANDS["recording"].files().items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps(_named_by_others(json.loads(content))))
    job = str(next(tmp_path.iterdir()))
    words = [*shlex.split(line), *shlex.split(option)]
    assert run_line([word.replace("@", job) for word in words]) in (0, 1)


@posix_only
def test_names_of_files_are_no_commands_of_a_terminal(tmp_path: Path) -> None:
    """``nadi info --check`` printed them as they were."""
    job = tmp_path / f"job{COMMANDS_OF_TERMINALS.replace('/', '')}"
    shutil.copytree(DEMO, job)
    for line in (
        "validate @",
        "info @",
        "run @",
        "waits @",
        "link @ -o @/linked",
        "fold @ -o @.nadi",
    ):
        assert run_line([word.replace("@", str(job)) for word in line.split()]) in (0, 1), line
    assert run_line(["info", "--check", str(job / "nothing")]) == 2


def test_what_is_printed_is_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = COMMANDS_OF_TERMINALS
    output_console().print(f"wrote {text}", markup=False)
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.split("\n"))
    assert "\\x1b]0;t" in printed
    written = to_json({text: "\u00e9\u00a0"})
    assert all(line.isprintable() for line in written.decode().replace("\u00a0", "").split("\n"))
    assert json.loads(written) == {text: "\u00e9\u00a0"}


def test_a_printed_command_runs_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    """The folder of a recording stood unquoted in a line to copy."""
    _say(Collected(Path("a b; $(touch x)"), 0, ("rank0.json",), (0,), steps_by="the optimizer"))
    line = capsys.readouterr().err.split("analyse it: ")[1].splitlines()[0]
    assert shlex.split(line) == ["nadi", "run", "a b; $(touch x)"]
