"""Collectives of a recording: times as in nadi analyze, bounds as in nadi collective."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi import analyses as analyze
from nadi.bottlenecks.steps.run_report import summarize
from nadi.simulation.alone.collective import estimate_collectives, least_collective_time
from tests.conftest import PairWriter

SHAPE = ("name", "type", "members", "bytes")


@pytest.fixture(scope="module")
def on_system(demo_folder: Path) -> nadi.bottlenecks.Run:
    return nadi.run(demo_folder, system="dgx-h100")


def test_transfer_times_and_bandwidths_are_those_of_analyze(
    on_system: nadi.bottlenecks.Run,
) -> None:
    listed = analyze.collective_skew(on_system.job)
    listed = listed.rename({"ranks": "members", "size_bytes": "bytes"})
    found = pl.DataFrame(summarize(on_system)["collectives"])
    both = (
        found.group_by(SHAPE)
        .agg(pl.sum("transferring_ns", "count"))
        .join(listed, on=SHAPE, suffix="_listed")
    )
    assert both.height == listed.height > 5
    assert both["count"].to_list() == both["count_listed"].to_list()
    means = both["transferring_ns"] / both["count"]
    assert means.to_list() == pytest.approx(both["transfer_ns"].to_list(), rel=1e-12)
    alone = found.filter(pl.len().over(SHAPE) == 1).join(listed, on=SHAPE)
    for mine, theirs in (("", "algbw"), ("bus_", "busbw")):
        known = alone.filter(pl.col(f"{mine}bandwidth_gb_per_s") >= 0)
        expected = known[f"{theirs}_gb_per_s"].to_list()
        assert known[f"{mine}bandwidth_gb_per_s"].to_list() == pytest.approx(expected, rel=1e-12)


def test_bounds_are_those_of_nadi_collective(on_system: nadi.bottlenecks.Run) -> None:
    summary = summarize(on_system)
    assert summary["collectives_bound_by"] == {"system": "dgx-h100", "reason": "as given"}
    assert on_system.prediction is not None
    system = on_system.prediction.change.system
    checked = 0
    for row in summary["collectives"]:
        if row["members"] != 4 or row["type"] in ("send", "recv", "barrier"):
            assert row["type"] != "barrier" or row["fraction"] == -1
            continue
        size = row["bytes"] * (4 if row["type"] == "all_gather" else 1)
        (one,) = estimate_collectives(system, row["type"], [size])
        assert round(row["bound_ns"] / row["count"]) == one.bound_ns
        assert row["fraction"] == row["bound_ns"] / row["transferring_ns"]
        checked += 1
        if row["type"] == "all_reduce":  # 450 GB/s a rank to the switch
            assert row["bound_ns"] >= row["count"] * row["bytes"] / 450
    assert checked >= 5


def test_without_a_system_bandwidths_have_no_bound(demo_run: nadi.bottlenecks.Run) -> None:
    summary = summarize(demo_run)
    assert summary["collectives_bound_by"] is None
    assert {row["fraction"] for row in summary["collectives"]} == {-1.0}
    assert max(row["bus_bandwidth_gb_per_s"] for row in summary["collectives"]) > 0


def test_a_recorded_device_bounds_collectives(tmp_path: Path) -> None:
    for rank, start in enumerate((10, 40)):
        pair = PairWriter(tmp_path)
        pair.device_keys["distributedInfo"] = {
            "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
        }  # fmt: skip
        pair.device_keys["deviceProperties"] = [{"name": "NVIDIA H100 80GB HBM3"}]
        pair.op("aten::mm", 0, 5)
        pair.event("cudaLaunchKernel", 2, 1, "cuda_runtime", correlation=1)
        pair.event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, 100 - start, "kernel", pid=0,
                   tid=7, stream=7, device=0, correlation=1,
                   **{"Process Group Name": "0", "Collective name": "allreduce", "dtype": "Float",
                      "In msg nelems": 1000})  # fmt: skip
        pair.write(f"_{rank}")[0].unlink()
    summary = summarize(nadi.run(tmp_path))
    reason = "it has the recorded device, NVIDIA H100 80GB HBM3"
    assert summary["collectives_bound_by"] == {"system": "dgx-h100", "reason": reason}
    (row,) = summary["collectives"]
    assert 0 < row["fraction"] < 1
    assert row["bound_bus_bandwidth_gb_per_s"] == pytest.approx(450)


def test_what_a_system_lacks_has_no_bound() -> None:
    system = nadi.load_system("dgx-h100", 8)
    assert least_collective_time(system, "all_reduce", 450 * 10**9, range(8)) >= 1e9
    assert least_collective_time(system, "all_reduce", 8, (3, 9)) == -1
    assert least_collective_time(system, "all_reduce", 8, (3,)) == -1
    assert least_collective_time(system, "send", 8, (0, 1)) == -1
    assert least_collective_time(system, "all_reduce", -1) == -1
