"""The clock of a device against its host's: bounds, corrections, and paths that do not change."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nadi
from nadi.recordings.dependencies.device_calls import launcher_rows
from nadi.recordings.join_host_device import DeviceClock, bound_device_clocks
from tests.conftest import PairWriter


def program(pair: PairWriter, ahead: float, sync: str = "hipDeviceSynchronize") -> nadi.Trace:
    """Kernels of 50 us, launched ahead of a call that waits; the device's clock is ``ahead`` us."""
    pair.event("aten::mm", 0, 40)
    for k in range(4):
        pair.event("hipLaunchKernel", 2 + 8 * k, 5, "cuda_runtime", correlation=k + 1)
        pair.event(f"gemm{k}", 20 + 50 * k + ahead, 50, "kernel", pid=0, tid=3, stream=3, device=0,
                   correlation=k + 1)  # fmt: skip
    pair.event(sync, 50, 175, "cuda_runtime", correlation=9)
    pair.event("after", 230, 10)
    return nadi.recordings.link_device(nadi.read(pair.write()[1]))


def kinds(trace: nadi.Trace) -> dict[str, int]:
    graph = nadi.build_graph(nadi.recordings.link_job([trace]))
    window = nadi.graph.choose_window(graph, [])
    return nadi.critical_path(nadi.graph.replay_graph(graph), window).by_kind()


def issues(trace: nadi.Trace) -> dict[str, int]:
    return dict(trace.issues.select("code", "count").iter_rows())


def test_kernels_that_end_after_the_call_that_waited_are_moved(pair: PairWriter) -> None:
    trace = program(pair, ahead=8)
    assert issues(trace)["link.device-clock"] == 4
    assert "link.sync-contradicted" not in issues(trace)
    ends = (trace.column("start") + trace.column("duration"))[trace.category_mask("kernel")]
    origin = trace.column("start").min()
    assert ends.max() - origin == 225_000  # when the call returned
    assert kinds(trace)["kernel"] == 200_000
    assert nadi.trace.validate_trace(trace).height == 0


def test_a_device_whose_clock_agrees_keeps_its_times(pair: PairWriter) -> None:
    trace = program(pair, ahead=0)
    assert "link.device-clock" not in issues(trace)
    assert kinds(trace)["kernel"] == 200_000


def test_kernels_that_start_before_their_launch_are_moved(pair: PairWriter) -> None:
    trace = program(pair, ahead=-19)
    start = trace.column("start")
    assert issues(trace)["link.device-clock"] == 4
    assert start[trace.category_mask("kernel")].min() - start.min() == 2_000
    assert "link.before-launch" not in issues(trace)


def test_a_wait_that_contradicts_every_launch_moves_nothing(pair: PairWriter) -> None:
    trace = program(pair, ahead=60)  # the first kernel would start 7 us before its launch
    pair.event("gemm", 10, 1, "kernel", pid=0, tid=3, stream=3, device=0, correlation=10)
    pair.event("hipLaunchKernel", 5, 1, "cuda_runtime", correlation=10)
    trace = nadi.recordings.link_device(nadi.read(pair.write()[1]))
    assert "link.device-clock" not in issues(trace)
    assert issues(trace)["link.sync-contradicted"] == 1


def test_the_attributes_of_moved_nodes_move_with_them(pair: PairWriter) -> None:
    pair.event("hipGetLastError", 222, 1, "cuda_runtime", correlation=77)
    trace = program(pair, ahead=30)
    names = trace.nodes["name"].cast(str).to_list()
    said = {
        names[node]: json.loads(value)["correlation"]
        for node, name, value in trace.attrs.select("node", "name", "value").iter_rows()
        if name == "args" and "correlation" in json.loads(value)
    }
    assert said["hipGetLastError"] == 77
    assert [said[f"gemm{k}"] for k in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("offset", [-19, -3, 5, 9, 18])
def test_a_pair_is_corrected_like_a_device_trace(pair: PairWriter, offset: float) -> None:
    pair.op("aten::mm", 0, 40)
    for k in range(4):
        pair.event("cudaLaunchKernel", 2 + 8 * k, 5, "cuda_runtime", correlation=k + 1)
        pair.event("gemm", 20 + 50 * k + offset, 50, "kernel", pid=0, tid=3, stream=3, device=0,
                   correlation=k + 1)  # fmt: skip
    pair.event("cudaDeviceSynchronize", 50, 172, "cuda_runtime", correlation=9)
    pair.op("aten::add", 230, 10)
    host, device = map(nadi.read, pair.write())
    linked, alone = nadi.link_pair(host, device), nadi.recordings.link_device(device)
    timed = linked.nodes.filter(linked.nodes["start"] >= 0)
    assert timed["start"].to_list() == alone.nodes["start"].to_list()
    kinds_of = ("launch", "stream", "sync")
    untimed = linked.nodes.height - timed.height
    for kind in kinds_of:
        mine, theirs = (t.deps.filter(t.deps["kind"] == kind) for t in (linked, alone))
        assert (mine["src"] - untimed).to_list() == theirs["src"].to_list()
        assert (mine["dst"] - untimed).to_list() == theirs["dst"].to_list()


def test_the_shift_is_the_least_that_agrees_with_both_bounds() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        late = np.sort(random.integers(-20, 12, random.integers(0, 5)))
        early = np.sort(random.integers(-6, 15, random.integers(1, 9)))
        shift = DeviceClock(0, late, early).shift
        agrees = [
            s for s in range(-30, 31) if (late + s <= 0).all() and (early + s >= 0).all()
        ]  # fmt: skip
        if agrees:
            assert shift == min(agrees, key=abs)


def moved(path: Path, by: float, folder: Path) -> Path:
    """Write a recording again, with all times of its devices moved; us."""
    data: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    for event in data["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"):
            event["ts"] = float(event["ts"]) + by
    found = folder / f"{by}.json"
    found.write_text(json.dumps(data))
    return found


@pytest.mark.parametrize("by", [8, 12, -9])
def test_paths_stay_when_the_clock_of_a_real_recording_is_wrong(
    shared_traces: Path, tmp_path: Path, by: float
) -> None:
    path = shared_traces / "gpu_hta" / "ns_resolution.json.gz"
    before, after = nadi.run(path).path, nadi.run(moved(path, by, tmp_path)).path
    for kind, time in before.by_kind().items():
        share = after.by_kind()[kind] / after.length
        assert abs(share - time / before.length) < 0.02


def test_bounds_of_an_untouched_recording_contain_zero(shared_traces: Path) -> None:
    for path in sorted((shared_traces / "gpu_hta").glob("*.json.gz")):
        trace = nadi.read(path)
        for clock in bound_device_clocks(trace, launcher_rows(trace)):
            assert clock.shift == 0


def test_the_first_call_of_a_recording_may_launch_the_copy_that_says_it(pair: PairWriter) -> None:
    pair.event("cudaMemcpyAsync", 0, 10, "cuda_runtime", correlation=1)
    pair.event("Memcpy DtoH (Device -> Pinned)", 28, 50, "gpu_memcpy", pid=0, tid=7, stream=7,
               device=0, correlation=1)  # fmt: skip
    pair.event("cudaStreamSynchronize", 12, 58, "cuda_runtime", correlation=2)
    trace = nadi.recordings.link_device(nadi.read(pair.write()[1]))
    assert issues(trace)["link.device-clock"] == 1
    assert trace.column("start")[trace.category_mask("memcpy")] - trace.column("start")[0] == 20_000
