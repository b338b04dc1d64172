"""Ctrl-C where Python swallows it or wraps it: the command ends as of one that came elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX systems")

# what a command meets while it runs: Python prints what a finalizer raises, and goes on; what
# __set_name__ raises comes out of the class as a RuntimeError (until Python 3.12)
_SWALLOWED = """
class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        for _ in range(100):  # the handler runs between two of these
            pass
def busy():
    one = Dying()
    del one
    print("went on")
"""
_WRAPPED = """
class Named:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)
def busy():
    type("Made", (), {"name": Named()})
    print("went on")
"""
_RUN = """
import os, signal, sys
from nadi.cli import run
import nadi.files.files as files
from pathlib import Path
{busy}
sys.argv = ["nadi", "systems"]
from nadi.systems import command as systems_command
place = Path({place!r})
def command():
    with files.write_beside(place) as file:
        file.write(b"half")
        busy()
systems_command.command = command
run()
"""


@posix_only
@pytest.mark.parametrize("busy", [_SWALLOWED, _WRAPPED], ids=["swallowed", "wrapped"])
def test_an_interruption_that_python_hides_ends_the_command(busy: str, tmp_path: Path) -> None:
    program = _RUN.format(busy=busy, place=str(tmp_path / "out"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.decode() == "nadi: interrupted\n"
    assert b"went on" not in done.stdout
    assert not list(tmp_path.iterdir())
