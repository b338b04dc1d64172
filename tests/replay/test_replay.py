"""A replay of the demo's recording; it needs PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import nadi
from nadi.cli import main
from nadi.errors import UsageError
from nadi.pipeline import replay

pytest.importorskip("torch", reason="a replay needs PyTorch")


def test_every_call_is_replayed_and_recorded_again(demo_folder: Path, tmp_path: Path) -> None:
    done = replay(demo_folder, output=tmp_path / "again", repeats=1)
    assert all(one.name.startswith("c10d::") for one in done.skipped)  # comm is none
    assert [one.num_different for one in done.comparisons] == [0] * len(done.ranks)
    assert done.step_ns > 0
    assert nadi.run(tmp_path / "again").measured_ns > 0


def test_a_program_of_one_operator_needs_torch_only(demo_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "mm.py"
    assert main(["replay", str(demo_folder), "--operator", "aten::mm", "--script",
                 str(script)]) == 0  # fmt: skip
    ran = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("replays\n")
    assert "nadi" not in script.read_text()


def test_an_operator_that_is_not_there(demo_folder: Path) -> None:
    with pytest.raises(UsageError, match="no aten::nothing that can be replayed"):
        replay(demo_folder, operator="aten::nothing")
