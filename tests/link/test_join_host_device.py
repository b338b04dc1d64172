"""Linking a pair: matching, ids, parents, and each kind of dependency."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import nadi
from tests.conftest import PairWriter


def linked(pair: PairWriter) -> nadi.Trace:
    host, device = pair.write()
    return nadi.link_pair(nadi.read(host), nadi.read(device))


def deps_by_name(trace: nadi.Trace, kind: str) -> set[tuple[str, str]]:
    names = trace.nodes["name"].cast(str)
    chosen = trace.deps.filter(pl.col("kind") == kind)
    return {(names[src], names[dst]) for src, dst in chosen.select("src", "dst").iter_rows()}


def row(trace: nadi.Trace, name: str) -> dict[str, object]:
    return trace.nodes.filter(pl.col("name").cast(str) == name).row(0, named=True)


def test_ids_and_parents_are_those_of_the_host_trace(pair: PairWriter) -> None:
    outer = pair.op("outer", 0, 100)
    inner = pair.op("inner", 10, 20, parent=outer)
    pair.event("cudaLaunchKernel", 12, 2, "cuda_runtime", correlation=5)
    trace = linked(pair)
    names = trace.nodes["name"].to_list()
    assert names == ["[pytorch|profiler|execution_trace|process]", "outer", "inner",
                     "cudaLaunchKernel"]  # fmt: skip
    assert trace.column("id").tolist() == [1, outer, inner, inner + 1]
    assert trace.column("parent").tolist() == [-1, 0, 1, 2]
    assert trace.column("exclusive").tolist() == [-1, 80_000, 18_000, 2_000]


def test_a_parent_that_the_host_file_does_not_have_is_found_by_nesting(pair: PairWriter) -> None:
    pair.op("outer", 0, 100)
    pair.op("inner", 10, 20, parent=77)
    trace = linked(pair)
    assert trace.nodes["name"].to_list()[1:] == ["outer", "inner"]
    assert trace.column("parent").tolist() == [-1, 0, 1]


def test_where_the_host_file_has_no_nodes_ids_count_from_0(pair: PairWriter) -> None:
    pair.op("outer", 0, 100)
    pair.op("inner", 10, 20)
    pair.nodes.clear()
    host, device = (nadi.read(path) for path in pair.write())
    assert nadi.link_pair(host, device, force=True).column("id").tolist() == [0, 1]


def test_call_and_order(pair: PairWriter) -> None:
    outer = pair.op("outer", 0, 100)
    pair.op("first", 10, 20, parent=outer)
    pair.op("second", 40, 20, parent=outer)
    pair.op("after", 200, 1)
    pair.op("elsewhere", 300, 1, tid=2)
    trace = linked(pair)
    assert deps_by_name(trace, "call") == {("outer", "first"), ("outer", "second")}
    assert deps_by_name(trace, "order") == {("first", "second"), ("outer", "after")}


def test_launch_takes_every_call_with_a_correlation(pair: PairWriter) -> None:
    op = pair.op("aten::mm", 0, 100)
    pair.event("cudaGraphLaunch", 10, 5, "cuda_runtime", correlation=5)
    pair.event("cuSomethingNew", 20, 5, "cuda_driver", correlation=6)
    for name, ts, correlation in (("k1", 30, 5), ("k2", 40, 5), ("k3", 50, 6)):
        pair.event(name, ts, 5, "kernel", pid=0, tid=7, stream=7, device=0, correlation=correlation)
    pair.event("orphan", 60, 5, "kernel", pid=0, tid=7, stream=7, device=0, correlation=99)
    trace = linked(pair)
    assert deps_by_name(trace, "launch") == {
        ("cudaGraphLaunch", "k1"), ("cudaGraphLaunch", "k2"), ("cuSomethingNew", "k3"),
    }  # fmt: skip
    assert deps_by_name(trace, "stream") == {("k1", "k2"), ("k2", "k3"), ("k3", "orphan")}
    assert trace.nodes["id"][row(trace, "k1")["parent"]] == op
    issues = dict(trace.issues.select("code", "count").iter_rows())
    assert issues == {"link.matched": 1, "link.no-launch": 1}


def test_synchronization_waits_for_what_was_launched_before(pair: PairWriter) -> None:
    pair.op("aten::item", 0, 500)
    for correlation, ts in ((1, 10), (2, 20), (4, 300)):
        pair.event("cudaLaunchKernel", ts, 5, "cuda_runtime", correlation=correlation)
    pair.event("cudaStreamSynchronize", 30, 70, "cuda_runtime", correlation=3)
    pair.event("Stream Sync", 99, 1, "cuda_sync", pid=0, tid=7, stream=7, correlation=3)
    pair.event("cudaDeviceSynchronize", 200, 60, "cuda_runtime", correlation=9)
    pair.event("on_7", 20, 60, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    pair.event("on_8", 30, 200, "kernel", pid=0, tid=8, stream=8, device=0, correlation=2)
    pair.event("later", 310, 50, "kernel", pid=0, tid=7, stream=7, device=0, correlation=4)
    trace = linked(pair)
    assert deps_by_name(trace, "sync") == {
        ("on_7", "cudaStreamSynchronize"),
        ("on_7", "cudaDeviceSynchronize"),
        ("on_8", "cudaDeviceSynchronize"),
    }


def test_a_copy_to_pageable_memory_blocks_its_call(pair: PairWriter) -> None:
    pair.op("aten::copy_", 0, 100)
    pair.event("cudaMemcpyAsync", 10, 50, "cuda_runtime", correlation=1)
    pair.event("Memcpy DtoH (Device -> Pageable)", 30, 20, "gpu_memcpy", pid=0, tid=7, stream=7,
               device=0, correlation=1)  # fmt: skip
    trace = linked(pair)
    assert deps_by_name(trace, "sync") == {("Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync")}


def test_backward_on_its_own_thread_is_a_hand_over(pair: PairWriter) -> None:
    pair.op("ProfilerStep#1", 0, 1000, cat="user_annotation")
    pair.op("forward", 10, 90)
    pair.op("autograd::engine::evaluate_function: Mul", 200, 100, tid=2)
    pair.op("autograd::engine::evaluate_function: Add", 310, 100, tid=2)
    pair.op("optimizer", 450, 50)
    trace = linked(pair)
    assert deps_by_name(trace, "thread") == {
        ("forward", "autograd::engine::evaluate_function: Mul"),
        ("autograd::engine::evaluate_function: Add", "optimizer"),
    }


def test_the_main_thread_of_a_cpu_program_runs_its_backward_pass_itself(
    pair: PairWriter,
) -> None:
    for number in range(10):
        pair.op("aten::mm", 1000 * number, 100)
        pair.op("autograd::engine::evaluate_function: Mm", 1000 * number + 200, 300)
    for number in range(5):  # a loader at work on its own, while the main thread is idle
        pair.op("aten::load", 1000 * number + 600, 300, tid=2)
        pair.op("aten::load", 1000 * number + 910, 10, tid=2)
    trace = linked(pair)
    # thread 1 is what idles and may wait; were thread 2 the main one, its loads would wait
    assert deps_by_name(trace, "thread") == {
        ("autograd::engine::evaluate_function: Mm", "aten::load"),
        ("aten::load", "aten::mm"),
    }


def test_stream_synchronization_is_of_one_device(pair: PairWriter) -> None:
    pair.op("op", 0, 500)
    for device in (0, 1):
        pair.event("cudaLaunchKernel", 10 + device, 1, "cuda_runtime", correlation=1 + device)
        pair.event(f"on_device_{device}", 20, 50, "kernel", pid=device, tid=7, stream=7,
                   device=device, correlation=1 + device)  # fmt: skip
    pair.event("cudaStreamSynchronize", 30, 70, "cuda_runtime", correlation=3)
    pair.event("Stream Sync", 99, 1, "cuda_sync", pid=1, tid=7, stream=7, device=1, correlation=3)
    assert deps_by_name(linked(pair), "sync") == {("on_device_1", "cudaStreamSynchronize")}


def test_python_functions_are_labels_as_annotations_are(pair: PairWriter) -> None:
    pair.event("train.py(3): step", 0, 1000, "python_function")
    pair.op("forward", 10, 90)
    pair.op("autograd::engine::evaluate_function: Mul", 200, 200, tid=2)
    op = pair.op("optimizer", 450, 50)
    pair.event("cudaLaunchKernel", 460, 5, "cuda_runtime", correlation=1)
    pair.event("k", 470, 5, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    trace = linked(pair)
    assert deps_by_name(trace, "thread") == {
        ("forward", "autograd::engine::evaluate_function: Mul"),
        ("autograd::engine::evaluate_function: Mul", "optimizer"),
    }
    assert trace.nodes["id"][row(trace, "k")["parent"]] == op
    run = nadi.run(*pair.write())
    assert run.path.by_kind()["host gap"] == 660_000  # 1000 less the operators on the path
    assert "train.py(3): step" in run.path.by_operation()["name"].to_list()


def test_a_watchdog_that_only_polls_does_no_work(pair: PairWriter) -> None:
    pair.op("op", 0, 10)
    for ts in (0, 1000, 2000):
        pair.event("cudaEventQuery", ts, 2, "cuda_runtime", tid=9, correlation=ts + 1)
    trace = linked(pair)
    graph = nadi.build_graph(nadi.recordings.link_job([trace]))
    assert graph.num_ops == 1


def test_operations_of_one_file_only_are_kept_and_counted(pair: PairWriter) -> None:
    for number in range(40):
        pair.op(f"op{number}", 10 * number, 5)
    pair.nodes.append({"id": 900, "name": "host only", "ctrl_deps": 1})
    pair.event("device only", 900, 5)
    trace = linked(pair)
    names = trace.nodes["name"].to_list()
    assert names[:2] == ["[pytorch|profiler|execution_trace|process]", "host only"]
    assert names[-1] == "device only"
    issues = dict(trace.issues.select("code", "count").iter_rows())
    assert issues == {"link.matched": 40, "link.device-only": 1, "link.host-only": 1}


def test_a_pair_of_different_runs_is_refused_with_its_rate(pair: PairWriter) -> None:
    for number in range(20):
        pair.op(f"op{number}", 10 * number, 5)
    for event in pair.events[:2]:
        event["name"] = "another"
    with pytest.raises(nadi.errors.PairError, match=r"only 18 of 20 operations \(90\.0 %\)"):
        linked(pair)


def test_a_pair_without_common_ids_goes_by_names(pair: PairWriter) -> None:
    pair.op("op", 0, 5)
    pair.events[0]["args"] = {}
    assert linked(pair).issues["detail"].to_list() == [
        "host and device matched by order of names on each thread: all operations"
    ]


def test_external_ids_serve_where_record_function_ids_are_missing(shared_traces: Path) -> None:
    folder = shared_traces / "gpu_simple_add_pair"
    run = nadi.run(folder)
    assert run.measured_ns == run.replayed_ns
    assert run.job.traces[0].nodes.filter(pl.col("kind") == "METADATA").height == 2


def test_the_pair_that_must_be_refused(shared_traces: Path) -> None:
    host = shared_traces / "et_only" / "resnet_2gpu_1.1.0.json.gz"
    device = shared_traces / "gpu_resnet_pair" / "device.json.gz"
    with pytest.raises(nadi.errors.PairError, match=r"only 3,658 of 14,388 operations \(25\.4 %\)"):
        nadi.run(host, device)


@pytest.mark.parametrize("args", [False, True])
@pytest.mark.parametrize("num_untimed", [0, 1, 3])
def test_attributes_are_those_of_their_own_operation(
    pair: PairWriter, num_untimed: int, args: bool
) -> None:
    """Raw args are dropped of what the host trace describes, and of nothing else."""
    pair.nodes.clear()
    for _ in range(num_untimed):
        pair.nodes.append({"id": len(pair.nodes) + 1, "name": "not timed", "ctrl_deps": 1})
    for number in range(6):
        pair.op(f"aten::op{number}", 10 * number, 8, note=f"op{number}")
        schema = {"name": "op_schema", "type": "string", "value": f"aten::op{number}() -> ()"}
        if number not in (1, 4):
            pair.nodes[-1]["attrs"].append(schema)
    pair.event("cudaLaunchKernel", 62, 1, "cuda_runtime", correlation=1, note="call")
    pair.event("k", 70, 1, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1, note="k")
    trace = nadi.link_pair(*map(nadi.read, pair.write()), args=args)
    described = {"aten::op0", "aten::op2", "aten::op3", "aten::op5"}
    names = trace.nodes["name"].cast(str).to_list()
    assert names.count("not timed") == num_untimed
    # host operations keep their ids, whichever is the first, and the others get those after
    assert trace.nodes["id"].to_list() == list(range(1, num_untimed + 9))
    for row, name in enumerate(names):
        found = trace.attributes.of(row)
        note = found.get("args", {}).get("note")
        is_kept = name != "not timed" and (args or name not in described)
        own = {"cudaLaunchKernel": "call"}.get(name, name.removeprefix("aten::"))
        assert note == (own if is_kept else None)
        assert ("op_schema" in found) == (name in described)
    told = dict(trace.issues.select("code", "count").iter_rows())
    assert told.get("link.args", 0) == (0 if args else len(described))
