"""Reading Kineto traces."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

import nadi


def write(folder: Path, *events: dict[str, Any], **keys: Any) -> Path:
    path = folder / "device.json"
    path.write_text(json.dumps({"schemaVersion": 1, **keys, "traceEvents": list(events)}))
    return path


def event(**keys: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 2, "ts": 5, "dur": 1, **keys}


def test_times_keep_every_digit(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(
        '{"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000, "traceEvents": ['
        '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":4394854389772.793,"dur":0.001}]}'
    )
    trace = nadi.read(path)
    assert trace.column("start").tolist() == [1790857026000000000 + 4394854389772793]
    assert trace.column("duration").tolist() == [1]


def test_nodes_are_in_order_and_know_their_event(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        event(name="later", ts=9),
        event(name="short", ts=5, dur=1),
        event(name="long", ts=5, dur=2),
        event(name="call", ts=5, dur=2, cat="cuda_runtime", args={"correlation": 3}),
        event(name="mark", ts=5, dur=2, cat="user_annotation"),
    )
    trace = nadi.read(path)
    assert trace.nodes["name"].to_list() == ["mark", "long", "call", "short", "later"]
    assert trace.column("event").tolist() == [4, 2, 3, 1, 0]
    assert trace.nodes["category"].to_list()[:3] == ["annotation", "operator", "runtime"]


def test_device_work_has_a_stream_and_host_work_a_thread(tmp_path: Path) -> None:
    args = {"stream": 7, "device": 0, "correlation": 3, "bytes": 12}
    path = write(
        tmp_path,
        event(ts=1, tid=99),
        event(ts=2, cat="gpu_memcpy", pid=0, tid=7, args=args),
        event(ts=3, cat="cuda_sync", pid=0, tid=7, args={"stream": 2**32 - 1}),
    )
    trace = nadi.read(path)
    assert trace.column("thread").tolist() == [99, -1, -1]
    assert trace.column("stream").tolist() == [-1, 7, -1]
    assert trace.nodes["is_cpu"].to_list() == [True, False, False]
    assert trace.column("bytes").tolist() == [-1, 12, -1]
    assert trace.column("correlation").tolist() == [-1, 3, -1]


def test_rank_world_size_groups_and_process(tmp_path: Path) -> None:
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl",
               "ranks": [1, 0]}]  # fmt: skip
    info = {"backend": "nccl", "rank": 1, "world_size": 2, "pg_count": 1, "pg_config": groups}
    trace = nadi.read(write(tmp_path, event(pid=4), distributedInfo=info))
    assert (trace.rank, trace.world_size, trace.process) == (1, 2, 4)
    assert trace.groups.rows() == [("0", "default_pg", [0, 1], "cuda:nccl")]


def test_a_group_without_ranks_is_of_all(tmp_path: Path) -> None:
    groups = [{"pg_name": "0", "ranks": [], "pg_size": 3}, {"pg_name": "1", "ranks": []}]
    info = {"rank": 0, "world_size": 2, "pg_config": groups}
    trace = nadi.read(write(tmp_path, event(), distributedInfo=info))
    assert trace.groups["ranks"].to_list() == [[0, 1, 2], [0, 1]]


def test_a_kernel_whose_name_does_not_tell_is_of_the_stated_type(tmp_path: Path) -> None:
    name = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
    path = write(
        tmp_path,
        event(ts=1, cat="kernel", name=name, args={"Collective name": "_allgather_base"}),
        event(ts=2, cat="kernel", name=name),
    )
    nodes = nadi.read(path).nodes
    assert nodes["comm_type"].to_list() == ["all_gather", "other"]
    assert nodes["kind"].to_list() == ["COMM_COLL", "COMM_COLL"]


def test_communication_is_found_by_name_and_counted_in_bytes(tmp_path: Path) -> None:
    args = {"stream": 1, "In msg nelems": 10, "dtype": "BFloat16", "Process Group Name": "0"}
    groups = {"pg_config": [{"pg_name": "0", "ranks": [0]}]}
    path = write(
        tmp_path,
        event(ts=1, cat="kernel", name="ncclDevKernel_ReduceScatter_Sum_bf16_RING", args=args),
        event(ts=2, cat="kernel", name="ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)"),
        event(ts=3, cat="user_annotation", name="gloo:all_gather"),
        event(ts=4, cat="user_annotation", name="nccl:all_gather"),
        event(ts=5, cat="kernel", name="void reduce_kernel<float>"),
        distributedInfo=groups,
    )
    nodes = nadi.read(path).nodes
    assert nodes["comm_type"].to_list() == ["reduce_scatter", "all_reduce", "all_gather", "none",
                                            "none"]  # fmt: skip
    assert nodes["kind"].to_list() == ["COMM_COLL"] * 3 + ["COMP"] * 2
    assert nodes["comm_bytes"].to_list()[:2] == [20, -1]
    assert nodes["group"].to_list()[:2] == [0, -1]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        event(),
        event(cat="mystery"),
        event(cat="mystery"),
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 1, "tid": 1, "ts": 1},
    )
    trace = nadi.read(path)
    assert trace.nodes.height == 1
    counts = {code: count for code, _, count, _, _ in trace.issues.iter_rows()}
    assert counts == {"kineto.category": 2, "kineto.forward-backward": 1}
    assert "mystery" in trace.issues["detail"][0]


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, event())
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert nadi.read(path).nodes.height == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dur": -1}, "dur"),
        ({"dur": None}, "dur"),
        ({"ts": "5"}, "ts"),
        ({"ts": None}, "ts"),
        ({"ts": 9e18}, "ts"),
        ({"args": {"In msg nelems": 2**60}}, "In msg nelems"),
        ({"args": {"correlation": "x"}}, "correlation"),
        ({"args": {"External id": 2**64}}, "64-bit"),
        ({"name": 3}, "name"),
    ],
)
def test_errors_name_the_event(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path, event(), event(**change))
    with pytest.raises(nadi.errors.FormatError, match=re.escape("$.traceEvents[1]")) as caught:
        nadi.read(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_duration_is_an_error(tmp_path: Path) -> None:
    without = event()
    del without["dur"]
    with pytest.raises(nadi.errors.FormatError, match=re.escape("$.traceEvents[0].dur")):
        nadi.read(write(tmp_path, without))


def test_times_out_of_range_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(nadi.errors.FormatError, match=r"traceEvents\[1\]\.ts"):
        nadi.read(write(tmp_path, event(), event(ts=9000000000000000), baseTimeNanoseconds=2**61))


def test_an_end_out_of_range_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(nadi.errors.FormatError, match=r"too long - at \$\.traceEvents\[0\]\.dur"):
        nadi.read(write(tmp_path, event(dur=9223372036854775)))


def test_threads_with_names_are_threads_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path, event(tid="b"), event(tid="a"), event(tid=5), event(tid="b"))
    assert nadi.read(path).column("thread").tolist() == [7, 6, 5, 7]


def test_events_that_are_not_complete_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, event(), event(ph="B"), event(ph="E"))
    assert nadi.read(path).issues.select("code", "count").rows() == [("kineto.incomplete", 2)]
