"""Reading Kineto traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.recordings.job_of_files import why_empty


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


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (12345678, 12345678),
        (2**64 - 7, 2**63 - 7),  # a hash of 64 bits without a sign
        ("42", 42),
        (None, -1),
        (-3, -1),
        ("x", -1),
        (10**30, -1),
    ],
    ids=["number", "hash", "text", "null", "negative", "word", "long"],
)
def test_the_id_of_a_communication(tmp_path: Path, value: object, read: int) -> None:
    args = {"stream": 7, "In msg nelems": 4, "dtype": "Float", "Comms Id": value}
    file = write(
        tmp_path,
        event(name="before", ts=0),
        event(name="ncclKernel_AllReduce", cat="kernel", ts=1, args=args),
        event(name="after", ts=2),
    )
    assert nadi.read(file).column("comms_id").tolist() == [-1, read, -1]


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
    ("change", "what"),
    [
        ({"dur": -1}, "dur"),
        ({"dur": None}, "dur"),
        ({"ts": "a"}, "ts"),
        ({"ts": None}, "ts"),
        ({"ts": 9e18}, "ts"),
        ({"ts": -1}, "ts"),
        ({"dur": 4611686018427388}, "dur"),
        ({"name": 3}, "name"),
        ({"cat": 3}, "cat"),
        ({"ph": None}, "ph"),
    ],
)
def test_an_event_that_cannot_be_used_is_kept_and_counted(
    tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    path = write(tmp_path, event(), event(**change))
    trace = nadi.read(path)
    assert trace.column("event").tolist() == [0]
    odd = trace.issues.filter(code="kineto.odd-field")
    assert odd["count"].to_list() == [1]
    assert odd["detail"][0].endswith(f": {what}")
    nadi.write(trace, tmp_path / "again.trace.json")
    again = json.loads((tmp_path / "again.trace.json").read_text())
    assert again["traceEvents"] == [event(), event(**change)]


@pytest.mark.parametrize(
    ("args", "column", "value", "is_odd"),
    [
        ({"bytes": "65536"}, "bytes", 65536, False),
        ({"stream": "7", "device": "1"}, "stream", 7, False),
        ({"stream": "0x7f", "device": 1}, "stream", -1, True),
        ({"stream": None, "device": 1}, "stream", -1, True),
        ({"correlation": "x"}, "correlation", -1, True),
        ({"correlation": 1.5}, "correlation", -1, True),
        ({"External id": 2**64}, "external_id", -1, True),
        ({"external id": 9}, "external_id", 9, False),
        ({"connection_id": 9}, "correlation", 9, False),
        ({"In msg nelems": 2**60}, "comm_bytes", -1, True),
        ({"dtype": 5, "In msg nelems": 3}, "comm_bytes", -1, True),
    ],
)
def test_arguments_of_other_types(
    tmp_path: Path, args: dict[str, Any], column: str, value: int, *, is_odd: bool
) -> None:
    work = event(cat="kernel", pid=0, tid=7, args=args)
    trace = nadi.read(write(tmp_path, work))
    assert trace.column(column).tolist() == [value]
    assert trace.issues["code"].to_list() == ["kineto.odd-field"] * is_odd
    nadi.write(trace, tmp_path / "again.trace.json")
    assert json.loads((tmp_path / "again.trace.json").read_text())["traceEvents"] == [work]


def test_arguments_that_are_no_object_are_counted(tmp_path: Path) -> None:
    trace = nadi.read(write(tmp_path, event(args=[1]), event(args="x"), event(args=None)))
    assert trace.nodes.height == 3
    assert trace.issues.select("code", "count").rows() == [("kineto.odd-field", 2)]


def test_times_as_text_and_with_exponents(tmp_path: Path) -> None:
    times = ("1704161511420306.491", "1.5e3", "12.5", "7")
    path = write(tmp_path, *(event(ts=ts) for ts in times), event(ts=8, dur=5e-05))
    trace = nadi.read(path)
    assert trace.column("start").tolist() == [
        7_000, 8_000, 12_500, 1_500_000, 1704161511420306491,
    ]  # fmt: skip
    assert trace.column("duration").tolist() == [1_000, 0, 1_000, 1_000, 1_000]
    assert trace.issues.height == 0


def test_a_header_of_other_types_is_kept_and_counted(tmp_path: Path) -> None:
    trace = nadi.read(write(tmp_path, event(), baseTimeNanoseconds="any", distributedInfo=[3]))
    assert trace.column("start").tolist() == [5_000]
    assert (trace.rank, trace.world_size) == (-1, -1)
    assert trace.issues["code"].to_list() == ["kineto.odd-field"] * 2
    nadi.write(trace, tmp_path / "again.trace.json")
    again = json.loads((tmp_path / "again.trace.json").read_text())
    assert again["baseTimeNanoseconds"] == "any"
    assert again["traceEvents"] == [event()]


OLD = [
    event(cat="Operator", tid="25738", args={"External id": 2}),
    event(cat="Runtime", tid="25738", ts=6, args={"correlation": 4, "external id": 2}),
    event(cat="Kernel", pid=0, tid="stream 7", ts=8,
          args={"device": 0, "stream": 7, "correlation": 4, "external id": 2}),
    event(cat="Memset", pid=0, tid="stream 7", ts=9, args={"device": 0, "stream": 7, "bytes": 8}),
    event(cat="Memcpy", pid=0, tid="stream 7", ts=10, args={"device": 0, "stream": 7}),
    {"ph": "s", "id": 4, "pid": 1, "tid": 25738, "ts": 6, "cat": "async", "name": "launch"},
]  # fmt: skip


def test_traces_of_torch_1_8(tmp_path: Path) -> None:
    path = write(tmp_path, *OLD)
    trace = nadi.read(path)
    assert trace.nodes["category"].to_list() == [
        "operator", "runtime", "kernel", "memset", "memcpy",
    ]  # fmt: skip
    assert trace.column("thread").tolist() == [25738, 25738, -1, -1, -1]
    assert trace.column("stream").tolist() == [-1, -1, 7, 7, 7]
    assert trace.column("external_id").tolist() == [2, 2, 2, -1, -1]
    assert trace.issues.height == 0
    launches = nadi.load_job(path).traces[0].deps.filter(kind="launch")
    assert launches.select("src", "dst").rows() == [(1, 2)]


def test_a_bare_list_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([*OLD, {}]))
    as_object = nadi.read(write(tmp_path, *OLD, {}))
    trace = nadi.read(path)
    assert trace.nodes.equals(as_object.nodes)
    for name in ("again.trace.json", "own.nadi"):
        nadi.write(trace, tmp_path / name)
        trace = nadi.read(tmp_path / name)
    nadi.write(trace, tmp_path / "last.trace.json")
    assert json.loads((tmp_path / "last.trace.json").read_text())["traceEvents"] == [*OLD, {}]


@pytest.mark.parametrize("damage", ["[1", "[{}] 5", "[{},", '[{"ph":"X"},]'])
def test_a_broken_bare_list_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(damage)
    with pytest.raises(nadi.errors.FormatError):
        nadi.read(path)


@pytest.mark.parametrize(
    ("category", "own"),
    [
        ("hpu_op", "operator"),
        ("xpu_runtime", "runtime"),
        ("xpu_driver", "driver"),
        ("mtia_runtime", "runtime"),
        ("mtia_ccp_events", "kernel"),
        ("privateuse1_runtime", "runtime"),
        ("privateuse1_driver", "driver"),
    ],
)
def test_categories_of_other_vendors_come_back(tmp_path: Path, category: str, own: str) -> None:
    found = event(cat=category, pid=9, tid=801, args={"size": 16})
    trace = nadi.read(write(tmp_path, found))
    assert trace.nodes["category"].to_list() == [own]
    if own == "kernel":  # the device is told by the process alone
        assert trace.nodes.select("device", "stream").rows() == [(9, 801)]
    nadi.write(trace, tmp_path / "own.nadi")
    nadi.write(nadi.read(tmp_path / "own.nadi"), tmp_path / "again.trace.json")
    assert json.loads((tmp_path / "again.trace.json").read_text())["traceEvents"] == [found]


def test_keys_that_an_event_does_not_have_stay_absent(tmp_path: Path) -> None:
    found = {"ph": "X", "cat": "cpu_op", "name": "op", "ts": 5, "dur": 1}
    nadi.write(nadi.read(write(tmp_path, found)), tmp_path / "again.trace.json")
    assert json.loads((tmp_path / "again.trace.json").read_text())["traceEvents"] == [found]


def test_threads_with_names_are_threads_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path, event(tid="b"), event(tid="a"), event(tid=5), event(tid="b"))
    assert nadi.read(path).column("thread").tolist() == [7, 6, 5, 7]


def test_events_that_are_not_complete_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, event(), event(ph="B"), event(ph="E"))
    assert nadi.read(path).issues.select("code", "count").rows() == [("kineto.incomplete", 2)]


def test_ascend_traces(tmp_path: Path) -> None:
    """A bare list: processes tell what events are, arrows what launched a task."""
    host, cann, npu, other = 7, 702, 800, 7051
    names = {host: "Python", cann: "CANN", npu: "Ascend Hardware", other: "Overlap Analysis"}
    told = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in names.items()
    ]
    work = [
        event(name="ProfilerStep#1", pid=host, tid=9, ts="1704161511420000.5", dur=90),
        event(name="aten::add", pid=host, tid=9, ts="1704161511420001", dur=50),
        {"name": "AscendCL@aclnnAdd", "pid": cann, "tid": 9, "ts": "1704161511420002.25",
         "dur": 20.0, "args": {"connection_id": 4}, "ph": "X"},
        {"name": "Add_Add", "pid": npu, "tid": 3, "ts": "1704161511420030.125", "dur": 5.5,
         "args": {"connection_id": 8}, "ph": "X"},
        {"name": "Cast_Cast", "pid": npu, "tid": 3, "ts": "1704161511420036.125", "dur": 5.5,
         "args": {"connection_id": 9}, "ph": "X"},
        {"name": "MEMCPY_ASYNC", "pid": npu, "tid": 3, "ts": "1704161511420043", "dur": 1,
         "ph": "X"},
        {"name": "Computing", "pid": other, "tid": 0, "ts": "1704161511420030.125", "dur": 5,
         "ph": "X"},
    ]  # fmt: skip
    arrows = [
        {"name": "HostToDevice", "ph": ph, "cat": "HostToDevice", "id": str(k), "pid": pid,
         "tid": tid, "ts": ts}
        for k, start in enumerate(("1704161511420030.125", "1704161511420036.125"))
        for ph, pid, tid, ts in (("s", cann, 9, "1704161511420008"), ("f", npu, 3, start))
    ]  # fmt: skip
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps([*work, *told, *arrows]))
    trace = nadi.read(path)
    assert trace.nodes["category"].to_list() == [
        "annotation", "operator", "runtime", "kernel", "kernel", "memcpy",
    ]  # fmt: skip
    assert trace.column("stream").tolist() == [-1, -1, -1, 3, 3, 3]
    assert trace.issues.select("code", "count").rows() == [("kineto.category", 1)]
    launches = nadi.load_job(path).traces[0].deps.filter(kind="launch")
    assert launches.select("src", "dst").rows() == [(2, 3), (2, 4)]
    nadi.write(trace, tmp_path / "own.nadi")
    nadi.write(nadi.read(tmp_path / "own.nadi"), tmp_path / "again.trace.json")
    again = json.loads((tmp_path / "again.trace.json").read_text())["traceEvents"]
    times = [(float(one["ts"]), one.get("dur")) for one in again if one["ph"] == "X"]
    assert times == [(float(one["ts"]), one["dur"]) for one in work]
    assert [one | {"ts": 0} for one in again] == [
        one | {"ts": 0} for one in (*work, *told, *arrows)
    ]


def test_a_trace_without_operations_is_not_valid(tmp_path: Path) -> None:
    path = write(tmp_path, event(cat="mystery"), event(cat="mystery"))
    assert "mystery" in why_empty(nadi.read(path))
    with pytest.raises(nadi.errors.InputError, match="unknown category 'mystery'"):
        nadi.run(path)
    assert why_empty(nadi.read(write(tmp_path, event()))) == ""
