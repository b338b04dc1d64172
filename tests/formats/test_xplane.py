"""XPlane files: planes of hosts and devices, and what their statistics say."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.files.timeline.perfetto import field
from tests.formats.foreign_files import xplane

_START = 1_700_000_000_000_000_000


def _read(folder: Path, content: bytes) -> nadi.Trace:
    path = folder / "host.xplane.pb"
    path.write_bytes(content)
    return nadi.read(path)


def test_work_calls_and_ranges_are_read(tmp_path: Path) -> None:
    trace = _read(tmp_path, xplane())
    columns = ("category", "name", "start", "duration", "thread", "device", "stream", "correlation")
    rows = [(c, n, s - _START, *rest) for c, n, s, *rest in trace.nodes.select(columns).rows()]
    assert sorted(rows, key=lambda row: (row[2], row[3])) == [
        ("operator", "PjitFunction(f)", 0, 9_000, 99, -1, -1, -1),
        ("python", "$train.py:3 step", 1, 8_000, 99, -1, -1, -1),
        ("operator", "fusion.1", 1_001, 2_001, 7, -1, -1, -1),
        ("runtime", "hipLaunchKernel", 1_001, 2_001, 7, -1, -1, 11),
        ("kernel", "fusion.kd", 5_000, 3_000, -1, 3, 17, 11),
        ("device_annotation", "fusion.kd", 5_000, 5_000, -1, -1, -1, -1),
        ("memcpy", "MemcpyD2H", 9_000, 1_000, -1, 3, 17, -1),
    ]
    by_name = {row["category"]: (k, row) for k, row in enumerate(trace.nodes.to_dicts())}
    assert trace.attributes.of(by_name["kernel"][0])["args"] == {
        "correlation": 11, "kernel_details": "grid:4,2,1 block:64,1,1", "grid": [4, 2, 1],
        "block": [64, 1, 1],
    }  # fmt: skip
    assert by_name["memcpy"][1]["bytes"] == 4096


def test_a_file_without_events_is_refused(tmp_path: Path) -> None:
    plane = field(2, "Task Environment")
    with pytest.raises(nadi.errors.FormatError, match="without events"):
        _read(tmp_path, field(1, plane))
