"""Files of rocprofv3: what is read, and what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nadi
from tests.formats.foreign_files import rocprof_object


def _read(folder: Path, value: dict[str, Any]) -> nadi.Trace:
    path = folder / "908_results.json"
    path.write_text(json.dumps(value))
    return nadi.read(path)


def test_kernels_copies_and_calls_are_read(tmp_path: Path) -> None:
    trace = _read(tmp_path, rocprof_object())
    columns = ("category", "name", "start", "duration", "device", "stream", "correlation")
    assert sorted(trace.nodes.select(columns).rows()) == [
        ("kernel", 'gemm<"é">', 10_000, 20_007, 5, 2, 11),
        ("memcpy", "HOST_TO_DEVICE", 40_000, 1_000, 5, 2, 12),
        ("runtime", "hipLaunchKernel", 1_000, 1_001, -1, -1, 11),
        ("runtime", "hipMemcpyAsync", 3_000, 1_000, -1, -1, 12),
    ]
    assert trace.attributes.of(2)["args"]["grid"] == [3, 2, 1]
    counts = dict(trace.issues.select("code", "count").rows())
    assert counts == {"rocprof.not-read": 1, "rocprof.not-traced": 1, "rocprof.not-held": 1}


def test_kernels_without_a_name_or_device_are_counted(tmp_path: Path) -> None:
    value = rocprof_object()
    tool = value["rocprofiler-sdk-tool"][0]
    tool["kernel_symbols"], tool["agents"] = [], []
    trace = _read(tmp_path, value)
    assert trace.nodes.height == 4
    assert trace.issues["code"].to_list().count("rocprof.unknown") == 2


def test_a_value_of_another_type_is_an_error_with_its_place(tmp_path: Path) -> None:
    value = rocprof_object()
    value["rocprofiler-sdk-tool"][0]["buffer_records"]["hip_api"][0]["start_timestamp"] = "soon"
    with pytest.raises(nadi.errors.FormatError, match="start_timestamp"):
        _read(tmp_path, value)
