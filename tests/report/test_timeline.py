"""The timeline: what trace viewers need to show it."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi

Event = dict[str, Any]
RUNS_ITSELF = (pl.col("node") >= 0) & pl.col("kind").cast(str).is_in(["host op", "kernel"])


@pytest.fixture(scope="module")
def events(demo_run: nadi.Run, tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    path = tmp_path_factory.mktemp("timeline") / "timeline.json.gz"
    nadi.write_timeline(path, demo_run.replay, demo_run.path)
    content = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return content["traceEvents"]


def slices(events: list[Event]) -> list[Event]:
    return [e for e in events if e["ph"] == "X" and e["cat"] != "critical_path"]


def test_every_operation_is_there_with_its_exact_time(
    events: list[Event], demo_run: nadi.Run
) -> None:
    table = demo_run.replay.schedule().table
    expected = sorted(table.select("rank", "start", "end").rows())
    found = sorted(
        (e["pid"], int(e["ts"] * 1000), int((e["ts"] + e["dur"]) * 1000)) for e in slices(events)
    )
    assert found == expected


def test_every_track_has_a_name_and_a_place(events: list[Event]) -> None:
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xsf"}
    assert used <= set(named)
    assert [named[rank, 0] for rank in range(4)] == ["critical path"] * 4
    assert len(named) == len({(pid, name) for (pid, _), name in named.items()})
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {rank: f"rank {rank}" for rank in range(4)}


def test_the_path_is_shown_whole_and_without_overlap(
    events: list[Event], demo_run: nadi.Run
) -> None:
    shown = sorted(
        (e for e in events if e["ph"] == "X" and e["cat"] == "critical_path"),
        key=lambda e: e["ts"],
    )
    assert sum(e["dur"] for e in shown) * 1000 == demo_run.path.length
    for one, other in pairwise(shown):
        assert one["ts"] + one["dur"] == other["ts"]


def test_operations_on_the_path_are_marked(events: list[Event], demo_run: nadi.Run) -> None:
    marked = {(e["pid"], e["args"]["node"]) for e in slices(events) if "critical" in e["args"]}
    on_path = demo_run.path.segments.filter(RUNS_ITSELF).select("rank", "id").unique().rows()
    assert set(on_path) <= marked
    assert len(marked) < len(slices(events))


def test_arrows_begin_and_end_inside_slices(events: list[Event]) -> None:
    tracks: dict[tuple[int, int], list[tuple[Decimal, Decimal]]] = defaultdict(list)
    for e in slices(events):
        tracks[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) > 100
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"] + Decimal("0.001")
        for end in (start, ends[number]):
            spans = tracks[end["pid"], end["tid"]]
            assert any(a <= end["ts"] < b or a == b == end["ts"] for a, b in spans)


def test_a_file_appears_only_when_it_is_complete(
    demo_run: nadi.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "timeline.json.gz"
    path.write_bytes(b"older")

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("nadi.report.timeline._arrows", fail)
    with pytest.raises(MemoryError):
        nadi.write_timeline(path, demo_run.replay, demo_run.path)
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]
