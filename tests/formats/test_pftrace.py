"""Perfetto traces of PyTorch's profiler: the same as its JSON, and what is odd about the file.

``recorded`` has one recording that torch 2.15 wrote both as ``.pftrace`` and as JSON; the work of
the device in it was made, and its launches are those of operators on a CPU.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.files import sniff
from nadi.files.pftrace import _paired
from tests.formats.foreign_files import pftrace

_RECORDED = Path(__file__).with_name("recorded")
# what the file does not hold, or states otherwise
_OTHERWISE = {"grid", "block", "shared memory", "queued", "channel", "channel_type", "flags",
              "copy kind", "src kind", "dst kind", "value", "priority", "graph id",
              "graph node id"}  # fmt: skip


def _read(folder: Path, content: bytes) -> nadi.Trace:
    path = folder / "rank0.pftrace"
    path.write_bytes(content)
    return nadi.read(path)


def _nodes(trace: nadi.Trace) -> pl.DataFrame:
    names = pl.col("name", "category").cast(pl.String)
    rows = trace.nodes.with_columns(names, row=pl.int_range(pl.len())).drop("id", "event")
    return rows.sort("start", "category", "name", "duration")


def test_a_recording_is_the_same_as_its_json() -> None:
    own, json = (nadi.read(_RECORDED / f"recorded.{suffix}") for suffix in (
        "pftrace", "trace.json.gz"))  # fmt: skip
    ours, theirs = _nodes(own), _nodes(json)
    places = ["device", "stream", "external_id"]
    assert ours.drop(*places, "row").equals(theirs.drop(*places, "row"))
    # of a range on the device the JSON states an id, the other its place
    rest = theirs["category"] != "device_annotation"
    assert ours.filter(rest)[places].equals(theirs.filter(rest)[places])
    for row, other in zip(ours["row"], theirs["row"], strict=True):
        said, wanted = (t.attributes.of(r).get("args", {}) for t, r in ((own, row), (json, other)))
        missing = {key: value for key, value in wanted.items() if said.get(key) != value}
        assert missing.keys() - _OTHERWISE <= {"External id"}, missing
        assert "grid" not in wanted or said["grid"] == wanted["grid"]


def test_times_places_and_arguments_are_read(tmp_path: Path) -> None:
    trace = _read(tmp_path, gzip.compress(pftrace()))
    start = 1_700_000_000_000_000_000
    columns = ("category", "name", "start", "duration", "thread", "device", "stream", "correlation")
    assert [(c, n, s - start, *rest) for c, n, s, *rest in trace.nodes.select(columns).rows()] == [
        ("operator", "aten::mm", 0, 90_000, 901, -1, -1, -1),
        ("operator", "aten::t", 10_000, 40_000, 901, -1, -1, -1),
        ("runtime", "cudaLaunchKernel", 20_000, 10_001, 901, -1, -1, 11),
        ("kernel", 'gemm<"é">', 40_000, 20_007, -1, 3, 7, 11),
        ("memcpy", "Memcpy", 61_000, 1_000, -1, 3, 7, -1),
    ]
    assert trace.nodes["bytes"].to_list() == [-1, -1, -1, -1, 4096]
    assert trace.attributes.of(0)["args"] == {"External id": 7, "Input Dims": [[2]]}
    assert trace.attributes.of(3)["args"] == {
        "device": 3, "stream": 7, "correlation": 11, "dtype": "Float", "grid": [4, 2, 1],
        "block": [128, 1, 1],
    }  # fmt: skip


def test_slices_that_touch_are_paired_as_they_were_written(tmp_path: Path) -> None:
    begun = [[(8, 500 + t), (11, [(9, 1), (11, 2), (10, name), (3, 1)])]
             for t, name in ((10, 1), (20, 2))]  # fmt: skip
    ended = [[(8, 500 + t), (11, [(9, 2), (11, 2)])] for t in (20, 30)]
    trace = _read(tmp_path, pftrace(*begun, *ended, start=500))
    added = trace.nodes.filter(trace.nodes["duration"] == 10)
    assert added["name"].cast(str).to_list() == ["aten::mm", "aten::t"]


def test_slices_in_order_of_time_are_paired_by_nesting() -> None:
    kind, track = (np.array(one) for one in ([1, 1, 2, 1, 2, 2], [5, 5, 5, 5, 5, 5]))
    begin, end = _paired(kind, track, np.array([10, 12, 15, 15, 19, 20]))
    assert list(zip(begin.tolist(), end.tolist(), strict=True)) == [(0, 5), (1, 2), (3, 4)]


def test_a_slice_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(nadi.errors.FormatError, match="1 slices have no end"):
        _read(tmp_path, pftrace([(8, 10), (11, [(9, 1), (11, 2), (10, 1)])], start=5))


def test_recordings_that_were_joined_are_refused(tmp_path: Path) -> None:
    with pytest.raises(nadi.errors.FormatError, match="a file for each rank"):
        _read(tmp_path, pftrace([(12, [(2, [(1, 1), (2, "aten::add")])])]))


def test_what_nadi_writes_is_no_recording(tmp_path: Path) -> None:
    nadi.write(_read(tmp_path, pftrace()), tmp_path / "own.pftrace")
    assert sniff(tmp_path / "own.pftrace") is None
