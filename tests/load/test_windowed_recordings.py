"""A part of a recording read piece by piece, against the same part of all of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nadi
from nadi.analyses import recorded_parts
from nadi.analyses.recorded_parts import recorded_part
from nadi.files.kineto import kineto_pieces
from nadi.whatif.parts import PartOf


def events(steps: int) -> list[dict[str, Any]]:
    """Give steps of ten kernels, which run later than they are launched, and names of threads."""
    found: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0,
                                    "ts": 0, "args": {"name": 'a "}, {"ph": "X" b'}}]  # fmt: skip
    for step in range(steps):
        begin = 1_000.0 * step
        found.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1,
                      "tid": 1, "ts": begin, "dur": 900})  # fmt: skip
        for number in range(10):
            at, ids = begin + 50 * number, {"correlation": 10 * step + number + 1}
            base = {"ph": "X", "pid": 1, "tid": 1}
            found += [
                base | {"cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 40},
                base | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 5, "dur": 4,
                        "args": ids},
                {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7,
                 "ts": at + 800.125, "dur": 45, "args": ids | {"stream": 7, "device": 0}},
                {"ph": "s", "id": ids["correlation"], "cat": "ac2g", "name": "ac2g", "pid": 1,
                 "tid": 1, "ts": at + 5},
                {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1,
                 "ts": at + 20, "s": "t", "args": {"Bytes": 4}},
            ]  # fmt: skip
    return found


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "device.json.gz"
    base = {"schemaVersion": 1, "baseTimeNanoseconds": 10**18, "distributedInfo": {"rank": 0}}
    content = base | {"traceEvents": events(40), "traceName": "x"}
    file.write_bytes(gzip.compress(json.dumps(content, indent=1).encode()))
    return file


@pytest.mark.parametrize("part", [
    PartOf(step="3"), PartOf(step="0"), PartOf(step="39"), PartOf(window="2ms:3.5ms"),
    PartOf(window="0ms:1ms"), PartOf(window="38.2ms:60ms"),
])  # fmt: skip
@pytest.mark.parametrize("piece", [3_000, 1 << 26])
def test_the_part_is_the_same(
    recording: Path, part: PartOf, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = recorded_part([recording], part).ranks
    monkeypatch.setattr(kineto_pieces, "PIECE", piece)
    monkeypatch.setattr(recorded_parts, "_MARGIN_NS", 0)
    monkeypatch.setattr(recorded_parts, "are_large", lambda paths: True)
    (read,) = recorded_part([recording], part).ranks
    columns = ("name", "category", "start", "duration", "thread", "stream", "correlation")
    expected, found = (one.device.nodes.select(columns) for one in (whole, read))
    assert expected.height > 5
    assert expected.rows() == found.rows()
    instants = [one.device.attributes.rows_named("event").size for one in (whole, read)]
    assert instants[0] == instants[1]


def test_memory_is_that_of_the_part(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto_pieces, "PIECE", 1 << 14)
    seen = kineto_pieces.survey(recording, launches=True)
    assert sorted(seen.steps) == list(range(40))
    assert seen.calls.shape == (400, 2)
    read = kineto_pieces.read_range(recording, seen, seen.range_of(3_000_000, 3_900_000))
    assert read.content.size < len(gzip.decompress(recording.read_bytes())) / 8


def test_what_cannot_be_read_in_parts_says_so(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto_pieces, "PIECE", 3_000)
    monkeypatch.setattr(recorded_parts, "are_large", lambda paths: True)
    content = gzip.decompress(recording.read_bytes())
    file = tmp_path / "other.json"

    def told(text: bytes, part: PartOf) -> str:
        file.write_bytes(text)
        with pytest.raises(nadi.NadiError) as caught:
            recorded_part([file], part)
        return str(caught.value)

    step = PartOf(step="3")
    assert "ends too early" in told(content[:-9_000], step)
    broken = content.index(b'"aten::mm"', 20_000)
    assert f"byte {broken:,}" in told(content[:broken] + b"?" + content[broken + 1 :], step)
    assert "no step is marked" in told(content.replace(b"ProfilerStep#", b"Step "), step)
    assert "no such step" in told(content, PartOf(step="77"))
    assert "the second time is not later" in told(content, PartOf(window="3ms:2ms"))
    assert "two times are needed" in told(content, PartOf(window="3ms"))
    bare = json.dumps(events(40)).encode()
    assert "bare list" in told(bare, step)
    assert np.array_equal(
        kineto_pieces.survey(recording, launches=True).calls[0], [5_000, 1]
    )  # fmt: skip
