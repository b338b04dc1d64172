"""`nadi critical-path`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nadi.cli import main
from tests.analyze.hta.recording import Recording

pytestmark = pytest.mark.usefixtures("demo_read_once")


@pytest.fixture
def device(tmp_path: Path) -> Path:
    record = Recording(tmp_path)
    record.mark("ProfilerStep#1", 0, 100)
    record.op("mm", 0, 10)
    record.launch("gemm", (2, 2), (6, 30), 1)
    record.read()
    return tmp_path / "device.json"


def run(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["critical-path", *(str(argument) for argument in arguments)])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_by_htas_rules(device: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--rules", "hta", "--annotation", "ProfilerStep", "--instance", "0")
    code, out, _ = run(capfd, device, *options)
    assert code == 0
    for part in ("rank 0, annotation 'ProfilerStep': critical path of 36.00 us",
                 "through 4 of 6 event starts and ends",
                 "gpu_compute_bound", "83.3 %", "gemm"):  # fmt: skip
        assert part in out
    code, out, _ = run(capfd, device, *options, "--json")
    data = json.loads(out)
    assert data["critical_path_ns"] == sum(row["ns"] for row in data["summary"]) == 36_000
    assert data["top"][0] == {
        "name": "gemm", "bound_by": "gpu_compute_bound", "ns": 30_000, "count": 1,
    }  # fmt: skip


def test_by_nadis_rules(demo_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, demo_folder)
    assert code == 0
    assert "4 ranks: measured 412.7 ms" in out
    assert "top operations on the critical path" in out
    code, out, _ = run(capfd, demo_folder, "--step", "1", "--json")
    data: dict[str, Any] = json.loads(out)
    assert sum(data["critical_path_by_kind"].values()) == data["critical_path_ns"]
    assert data["measured_ns"] == data["critical_path_ns"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--rules", "hta", "--annotation", "Stop"], ["--annotation Stop", "'ProfilerStep#1'"]),
        (["--rules", "hta", "--annotation", "Step", "--instance", "1"], ["0 (ProfilerStep#1)"]),
        (["--rules", "hta", "--instance", "first"], ["--instance", "0:2"]),
        (["--rules", "hta", "--rank", "4"], ["there are: 0"]),
        (["--rules", "hta", "--step", "1"], ["--step", "--annotation ProfilerStep"]),
        (["--rules", "chakra"], ["'chakra'", "use nadi or hta"]),
        (["--annotation", "Step"], ["--annotation", "add --rules hta"]),
        (["--include-last-step"], ["--include-last-step", "add --rules hta"]),
    ],
)
def test_mistakes_are_one_clear_line(
    device: Path, capfd: pytest.CaptureFixture[str], options: list[str], parts: list[str]
) -> None:
    code, out, err = run(capfd, device, *options)
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if "compiling kernels" not in line]
    assert len(lines) == 1
    for part in parts:
        assert part in lines[0]
