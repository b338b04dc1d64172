"""Inputs that made an earlier version raise, hang or crash, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from nadi.cli import main
from nadi.errors import FormatError
from nadi.files.settings_text import parse_settings
from nadi.files.switches import decode_switch_text
from tests.conftest import NOT_HERE, SHARED
from tests.fuzz.commands import run_line

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
