"""Each number of each file that a command takes, in turn replaced by one that is hard to hold."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from tests.amounts import some
from tests.fuzz.commands import COMMANDS, run_line

_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_OTHERS = (
    b"-1", b"0", b"1e300", b"-1e300", b"1e-320", b"1e999", b"nan", b"NaN", b"-inf", b"Infinity",
    b"2147483648", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809",
    b"18446744073709551616", b"9" * 400,
)  # fmt: skip
_TEXT = (".json", ".toml", ".csv", ".txt", ".log", ".goal")
_FILES = [
    (name, file)
    for name, command in COMMANDS.items()
    for file in dict.fromkeys(command.damaged)
    if file.endswith(_TEXT)
]


@pytest.mark.parametrize(("name", "file"), _FILES)
def test_numbers_that_are_hard_to_hold(name: str, file: str, tmp_path: Path) -> None:
    command = COMMANDS[name]
    files = command.files()
    for other, content in files.items():
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_bytes(content)
    found = list(_NUMBER.finditer(files[file]))
    found = found[:: len(found) // 60 + 1]
    named = file.split("/")[0].removesuffix(".privacy.json")  # which is found beside another
    lines = itertools.cycle([line for line in command.lines if f"@{named}" in line])
    cases = itertools.product(found, _OTHERS)
    for number, (place, value) in enumerate(some(cases, of=48, first=_FILES.index((name, file)))):
        text = files[file]
        (tmp_path / file).write_bytes(text[: place.start()] + value + text[place.end() :])
        words = [word.replace("@", f"{tmp_path}/") for word in next(lines).split()]
        try:
            run_line(words)
        except BaseException as error:
            error.add_note(f"{number}: {value!r} at byte {place.start()} of {file}: {words}")
            raise
