"""Commands print what is kept of them: ``python tests/keep_outputs.py`` writes it anew."""

from __future__ import annotations

import pytest

from tests.hardening.test_whole_or_nothing import commands
from tests.keep_outputs import FOLDER, NOT_KEPT, lines, outputs


@pytest.mark.usefixtures("demo_read_once")
def test_commands_print_what_is_kept() -> None:
    """One test, as lines use files of those before them; it names all files that differ."""
    found = dict(outputs())
    kept = {file.name: file.read_text() for file in FOLDER.iterdir() if file.name != "lines.txt"}
    differ = sorted(name for name in found.keys() | kept if found.get(name) != kept.get(name))
    printed = {name: found.get(name, "").splitlines() for name in differ}
    before = {name: kept.get(name, "").splitlines() for name in differ}
    assert printed == before, "python tests/keep_outputs.py, then look at git diff"


def test_each_command_is_kept() -> None:
    kept = {" ".join(given) for given, _ in lines().values()} | set(NOT_KEPT)
    for name in dict(commands()):
        assert any(f"{line} ".startswith(f"{name} ") for line in kept), name
