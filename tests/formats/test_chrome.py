"""Writing a trace as PyTorch's profiler does: what is written reads as the same trace."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

import nadi
from nadi.files.kineto import kineto_encode
from nadi.files.timeline import chrome
from nadi.trace.attributes import AttributeBuilder
from nadi.trace.issues import IssueLog
from nadi.trace.schema import NODES
from tests.amounts import some
from tests.conftest import PairWriter

DEVICE_FILES = sorted(
    f"{folder}/{file}.json.gz"
    for folder, files in {
        "cpu_ddp4": [f"device_{rank}" for rank in range(4)],
        "cpu_mlp": ["device"],
        "cpu_transformer4": ["device"],
        "cpu_transformer_big": ["device"],
        "cpu_transformer_mid": ["device"],
        "gpu_dlrm8": [f"device_{rank}" for rank in range(8)],
        "gpu_hta": [
            "alexnet", "cpu_only", "cuda_event_sync", "cuda_event_sync_multi_stream",
            "ns_resolution", "simple_add", "timeline_analysis", "trace_filter_rank0",
            "trace_filter_rank1", "triton",
        ],
        "gpu_resnet_pair": ["device"],
        "gpu_simple_add_pair": ["device"],
    }.items()
    for file in files
)  # fmt: skip
SMALL_FILES = [name for name in DEVICE_FILES if "_big" not in name and "_mid" not in name]
TIME_KEYS = ("ts", "dur")


def write(trace: nadi.Trace, path: Path) -> dict[str, int]:
    """Write a trace; gives the issues met."""
    log = IssueLog()
    path.write_bytes(b"".join(kineto_encode.encode(trace, log)))
    return dict(log.table().select("code", "count").iter_rows())


def without_attributes(trace: nadi.Trace) -> nadi.Trace:
    return replace(trace, given_attributes=AttributeBuilder().build())


def assert_same(trace: nadi.Trace, again: nadi.Trace, *, events_too: bool) -> None:
    """Compare what both traces hold; without ``events_too`` of events only their order."""
    nodes, others = trace.nodes, again.nodes
    if not events_too:
        order = pl.col("event").rank("ordinal").cast(pl.Int64)
        nodes, others = nodes.with_columns(event=order), others.with_columns(event=order)
    for column in NODES.dtypes:
        assert nodes[column].to_list() == others[column].to_list(), column
    assert trace.groups.equals(again.groups)
    assert (trace.rank, trace.world_size, trace.process) == (
        again.rank, again.world_size, again.process,
    )  # fmt: skip


@pytest.mark.parametrize("name", some(DEVICE_FILES, of=4, first=1))
def test_what_is_written_from_columns_reads_as_the_same_nodes(
    name: str, shared_traces: Path, tmp_path: Path
) -> None:
    trace = without_attributes(nadi.read(shared_traces / name))
    assert write(trace, tmp_path / "trace.json") == {}
    assert_same(trace, nadi.read(tmp_path / "trace.json"), events_too=False)


class _RawEvent(msgspec.Struct):
    args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _RawFile(msgspec.Struct):
    traceEvents: list[msgspec.Raw]  # noqa: N815


def with_recorded(trace: nadi.Trace, content: bytes) -> nadi.Trace:
    """Give the trace with the attributes that its file holds."""
    builder = AttributeBuilder()
    events = msgspec.json.decode(content, type=_RawFile).traceEvents
    row_of = {event: row for row, event in enumerate(trace.nodes["event"])}
    keys = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    for key, raw in keys.items():
        if key != "traceEvents":
            builder.add(-1, key, "json", bytes(raw))
    for number, raw in enumerate(events):
        if number not in row_of:
            builder.add(-1, "event", "json", bytes(raw))
            continue
        for key, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items():
            if key not in ("ph", "name", "ts", "dur"):
                builder.add(row_of[number], key, "json", bytes(value))
    return replace(trace, given_attributes=builder.build())


def loads(content: bytes) -> Any:
    """Read JSON with exact numbers."""
    return json.loads(content, parse_float=Decimal)


@pytest.mark.parametrize("name", some(SMALL_FILES, of=4, first=2))
def test_with_what_was_recorded_the_whole_file_comes_back(
    name: str, shared_traces: Path, tmp_path: Path
) -> None:
    content = gzip.decompress((shared_traces / name).read_bytes())
    trace = with_recorded(without_attributes(nadi.read(shared_traces / name)), content)
    assert write(trace, tmp_path / "trace.json") == {}
    assert loads((tmp_path / "trace.json").read_bytes()) == loads(content)
    assert_same(trace, nadi.read(tmp_path / "trace.json"), events_too=True)


def file_of(events: list[dict[str, Any]], **keys: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, **keys, "traceEvents": events}).encode()


def event(**keys: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 2, "ts": 5, "dur": 1, **keys}


def read(folder: Path, content: bytes) -> nadi.Trace:
    (folder / "read.json").write_bytes(content)
    return nadi.read(folder / "read.json")


INTEGERS = st.one_of(st.integers(0, 300), st.integers(-(2**63), 2**63 - 1))
args = st.fixed_dictionaries(
    {},
    optional={
        "External id": INTEGERS, "Record function id": INTEGERS, "Sequence number": INTEGERS,
        "correlation": INTEGERS, "device": st.integers(-1, 2**31), "stream": INTEGERS,
        "bytes": INTEGERS, "In msg nelems": st.integers(-1, 2**50),
        "dtype": st.sampled_from(["Float", "Byte", "no type"]),
        "Collective name": st.sampled_from(["_allgather_base", "reduce_scatter", "none"]),
        "Process Group Name": st.sampled_from(["0", "\N{SNOWMAN}", "absent"]),
    },
)  # fmt: skip
NAMES = (
    "gloo:all_reduce", "ncclDevKernel_Generic_4", "ncclDevKernel_AllReduce_Sum", '"\\\n\x01',
)  # fmt: skip
CATEGORIES = (
    "cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver", "kernel",
    "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation",
)  # fmt: skip
events = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(CATEGORIES),
        "name": st.one_of(
            st.sampled_from(NAMES), st.text(st.characters(codec="utf-8"), max_size=5)
        ),
        "pid": st.just(3),
        "tid": st.sampled_from([1, 2, 2**40]),
        "ts": st.integers(0, 12),
        "dur": st.integers(0, 9),
    },
    optional={"args": args},
)
groups = st.lists(
    st.fixed_dictionaries(
        {"pg_name": st.sampled_from(["0", "\N{SNOWMAN}"]), "pg_desc": st.text(max_size=3)},
        optional={"ranks": st.lists(st.integers(0, 9), unique=True), "pg_size": st.integers(0, 5)},
    ),
    max_size=2,
    unique_by=lambda group: group["pg_name"],
)
distributed = st.fixed_dictionaries(
    {}, optional={"rank": st.integers(-1, 9), "world_size": st.integers(1, 9), "pg_config": groups}
)


@given(st.lists(events, max_size=6), distributed, st.sampled_from([0, 1, 2**60]))
@example([event(cat="kernel", name="k", args={"stream": -1})], {}, 0)
@example([event(args={"bytes": -(2**63), "correlation": 2**63 - 1, "External id": 0})], {}, 0)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_trace_that_was_read_comes_back(
    tmp_path: Path, events: list[dict[str, Any]], distributed: dict[str, Any], base: int
) -> None:
    content = file_of(events, distributedInfo=distributed, baseTimeNanoseconds=base)
    recorded = with_recorded(read(tmp_path, content), content)
    bare = without_attributes(recorded)
    for trace in (bare, recorded):
        assert write(trace, tmp_path / "written.json") == {}
        assert_same(trace, nadi.read(tmp_path / "written.json"), events_too=True)
    assert loads((tmp_path / "written.json").read_bytes()) == loads(content)


def test_recorded_keys_are_written_as_they_stood(tmp_path: Path) -> None:
    content = file_of(
        [
            {"ph": "i", "cat": "mark", "name": "first"},
            event(cat="hpu_op", tid="main loop", pid="host", cname="red", args={"x": [1, {}]}),
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "mine"}},
            event(ts=2),
        ],
        displayTimeUnit="ns",
        own={"a": [1, 2]},
    )
    trace = with_recorded(read(tmp_path, content), content)
    write(trace, tmp_path / "written.json")
    assert loads((tmp_path / "written.json").read_bytes()) == loads(content)


def test_times_count_from_a_base_so_that_they_are_short(tmp_path: Path) -> None:
    start = 1_790_857_026_123_456_789
    trace = read(tmp_path, file_of([event(ts=0)], baseTimeNanoseconds=start))
    write(without_attributes(trace), tmp_path / "written.json")
    written = loads((tmp_path / "written.json").read_bytes())
    assert written["baseTimeNanoseconds"] == 1_790_857_026_000_000_000
    assert written["traceEvents"][0]["ts"] == Decimal("123456.789")
    assert written["traceEvents"][0]["dur"] == Decimal("1.000")


@pytest.mark.parametrize("base", [10**30, 2**63, -5, "x", None])
def test_a_host_file_may_call_anything_a_base_time(
    pair: PairWriter, tmp_path: Path, base: object
) -> None:
    pair.op("aten::mm", 3, 4)
    host, device = pair.write()
    host.write_text(json.dumps({**json.loads(host.read_text()), "baseTimeNanoseconds": base}))
    trace = nadi.link_pair(nadi.read(host), nadi.read(device))
    nadi.write(trace, tmp_path / "again.trace.json")
    events = json.loads((tmp_path / "again.trace.json").read_text())["traceEvents"]
    assert [event["ts"] for event in events if event["name"] == "aten::mm"] == [3]


def test_times_before_the_recorded_base_are_negative(tmp_path: Path) -> None:
    content = file_of([event(ts=-1.002), event(ts=-0.001)], baseTimeNanoseconds=10**9)
    trace = with_recorded(read(tmp_path, content), content)
    write(trace, tmp_path / "written.json")
    assert loads((tmp_path / "written.json").read_bytes()) == loads(content)


def test_processes_threads_and_streams_have_names(tmp_path: Path) -> None:
    content = file_of(
        [
            event(tid=9),
            event(cat="kernel", pid=0, tid=7, args={"device": 0, "stream": 7}),
        ],
        distributedInfo={"rank": 2},
    )
    trace = without_attributes(read(tmp_path, content))
    write(trace, tmp_path / "written.json")
    titles = [e for e in loads((tmp_path / "written.json").read_bytes())["traceEvents"]
              if e["ph"] == "M"]  # fmt: skip
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in titles if e["name"] == "thread_name"}
    assert named == {(1, 9): "thread 9", (0, 7): "stream 7"}
    labels = {e["pid"]: e["args"]["labels"] for e in titles if e["name"] == "process_labels"}
    assert labels == {1: "CPU", 0: "GPU 0"}


def test_nodes_without_a_time_are_counted(demo_run: nadi.bottlenecks.Run, tmp_path: Path) -> None:
    for trace in demo_run.job.traces:
        untimed = int((trace.column("start") < 0).sum())
        issues = write(trace, tmp_path / "written.json")
        assert issues.pop("chrome.untimed") == untimed
        # gloo records neither bytes nor groups; linking found them
        assert issues == {"chrome.recorded-args": int((trace.column("comm_bytes") >= 0).sum())}
        again = nadi.read(tmp_path / "written.json")
        assert again.nodes.height == trace.nodes.height - untimed
        timed = trace.nodes.filter(pl.col("start") >= 0)
        for column in ("name", "start", "duration", "thread", "rf_id"):
            assert again.nodes[column].to_list() == timed[column].to_list(), column
        assert (again.rank, again.process) == (trace.rank, trace.process)


def test_groups_that_the_recorded_keys_lack_are_added(tmp_path: Path) -> None:
    info = {"backend": "nccl", "pg_config": [{"pg_name": "0", "ranks": [0, 1], "own": 1}]}
    content = file_of([event()], distributedInfo=info)
    trace = with_recorded(read(tmp_path, content), content)
    more = trace.groups.with_columns(name=pl.lit("1"), description=pl.lit("tp"))
    changed = replace(trace, groups=pl.concat([trace.groups, more]), rank=1, world_size=2)
    write(changed, tmp_path / "written.json")
    again = nadi.read(tmp_path / "written.json")
    assert again.groups.equals(changed.groups)
    assert (again.rank, again.world_size) == (1, 2)
    written = loads((tmp_path / "written.json").read_bytes())["distributedInfo"]
    assert written["backend"] == "nccl"
    assert written["pg_config"][0] == info["pg_config"][0]


def test_sizes_that_no_reader_takes_are_counted(tmp_path: Path) -> None:
    content = file_of([event(args={"In msg nelems": 2**55, "dtype": "Long"})])
    trace = without_attributes(read(tmp_path, content))
    assert trace.column("comm_bytes").tolist() == [2**58]
    assert write(trace, tmp_path / "written.json") == {"chrome.comm-bytes": 1}
    assert nadi.read(tmp_path / "written.json").column("comm_bytes").tolist() == [-1]


def test_a_trace_without_nodes_is_a_file_without_events(tmp_path: Path) -> None:
    trace = without_attributes(read(tmp_path, file_of([])))
    assert write(trace, tmp_path / "written.json") == {}
    assert nadi.read(tmp_path / "written.json").nodes.height == 0


def test_pieces_are_written_in_any_number(
    shared_traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gzip.decompress((shared_traces / "gpu_hta/cuda_event_sync.json.gz").read_bytes())
    trace = nadi.read(shared_traces / "gpu_hta/cuda_event_sync.json.gz")
    trace = with_recorded(without_attributes(trace), content)
    whole = b"".join(kineto_encode.encode(trace, IssueLog()))
    for size in (1, 2000):
        monkeypatch.setattr(chrome, "_BYTES_AT_ONCE", size)
        pieces = list(kineto_encode.encode(trace, IssueLog()))
        assert len(pieces) > 9
        assert b"".join(pieces) == whole


def test_positions_decide_the_order_and_those_without_come_first(tmp_path: Path) -> None:
    trace = without_attributes(read(tmp_path, file_of([event(name=n, ts=1) for n in "abc"])))
    events = trace.nodes.with_columns(event=pl.Series(np.array([7, -1, 3])))
    write(replace(trace, nodes=events), tmp_path / "written.json")
    assert nadi.read(tmp_path / "written.json").nodes["name"].to_list() == ["b", "c", "a"]
