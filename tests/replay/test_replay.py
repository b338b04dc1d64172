"""A replay of the demo's recording; it needs PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import nadi
from nadi.cli import main
from nadi.errors import UsageError
from nadi.pytorch import OperatorChoice, RecordedCalls, replay
from tests.amounts import ALL

pytest.importorskip("torch", reason="a replay needs PyTorch")


def test_every_call_is_replayed_and_recorded_again(demo_folder: Path, tmp_path: Path) -> None:
    """Of all ranks with NADI_TEST_ALL=1, else of two: they ran the same program."""
    ranks = range(4 if ALL else 2)
    files = [file for rank in ranks for file in demo_folder.glob(f"*_{rank}.json*")]
    done = replay(*files, output=tmp_path / "again", repeats=1)
    assert len(done.ranks) == len(files) // 2
    assert all(one.name.startswith("c10d::") for one in done.skipped)  # comm is none
    assert [one.num_different for one in done.comparisons] == [0] * len(done.ranks)
    assert done.step_ns > 0
    one = (tmp_path / "again" / name for name in ("host_0.json", "device_0.json.gz"))
    assert nadi.run(*one).measured_ns > 0


def test_a_program_of_one_operator_needs_torch_only(demo_folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "mm.py"
    assert main(["rerun", str(demo_folder), "--operator", "aten::mm", "--script",
                 str(script)]) == 0  # fmt: skip
    ran = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("replays\n")
    assert "nadi" not in script.read_text()


def test_threads_are_threads_again(tmp_path: Path) -> None:
    import torch

    def beside(given: torch.Tensor) -> None:
        with torch.no_grad():
            for _ in range(5):
                given = torch.mm(given, given)

    with nadi.record(tmp_path / "once", steps=1, warmup=1) as recording:
        for _ in range(3):
            other = threading.Thread(target=beside, args=(torch.rand(64, 64),))
            other.start()
            torch.rand(8, 8).relu().sum()
            other.join()
            recording.step()
    done = replay(tmp_path / "once", output=tmp_path / "again", repeats=1)
    assert [one.num_different for one in done.comparisons] == [0]
    for folder in ("once", "again"):
        calls = RecordedCalls(nadi.load_job(tmp_path / folder).traces[0])
        threads = {calls.thread(row) for row in calls.named("aten::mm")}
        assert len(threads) == 1
        assert not threads & {calls.thread(row) for row in calls.named("aten::relu")}
    script = tmp_path / "step.py"
    script.write_text(done.ranks[0].script)
    subprocess.run([sys.executable, "-I", script], check=True, stdout=subprocess.DEVNULL)


def left_out(folder: Path) -> dict[str, str]:
    done = replay(folder, repeats=1)
    return {one.name: one.reason for one in (*done.skipped, *done.replaced)}


def test_what_cannot_be_called_is_named_and_the_rest_runs(tmp_path: Path) -> None:
    import torch

    with nadi.record(tmp_path / "once", steps=1, warmup=1) as recording:
        for _ in range(3):
            given = torch.rand(8, 8)
            (given @ given).relu()
            torch.nonzero(given > 0.5)
            recording.step()
    (host,) = (tmp_path / "once").glob("host*.json")
    recorded = host.read_text()
    text = recorded.replace("aten::relu(", "mine::relu(").replace("aten::clamp_min(", "mine::x(")
    host.write_text(text)
    reasons = left_out(tmp_path / "once")
    assert reasons["aten::clamp_min"].startswith("it is not among the operators that are known")
    assert reasons["aten::nonzero"].startswith("it is not among the operators that are known")
    assert "aten::matmul" not in reasons

    nodes = json.loads(recorded)
    for node in nodes["nodes"]:
        if node["name"] in ("aten::matmul", "aten::mm"):
            large = json.dumps(node["inputs"]).replace("[8, 8]", "[8000000, 8000000]")
            node["inputs"] = json.loads(large.replace("[8, 1]", "[8000000, 1]"))
    host.write_text(json.dumps(nodes))
    reasons = left_out(tmp_path / "once")
    assert reasons["aten::mm"].startswith("a tensor of it needs 232.8 TiB, and ")


def test_no_work_of_autocast_is_left_out(tmp_path: Path) -> None:
    import torch

    layer, given = torch.nn.Linear(64, 64), torch.rand(64, 64)
    with nadi.record(tmp_path / "once", steps=1, warmup=1) as recording:
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                layer(given).sum().backward()
            recording.step()
    done = replay(tmp_path / "once", output=tmp_path / "again", repeats=1)
    assert not done.skipped
    innermost = [_products(tmp_path / name) for name in ("once", "again")]
    assert innermost[0] == innermost[1] > 0


def _products(folder: Path) -> int:
    """Count the products of matrices that are in no other one."""
    calls = RecordedCalls(nadi.load_job(folder).traces[0])
    rows = [*calls.named("aten::mm"), *calls.named("aten::addmm")]
    return sum("aten::mm" not in calls.below(row) for row in rows)


def test_an_operator_that_is_not_there(demo_folder: Path) -> None:
    with pytest.raises(UsageError, match="no aten::nothing that can be replayed"):
        replay(demo_folder, operators=OperatorChoice("aten::nothing"))
