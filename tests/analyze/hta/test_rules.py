"""HTA's rules one by one, on traces small enough to work out by hand.

Numbers in the names and comments (P1, L1, ...) are those of ``docs/critical-path.md``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.analyses.hta.device_edges import EdgeList, join_hta_edges, make_moments, weighted_edges
from nadi.analyses.hta.hta_path import _longest, _short_name
from nadi.analyses.hta.recorded_fields import parse_events
from nadi.trace.schema import CLOCKS, ISSUES, MATCHES
from tests.analyze.hta.recording import Recording, edges_of, on_path
from tests.conftest import PairWriter

OP, DEP = "OPERATOR_KERNEL", "DEPENDENCY"
LAUNCH, GAP, SYNC = "KERNEL_LAUNCH_DELAY", "KERNEL_KERNEL_DELAY", "SYNC_DEPENDENCY"


@pytest.fixture
def record(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


def with_launch(record: Recording) -> Recording:
    """Add a launch that is far from everything else: without any there is no answer (R4)."""
    record.launch("far", (9000, 1), (9002, 1), 999, tid=99, stream=99)
    return record


def test_a_launch(record: Recording) -> None:
    record.op("mm", 0, 10)
    record.launch("gemm", (2, 2), (6, 3), 1)
    path = record.path()
    assert edges_of(path) == [
        ("cudaLaunchKernel.s", "cudaLaunchKernel.e", OP, 2),
        ("mm.s", "cudaLaunchKernel.s", OP, 2),
        ("cudaLaunchKernel.e", "mm.e", OP, 6),
        ("gemm.s", "gemm.e", OP, 3),
        ("cudaLaunchKernel.s", "gemm.s", LAUNCH, 4),
    ]
    # 2 + 2 + 6 on the host is more than 2 + 4 + 3 by way of the kernel
    assert on_path(path) == ["mm.s", "cudaLaunchKernel.s", "cudaLaunchKernel.e", "mm.e"]
    assert path.length == 10_000
    assert path.edges["attributed_event"].to_list() == [1, 0, 0, 2, -1]
    assert path.edges["on_critical_path"].to_list() == [True, True, True, False, False]
    assert path.summary().rows() == [("cpu_bound", 100.0)]


def test_a_kernel_that_outlasts_the_host_is_on_the_path(record: Recording) -> None:
    record.op("mm", 0, 10)
    record.launch("ncclDevKernel_AllReduce(int)", (2, 2), (6, 30), 1)
    path = record.path()
    assert path.length == 36_000
    assert on_path(path)[-1] == "ncclDevKernel_AllReduce(int).e"
    # R2, R3: times of edges without an event are told by type
    assert path.breakdown().select("event_idx", "duration", "s_name", "bound_by").rows() == [
        (0, 2.0, "mm", "cpu_bound"),
        (None, 4.0, None, "gpu_kernel_launch_overhead"),
        (2, 30.0, "ncclDevKernel_AllReduce", "gpu_communication_bound"),
    ]
    assert dict(path.summary().rows())["gpu_communication_bound"] == 30 / 36 * 100


def test_the_lock_lets_calls_end_one_after_the_other(record: Recording) -> None:  # L1
    record.call("cudaHostAlloc", 0, 10)
    record.launch("k", (5, 3), (20, 1), 1, tid=2)
    record.call("cudaMemcpyAsync", 12, 2)
    path = record.path()
    assert edges_of(path)[:5] == [
        # at the first end both are open: the newest first, the other one's time is not its own
        ("cudaLaunchKernel.s", "cudaLaunchKernel.e", OP, 3),
        ("cudaHostAlloc.s", "cudaLaunchKernel.e", DEP, 0),
        ("cudaLaunchKernel.e", "cudaHostAlloc.e", DEP, 0),
        # L2: the copy waits for a device, but keeps the time that the lock gave it
        ("cudaMemcpyAsync.s", "cudaMemcpyAsync.e", OP, 2),
        ("cudaHostAlloc.e", "cudaMemcpyAsync.s", DEP, 0),
    ]
    assert ("cudaHostAlloc.s", "cudaHostAlloc.e") not in {edge[:2] for edge in edges_of(path)}


def test_time_between_outermost_operations_weighs_nothing(record: Recording) -> None:  # C1
    record.op("a", 0, 10)
    record.op("b", 10, 10)
    record.op("c", 50, 10)
    path = with_launch(record).path()
    edges = edges_of(path)
    assert ("a.e", "b.s", DEP, 0) in edges  # an end comes before a start of the same time
    assert ("b.e", "c.s", DEP, 0) in edges
    assert path.length == 30_000
    # W1: a window holds its last moment too, at which b starts
    assert record.path(annotation="a").length == 20_000


def test_events_without_moments_stay_in_the_tree(record: Recording) -> None:  # C3, C4
    record.op("outer", 0, 50)
    record.mark("label", 5, 40)
    record.op("a", 10, 10)
    record.op("b", 30, 10)
    path = with_launch(record).path()
    of_event = dict(
        zip([edge[:2] for edge in edges_of(path)], path.edges["attributed_event"], strict=True)
    )
    assert of_event["outer.s", "a.s"] == 0
    assert of_event["a.e", "b.s"] == 1  # the label's time: it was around what ended
    assert of_event["b.e", "outer.e"] == 0
    # and a label around everything does not count as a depth
    assert {edge[2] for edge in edges_of(path) if edge[0] == "a.e"} == {OP}


def test_an_end_closes_whatever_is_on_top(record: Recording) -> None:  # C2, E1
    record.op("a", 0, 10)
    record.op("b", 5, 10)
    path = with_launch(record).path()
    edges = edges_of(path)
    assert ("a.s", "b.s", OP, 5) in edges
    assert ("b.s", "b.e", OP, 10) in edges
    assert ("b.e", "a.e", OP, -5) in edges
    weights = path.edges.filter(pl.col("edge_weight") < 0)["graph_weight"].to_list()
    assert weights == [0.0]


def test_of_equal_times_the_longer_starts_and_the_shorter_ends_first(record: Recording) -> None:
    record.op("inner", 0, 5)
    record.op("outer", 0, 10)
    record.op("last", 8, 2)
    edges = edges_of(with_launch(record).path())  # C2
    order = [("outer.s", "inner.s"), ("inner.s", "inner.e"), ("inner.e", "last.s"),
             ("last.s", "last.e"), ("last.e", "outer.e")]  # fmt: skip
    assert [edge[:2] for edge in edges if "cuda" not in edge[0]][: len(order)] == order


def test_the_time_of_a_call_that_waits_is_not_its_own(record: Recording) -> None:  # C5, S1
    record.launch("k", (0, 2), (5, 100), 1)
    record.call("cudaDeviceSynchronize", 10, 97, 2)
    record.sync("Context Sync", 12, 95, 2)
    path = record.path()
    edges = edges_of(path)
    assert ("cudaDeviceSynchronize.s", "cudaDeviceSynchronize.e", OP, 0) in edges
    assert ("k.e", "cudaDeviceSynchronize.e", SYNC, 0) in edges
    # of ends that are equally late the first is the path's
    assert on_path(path) == ["cudaLaunchKernel.s", "k.s", "k.e"]


def test_kernels_follow_one_another_unless_their_stream_was_idle(record: Recording) -> None:
    record.launch("a", (0, 2), (5, 10), 1)
    record.launch("b", (7, 2), (16, 10), 2)  # launched while a runs
    record.launch("c", (40, 2), (45, 10), 3)  # after b: its launch is what it waited for
    record.launch("d", (50, 2), (1600, 10), 4)  # too late to follow from c
    edges = edges_of(record.path())
    into = {edge[1]: edge for edge in edges if edge[1] in ("a.s", "b.s", "c.s", "d.s")}
    assert into["a.s"][2:] == (LAUNCH, 5)
    assert into["b.s"] == ("a.e", "b.s", GAP, 1)
    assert into["c.s"][2:] == (LAUNCH, 5)
    assert "d.s" not in into
    with_all = edges_of(record.path(zero_weight_launch_edges=True))  # G7
    added = [edge for edge in with_all if edge not in edges]
    assert [(edge[1], *edge[2:]) for edge in added] == [("b.s", LAUNCH, 0), ("d.s", LAUNCH, 0)]


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx",
        "cudaMemcpyAsync", "cudaMemsetAsync", "hipLaunchKernel", "hipExtModuleLaunchKernel",
        "hipMemsetAsync", "hipMemcpyAsync", "hipMemcpyWithStream",
        "runFunction - job_prep_and_submit_for_execution",
    ],
)  # fmt: skip
def test_every_call_that_hta_knows_launches(record: Recording, call: str) -> None:  # G3
    record.call(call, 0, 2, 1)
    record.kernel("k", 5, 10, 1)
    into = [edge for edge in edges_of(record.path()) if edge[1] == "k.s"]
    assert into == [(f"{call}.s", "k.s", LAUNCH, 5)]


@pytest.mark.parametrize(("gap", "follows"), [(1_499, True), (1_500, False)])
def test_a_kernel_follows_from_the_one_before_up_to_a_gap_of_1500_us(
    record: Recording, gap: float, *, follows: bool
) -> None:  # G6
    record.launch("a", (0, 2), (5, 10), 1)
    record.launch("b", (7, 2), (15 + gap, 10), 2)  # launched while a runs
    into = [edge for edge in edges_of(record.path()) if edge[1] == "b.s"]
    assert [edge[:3] for edge in into] == ([("a.e", "b.s", GAP)] if follows else [])


@pytest.mark.parametrize("first", ["call", "launch"])
@pytest.mark.parametrize("name", ["Context Sync", "Stream Wait Event"])
def test_the_first_event_of_a_file_counts_as_any_other(
    record: Recording, name: str, first: str
) -> None:  # S1, S4
    wait = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 2}
    record.launch("a", (0, 2), (10, 50), 1, stream=7)
    record.call("cudaEventRecord", 3, 1, 2)
    record.call("wait", 5, 60, 3)
    stream = 20 if name == "Stream Wait Event" else -1
    record.sync(name, 6, 1, 3, stream=stream, **(wait if stream > 0 else {}))
    record.launch("b", (66, 2), (70, 5), 4, stream=20)
    of_first = {"call": "wait", "launch": "cudaLaunchKernel"}[first]
    record.events.sort(key=lambda event: event["name"] != of_first)
    waits = [edge[:2] for edge in edges_of(record.path()) if edge[2] == SYNC]
    assert waits == [("a.e", "b.s")] if stream > 0 else [("a.e", "wait.e")]


def test_what_takes_no_time_is_not_in_the_graph(record: Recording) -> None:  # W2
    record.op("a", 0, 10)
    record.op("instant", 5, 0)
    names = {edge[0] for edge in edges_of(with_launch(record).path())}
    assert "a.s" in names
    assert "instant.s" not in names


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("ncclDevKernel_AllReduce", "communication"), ("hcclAllReduce", "communication"),
        ("void a::ncclKernel<int>(int)", "communication"), ("hipKernel", "communication"),
        ("gemm", "compute"), ("my_nccl", "compute"), ("Memcpy HtoD", "compute"),
    ],
)  # fmt: skip
def test_work_is_communication_by_its_name(record: Recording, name: str, bound: str) -> None:  # R2
    record.launch(name, (0, 2), (5, 90), 1)
    found = dict(record.path().summary().rows())
    assert found[f"gpu_{bound}_bound"] == pytest.approx(90 / 95 * 100)


def test_launches_count_before_kernels_that_begin_at_their_time(record: Recording) -> None:  # G3
    record.launch("a", (0, 2), (10, 5), 1)
    record.launch("b", (10, 2), (20, 5), 2)
    edges = edges_of(record.path())
    # the queue holds two at b's launch and, with b, one when a begins
    assert ("a.e", "b.s", GAP, 5) in edges
    assert not [edge for edge in edges if edge[1] == "a.s"]


def test_a_stream_that_waits_for_an_event(record: Recording) -> None:  # S2, S4
    record.launch("a", (0, 2), (10, 50), 1, stream=7)
    record.call("cudaEventRecord", 3, 1, 2)
    record.call("cudaStreamWaitEvent", 5, 1, 3)
    record.sync("Stream Wait Event", 6, 1, 3, stream=20, wait_on_stream=7,
                wait_on_cuda_event_record_corr_id=2)  # fmt: skip
    record.launch("b", (8, 2), (61, 5), 4, stream=20)
    path = record.path()
    assert [edge for edge in edges_of(path) if edge[1] == "b.s"] == [("a.e", "b.s", SYNC, 0)]
    assert on_path(path)[-4:] == ["a.s", "a.e", "b.s", "b.e"]


def test_what_is_called_a_synchronization_and_is_none_has_no_edges(
    record: Recording,
) -> None:  # N1, G1
    record.launch("a", (0, 2), (10, 50), 1)
    without = edges_of(record.path())
    record.event("overhead", "Context Sync", 20, 5, correlation=9)
    assert edges_of(record.path()) == without


@pytest.mark.parametrize("stream", [0, 7])
def test_an_event_that_the_host_waits_for(record: Recording, stream: int) -> None:  # S2, S3
    record.launch("a", (0, 2), (10, 50), 1, stream=stream)
    record.call("cudaEventRecord", 3, 1, 2)
    # launched after the event: not waited for
    record.launch("b", (5, 2), (61, 50), 3, stream=stream)
    record.call("cudaEventSynchronize", 8, 60, 4)
    record.sync("Event Sync", 9, 59, 4, wait_on_stream=stream, wait_on_cuda_event_record_corr_id=2)
    edges = edges_of(record.path())
    assert [edge for edge in edges if edge[2] == SYNC] == [
        ("a.e", "cudaEventSynchronize.e", SYNC, 0)
    ]


@pytest.mark.parametrize("is_first", [False, True])
def test_a_stream_that_the_host_waits_for(record: Recording, *, is_first: bool) -> None:  # S1
    record.launch("a", (0, 2), (10, 20), 1, stream=7)
    record.launch("b", (3, 2), (10, 50), 2, stream=8)
    record.call("cudaStreamSynchronize", 6, 60, 3)
    if is_first:  # in the file
        record.events.insert(0, record.events.pop())
    record.sync("Stream Sync", 7, 59, 3, stream=8)
    edges = edges_of(record.path())
    assert [edge[:2] for edge in edges if edge[2] == SYNC] == [("b.e", "cudaStreamSynchronize.e")]


def test_a_stream_that_waits_for_itself_has_no_answer(record: Recording) -> None:  # E2
    record.launch("a", (0, 2), (10, 5), 1)
    record.call("cudaEventRecord", 3, 1, 2)
    record.call("cudaStreamWaitEvent", 5, 1, 3)
    record.sync("Stream Wait Event", 6, 1, 3, stream=7, wait_on_stream=7,
                wait_on_cuda_event_record_corr_id=2)  # fmt: skip
    record.launch("b", (8, 2), (20, 5), 4)
    with pytest.raises(nadi.errors.InputError, match="'b' waits for an event of its own stream 7"):
        record.path()


def test_the_forward_and_the_backward_thread_are_one(record: Recording) -> None:  # C6
    record.op("## forward ##", 0, 10, tid=1)
    record.op("autograd::engine", 20, 10, tid=2)
    assert ("## forward ##.e", "autograd::engine.s", DEP, 0) in edges_of(with_launch(record).path())
    record.op("autograd::engine", 40, 10, tid=3)  # of several it is not known which
    assert not [e for e in edges_of(with_launch(record).path()) if e[0] == "## forward ##.e"]


def test_times_with_fractions_are_rounded_inwards(record: Recording) -> None:  # P1
    record.op("a", 10.0, 5)
    record.op("b", 20.25, 0.5)
    events = parse_events([record.read()], 0)
    assert events["start"].to_list() == [0, 11_000]
    assert events["duration"].to_list() == [5_000, -1_000]


def test_without_fractions_in_time_stamps_durations_keep_theirs(record: Recording) -> None:  # P1
    for kind in ("cpu_op", "overhead"):  # a node, and an event that is none
        record.op("whole", 5, 4)
        record.event(kind, "a", 10, 5.5)
        assert parse_events([record.read()], 0)["duration"].to_list() == [4_000, 5_500]
        record.events.append({"ph": "M", "name": "process_name", "pid": 1, "ts": 10.5, "args": {}})
        assert parse_events([record.read("b.json")], 0)["duration"].to_list() == [4_000, 5_000]
        record.events.clear()


def test_large_times_are_doubles(record: Recording) -> None:  # P1
    # a double of this size is a multiple of a quarter: .999 is read as the next whole number
    record.op("a", 1_700_000_000_000_000.999, 4)
    record.op("b", 1_700_000_000_000_002.25, 4)
    assert parse_events([record.read()], 0)["start"].to_list() == [0, 2_000]


def test_partners(record: Recording) -> None:  # P2, P3
    record.call("cudaLaunchKernel", 0, 1, 5)
    record.call("cudaLaunchKernel", 2, 1, 5)
    record.kernel("k", 4, 1, 5)
    record.call("cudaFree", 6, 1, 6)
    record.op("mm", 8, 1)
    events = parse_events([record.read()], 0)
    assert events["partner"].to_list() == [2, 2, 1, 0, -1]


def test_0_is_a_correlation(record: Recording) -> None:  # P2, P3
    record.launch("k", (0, 1), (4, 1), 0)
    record.launch("k", (2, 1), (6, 1), 1)
    assert parse_events([record.read()], 0)["partner"].to_list() == [1, 0, 3, 2]


def steps(record: Recording, count: int) -> Recording:
    """Write steps of 100 us with a kernel each; the last kernel runs into the next step."""
    for step in range(count):
        at = 100 * step
        record.mark(f"ProfilerStep#{step + 3}", at, 90)
        record.launch(f"k{step}", (at + 10, 2), (at + 50, 60), step + 1)
    return record


def test_the_last_of_several_steps_is_dropped(record: Recording) -> None:  # P4, P5
    one = parse_events([steps(record, 1).read("one.json")], 0)
    assert one["index"].to_list() == [0, 1, 2]
    record.events.clear()
    trace = steps(record, 2).read("two.json")
    kept = parse_events([trace], 0)
    assert kept["name"].to_list() == ["k0", "ProfilerStep#3", "cudaLaunchKernel"]
    every = parse_events([trace], 0, include_last_step=True)
    assert every["index"].to_list() == [2, 5, 0, 1, 3, 4]


def test_steps_of_other_ranks_count(tmp_path: Path) -> None:  # P4
    first, second = Recording(tmp_path), Recording(tmp_path)
    steps(first, 1)
    steps(second, 2)
    traces = [first.read("rank0.json"), second.read("rank1.json")]
    assert parse_events(traces, 0)["name"].to_list() == []  # its only step is the last it has
    assert parse_events(traces[:1], 0).height == 3


def test_the_origin_is_the_first_event_of_any_rank(tmp_path: Path) -> None:
    first, second = Recording(tmp_path), Recording(tmp_path)
    first.op("a", 50, 1)
    second.op("b", 20, 1)
    traces = [first.read("rank0.json"), second.read("rank1.json")]
    assert parse_events(traces, 0)["start"].to_list() == [30_000]


def test_events_that_are_no_nodes_count_too(record: Recording) -> None:
    record.event("overhead", "Activity Buffer Request", 5, 3, pid=-1, tid=0)
    record.op("a", 10, 1)
    record.event("Trace", "PyTorch Profiler (0)", 0, 100, pid="Spans", tid="PyTorch Profiler")
    events = parse_events([record.read()], 0)
    assert events.select("index", "start", "name", "node").rows() == [
        (0, 0, "Activity Buffer Request", -1),
        (1, 5_000, "a", 0),
    ]


@pytest.mark.parametrize(
    ("duration", "counts"), [(2**62 // 1_000, True), (2**62 // 1_000 + 1, False)]
)
def test_times_from_2_to_the_62_ns_on_are_left_out(
    record: Recording, duration: int, *, counts: bool
) -> None:
    record.event("overhead", "Activity Buffer Request", 5, duration, pid=-1, tid=0)
    record.op("a", 10, 1)
    names = parse_events([record.read()], 0)["name"].to_list()
    assert names == ["Activity Buffer Request"] * counts + ["a"]


def test_a_host_event_with_a_stream_is_no_host_work(record: Recording) -> None:  # W2, W3
    record.op("triton", 0, 10, stream=0)
    record.launch("k", (2, 2), (20, 5), 1)
    assert "triton.s" not in {edge[0] for edge in edges_of(record.path())}


def test_windows(record: Recording) -> None:  # W1 to W3
    steps(record, 3)
    within = record.path(annotation="ProfilerStep", instance=1, include_last_step=True)
    assert set(within.moments.events["name"]) == {"ProfilerStep#4", "cudaLaunchKernel", "k1"}
    both = record.path(annotation="ProfilerStep", instance=(0, 1), include_last_step=True)
    assert both.moments.events["name"].to_list().count("cudaLaunchKernel") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"annotation": "Step%"}, "contains this text; annotations in the trace: 'Prof"),
        (
            {"annotation": "ProfilerStep", "instance": 2},
            r"no instance 2; instances: 0 \(ProfilerStep#3\), 1 \(ProfilerStep#4\)",
        ),
        ({"annotation": "ProfilerStep", "instance": -1}, "no instance -1"),
        ({"annotation": "ProfilerStep", "instance": (1, 0)}, "no instance 1:0"),
        ({"annotation": "ProfilerStep", "instance": (0, 2)}, "no instance 0:2"),
        ({"rank": 5}, "rank=5: is not there; there are: -1"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_answered_with_what_is(
    record: Recording, options: dict[str, object], message: str
) -> None:
    with pytest.raises(nadi.errors.UsageError, match=message):
        steps(record, 3).path(**options)


def test_a_trace_that_launches_nothing_has_no_answer(record: Recording) -> None:  # R4
    record.op("a", 0, 10)
    with pytest.raises(
        nadi.errors.InputError, match=r"device\.json: the trace contains no launched device work"
    ):
        record.path()


def test_a_host_trace_has_no_events(tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    host.write_text('{"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": []}')
    with pytest.raises(nadi.errors.InputError, match="the trace contains no device trace events"):
        nadi.analyses.hta_critical_path(nadi.read(host))


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::mm", "aten::mm"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("void at::native::f<int, g<h>>(int*, float)", "at::native::f"),
        ("gemm(long)", "gemm"),
        ("Memset (Device)", "Memset (Device)"),
        ("hipMemcpy<x>", "hipMemcpy<x>"),
        ("hipMemset<x>", "hipMemset<x>"),
        ("dma<x>", "dma<x>"),
        ("f(g)->h<x>", "fh"),
        ("void a::(anonymous namespace)::k<1>(int)", "a::::k"),
        ("<built-in method (x)>", ""),
    ],
)
def test_short_names(name: str, short: str) -> None:  # R3
    assert _short_name(name) == short


def test_both_ways_to_call_it_are_one(record: Recording) -> None:
    record.op("mm", 0, 10)
    record.launch("gemm", (2, 2), (6, 3), 1)
    trace = record.read()
    spelled = nadi.critical_path(trace, rules="hta", annotation="mm", instance=0)
    direct = nadi.analyses.hta_critical_path(trace, annotation="mm", instance=0)
    assert spelled.edges.equals(direct.edges)
    assert nadi.analyses.hta_critical_path(nadi.recordings.link_device(trace)).edges.equals(
        nadi.analyses.hta_critical_path(trace).edges
    )
    with pytest.raises(nadi.errors.UsageError, match="pass rules='nadi'"):
        nadi.critical_path(trace, rules="hat")  # type: ignore[call-overload]


def test_clocks_that_were_shifted_are_shifted_back(record: Recording) -> None:
    record.op("mm", 0.25, 10)
    record.launch("gemm", (2, 2), (6, 3), 1)
    trace = replace(record.read(), rank=3)
    start = pl.when(pl.col("start") >= 0).then(pl.col("start") + 777).otherwise("start")
    shifted = replace(trace, nodes=trace.nodes.with_columns(start=start))
    clocks = {"rank": [3], "reference": [3], "shift": [777], "low": [0], "high": [0]}
    job = nadi.Job((shifted,), MATCHES.empty(), ISSUES.empty(), CLOCKS.build(1, clocks))
    edges = nadi.analyses.hta_critical_path(job, rank=3).edges
    assert edges.equals(nadi.analyses.hta_critical_path(trace).edges)


def test_a_job_of_one_rank_is_as_its_trace(record: Recording) -> None:
    """No clock was compared with another one: nothing is shifted."""
    record.op("mm", 0.25, 10)
    record.launch("gemm", (2, 2), (6, 3), 1)
    record.event("overhead", "Activity Buffer Request", 5, 3, pid=-1, tid=0)
    trace = record.read()
    job = nadi.recordings.link_job([trace])
    assert nadi.analyses.hta_critical_path(job).nodes.equals(
        nadi.analyses.hta_critical_path(trace).nodes
    )


def test_events_that_are_no_nodes_keep_their_places(record: Recording) -> None:
    """Several in a row, at the start, between nodes and at the end."""
    for at in (0, 1, 10, 20, 21, 22, 30):
        if at % 10:
            record.event("overhead", f"event {at}", at, 0.5, pid=-1, tid=0)
        else:
            record.op(f"node {at}", at, 0.5)
    record.events.insert(0, record.events.pop(1))
    events = parse_events([record.read()], 0).sort("index")
    assert events["name"].to_list() == [event["name"] for event in record.events]
    assert events["index"].to_list() == list(range(len(record.events)))


def test_a_linked_pair_is_as_its_device_file(pair: PairWriter) -> None:
    for number, tid in enumerate((1, 5)):
        pair.op("aten::mm", 100 * number, 50, tid=tid)
        pair.event("cudaLaunchKernel", 100 * number + 10, 5, "cuda_runtime", correlation=number,
                   tid=tid)  # fmt: skip
        pair.event("gemm", 100 * number + 20, 90, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number)  # fmt: skip
    for node in pair.nodes[1:]:  # the host file has threads of its own numbers
        node["attrs"].append({"name": "tid", "type": "uint64", "value": 3 - node["id"]})
    host, device = (nadi.read(file) for file in pair.write())
    linked = nadi.analyses.hta_critical_path(nadi.link_pair(host, device))
    assert linked.edges.equals(nadi.analyses.hta_critical_path(device).edges)
    assert linked.breakdown().equals(nadi.analyses.hta_critical_path(device).breakdown())


def test_a_source_that_ends_with_the_work_before_is_no_later_one(record: Recording) -> None:  # G6
    record.launch("a", (0, 2), (10, 50), 1, stream=7)
    record.launch("c", (3, 1), (12, 48), 2, stream=20)
    record.call("cudaEventRecord", 5, 1, 3)
    record.call("cudaStreamWaitEvent", 7, 1, 4)
    record.sync("Stream Wait Event", 8, 1, 4, stream=20, wait_on_stream=7,
                wait_on_cuda_event_record_corr_id=3)  # fmt: skip
    record.launch("b", (9, 2), (61, 5), 5, stream=20)
    into = [edge for edge in edges_of(record.path()) if edge[1] == "b.s"]
    assert into == [("a.e", "b.s", SYNC, 0), ("c.e", "b.s", GAP, 1)]


def test_an_edge_added_again_keeps_its_place(record: Recording) -> None:  # E3
    record.op("mm", 0, 10)
    moments = make_moments(with_launch(record).path().moments.events)

    def one(begin: int, end: int, kind: int, event: int) -> EdgeList:
        columns = (np.array([value]) for value in (kind, begin, end, event))
        return weighted_edges(moments, *columns, np.array([False]))

    edges = join_hta_edges(moments, one(0, 1, 1, -1), one(1, 2, 0, 0), one(0, 1, 0, 0))
    assert edges.begin.tolist() == [0, 1]
    assert edges.type.tolist() == [0, 0]
    assert edges.event.tolist() == [0, 0]
    assert edges.weight[0] == moments.time[1] - moments.time[0]


def test_of_edges_that_take_no_time_the_path_is_the_first_node(record: Recording) -> None:  # R1
    moments = make_moments(with_launch(record).path().moments.events)
    kind, begin, end, event = np.array([[1, 1], [0, 1], [1, 2], [-1, -1]])
    edges = weighted_edges(moments, kind, begin, end, event, np.zeros(2, dtype=np.bool_))
    assert edges.weight.tolist() == [0, 0]
    assert _longest(moments, edges).tolist() == [0]


def test_a_window_in_which_nothing_begins(record: Recording) -> None:
    record.mark("empty", 500, 0)
    path = with_launch(record).path(annotation="empty")
    assert (path.length, path.nodes.height, path.edges.height) == (0, 0, 0)
    assert path.path.is_empty()
    assert path.breakdown().is_empty()
    assert path.summary().is_empty()


def test_processes_and_threads_with_names(record: Recording) -> None:
    record.op("a", 0, 10, pid="worker", tid="main")
    record.op("b", 2, 3, pid="worker", tid="main")
    record.op("c", 20, 10, pid="worker", tid="other")
    edges = [edge[:2] for edge in edges_of(with_launch(record).path())]
    assert ("a.s", "b.s") in edges
    assert ("a.e", "c.s") not in edges
    # in order of the names, and after those with numbers
    record.op("d", 0, 10, pid="worker", tid="before main")
    starts = [edge[0] for edge in edges_of(record.path()) if edge[0] in ("a.s", "c.s", "d.s")]
    assert list(dict.fromkeys(starts)) == ["d.s", "a.s", "c.s"]


def test_events_and_arguments_that_are_no_objects(record: Recording) -> None:
    record.op("mm", 0, 10)
    record.launch("gemm", (2, 2), (6, 30), 1)
    expected = record.path().length
    record.event("cuda_sync", "Event Sync", 40, 1)
    record.events[-1]["args"] = "stream"
    record.event("cpu_op", "add", 0, 1)
    record.events[-1]["args"] = ["stream"]
    record.events.append([{"dur": 1}])
    path = record.path()
    assert path.length == expected
    assert nadi.analyses.hta_overlay(record.read(), path).nodes.height > 0
