"""Advice on a recording is of the tool that made it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nadi
import nadi.cli
from nadi.bottlenecks.steps.result import verdict_in_words
from nadi.files.remedies import OF_PYTORCH, remedies_of
from tests.formats.foreign_files import nsight_export, pftrace, rocprof_object, xplane


def test_each_tool_is_told_its_own_options(tmp_path: Path) -> None:
    for name, content, words in (
        ("a.sqlite", nsight_export(), "nsys profile --trace=cuda,nvtx"),
        ("a.json", json.dumps(rocprof_object()).encode(), "rocprofv3 --sys-trace"),
        ("a.xplane.pb", xplane(), "jax.profiler.ProfileOptions"),
        ("a.pftrace", pftrace(), OF_PYTORCH.names),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert words in remedies_of(nadi.read(path)).names
    assert remedies_of(nadi.read(path)) is OF_PYTORCH


def test_analyses_tell_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = rocprof_object()
    made["rocprofiler-sdk-tool"][0]["buffer_records"]["hip_api"] = []
    rocprof, xla = tmp_path / "908_results.json", tmp_path / "a.xplane.pb"
    rocprof.write_text(json.dumps(made))
    xla.write_bytes(xplane())
    for name, path, words in (
        ("launches", rocprof, "record with rocprofv3 --sys-trace"),
        ("steps", rocprof, "roctxRangePush, with --marker-trace"),
        ("modules", rocprof, "record with rocprofv3 --sys-trace"),
        ("rates", xla, "torch.profiler records them, with record_shapes=True"),
        ("memory", xla, "torch.profiler records them, with profile_memory=True"),
    ):
        assert nadi.cli.main(["analyze", name, str(path)]) != 0
        told = " ".join(capsys.readouterr().err.split())
        assert words in told, name
        assert "ProfilerActivity" not in told


@pytest.mark.parametrize("calls", [[], None])
def test_kernels_far_apart_are_explained_by_what_rocprofv3_adds(
    tmp_path: Path, calls: list[dict[str, int]] | None
) -> None:
    made = rocprof_object()
    records = made["rocprofiler-sdk-tool"][0]["buffer_records"]
    (kernel,) = records["kernel_dispatch"]
    records["kernel_dispatch"] = [
        {**kernel, "start_timestamp": 10**6 * k, "end_timestamp": 10**6 * k + 5_000}
        for k in range(1, 9)
    ]
    records["memory_copy"] = []
    records["hip_api"] = records["hip_api"][:1] if calls is None else calls
    path = tmp_path / "908_results.json"
    path.write_text(json.dumps(made))
    said = " ".join(verdict_in_words(nadi.run(path)))
    assert "To know more: record with rocprofv3 --sys-trace" in said
    assert "with_stack" not in said
