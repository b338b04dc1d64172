"""Reading what Chakra's linker writes: a host trace with times and the work of devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nadi
from tests.conftest import SHARED

GOLDENS = SHARED / "golden" / "chakra"


def write(folder: Path, *nodes: dict[str, Any]) -> Path:
    path = folder / "linked.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 5, "nodes": list(nodes)}))
    return path


def node(number: int, ts: float, duration: float, **keys: Any) -> dict[str, Any]:
    return {"id": number, "name": f"op{number}", "ctrl_deps": 0, "ts": ts,
            "inclusive_dur": duration, "exclusive_dur": duration, "inter_thread_dep": None,
            **keys}  # fmt: skip


ROOT = {"id": 0, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 0}


def test_times_and_device_work_fill_columns(tmp_path: Path) -> None:
    kernel = {"ctrl_deps": 2, "cat": "kernel", "ph": "X", "stream": 7}
    path = write(
        tmp_path,
        node(3, 9.5, 0.25, **kernel, name="ncclDevKernel_AllReduce_Sum",
             inputs={"values": [[1, 2, 0, 10, 4, "cuda:0"]]}),
        node(2, 4, 5e-05, exclusive_dur=1e-7),
        ROOT,
    )  # fmt: skip
    trace = nadi.read(path)
    assert nadi.trace.validate_trace(trace).is_empty()
    assert trace.column("id").tolist() == [0, 2, 3]
    assert trace.column("start").tolist() == [-1, 4000, 9500]
    assert trace.column("duration").tolist() == [-1, 0, 250]
    assert trace.column("exclusive").tolist() == [-1, 0, 250]
    assert trace.column("parent").tolist() == [-1, 0, 1]
    assert trace.column("stream").tolist() == [-1, -1, 7]
    assert trace.nodes["category"].to_list() == ["metadata", "operator", "kernel"]
    assert trace.nodes["kind"].to_list() == ["METADATA", "COMP", "COMM_COLL"]
    assert trace.nodes["comm_type"].to_list() == ["none", "none", "all_reduce"]
    assert trace.column("comm_bytes").tolist() == [-1, -1, 40]
    assert trace.nodes["is_cpu"].to_list() == [True, True, False]
    kept = trace.attributes.of(2)
    assert (kept["cat"], kept["ph"]) == ("kernel", "X")
    assert "ts" not in kept
    assert trace.attributes.of(0) == {"ctrl_deps[0]": 0}


def test_dependencies_between_threads_are_kept_or_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        ROOT,
        node(1, 1, 2),
        node(2, 5, 2, inter_thread_dep=1),
        node(3, 6, 2, inter_thread_dep=99),
        node(4, 7, 2, inter_thread_dep=5),
        node(5, 8, 2),
    )
    trace = nadi.read(path)
    assert trace.deps.select("src", "dst", "kind").rows() == [(1, 2, "thread")]
    assert trace.issues.select("code", "count").rows() == [("et.thread-dependency", 2)]
    assert [trace.attributes.of(row).get("inter_thread_dep") for row in (3, 4)] == [99, 5]


def test_half_of_a_time_is_no_time(tmp_path: Path) -> None:
    half = {"id": 1, "name": "a", "ctrl_deps": 0, "ts": 5, "stream": 3}
    trace = nadi.read(write(tmp_path, ROOT, half))
    assert trace.column("start").tolist() == [-1, -1]
    assert trace.attributes.of(1) == {"ts": 5, "stream": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ts": "5"}, r"expected `float \| null`, got `str` - at \$\.nodes\[1\]\.ts"),
        ({"ts": 1e300}, r"not a time in microseconds - at \$\.nodes\[1\]"),
        ({"ts": -1}, r"-1 is not a time in microseconds - at \$\.nodes\[1\]"),
        ({"inclusive_dur": -0.001}, r"-0.001 is not a time in microseconds"),
        ({"ts": 9200000000000000, "inclusive_dur": 92000000000000}, "too long"),
    ],
)
def test_times_that_are_none(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(nadi.errors.FormatError, match=message):
        nadi.read(write(tmp_path, ROOT, {**node(1, 5, 1), **change}))


@pytest.mark.parametrize("name", ["gpu_resnet_1gpu_et103__nccl_data", "torch213_ddp4_r0"])
def test_linked_recordings(shared_traces: Path, name: str) -> None:
    path = GOLDENS / name / "et_plus.json.gz"
    trace = nadi.read(path)
    assert nadi.trace.validate_trace(trace).is_empty()
    assert trace.issues.is_empty()
    assert (trace.column("start") >= 0).sum() == trace.nodes.height - 6
    assert (trace.deps["kind"] == "thread").all()
    assert trace.deps.height > 3000
