"""A script without a guard is told of it in one line, and analyses need no processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = "import nadi\n{call}\n"


def ended(folder: Path, call: str) -> tuple[int, str]:
    script = folder / "script.py"
    script.write_text(SCRIPT.format(call=call))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_plain_script_analyses_several_ranks(demo_folder: Path, tmp_path: Path) -> None:
    call = f"print(nadi.analyses.analyze('annotations', {str(demo_folder)!r}).height)"
    assert ended(tmp_path, call) == (0, "")


def test_what_an_unguarded_script_is_told(tmp_path: Path) -> None:
    call = (
        "from nadi.results.terminal.workers import worker_processes\n"
        "with worker_processes(1) as pool: list(pool.map(abs, [1]))"
    )
    code, error = ended(tmp_path, call)
    assert code == 1
    last = error.strip().splitlines()[-1]
    assert last.startswith("nadi.errors.UsageError: a worker process ended early; ")
    assert last.endswith("if __name__ == '__main__'")
