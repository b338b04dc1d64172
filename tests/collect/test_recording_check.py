"""``nadi record --check``: what a folder of recordings lacks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nadi.cli import main
from nadi.pytorch.collecting.collected_runs import check_recordings


def without(demo: Path, folder: Path, *names: str) -> Path:
    """Copy the demo, without some files."""
    shutil.copytree(demo, folder, ignore=shutil.ignore_patterns(*names))
    return folder


def test_a_whole_recording(demo_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--check", str(demo_folder)]) == 0
    printed = capsys.readouterr().out
    assert "ranks 0-3 of 4, 4 host traces" in printed
    assert "for memory, memory-holders, memory-series: no allocations" in printed
    assert "(nadi record --memory)" in printed
    assert "nothing is missing for nadi run" in printed


@pytest.mark.parametrize(("names", "said"), [
    (["*_3*"], "rank 3 of 4: no device trace"),
    (["host_1*"], "a device trace without its host trace"),
    (["host_*"], "host traces: without them nothing has operands"),
    (["device_*"], "device traces: host traces alone have no times"),
])  # fmt: skip
def test_absent_files(
    names: list[str], said: str, demo_folder: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("nadi.pytorch.collecting.collected_runs.analyze_all", lambda *_, **__: {})
    folder = without(demo_folder, tmp_path / "part", *names)
    assert main(["record", "--check", str(folder)]) == 1
    printed = capsys.readouterr().out
    assert said in printed
    assert "nothing is missing" not in printed


def test_what_cannot_be_read(demo_folder: Path, tmp_path: Path) -> None:
    folder = without(demo_folder, tmp_path / "part")
    (file,) = folder.glob("device_2*")
    file.write_bytes(file.read_bytes()[:20_000])
    found = check_recordings(folder)
    assert found.ranks == (0, 1, 3)
    assert "gzip data is truncated" in found.missing[0]
    assert "rank 2 of 4" in found.missing[1]
    assert found.not_recorded == ()


def test_bad_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--check", str(tmp_path / "none")]) == 2
    assert main(["record", "--check", str(tmp_path), "--", "python"]) == 2
    assert main(["record"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
