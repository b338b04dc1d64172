"""Writing commands on a disk that is full: whole or nothing, one error, exit code 2.

Each command of ``tests/hardening/writers.py`` writes to a file system of 2 MB in memory, on which
there is no room, or for a half of what it writes. It is mounted in a namespace of its own, so that
nothing of it stays; where that is not allowed, one line says that nothing was tried.
``python verification/full_disk.py [NAME...]``.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

from _report import Checks

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from nadi.cli import main
from tests.conftest import DEMO
from tests.hardening.writers import (
    BY_OTHERS,
    NOTHING,
    WHOLE,
    WRITERS,
    left,
    prepare,
    sizes_of,
    words_of,
)

_INSIDE = "NADI_FULL_DISK"  # set in the namespace, to the place of the file system
_SIZE = 2 << 20
_BLOCK = 4096
_CONTINUED = {"search"}  # what is there is used by the next run
_KEEPING = {*_CONTINUED, "resumed"}  # so is what is hidden
_SEVERAL = {"cases"}  # each job is whole or nothing by itself
_LINES = WRITERS | BY_OTHERS
_NEED_TORCH = {"fake", *BY_OTHERS}


def _run(words: list[str]) -> tuple[int, str]:
    """Run a command in this process; gives its exit code and what it says of errors."""
    said = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(said):
        code = main(words)
    return code, said.getvalue()


def _fill(disk: Path, free: int) -> None:
    """Leave as many bytes of a disk free, or fewer."""
    status = os.statvfs(disk)
    blocks = status.f_bavail - free // _BLOCK
    (disk / "filler").write_bytes(bytes(max(blocks, 0) * _BLOCK))


def _try(checks: Checks, name: str, disk: Path, given: Path) -> None:
    """Write with enough room elsewhere, and then without room, and with room for a half."""
    elsewhere = given.parent / "elsewhere" / name
    elsewhere.parent.mkdir()
    code, said = _run(words_of(_LINES[name], elsewhere, given, str(DEMO)))
    assert code == 0, (name, said)
    whole = sizes_of(elsewhere)
    shutil.rmtree(elsewhere.parent)
    for free in (0, sum(whole.values()) // 2):
        place = disk / "to" / name
        place.parent.mkdir()
        _fill(disk, free)
        code, said = _run(words_of(_LINES[name], place, given, str(DEMO)))
        state = left(place, whole)
        errors = [line for line in said.splitlines() if line.startswith("nadi: ")]
        hidden = [] if name in _KEEPING else list(disk.rglob(".nadi-*"))
        is_refused = code == 2 and len(errors) == 1 and "No space left" in said
        is_nothing = state == NOTHING or name in _CONTINUED or (name in _SEVERAL and state == WHOLE)
        is_right = (code == 0 and state == WHOLE) or (is_refused and is_nothing)
        right = is_right and not hidden and "Traceback" not in said
        detail = f" exit code {code}, {state}, {hidden}, {said[-300:]!r}"
        checks.add(f"{name} with {free} bytes free" + ("" if right else detail), right)
        shutil.rmtree(place.parent)
        (disk / "filler").unlink()


def _main(names: list[str], disk: Path) -> None:
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "given"
        given.mkdir()
        with redirect_stdout(io.StringIO()):
            prepare(given)
            if find_spec("torch") is not None:
                line = BY_OTHERS["collected"]  # makes what a replay reads
                assert main(words_of(line, given / "replayable", given)) == 0
        for name in names or list(_LINES):
            if name in _NEED_TORCH and find_spec("torch") is None:
                print(f"{name}: PyTorch is not installed, NOT TRIED")
                continue
            _try(checks, name, disk, given)
    checks.finish()


def _mounted(folder: str) -> list[str] | None:
    """Give the words that run a program where a small file system is mounted at a folder."""
    mount = f'mount -t tmpfs -o size={_SIZE} none "{folder}" && exec "$@"'
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh"]
    if shutil.which("unshare") is None:
        return None
    tried = subprocess.run([*words, "true"], capture_output=True, check=False)
    return words if tried.returncode == 0 else None


if __name__ == "__main__":
    if _INSIDE in os.environ:
        _main(sys.argv[1:], Path(os.environ[_INSIDE]))
        raise SystemExit
    with tempfile.TemporaryDirectory() as place:
        mounted = _mounted(place)
        if mounted is None:
            print("no file system can be mounted here: NOTHING WAS TRIED (unshare --mount)")
            print("0 of 0 exact")
            raise SystemExit
        done = subprocess.run(
            [*mounted, sys.executable, *sys.argv], env=os.environ | {_INSIDE: place}, check=False
        )
    raise SystemExit(done.returncode)
