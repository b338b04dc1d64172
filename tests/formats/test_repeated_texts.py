"""Formats that hold a text once, to which events refer: a small file is not made of terabytes."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import nadi
from nadi.errors import FormatError
from nadi.files import files, sniff
from nadi.files.files import read_file
from nadi.files.timeline.perfetto import field
from tests.formats.foreign_files import (
    memory_snapshot,
    nsight_export,
    nsight_tables,
    pftrace,
    rocprof_object,
    xplane,
)

NAME, COUNT = "x" * 2_000, 300
NANOSECOND = 1_700_000_000_000_000_000


def nsight() -> bytes:
    tables = nsight_tables()
    tables["StringIds"][2]["value"] = NAME
    kernel = tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    kernel += [{**kernel[0], "start": 1_010_000 + number} for number in range(COUNT)]
    return nsight_export(tables)


def rocprof() -> bytes:
    found = rocprof_object()
    (tool,) = found["rocprofiler-sdk-tool"]
    tool["kernel_symbols"][0]["formatted_kernel_name"] = NAME
    tool["buffer_records"]["kernel_dispatch"] *= COUNT
    return json.dumps(found).encode()


def perfetto() -> bytes:
    packets = [[(10, 1), (13, 2), (12, [(2, [(1, 9), (2, NAME)])])]]
    for number in range(COUNT):
        for kind, at in ((1, 0), (2, 1)):
            event = [(9, kind), (11, 2), *[(10, 9), (3, 1)][: 2 * (kind == 1)]]
            packets.append([(8, NANOSECOND + 200_000 + 2 * number + at), (10, 1), (11, event)])
    return pftrace(*packets)


def snapshot() -> bytes:
    found = memory_snapshot()
    frame = {"name": NAME, "filename": "train.py", "line": 3}
    found["device_traces"][0] += [
        {"action": "alloc", "addr": 1 << 20, "size": 512, "stream": 0, "time_us": 4_000 + number,
         "frames": [frame]}
        for number in range(COUNT)
    ]  # fmt: skip
    return pickle.dumps(found, 4)


def planes() -> bytes:
    def message(*parts: tuple[int, bytes | int]) -> bytes:
        return b"".join(field(number, value) for number, value in parts)

    events = (message((1, 1), (2, 3_000_000 * number), (3, 1)) for number in range(COUNT))
    line = message((2, b"Stream #17(Kernel)"), (3, 5_000), *((4, one) for one in events))
    name = message((1, 1), (2, message((1, 1), (2, NAME.encode()))))
    return xplane() + field(1, message((2, b"/device:GPU:3"), (4, name), (3, line)))


FILES = [("a.sqlite", nsight), ("a.json", rocprof), ("a.pftrace", perfetto),
         ("a.pickle", snapshot), ("a.xplane.pb", planes)]  # fmt: skip


@pytest.fixture(params=FILES, ids=[name for name, _ in FILES])
def path(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:  # fmt: skip
    """Write a file whose events repeat a text, where events may be only twice as large as it."""
    name, make = request.param
    found = tmp_path / name
    found.write_bytes(make())
    monkeypatch.setattr(files, "_SMALLEST_LIMIT", 0)
    monkeypatch.setattr(files, "_MAX_RATIO", 2)
    return found


def test_repeated_names_take_no_room(path: Path) -> None:
    if path.suffix == ".pickle":  # it repeats the place of allocations, which is no name
        with pytest.raises(FormatError, match="long texts are repeated"):
            nadi.read(path)
    else:
        assert nadi.read(path).nodes["name"].to_list().count(NAME) >= COUNT


def test_events_far_larger_than_their_file_are_not_written(path: Path) -> None:
    found = sniff(path)
    assert found is not None
    with pytest.raises(FormatError, match="long texts are repeated"):
        found.events_of(read_file(path))
