"""Analyses of whole recordings that are read in pieces, against the same read as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.analyses import ANALYSES
from nadi.files.kineto import kineto_pieces
from nadi.files.kineto.kineto_columns import read_columns
from nadi.recordings import large as large_recordings
from tests.amounts import some

SINGLE = [one.name for one in ANALYSES if not one.of_job]
OF_JOB = [one.name for one in ANALYSES if one.of_job]
RECORDINGS = (
    "traces/gpu_hta/ns_resolution", "traces/gpu_resnet_pair/device", "traces/gpu_dlrm8/device_3",
    "traces/gpu_hta/cuda_event_sync_multi_stream", "wild/amd_mi210_gpu_only", "wild/mtia_rank_0",
    "wild/amd_mi300_vllm_prefill", "wild/deepseek_train_h800", "wild/torch_compile_rtx3090",
    "wild/old_kineto_resnet50_workers0", "wild/stacks_background_thread", "wild/h100_vit",
)  # fmt: skip
_Found = dict[str, pl.DataFrame | str]


@pytest.fixture(params=[0.0, 2.0, 9.0])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Make every file large, and memory so many times its content."""
    monkeypatch.setattr(large_recordings, "_LARGE", 1)
    monkeypatch.setattr(large_recordings, "content_of", lambda file: 1000)
    monkeypatch.setattr(large_recordings, "available_memory", lambda: int(request.param * 1000))
    monkeypatch.setattr(kineto_pieces, "PIECE", 150_000)
    return float(request.param)


def read(file: Path, names: list[str]) -> _Found:
    """Give the tables of a file, each analysis asked for alone."""
    return {name: nadi.analyses.analyze_all(file, names=[name])[name] for name in names}


@pytest.mark.parametrize("recording", some(RECORDINGS, of=6))
def test_tables_are_the_same(
    recording: str, shared_traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shared_traces.parent / f"{recording}.json.gz"
    whole = nadi.analyses.analyze_all(file, names=SINGLE)
    monkeypatch.setattr(kineto_pieces, "PIECE", 200_000)
    for hosts, launches in ((True, True), (False, True), (False, False)):
        trace = read_columns(file, hosts=hosts, launches=launches)
        events = nadi.analyses.events_of(trace)
        for one in ANALYSES:
            takes_launches = {"launches", "host events"} & {*one.needs, *one.uses}
            if not one.of_job and (launches or not takes_launches):
                compare(one, events, whole[one.name], hosts=hosts)


def compare(one: Any, events: Any, whole: pl.DataFrame | str, *, hosts: bool) -> None:
    """Check that an analysis gives the same, or says that what it needs was not read."""
    left_out = {"arguments"} if hosts else {"arguments", "operators"}
    found: Any = None
    told = ""
    try:
        found = one(events)
    except nadi.NadiError as error:
        told = str(error)
    if found is not None:
        assert not left_out & set(one.needs)
        assert found.with_columns(pl.lit(whole["rank"].first()).alias("rank")).equals(whole)
    elif not isinstance(whole, str):
        assert "so large" in told
        assert left_out & set(one.needs) or one.name == "annotation-kernels"


def test_as_much_is_read_as_there_is_room_for(memory: float, tmp_path: Path) -> None:
    file = written(tmp_path)
    found = read(file, ["kernels", "flame", "memory"])
    assert isinstance(found["kernels"], pl.DataFrame)
    assert isinstance(found["flame"], str) == (memory == 0)
    assert isinstance(found["memory"], str) == (memory < 9)
    told = nadi.analyses.analyze_all(file, names=OF_JOB)
    assert all("available" in str(one) for one in told.values()) == (memory < 9)


def written(folder: Path, **keys: Any) -> Path:
    """Write a recording of an operator, its kernel, an idle call, and an allocation."""
    names = {"ph": "X", "pid": 1, "tid": "main"}
    events = [
        names | {"cat": "cpu_op", "name": "aten::mm", "ts": 5.5, "dur": 40},
        names | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 9, "dur": 4,
                 "args": {"correlation": 3}},
        names | {"cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "ts": 19, "dur": 4,
                 "args": {"correlation": 4}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 5,
         "args": {"correlation": 3, "device": 0, "stream": 7}},
        {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1,
         "ts": 9, "args": {"Bytes": 512, "Device Type": 1, "Device Id": 0}},
    ]  # fmt: skip
    file = folder / "device.json"
    file.write_text(json.dumps({"traceEvents": events} | keys))
    return file


def test_only_what_analyses_need_is_read(tmp_path: Path) -> None:
    base = 1_700_000_000_000_000_000  # 19 digits, and behind the events
    trace = read_columns(written(tmp_path, baseTimeNanoseconds=base), hosts=False)
    first, call, kernel = trace.nodes.to_dicts()
    assert (first["name"], first["start"]) == ("aten::mm", base + 5_500)
    assert (call["name"], kernel["name"]) == ("cudaLaunchKernel", "gemm")
    counts = dict(trace.issues.select("code", "count").rows())
    assert counts == {"kineto.no-arguments": 4, "kineto.no-host-events": 1}


def test_what_cannot_be_read_in_pieces(memory: float, tmp_path: Path) -> None:
    file = written(tmp_path)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content["traceEvents"]))  # a bare list: as a whole
    assert nadi.analyses.analyze("kernels", file).height == 1
    content["traceEvents"].append(content["traceEvents"][0] | {"pid": 2})
    file.write_text(json.dumps(content))
    with pytest.raises(nadi.NadiError, match="give a file for each rank"):
        nadi.analyses.analyze("kernels", file)
    file.write_text(json.dumps(content)[:-90])
    with pytest.raises(nadi.NadiError, match="ends too early"):
        nadi.analyses.analyze("kernels", file)
