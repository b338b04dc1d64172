"""Inputs that made an earlier version raise, hang or crash, through the command line."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nadi
from nadi.analyses.hta.hta_path import _short_name
from nadi.cli import main
from nadi.errors import FormatError, InputError
from nadi.files import files
from nadi.files.kineto import kineto_pieces
from nadi.files.settings_text import parse_settings
from nadi.files.switches import decode_switch_text
from nadi.systems.nccl.measured import parse_nccl_tests
from tests.conftest import NOT_HERE, SHARED
from tests.fuzz.commands import COMMANDS, run_line
from tests.fuzz.long import run_one

HOSTILE = SHARED / "hostile"
CALCULON = " ".join(f"{HOSTILE}/calculon_3003953/{name}.json" for name in ("app", "sys", "exe"))
LINES = [
    *(f"{command} {HOSTILE}/{folder}" for folder in (
        "job_20431", "job_600482", "misc_2085", "misc_600013", "analyze_2147")
      for command in ("run", "waits", "info", "analyze all", "analyze queue-series")),
    *(f"run {HOSTILE}/analyze_2147/device_{rank}.json" for rank in range(3)),
    f"simulate {HOSTILE}/et_3000122 --system dgx-h100",
    f"loggp {HOSTILE}/et_3000122 --latency 2us --overhead 1us --gap 0ns --gap-per-byte 6ns",
    f"collective all_reduce 1KiB..1GiB --system dgx-h100 --nccl-log {HOSTILE}/nccl_3015621/n.log",
    f"estimate {CALCULON}", f"estimate {CALCULON} --compat calculon",
    f"simulate {HOSTILE}/et_3000122 --system {HOSTILE}/F4_deep.yaml",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_hostile_files_end_in_one_line(line: str) -> None:
    if not HOSTILE.is_dir():
        pytest.skip(NOT_HERE)
    run_line(line.split())


def test_toml_with_keys_of_many_parts() -> None:
    for text in (b"[" + b"a." * 200_000 + b"a]", b"a" + b" . a" * 300 + b" = 1"):
        with pytest.raises(FormatError, match="nested too deeply"):
            parse_settings(text, ".toml", "deep.toml", "system")
    numbers = b"x = [" + b"0.1,0.25, " * 300 + b"]"
    assert len(parse_settings(numbers, ".toml", "numbers.toml", "system")["x"]) == 600


def test_toml_with_a_long_word() -> None:
    """A comment of a megabyte took hours: each of its letters was tried as the begin of a key."""
    for text in (b"a" * 1_000_000, b"a      " * 100_000, b"a.a.a.a. = " * 90_000):
        content = b"# " + text + b"\nx = 1"
        assert parse_settings(content, ".toml", "long.toml", "system") == {"x": 1}


_DIGITS = "1" * 200_000


@pytest.mark.parametrize(
    "name",
    [f"nn.Module: {_DIGITS}a", f"nn.Module: Linear_{_DIGITS}_", f"execute_context_1({_DIGITS}"],
    ids=["digits", "number", "serving"],
)
def test_names_that_are_long_numbers(name: str, tmp_path: Path) -> None:
    """The time grew with the square of their length: one name took minutes."""
    for file, content in COMMANDS["recording"].files().items():
        place = tmp_path / file
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content.replace(b"nn.Module: Linear_0", name.encode()))
    for line in ("run @ --by module", "report @ -o page.html", "info @"):
        job = str(next(tmp_path.iterdir()))
        assert run_line(line.replace("page", f"{tmp_path}/page").replace("@", job).split()) == 0


def test_a_log_of_nccl_tests_with_a_long_line() -> None:
    with pytest.raises(FormatError):
        parse_nccl_tests(b"#  Rank 1 " * 100_000, "long.txt")


@pytest.mark.parametrize(
    "text",
    [b"[" * 50_000, b"- " * 5_000, b"{a: " * 5_000, b"? " * 5_000,
     b"a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + b"".join(
         b"%c: &%c [%s]\n" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 10))
         for n in range(9))],
    ids=["brackets", "dashes", "braces", "keys", "aliases"],
)  # fmt: skip
def test_yaml_that_is_deep_or_becomes_large(text: bytes) -> None:
    with pytest.raises(FormatError, match=r"nested too deeply|values"):
        parse_settings(text, ".yaml", "f", "system")


def test_a_long_line_of_switches_is_read_once() -> None:
    """It took 38 seconds for 7 kB, and sixteen times as long for twice as much."""
    good = "a-1 [029] d..2. 353.580954: sched_waking: comm=b pid=2 prio=120 target_cpu=082\n"
    parts = ("prev_comm=a prev_pid=1 prev_state=S ", "comm=", "1.1: sched_switch: ", " ", "1", "[")
    for part in parts:
        long = f"p-1 [0] d..2. 1.5: sched_switch: {part * (1_000_000 // len(part))}\n"
        with pytest.raises(FormatError, match="fields that are not known"):
            decode_switch_text((good + long).encode())


def test_a_key_of_a_device_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("there is no such device")
    line = f"obfuscate {tmp_path} --key /dev/zero -o {tmp_path}/out"
    assert main(line.split()) == 2
    assert "nadi: " in capsys.readouterr().err


_BEGIN = b'{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1},'
_EVENTS = _BEGIN[:-1] + b"]}"
# by name: how each begins, so that it is taken for a trace and read
_SPARSE = {
    "a.json": _BEGIN, "a.json.gz": gzip.compress(_EVENTS, mtime=0), "a.et": b"\x02\x0a\x00",
    "b.json": b"", "b.json.gz": b"", "a.nadi": b"PK\x03\x04", "b.et": b"",
}  # fmt: skip
_READING = ("info @", "run @", "analyze all @ -o out", "convert @ out --to nadi", "link @ -o out",
            "simulate @ --system dgx-h100", "obfuscate @ --key key -o out")  # fmt: skip
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="files of POSIX systems")


def _refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each command refuses a place in one line, soon."""
    monkeypatch.chdir(place.parent)
    (place.parent / "key").write_bytes(bytes(64))
    for line in _READING:
        assert run_line(line.replace("@", str(place)).split()) == 2, line
    assert not (place.parent / "out").exists()


@posix_only
@pytest.mark.parametrize("name", _SPARSE)
@pytest.mark.parametrize("inside", [False, True], ids=["file", "folder"])
def test_a_file_that_claims_100_gb(
    name: str, inside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "job" / name
    place.parent.mkdir()
    with place.open("wb") as file:
        file.write(_SPARSE[name])
        file.truncate(100 << 30)
    _refused(place.parent if inside else place, monkeypatch)


def _looped(folder: Path) -> None:
    (folder / "a.json").symlink_to("b.json")
    (folder / "b.json").symlink_to("a.json")


def _with_itself(folder: Path) -> None:
    (folder / "a").symlink_to(".")
    (folder / "b").symlink_to("..")


def _endless(folder: Path) -> None:
    os.mkfifo(folder / "rank0.json")
    for number, target in enumerate(("/dev/zero", "/dev/stdin", "/proc/kmsg", "/proc/self/mem"), 1):
        (folder / f"rank{number}.json").symlink_to(target)


@posix_only
@pytest.mark.parametrize("fill", [_looped, _with_itself, _endless])
def test_folders_of_what_never_ends(
    fill: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc/kmsg says that it is an empty file, and waits for ever when it is read."""
    folder = tmp_path / "job"
    folder.mkdir()
    fill(folder)
    _refused(folder, monkeypatch)
    for path in sorted(folder.glob("*.json")):
        _refused(path, monkeypatch)


def test_a_file_is_not_read_that_is_larger_than_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(_EVENTS + b" " * (17 << 20))
    packed = tmp_path / "b.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    files.read_file(path)
    files.read_file(packed)
    monkeypatch.setattr(files, "available_memory", lambda: 16 << 20)
    with pytest.raises(InputError, match=r"it has 17\.\d+ MiB, and 16\.\d+ MiB of memory are free"):
        files.read_file(path)
    with pytest.raises(InputError, match=r"its content has over .* of memory are free"):
        files.read_file(packed)
    pytest.importorskip("upath")
    place = files.locate("memory:///large.json")  # as an object of a bucket
    place.write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=r"it has 17\.\d+ MiB, and 16\.\d+ MiB of memory are free"):
        files.read_file(place)


def test_a_list_of_files_with_odd_names(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(_EVENTS)
    for name in ("x" * 300, "a\0b", "../" * 2000 + "etc/passwd"):
        (tmp_path / ".nadi-files.json").write_text(json.dumps({"files": ["a.json", name]}))
        with pytest.raises(InputError, match="is incomplete"):
            nadi.recordings.read_job(tmp_path)


def test_names_with_many_brackets() -> None:
    """Each pair was removed by a pass over the whole name."""
    assert _short_name("<" * 200_000 + ">" * 200_000 + "void f<g<(1)>>(int (*)[2])") == "f"
    assert _short_name("a(b > c)d(e)") == "c)d"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_BEGIN + bytes(9_000) + b"]}", r"invalid character \(byte 84\)"),
        (_BEGIN + b'{"name":"' + b"a" * 9_000 + b'"}]}', "over 4.000 KiB"),
        (_EVENTS + b" " * 9_000, "over 4.000 KiB"),
        (_BEGIN + b" " * 9_000 + b'{"ph":"M"}]}', "over 4.000 KiB"),
    ],
    ids=["zeros", "a long event", "a long end", "blanks"],
)
def test_pieces_of_a_file_that_do_not_end(
    text: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it was put together in memory, again and again."""
    monkeypatch.setattr(kineto_pieces, "PIECE", 1 << 10)
    path = tmp_path / "a.json"
    path.write_bytes(text)
    if "over" in message:  # within the limit it is read
        assert sum(piece.num_events for piece in kineto_pieces.event_pieces(path, [])) >= 1
    monkeypatch.setattr(kineto_pieces, "_LONGEST", 1 << 12)
    with pytest.raises(FormatError, match=message):
        list(kineto_pieces.event_pieces(path, []))


def test_a_database_with_an_error_that_is_no_utf8(tmp_path: Path) -> None:
    """SQLite tells of a damaged declaration with its bytes, which Python could not decode."""
    assert not run_one("nsight:900000000082", tmp_path)
