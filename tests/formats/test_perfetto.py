"""Writing Perfetto's format, read back by the protobuf package."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.files.timeline import perfetto, trace_timeline
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance
from tests.reference.perfetto_import import Timeline, load
from tests.reference.perfetto_messages import parse

COLUMNS = {
    "id": "id", "rf_id": "record function id", "external_id": "external id",
    "correlation": "correlation", "sequence": "sequence", "stream": "stream",
    "bytes": "bytes", "exclusive": "exclusive ns", "comm_bytes": "comm bytes",
    "src": "source rank", "dst": "destination rank", "tag": "tag", "is_async": "asynchronous",
    "flops": "flops",
}  # fmt: skip


def write(trace: nadi.Trace) -> tuple[Timeline, dict[str, int]]:
    log = IssueLog()
    timeline = load(b"".join(trace_timeline.encode(trace, log)))
    return timeline, dict(log.table().select("code", "count").iter_rows())


def make_trace(rows: list[dict[str, Any]], **fields: Any) -> nadi.Trace:
    """Make a trace of nodes given by their columns."""
    usual = {c.name: c.missing for c in NODES.columns}
    usual |= {"name": "op", "kind": "COMP", "category": "operator"}
    columns: dict[str, Any] = {"id": list(range(len(rows)))}
    for name in ("name", "kind", "category", *{name for row in rows for name in row}):
        columns[name] = [row.get(name, usual[name]) for row in rows]
    deps = fields.pop("deps", [])
    src, dst, kind = zip(*deps, strict=True) if deps else ((), (), ())
    return nadi.Trace(
        nodes=NODES.build(len(rows), columns),
        deps=DEPS.build(len(deps), {"src": src, "dst": dst, "kind": kind}),
        groups=fields.pop("groups", GROUPS.empty()),
        issues=ISSUES.empty(),
        provenance=Provenance("", ()),
        **fields,
    )


def expected_slices(trace: nadi.Trace) -> list[tuple[Any, ...]]:
    """Give name, category, start, end and notes of every node that has a time."""
    found = []
    for node in trace.nodes.iter_rows(named=True):
        if node["start"] < 0:
            continue
        notes = {title: node[key] for key, title in COLUMNS.items() if node[key] != -1}
        if node["comm_type"] != "none":
            notes["comm type"] = node["comm_type"]
        if node["group"] >= 0:
            notes["group"] = trace.groups["name"][node["group"]]
        end = node["start"] + node["duration"]
        found.append((node["name"], node["category"], node["start"], end, sorted(notes.items())))
    return sorted(found, key=str)


def found_slices(timeline: Timeline) -> list[tuple[Any, ...]]:
    return sorted(
        ((s.name, s.category, s.start, s.end, sorted(s.notes.items())) for s in timeline.slices),
        key=str,
    )


def track_names(timeline: Timeline) -> Counter[str]:
    """Count the slices by process or parent, and by thread or name, of their track."""
    found: Counter[str] = Counter()
    for s in timeline.slices:
        track = timeline.tracks[s.track]
        if track.HasField("thread"):
            found[f"process {track.thread.pid} thread {track.thread.tid}"] += 1
        else:
            parent = timeline.tracks[track.parent_uuid]
            found[f"{parent.name or parent.process.process_name} / {track.name}"] += 1
    return found


DEVICE_FILES = (
    "gpu_resnet_pair/device.json.gz",
    "gpu_hta/alexnet.json.gz",
    "gpu_hta/cuda_event_sync_multi_stream.json.gz",
    "gpu_hta/timeline_analysis.json.gz",
    "gpu_dlrm8/device_5.json.gz",
    "cpu_ddp4/device_1.json.gz",
)


@pytest.mark.parametrize("name", DEVICE_FILES)
def test_every_node_is_a_slice_with_its_exact_times(name: str, shared_traces: Path) -> None:
    trace = nadi.read(shared_traces / name)
    timeline, issues = write(trace)
    assert found_slices(timeline) == expected_slices(trace)
    assert issues == {}


def test_a_linked_trace_has_arrows_for_its_dependencies(demo_run: nadi.bottlenecks.Run) -> None:
    for trace in demo_run.job.traces:
        timeline, issues = write(trace)
        assert found_slices(timeline) == expected_slices(trace)
        ids = trace.nodes["id"]
        drawn = trace.deps.filter(pl.col("kind").is_in(["launch", "sync", "thread"]))
        expected = sorted((ids[src], ids[dst]) for src, dst in drawn.select("src", "dst").rows())
        found = sorted((a.notes["id"], b.notes["id"]) for a, b in timeline.flows)
        assert len(expected) > 0
        assert len(found) + issues.get("perfetto.arrow", 0) == len(expected)
        assert not Counter(found) - Counter(expected)


def test_threads_and_streams_have_tracks_under_their_process_and_device() -> None:
    host, work = {"start": 1, "duration": 1}, {"start": 1, "duration": 1, "is_cpu": False}
    rows = [
        {**host, "thread": 70}, {**host, "thread": 71}, {**host, "thread": 2**40},
        {**work, "device": 0, "stream": 7}, {**work, "device": 0, "stream": 20},
        {**work, "device": 1, "stream": 7}, {**work, "device": -1, "stream": -1},
    ]  # fmt: skip
    timeline, _ = write(make_trace(rows, rank=3, process=70))
    assert track_names(timeline) == {
        "process 70 thread 70": 1,
        "process 70 thread 71": 1,
        f"rank 3 / thread {2**40}": 1,
        "rank 3 device 0 / stream 7": 1,
        "rank 3 device 0 / stream 20": 1,
        "rank 3 device 1 / stream 7": 1,
        "rank 3 device / without a stream": 1,
    }


def test_what_names_no_device_goes_to_the_only_one() -> None:
    work = {"start": 1, "duration": 1, "is_cpu": False}
    rows = [{**work, "device": 2, "stream": 7}, work]
    names = track_names(write(make_trace(rows))[0])
    assert names == {"device 2 / stream 7": 1, "device 2 / without a stream": 1}


def test_an_unknown_process_has_no_made_up_id() -> None:
    timeline, _ = write(make_trace([{"start": 1, "duration": 1, "thread": 1}]))
    assert track_names(timeline) == {"host / thread 1": 1}
    assert not any(t.HasField("process") or t.HasField("thread") for t in timeline.tracks.values())


def test_slices_that_cut_others_go_to_a_track_beside() -> None:
    rows = [
        {"name": name, "start": start, "duration": duration, "thread": 5}
        for name, start, duration in (("a", 0, 10), ("b", 5, 10), ("c", 7, 10), ("d", 8, 1))
    ]
    timeline, _ = write(make_trace(rows, process=5))
    tracks = {s.name: timeline.tracks[s.track] for s in timeline.slices}
    thread = tracks["a"].uuid
    assert tracks["a"].thread.tid == 5
    assert [tracks[name].name for name in "bcd"] == [
        "thread 5 (overlapping)", "thread 5 (overlapping 2)", "thread 5 (overlapping 2)",
    ]  # fmt: skip
    assert {tracks[name].parent_uuid for name in "bc"} == {thread}


def test_nodes_without_a_time_are_counted() -> None:
    rows = [{}, {"start": 4, "duration": 0}, {}]
    deps = [(0, 1, "data"), (0, 2, "data")]
    timeline, issues = write(make_trace(rows, deps=deps))
    assert len(timeline.slices) == 1
    assert timeline.flows == []
    assert issues == {"perfetto.untimed": 2}


def test_a_trace_without_times_is_a_file_without_slices() -> None:
    timeline, issues = write(make_trace([{}]))
    assert timeline.slices == []
    assert issues == {"perfetto.untimed": 1}
    assert write(make_trace([]))[0].slices == []


def test_arrows_go_forward_in_time() -> None:
    names = "launcher", "kernel", "wait", "early"
    times = (0, 2), (5, 5), (3, 7), (1, 4)
    rows = [
        {"name": name, "start": start, "duration": duration, "thread": thread}
        for thread, (name, (start, duration)) in enumerate(zip(names, times, strict=True), 1)
    ]
    deps = [(0, 1, "launch"), (1, 2, "sync"), (1, 3, "data"), (0, 2, "order")]
    timeline, issues = write(make_trace(rows, deps=deps))
    arrows = [(a.name, b.name) for a, b in timeline.flows]
    assert arrows[0] == ("launcher", "kernel")
    # the wait ends with the kernel: which of both ends stands first is not known
    assert arrows[1:] in ([("kernel", "wait")], [])
    assert issues == {"perfetto.arrow": 2 - len(arrows[1:])}


def test_both_clocks_show_the_same_and_times_are_exact() -> None:
    start = 1_790_857_026_000_000_001
    timeline, _ = write(make_trace([{"start": start, "duration": 3}]))
    assert timeline.clocks[1] == timeline.clocks[6]
    assert (timeline.slices[0].start, timeline.slices[0].end) == (start, start + 3)


def test_files_of_several_ranks_make_one_file(demo_run: nadi.bottlenecks.Run) -> None:
    traces = demo_run.job.traces
    files = [b"".join(trace_timeline.encode(trace, IssueLog())) for trace in traces]
    packets = parse(b"".join(files))
    uuids = [p.track_descriptor.uuid for p in packets if p.HasField("track_descriptor")]
    assert len(set(uuids)) == len(uuids)
    flows = Counter(flow for p in packets for flow in p.track_event.flow_ids)
    assert set(flows.values()) == {1}
    assert len({p.trusted_packet_sequence_id for p in packets}) == len(traces)


nodes = st.fixed_dictionaries(
    {"start": st.integers(0, 9), "duration": st.integers(0, 5), "thread": st.integers(1, 2)},
    optional={
        "name": st.text(st.characters(codec="utf-8"), max_size=5),
        "rf_id": st.integers(-(2**63), 2**63 - 1),
        "correlation": st.sampled_from([0, 127, 128, 2**31, 2**63 - 1]),
        "comm_type": st.sampled_from(["all_reduce", "send"]),
        "group": st.integers(0, 1),
        "category": st.sampled_from(["python", "driver"]),
    },
)
deps = st.tuples(
    st.integers(0, 7), st.integers(0, 7),
    st.sampled_from(["launch", "sync", "thread", "data", "ctrl", "call"]),
)  # fmt: skip


@given(st.lists(nodes, max_size=8), st.lists(deps, max_size=6), st.integers(0, 2**62))
def test_any_trace_comes_back(
    rows: list[dict[str, Any]], deps: list[tuple[int, int, str]], offset: int
) -> None:
    rows = [{**row, "start": row["start"] + offset} for row in rows]
    groups = GROUPS.build(2, {"name": ["0", "\N{SNOWMAN}"], "ranks": [[0], [0, 1]]})
    deps = [dep for dep in deps if dep[0] < len(rows) and dep[1] < len(rows)]
    trace = make_trace(rows, groups=groups, deps=deps, process=1, rank=2**31 - 1)
    timeline, issues = write(trace)
    assert found_slices(timeline) == expected_slices(trace)
    drawn = sum(kind != "call" for _, _, kind in deps)
    assert len(timeline.flows) + issues.get("perfetto.arrow", 0) == drawn


def test_pieces_are_written_in_any_number(
    demo_run: nadi.bottlenecks.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = replace(demo_run.job.traces[0])
    whole = b"".join(trace_timeline.encode(trace, IssueLog()))
    monkeypatch.setattr(perfetto, "_PACKETS_AT_ONCE", 77)
    assert b"".join(trace_timeline.encode(trace, IssueLog())) == whole
