"""A share of what ``tests/fuzz/long.py`` tries besides reading: each is refused in one line."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from nadi.errors import NadiError
from tests.amounts import examples
from tests.fuzz import long
from tests.fuzz.commands import COMMANDS, run_line
from tests.fuzz.further_commands import FURTHER_COMMANDS
from tests.fuzz.guided import KEPT
from tests.fuzz.long import run_one
from tests.fuzz.readers import READERS
from tests.fuzz.targets import TARGETS
from tests.hardening.test_whole_or_nothing import commands, outputs

_COMMANDS = COMMANDS | FURTHER_COMMANDS
# of a second or so each
_INPUTS = {
    "nadi-system": 400, "astra-sim-system": 400, "own-file": 100, "networkx": 500, "feeder": 250,
    "what-if": 500, "hta": 100, "fabrics": 400, "server": 600, "replay": 150, **dict.fromkeys(_COMMANDS, 72),
    **dict.fromkeys(READERS, 2_400), "read-parquet": 400,  # each in a process of its own
}  # fmt: skip
_FEW = 30  # inputs
# what was met in long runs and ended in something else than one line
_MET = (
    "own-file:96", "own-file:942", "own-file:988", "own-file:100026938", "nadi-system:1308",
    "own-file:330", "own-file:504", "own-file:763", "own-file:953", "jobs:9531042",
    "machines:9542533", "resumed:33000068", "predictions:33000705", "read-dump:32001027",
    "read-dump:32002728", "read-dump:921819", "read-dump:922749",
    "read-parquet:204",
)  # fmt: skip


@pytest.mark.parametrize("seed", _MET)
def test_what_was_met_before(seed: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_one(seed, tmp_path)
    assert "panicked" not in capfd.readouterr().err


def test_a_replay_without_room_is_refused() -> None:
    """An operator fails, and what stands in for its output does not fit into 6 GiB either."""
    pytest.importorskip("torch")
    words = [sys.executable, long.__file__, "0", "replay:9530079"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    taken, count = 0, examples(_INPUTS[name])
    for number in range(count):
        seed = f"{name}:{number}"
        try:
            taken += run_one(seed, tmp_path)
        except BaseException as error:
            error.add_note(f"to see it again: python tests/fuzz/long.py 0 {seed}")
            raise
    assert "panicked" not in capfd.readouterr().err  # which compiled libraries print themselves
    # else it is not tried what it is meant to, which few inputs cannot show; of commands that is
    # known by another test
    assert name in _COMMANDS or count < _FEW or 0 < taken < count


@pytest.mark.parametrize("name", _COMMANDS)
def test_commands_take_the_files_before_damage(name: str, tmp_path: Path) -> None:
    command = _COMMANDS[name]
    for file, content in command.files().items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    lines = (shlex.split(line.replace("@", f"{tmp_path}/")) for line in command.lines)
    assert any(run_line(words) != 2 for words in lines)


# what a value of an option or argument is that names no file, as its help says; and what no target
# takes: programs of the user's own, shipped models, a page that Nadi only hands on
_PLAIN = {
    "N", "X", "E", "K|all", "N|all", "N|N:M", "N:M", "ROWS", "RANKS", "all|0,5", "EDGES", "ID|RANK:ID", "LIST",
    "NAME", "[NAME]", "NAMES", "REGEX", "TEXT", "TYPE", "WHAT", "KIND", "HOW", "TENSORS", "LEVEL",
    "SIZE", "SIZE:SKEW", "RANK", "RATE", "TIME", "TIME|RATE", "TOKENS", "SAMPLES", "MIB", "VALUES", "FREQUENCY", "VERSION", "FORMAT",
    "SIMULATOR", "OPERATOR", "COLLECTIVE", "CHANGE", "[CHANGE]...", "EXPR", "FROM:TO", "0..3", "module",
    "BUDGET", "FIELD=VALUES", "FIELD=VALUE,...", "PARAMETER=VALUE", "NAME=VALUE", "cpu|cuda", "none|gloo|nccl", "nadi|hta",
    "-- PROGRAM...", "processes[:N]|dask://HOST:PORT|MODULE:NAME",
}  # fmt: skip
_ELSEWHERE = {("rerun", "traces")}  # by a target of its own
# whose values are mostly names of what ships with Nadi, but may be files
_NAMES_OR_FILES = {
    ("memory plan", "model"), ("memory plan", "system"), ("synthesize", "device"),
    ("systems", "name"),
}  # fmt: skip


def test_each_file_that_a_command_takes_has_a_target() -> None:
    found = dict(commands())
    tried = set()
    for command in _COMMANDS.values():
        for line in command.lines:
            name = next(one for one in found if f"{line} ".startswith(f"{one} "))
            words = shlex.split(line.removeprefix(name))
            given = found[name].make_context(name, words, resilient_parsing=True).params
            tried |= {(name, key) for key, value in given.items() if "@" in str(value)}
    named = {
        (name, str(one.name))
        for name, command in found.items()
        for one in command.params
        if one.metavar is not None and one.metavar not in _PLAIN
    }
    assert (named | _NAMES_OR_FILES) - outputs() - _ELSEWHERE <= tried


@pytest.mark.parametrize("name", READERS)
def test_what_a_guided_run_kept(name: str) -> None:
    for path in sorted((KEPT / name).glob("*")):
        with suppress(NadiError):
            READERS[name].read(path.read_bytes())
