"""What is known of each communication of a rank, and in which order it was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.files.communication_names import (
    comm_type_of_call,
    comm_type_of_host,
    comm_type_of_kernel,
    is_told_by_call,
    ranks_of_host,
)
from tests.conftest import PairWriter

GROUP = "__torch__.torch.classes.c10d.ProcessGroup process_group"
FOUR = {"rank": 1, "world_size": 4, "pg_config": [{"pg_name": "0", "ranks": [0, 1, 2, 3]}]}
TENSOR = [1, 1, 0, 6, 4, "cuda:0"]


def linked(pair: PairWriter) -> nadi.Trace:
    host, device = pair.write()
    trace = nadi.link_pair(nadi.read(host), nadi.read(device))
    assert nadi.trace.validate_trace(trace).is_empty()
    return trace


def asked(pair: PairWriter, name: str, ts: float, values: list[Any], types: list[str],
          schema: str = "", **given: Any) -> int:  # fmt: skip
    """Write an operation with its inputs."""
    number = pair.op(name, ts, given.pop("dur", 40), **given)
    node = pair.nodes[-1]
    node["inputs"] = {"values": values, "types": types, "shapes": [[] for _ in values]}
    node["attrs"].append({"name": "op_schema", "type": "string", "value": schema})
    return number


def kernel(pair: PairWriter, name: str, ts: float, correlation: int, stream: int = 7,
           **args: Any) -> None:  # fmt: skip
    """Write a launch and the kernel that it launches 100 us later."""
    pair.event("cudaLaunchKernelExC", ts, 2, "cuda_runtime", correlation=correlation)
    pair.event(name, ts + 100, 50, "kernel", pid=0, tid=stream, stream=stream, device=0,
               correlation=correlation, **args)  # fmt: skip


def recorded(pair: PairWriter, collective: str, ts: float, rank: int, *, parent: int = 1) -> int:
    """Write ``record_param_comms`` as PyTorch does from schema 1.0.3 on."""
    values = [TENSOR, 3, ["0", "default_pg"], rank, collective, [], [], 0, 1, 4]
    types = ["Tensor(float)", "Int", "Tuple[String,String]", "Int", "String", "GenericList[]",
             "GenericList[]", "Int", "Int", "Int"]  # fmt: skip
    return asked(pair, "record_param_comms", ts, values, types, dur=20, parent=parent)


def communications(trace: nadi.Trace, *columns: str) -> list[tuple[Any, ...]]:
    return trace.nodes.filter(pl.col("comm_type") != "none").select(columns).rows()


@pytest.mark.parametrize(
    ("name", "comm_type"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "reduce_scatter"),
        ("ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs)", "all_gather"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_all"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "other"),
        ("rcclGenericKernel<1,false>(ncclDevComm*, unsigned long)", "other"),
        ("oneccl_allreduce_small_fp32", "all_reduce"),
        ("oneapi::ccl::ring_allgatherv", "all_gather"),
        ("void at::native::vectorized_gather_kernel<16>", "none"),
        ("elementwise_reduce_kernel", "none"),
    ],
)  # fmt: skip
def test_kernels_are_told_by_their_names(name: str, comm_type: str) -> None:
    assert comm_type_of_kernel(name) == comm_type
    assert is_told_by_call(name) == (comm_type == "other" or "SendRecv" in name)


def test_calls_and_annotations_are_told_by_their_names() -> None:
    calls = {
        "allreduce_": "all_reduce", "allreduce_coalesced_": "all_reduce", "reduce_": "reduce",
        "allgather_": "all_gather", "_allgather_base_": "all_gather", "gather_": "gather",
        "allgather_into_tensor_coalesced_": "all_gather", "scatter_": "scatter",
        "_reduce_scatter_base_": "reduce_scatter", "reduce_scatter_tensor_coalesced_":
        "reduce_scatter", "broadcast_": "broadcast", "alltoall_": "all_to_all",
        "alltoall_base_": "all_to_all", "barrier": "barrier", "monitored_barrier_": "barrier",
        "send": "send", "recv_": "recv", "recv_any_source_": "recv",
    }  # fmt: skip
    for name, comm_type in calls.items():
        assert comm_type_of_call(f"c10d::{name}") == comm_type, name
    assert comm_type_of_host("nccl:all_reduce_barrier") == "barrier"
    assert comm_type_of_host("nccl:send 0->3") == "send"
    assert ranks_of_host("nccl:send 0->3") == ranks_of_host("nccl:recv 3<-0") == (0, 3)
    assert ranks_of_host("nccl:all_reduce") == (-1, -1)
    assert comm_type_of_host("nccl:coalesced") == comm_type_of_host("nccl:send 0>3") == "none"


@pytest.mark.parametrize(
    ("name", "arguments", "values", "src", "dst"),
    [
        ("broadcast_", "int root_rank, int root_tensor, bool async_op=True", [2, 0, False], 2, -1),
        ("reduce_", "int root_rank, int root_tensor, bool asyncOp", [3, 0, False], -1, 3),
        ("gather_", "int root_rank, bool async_op", [0, False], -1, 0),
        ("scatter_", "int root_rank, bool async_op", [2, False], 2, -1),
        ("allreduce_", "int timeout, bool async_op", [-1, False], -1, -1),
    ],
)  # fmt: skip
def test_a_call_says_its_root_and_whether_it_waits(
    pair: PairWriter, name: str, arguments: str, values: list[Any], src: int, dst: int
) -> None:
    pair.device_keys["distributedInfo"] = FOUR
    types = ["GenericList[Tensor(float)]", "Object", *["Int"] * (len(values) - 1), "Bool"]
    schema = f"c10d::{name}(Tensor[] tensors, {GROUP}, {arguments}) -> Tensor"
    asked(pair, f"c10d::{name}", 0, [[TENSOR], "<Object>", *values], types, schema)
    kind = comm_type_of_call(f"c10d::{name}")
    asked(pair, f"gloo:{kind}", 60, [TENSOR], ["Tensor(float)"], cat="user_annotation", tid=2)
    found = communications(linked(pair), "comm_type", "src", "dst", "is_async", "comm_bytes",
                           "group")  # fmt: skip
    assert found == [(kind, src, dst, 0, 24, 0)]


def test_ranks_of_a_call_are_counted_within_its_group(pair: PairWriter) -> None:
    pair.device_keys["distributedInfo"] = {
        "rank": 5, "world_size": 8, "pg_config": [{"pg_name": "3", "ranks": [2, 5, 7]}],
    }  # fmt: skip
    schema = f"c10d::send(Tensor[] tensors, {GROUP}, int dst, int tag) -> Work"
    types = ["GenericList[Tensor(float)]", "Object", "Int", "Int"]
    asked(pair, "c10d::send", 0, [[TENSOR], "<Object>", 2, 9], types, schema)
    asked(pair, "gloo:send", 10, [TENSOR], ["Tensor(float)"], dur=20, cat="user_annotation")
    schema = f"c10d::recv_(Tensor[] tensors, {GROUP}, int src, int tag) -> Work"
    asked(pair, "c10d::recv_", 100, [[TENSOR], "<Object>", 0, 8], types, schema)
    asked(pair, "gloo:recv", 110, [TENSOR], ["Tensor(float)"], dur=20, cat="user_annotation")
    found = communications(linked(pair), "kind", "src", "dst", "tag")
    assert found == [("COMM_SEND", 5, 7, 9), ("COMM_RECV", 2, 5, 8)]


def test_the_call_says_more_than_the_collective_that_gloo_runs_for_it(pair: PairWriter) -> None:
    pair.device_keys["distributedInfo"] = FOUR
    pair.op("c10d::_reduce_scatter_base_", 0, 40)
    pair.op("gloo:all_reduce", 60, 20, cat="user_annotation", tid=2)
    assert communications(linked(pair), "name", "comm_type") == [
        ("gloo:all_reduce", "reduce_scatter")
    ]


@pytest.mark.parametrize(
    ("call", "collective", "label", "comm_type"),
    [
        ("c10d::alltoall_base_", "all_to_all", "nccl:all_to_all", "all_to_all"),
        ("c10d::gather_", "gather", "nccl:gather", "gather"),
        ("c10d::scatter_", "scatter", "nccl:scatter", "scatter"),
        ("c10d::send", "send", "nccl:send 1->2", "send"),
        ("c10d::recv_", "recv", "nccl:recv 1<-2", "recv"),
    ],
)
@pytest.mark.parametrize("knows", ["call", "record", "label"])
def test_one_kernel_sends_and_receives_for_many(
    pair: PairWriter, call: str, collective: str, label: str, comm_type: str, knows: str
) -> None:
    pair.device_keys["distributedInfo"] = FOUR
    pair.op(call if knows == "call" else "other", 0, 90)
    if knows == "record":
        recorded(pair, collective, 5, 2, parent=2)
    if knows == "label":
        pair.op(label, 7, 15, cat="user_annotation")
    kernel(pair, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 10, 1)
    trace = linked(pair)
    ((found, src, dst),) = communications(trace, "comm_type", "src", "dst")
    assert found == comm_type
    if knows != "call" and comm_type in ("send", "recv"):
        assert (src, dst) == ((1, 2) if comm_type == "send" else (2, 1))
    elif knows == "record":
        assert (src, dst) == {"gather": (-1, 2), "scatter": (2, -1)}.get(comm_type, (-1, -1))


def test_where_bytes_come_from(pair: PairWriter) -> None:
    pair.device_keys["distributedInfo"] = FOUR
    recorded(pair, "allreduce", 0, 1)
    kernel(pair, "ncclDevKernel_AllReduce", 10, 1)
    kernel(pair, "ncclDevKernel_AllReduce", 200, 2, **{"In msg nelems": 3, "dtype": "Double"})
    kernel(pair, "ncclDevKernel_AllReduce", 400, 3)
    kernel(pair, "ncclDevKernel_AllReduce", 600, 4, **{"In msg nelems": 0, "dtype": "Double"})
    trace = linked(pair)
    sizes = trace.nodes.filter(pl.col("kind") == "COMM_COLL")["comm_bytes"].to_list()
    assert sizes == [24, 24, -1, 0]
    counts = dict(trace.issues.select("code", "count").iter_rows())
    found = {code: counts[f"link.comm-bytes-{code}"] for code in ("stated", "tensors", "unknown")}
    assert found == {"stated": 2, "tensors": 1, "unknown": 1}


def test_shapes_that_the_profiler_noted_do_where_there_is_no_host_trace(tmp_path: Path) -> None:
    pair = PairWriter(tmp_path)
    for number, dims in enumerate(([[2, 3], [5], []], [[[4]]], [[2**50, 2**50]], "?")):
        types = ["c10::BFloat16", "double", "Scalar"] if number != 1 else ["TensorList"]
        pair.op("nccl:all_reduce", 200 * number, 50, cat="user_annotation",
                **{"Input Dims": dims, "Input type": types})  # fmt: skip
        kernel(pair, "ncclDevKernel_AllReduce", 200 * number + 10, number + 1)
    trace = nadi.recordings.link_device(nadi.read(pair.write()[1]))
    assert communications(trace, "comm_bytes") == [(52,), (-1,), (-1,), (-1,)]


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("peers", [(2, 2), (2, 3)])
def test_sends_in_one_launch_are_one_communication(
    pair: PairWriter, peers: tuple[int, int], *, is_first: bool
) -> None:
    """Without what was called before them, which may stand in row 0, and after them."""
    pair.device_keys["distributedInfo"] = FOUR
    if is_first:
        pair.nodes.clear()
    recorded(pair, "allreduce", 0, 1, parent=0 if is_first else 1)
    kernel(pair, "ncclDevKernel_AllReduce", 10, 1)
    for number, peer in enumerate(peers):
        recorded(pair, "send", 50 + 30 * number, peer)
    pair.op("nccl:coalesced", 120, 20, cat="user_annotation")
    kernel(pair, "ncclDevKernel_SendRecv", 125, 2)
    recorded(pair, "recv", 150, 3)
    found = communications(linked(pair), "comm_type", "kind", "comm_bytes", "src", "dst")
    peer = peers[0] if len(set(peers)) == 1 else -1
    assert found == [
        ("all_reduce", "COMM_COLL", 24, -1, -1), ("send", "COMM_SEND", 48, 1, peer),
    ]  # fmt: skip


def test_sends_and_receives_in_one_launch_are_neither(pair: PairWriter) -> None:
    pair.device_keys["distributedInfo"] = FOUR
    recorded(pair, "send", 50, 2)
    recorded(pair, "recv", 80, 0)
    pair.op("nccl:coalesced", 120, 20, cat="user_annotation")
    kernel(pair, "ncclDevKernel_SendRecv", 125, 2)
    trace = linked(pair)
    assert communications(trace, "comm_type", "comm_bytes") == [("other", 24)]
    assert "link.comm-type-unknown" in trace.issues["code"].to_list()


def test_a_recording_without_groups_has_the_default_one(pair: PairWriter) -> None:
    pair.device_keys["distributedInfo"] = {"rank": 0, "world_size": 2}
    pair.op("op", 0, 500)
    kernel(pair, "ncclKernel_AllReduce_RING", 10, 1)
    kernel(pair, "ncclKernel_AllReduce_RING", 200, 2)
    trace = linked(pair)
    assert trace.groups.row(0)[:3] == ("0", "default_pg", [0, 1])
    assert communications(trace, "group") == [(0,), (0,)]


def test_work_on_several_streams_is_of_several_groups(pair: PairWriter) -> None:
    pair.device_keys["distributedInfo"] = {"rank": 0, "world_size": 2}
    pair.op("op", 0, 500)
    kernel(pair, "ncclKernel_AllReduce_RING", 10, 1)
    kernel(pair, "ncclKernel_AllReduce_RING", 200, 2, stream=8)
    trace = linked(pair)
    assert trace.groups.is_empty()
    assert communications(trace, "group") == [(-1,), (-1,)]


def gloo(pair: PairWriter, threads: list[int], names: list[str]) -> nadi.Trace:
    pair.device_keys["distributedInfo"] = {
        "rank": 0, "world_size": 4,
        "pg_config": [{"pg_name": n, "ranks": list(range(4))} for n in names],
    }  # fmt: skip
    for number, thread in enumerate(threads):
        pair.op("c10d::allreduce_", 100 * number, 10, tid=1)
        pair.op("gloo:all_reduce", 100 * number + 50, 20, cat="user_annotation", tid=thread)
    return linked(pair)


@pytest.mark.parametrize(
    ("threads", "groups"),
    [
        ([11, 21, 12, 22], [0, 1, 0, 1]),
        ([11, 30, 12, 11], [0, 1, 0, 0]),
        ([11, 12, 11, 12], [-1, -1, -1, -1]),  # side by side: of one group, but of which?
        ([11, 11], [-1, -1]),
        ([11, 21, 31], [-1, -1, -1]),  # three groups?
    ],
)
def test_gloo_groups_are_told_by_gaps_between_threads(
    pair: PairWriter, threads: list[int], groups: list[int]
) -> None:
    trace = gloo(pair, threads, ["0", "1"])
    assert communications(trace, "group") == [(group,) for group in groups]
    counts = dict(trace.issues.select("code", "count").iter_rows())
    assert counts.get("link.comm-group-inferred", 0) == sum(group >= 0 for group in groups)


def order_of(trace: nadi.Trace) -> list[tuple[int, int, bool]]:
    chosen = trace.deps.filter(pl.col("kind") == "comm")
    start = trace.column("start") // 1_000
    return sorted(
        (int(start[src]), int(start[dst]), inferred)
        for src, dst, inferred in chosen.select("src", "dst", "inferred").iter_rows()
    )


def test_collectives_follow_one_another_in_their_group(pair: PairWriter) -> None:
    trace = gloo(pair, [11, 21, 12, 22], ["0", "1"])
    assert order_of(trace) == [(50, 250, True), (150, 350, True)]


def test_order_is_that_of_the_calls_even_where_threads_start_in_another(pair: PairWriter) -> None:
    pair.device_keys["distributedInfo"] = FOUR
    for number, start in enumerate((60, 80, 70)):
        pair.op("c10d::allreduce_", 10 * number, 5, tid=1)
        pair.op("gloo:all_reduce", start, 20, cat="user_annotation", tid=10 + number)
    assert order_of(linked(pair)) == [(60, 80, False), (80, 70, False)]


def test_order_is_that_of_times_where_one_has_no_number(pair: PairWriter) -> None:
    pair.device_keys["distributedInfo"] = FOUR
    pair.op("gloo:all_reduce", 60, 20, cat="user_annotation", tid=10)
    pair.op("gloo:all_reduce", 80, 20, cat="user_annotation", tid=11)
    pair.event("gloo:all_reduce", 70, 20, "user_annotation", tid=12)  # not in the host trace
    assert order_of(linked(pair)) == [(60, 70, False), (70, 80, False)]


def test_sends_to_one_rank_follow_one_another(pair: PairWriter) -> None:
    pair.device_keys["distributedInfo"] = FOUR
    for number, label in enumerate(("send 1->2", "send 1->3", "recv 1<-2", "send 1->2")):
        pair.op(f"nccl:{label}", 200 * number, 50, cat="user_annotation")
        kernel(pair, "ncclDevKernel_SendRecv", 200 * number + 10, number + 1)
    assert order_of(linked(pair)) == [(110, 710, False)]


def test_every_communication_of_the_recordings_is_complete(shared_traces: Path) -> None:
    pairs = {f"cpu_ddp4/host_{rank}": f"cpu_ddp4/device_{rank}" for rank in range(4)}
    pairs["gpu_resnet_pair/host"] = "gpu_resnet_pair/device"
    for host, device in pairs.items():
        trace = nadi.link_pair(*(nadi.read(shared_traces / f"{name}.json.gz")
                                 for name in (host, device)))  # fmt: skip
        nodes = trace.nodes.filter(pl.col("comm_type") != "none")
        assert nodes.height
        for column in ("comm_bytes", "group"):
            assert (nodes[column] >= 0).all()
        assert not nodes["comm_type"].is_in(["other"]).any()
        broadcasts = nodes.filter(pl.col("comm_type") == "broadcast")
        assert broadcasts.height
        assert (broadcasts["src"] == 0).all()
        collectives = nodes.filter(pl.col("kind") == "COMM_COLL")
        ordered = trace.deps.filter(pl.col("kind") == "comm")
        expected = (collectives.group_by("group").len()["len"] - 1).sum()
        pairwise = nodes.height - collectives.height
        assert ordered.height == expected + max(pairwise - 1, 0)


@pytest.mark.parametrize("is_first", [False, True])
def test_what_no_call_encloses_is_not_of_the_first_one(pair: PairWriter, is_first: bool) -> None:
    """Work is of the call around its launch, and of no other, even where that stands in row 0."""
    if not is_first:
        pair.op("aten::mm", 0, 1)
    pair.op("c10d::barrier", 1, 5)
    pair.event("cudaLaunchKernel", 20, 2, "cuda_runtime", correlation=1)
    pair.event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 30, 5, "kernel", pid=0, tid=7, stream=7,
               device=0, correlation=1)  # fmt: skip
    trace = nadi.recordings.link_device(nadi.read(pair.write()[1]))
    assert trace.nodes["comm_type"].cast(str)[-1] == "all_reduce"


@pytest.mark.parametrize("is_first", [False, True])
def test_what_says_all_may_be_the_first_operation_of_both_files(
    pair: PairWriter, is_first: bool
) -> None:
    pair.device_keys["distributedInfo"] = FOUR
    if is_first:
        pair.nodes.clear()
    recorded(pair, "broadcast", 0, 2, parent=0 if is_first else 1)
    kernel(pair, "ncclDevKernel_Generic_4", 10, 1)
    trace = linked(pair)
    if is_first:
        assert trace.nodes["name"][0] == "record_param_comms"
    (found,) = trace.nodes.filter(pl.col("category") == "kernel").select(
        "comm_type", "comm_bytes", "src", "group"
    ).rows()  # fmt: skip
    assert found == ("broadcast", 24, 2, 0)


def test_the_id_of_a_communication_may_stand_at_its_call(pair: PairWriter) -> None:
    stated = {"In msg nelems": 4, "dtype": "Float"}
    for number, ids in enumerate([{"Comms Id": 77}, {}]):
        begin = 1000.0 * number
        pair.op("record_param_comms", begin, 40, **stated, **ids)
        kernel(pair, "ncclDevKernel_AllReduce", begin + 10, number + 1, **stated)
    kernel(pair, "ncclDevKernel_AllReduce", 2010, 3, **stated, **{"Comms Id": 5})
    nodes = linked(pair).nodes.filter(category="kernel").sort("start")
    assert nodes["comms_id"].to_list() == [77, -1, 5]
