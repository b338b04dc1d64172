"""Two recordings compared: what changed, and that it adds up."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import nadi
from tests.conftest import PairWriter


def recording(folder: Path, *, kernel: float = 50, host: float = 20, extra: bool = False) -> Path:
    """Write two steps: an operator launches a kernel and waits for it; perhaps another one too."""
    folder.mkdir()
    pair = PairWriter(folder)
    begin = 0.0
    for number in (1, 2):
        end = begin + 10 + host + kernel + 20 + (60 if extra else 0)
        pair.op(f"ProfilerStep#{number + 3}", begin, end - begin, cat="user_annotation")
        pair.op("aten::mm", begin + 5, host)
        pair.event("cudaLaunchKernel", begin + 5 + host - 5, 4, "cuda_runtime", correlation=number)
        start = begin + 5 + host
        pair.event("gemm", start, kernel, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number)  # fmt: skip
        pair.event("cudaDeviceSynchronize", start, kernel + 5, "cuda_runtime",
                   correlation=1000 + number)  # fmt: skip
        if extra:
            pair.op("aten::sort", start + kernel + 6, 60)
        begin = end
    pair.write()
    return folder


def test_a_recording_and_itself_are_the_same(demo_folder: Path) -> None:
    found = nadi.pipeline.diff(demo_folder, demo_folder)
    assert found.before_ns == found.after_ns
    assert found.path["change_ns"].abs().sum() == 0
    for table in (found.kernels, found.calls):
        assert set(table["state"]) <= {"same"}
    assert (found.steps["change_ns"] == 0).all()


@pytest.mark.parametrize(("after", "name", "cause", "change"), [
    ({"kernel": 80}, "gemm", "slower", 30_000),
    ({"kernel": 20}, "gemm", "faster", -30_000),
    ({"host": 55}, "aten::mm", "slower", 35_000),
    ({"extra": True}, "aten::sort", "added", 60_000),
])  # fmt: skip
def test_the_change_that_was_made_is_the_first(
    tmp_path: Path, after: dict[str, float], name: str, cause: str, change: int
) -> None:
    found = nadi.pipeline.diff(recording(tmp_path / "a"), recording(tmp_path / "b", **after))  # type: ignore[arg-type]
    first = found.path.row(0, named=True)
    assert (first["name"], first["cause"], first["change_ns"]) == (name, cause, change)
    total = found.after_ns - found.before_ns
    assert total == change
    assert found.path["change_ns"].sum() == pytest.approx(total)
    assert found.steps["change_ns"].to_list() == [change, change]
    assert found.steps.select("before", "after").rows() == [(4, 4), (5, 5)]
    back = nadi.pipeline.diff(tmp_path / "b", tmp_path / "a")
    assert back.path["change_ns"].sum() == pytest.approx(-total)


def test_calls_are_aligned_by_what_is_around_them(tmp_path: Path) -> None:
    found = nadi.pipeline.diff(recording(tmp_path / "a"), recording(tmp_path / "b", kernel=80))
    slower = found.calls.filter(pl.col("path") == "aten::mm").row(0, named=True)
    assert slower["state"] == "slower"
    assert slower["device_after_ns"] - slower["device_before_ns"] == 30_000
    one = nadi.pipeline.diff(tmp_path / "a", tmp_path / "b", step=4)
    assert one.after_ns - one.before_ns == 30_000
    with pytest.raises(nadi.errors.UsageError, match="no such step"):
        nadi.pipeline.diff(tmp_path / "a", tmp_path / "b", step=9)


def test_modules_are_compared_without_those_in_them(tmp_path: Path) -> None:
    def written(folder: Path, linear: float) -> Path:
        folder.mkdir()
        pair = PairWriter(folder)
        pair.op("ProfilerStep#1", 0, 1_000, cat="user_annotation")
        frame = {"cat": "python_function"}
        pair.event("nn.Module: Net_0", 10, 500 + linear, **frame)  # type: ignore[arg-type]
        pair.event("nn.Module: Linear_0", 20, 100 + linear, **frame)  # type: ignore[arg-type]
        pair.op("aten::mm", 30, 50 + linear)
        pair.op("aten::relu", 200 + linear, 40)
        pair.write()
        return folder

    found = nadi.pipeline.diff(written(tmp_path / "a", 0), written(tmp_path / "b", 70))
    rows = {row["module"]: row for row in found.modules.iter_rows(named=True)}
    assert rows["Net_0.Linear_0"]["change_ns"] == 70_000
    assert rows["Net_0.Linear_0"]["state"] == "slower"
    assert rows["Net_0"]["change_ns"] == 0
    assert found.modules["change_ns"].sum() == 0  # the step is as long as before
    assert rows["Net_0"]["count_before"] == 1
