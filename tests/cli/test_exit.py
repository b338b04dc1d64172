"""A process ends at once; not where somebody waits for its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import atexit, sys
atexit.register(print, "hook")
{prepare}
sys.argv = ["nadi", {argument!r}]
from nadi.cli import run
run()
"""


@pytest.mark.parametrize(
    ("prepare", "is_watched"),
    [
        ("", False),
        ("sys.setprofile(lambda *_: None)", True),
        ("sys.settrace(lambda *_: None)", True),
        ("import types; sys.modules['coverage'] = types.ModuleType('coverage')", True),
    ],
)
@pytest.mark.parametrize(("argument", "code"), [("--version", 0), ("--no-such-option", 2)])
def test_exit_hooks_run_where_a_profiler_is_on(prepare, is_watched, argument, code):
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(prepare=prepare, argument=argument)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert ("hook" in done.stdout) == is_watched
