"""Memory snapshots: what a device held when, who allocated it, and that nothing is called."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.analyses import analyze, memory_holders, memory_peaks, memory_segments, memory_timeline
from nadi.files.files import read_file
from nadi.files.memory_snapshot import decode
from tests.formats.foreign_files import memory_snapshot


def _read(folder: Path, value: Any) -> nadi.Trace:
    path = folder / "000000_step_2.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    return nadi.read(path)


def test_memory_over_time_begins_with_what_the_history_has_not(tmp_path: Path) -> None:
    series = memory_timeline(_read(tmp_path, memory_snapshot()))
    columns = ("time_ns", "change_bytes", "allocated_bytes", "reserved_bytes", "operator")
    assert series.select(columns).rows() == [
        (0, 700, 700, 4096, "(before the history)"),
        (0, 500, 1200, 4096, "model/train.py:7 forward"),
        (1_001_000, 2000, 3200, 6144, "MmBackward0"),
        (2_001_000, -500, 2700, 6144, "model/train.py:7 forward"),
    ]


def test_what_is_held_at_the_peak_adds_up(tmp_path: Path) -> None:
    trace = _read(tmp_path, memory_snapshot())
    held = memory_holders(trace)
    assert held.select("operator", "blocks", "held_bytes").rows() == [
        ("MmBackward0", 1, 2000), ("(before the history)", 1, 700),
        ("model/train.py:7 forward", 1, 500),
    ]  # fmt: skip
    assert held["held_bytes"].sum() == held["peak_bytes"][0] == memory_peaks(trace)["peak_bytes"][0]


def test_segments_tell_rounding_from_free_blocks(tmp_path: Path) -> None:
    table = memory_segments(_read(tmp_path, memory_snapshot()))
    names = ("kind", "reserved_bytes", "requested_bytes", "rounding_bytes", "free_bytes",
             "largest_free_bytes")  # fmt: skip
    assert table.select(names).rows() == [
        ("small", 4096, 700, 324, 3072, 2560), ("large", 2048, 2000, 48, 0, 0),
    ]  # fmt: skip
    parts = ("requested_bytes", "rounding_bytes", "free_bytes")
    assert table["reserved_bytes"].sum() == sum(table[name].sum() for name in parts)


def test_releases_of_what_came_before_count_from_the_begin(tmp_path: Path) -> None:
    value = memory_snapshot()
    history = value["device_traces"][0]
    history.append({"action": "free_completed", "addr": 64, "size": 40, "time_us": 4_000})
    series = memory_timeline(_read(tmp_path, value))
    assert series["allocated_bytes"].to_list() == [40, 740, 1240, 3240, 2740, 2700]


def test_a_snapshot_without_history_has_its_blocks(tmp_path: Path) -> None:
    trace = _read(tmp_path, {**memory_snapshot(), "device_traces": []})
    assert memory_timeline(trace)["allocated_bytes"].to_list() == [700, 2700]
    assert "memory.no-history" in trace.issues["code"].to_list()


def test_devices_that_hold_nothing_need_no_history(tmp_path: Path) -> None:
    value = memory_snapshot()
    value["device_traces"] += [[] for _ in range(7)]
    assert "memory.no-history" not in _read(tmp_path, value).issues["code"].to_list()


def test_more_devices_than_pytorch_numbers_are_refused(tmp_path: Path) -> None:
    value = memory_snapshot()
    with pytest.raises(nadi.errors.FormatError, match="300,000 lists, one for each device"):
        _read(tmp_path, {**value, "device_traces": [[]] * 300_000})
    value["segments"][0]["device"] = 128
    with pytest.raises(nadi.errors.FormatError, match="an integer from -1 to 127"):
        _read(tmp_path, value)


def test_sizes_that_no_device_has_are_refused(tmp_path: Path) -> None:
    value = memory_snapshot()
    for segment in value["segments"]:
        segment["total_size"] = 2**62 - 1
    with pytest.raises(nadi.errors.FormatError, match="more than a device can have"):
        _read(tmp_path, value)


def test_what_is_released_twice_is_released_with_its_own_size(tmp_path: Path) -> None:
    value = memory_snapshot()
    (entries,) = value["device_traces"]
    release = {"action": "free_completed", "addr": 2**20, "stream": 0, "frames": []}
    entries += [{**release, "size": 60 + time, "time_us": 1000 * time} for time in (5, 6)]
    series = memory_timeline(_read(tmp_path, value))
    assert series["change_bytes"].to_list()[-2:] == [-65, -66]
    assert series["allocated_bytes"].to_list()[-1] == 2700


@pytest.mark.parametrize(
    ("key", "wrong", "what"),
    [("size", "12", "an integer"), ("addr", -1, "an integer from 0"), ("time_us", 2**60, "an int"),
     ("size", 2**70, "an integer"), ("action", 7, "a text"), ("frames", "x", "a list"),
     ("frames", [3], "a dictionary")],
)  # fmt: skip
def test_values_of_another_kind_are_refused_with_their_place(
    tmp_path: Path, key: str, wrong: Any, what: str
) -> None:
    value = memory_snapshot()
    value["device_traces"][0][2][key] = wrong
    with pytest.raises(nadi.errors.FormatError, match=f"byte .*expected {what}"):
        _read(tmp_path, value)


@pytest.mark.parametrize(
    ("place", "key"),
    [("segments", "total_size"), ("segments", "blocks"), ("device_traces", "action"),
     ("blocks", "size"), ("blocks", "state")],
)  # fmt: skip
def test_values_that_each_one_has_are_needed(tmp_path: Path, place: str, key: str) -> None:
    value = memory_snapshot()
    history, segments = value["device_traces"][0], value["segments"]
    one = {"segments": segments, "device_traces": history, "blocks": segments[0]["blocks"]}[place]
    del one[0][key]
    with pytest.raises(nadi.errors.FormatError, match=f"byte .*a dictionary with '{key}'"):
        _read(tmp_path, value)


def test_a_list_in_two_places_is_refused(tmp_path: Path) -> None:
    value = memory_snapshot()
    first, second = value["segments"]
    second["blocks"] = first["blocks"]
    with pytest.raises(nadi.errors.FormatError, match=r"byte .*belongs to one place"):
        _read(tmp_path, value)


@pytest.mark.parametrize("value", [[], {}, {"segments": {}}, {"segments": [], "device_traces": 3},
                                   {"segments": [{"blocks": []}]}])  # fmt: skip
def test_pickles_of_anything_else_are_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    with pytest.raises(nadi.errors.FormatError):
        decode(read_file(path))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_snapshot_means_the_same_in_each_protocol(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(memory_snapshot(), protocol))
    assert memory_timeline(nadi.read(path)).equals(
        memory_timeline(_read(tmp_path, memory_snapshot()))
    )


def test_a_pickle_with_more_values_than_numbers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nadi.files.plain_pickles._MOST_INSTRUCTIONS", 100)
    with pytest.raises(nadi.errors.FormatError, match="over 100 instructions"):
        _read(tmp_path, memory_snapshot())


def test_nothing_is_called(tmp_path: Path) -> None:
    class Call:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    with pytest.raises(nadi.errors.FormatError, match="plain value"):
        _read(tmp_path, {"segments": [], "device_traces": [Call()]})
    assert not (tmp_path / "made").exists()


def test_run_says_what_it_lacks_and_traces_beside_it_are_taken(
    tmp_path: Path, demo_folder: Path
) -> None:
    _read(tmp_path, memory_snapshot())
    with pytest.raises(nadi.errors.InputError, match="memory-holders"):
        nadi.run(tmp_path)
    assert analyze("memory-holders", tmp_path)["operator"][0] == "MmBackward0"
    device = demo_folder / "device_0.json.gz"
    (tmp_path / device.name).write_bytes(device.read_bytes())
    assert nadi.load_job(tmp_path).traces[0].nodes.height > 1000
