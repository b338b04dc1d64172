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
def events(demo_run: nadi.bottlenecks.Run, tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    path = tmp_path_factory.mktemp("timeline") / "timeline.json.gz"
    nadi.graph.write_timeline(path, demo_run.replay, demo_run.path)
    content = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return content["traceEvents"]


def slices(events: list[Event]) -> list[Event]:
    return [e for e in events if e["ph"] == "X" and e["cat"] != "critical_path"]


def test_every_operation_is_there_with_its_exact_time(
    events: list[Event], demo_run: nadi.bottlenecks.Run
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
    first = {rank: min(tid for pid, tid in named if pid == rank) for rank in range(4)}
    assert [named[rank, first[rank]] for rank in range(4)] == ["critical path"] * 4
    # Perfetto takes track N of process N, and track 0 of any, for its main thread
    assert {tid for _, tid in named}.isdisjoint(range(4))
    assert len(named) == len({(pid, name) for (pid, _), name in named.items()})
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {rank: f"rank {rank}" for rank in range(4)}


def test_the_path_is_shown_whole_and_without_overlap(
    events: list[Event], demo_run: nadi.bottlenecks.Run
) -> None:
    shown = sorted(
        (e for e in events if e["ph"] == "X" and e["cat"] == "critical_path"),
        key=lambda e: e["ts"],
    )
    assert sum(e["dur"] for e in shown) * 1000 == demo_run.path.length
    for one, other in pairwise(shown):
        assert one["ts"] + one["dur"] == other["ts"]


def test_operations_on_the_path_are_marked(
    events: list[Event], demo_run: nadi.bottlenecks.Run
) -> None:
    marked = {(e["pid"], e["args"]["node"]) for e in slices(events) if "critical" in e["args"]}
    on_path = demo_run.path.segments.filter(RUNS_ITSELF).select("rank", "id").unique().rows()
    assert set(on_path) <= marked
    assert len(marked) < len(slices(events))


def test_slices_of_a_track_lie_in_each_other_or_apart(events: list[Event]) -> None:
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for e in slices(events):
        tracks[e["pid"], e["tid"]].append(e)
    for track in tracks.values():
        open_ends: list[Decimal] = []
        for e in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            while open_ends and open_ends[-1] <= e["ts"]:
                open_ends.pop()
            assert not open_ends or e["ts"] + e["dur"] <= open_ends[-1], e
            open_ends.append(e["ts"] + e["dur"])


def test_arrows_lead_from_the_start_of_a_slice_to_the_start_of_a_later_one(
    events: list[Event],
) -> None:
    tracks: dict[tuple[int, int], set[Decimal]] = defaultdict(set)
    for e in slices(events):
        tracks[e["pid"], e["tid"]].add(e["ts"])
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) > 100
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
        for end in (start, ends[number]):
            assert end["ts"] in tracks[end["pid"], end["tid"]]


def test_a_file_appears_only_when_it_is_complete(
    demo_run: nadi.bottlenecks.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "timeline.json.gz"
    path.write_bytes(b"older")

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("nadi.files.timeline.chrome._ends", fail)
    with pytest.raises(MemoryError):
        nadi.graph.write_timeline(path, demo_run.replay, demo_run.path)
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]
