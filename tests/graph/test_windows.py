"""Steps, and what belongs to them."""

from __future__ import annotations

import numpy as np
import pytest

import nadi
from tests.conftest import PairWriter


def two_steps(pair: PairWriter) -> tuple[nadi.EventGraph, list[nadi.graph.Window]]:
    pair.op("ProfilerStep#4", 0, 100, cat="user_annotation")
    pair.op("aten::mm", 10, 20)
    pair.event("cudaLaunchKernel", 15, 5, "cuda_runtime", correlation=1)
    pair.op("ProfilerStep#5", 100, 100, cat="user_annotation")
    # launched in step 4, runs into step 5
    pair.event("gemm", 90, 40, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    pair.op("after", 300, 10)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    return graph, nadi.graph.find_steps(graph)


def test_device_work_belongs_to_the_step_that_launched_it(pair: PairWriter) -> None:
    graph, steps = two_steps(pair)
    assert [step.number for step in steps] == [4, 5]
    assert [step.length(graph.time) for step in steps] == [130_000, 100_000]
    assert steps[1].start(graph.time) == 100_000


def test_all_steps_end_with_the_last_of_them(pair: PairWriter) -> None:
    graph, steps = two_steps(pair)
    window = nadi.graph.choose_window(graph, steps)
    assert (window.name, window.length(graph.time)) == ("steps 4 to 5", 200_000)


def test_one_step_is_found_by_its_number(pair: PairWriter) -> None:
    graph, steps = two_steps(pair)
    assert nadi.graph.choose_window(graph, steps, "5") is steps[1]
    with pytest.raises(nadi.errors.UsageError, match="give all or one of: 4, 5"):
        nadi.graph.choose_window(graph, steps, "6")


def test_without_marks_the_whole_trace_is_the_window(pair: PairWriter) -> None:
    pair.op("op", 5, 10)
    pair.op("op", 50, 10)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert nadi.graph.find_steps(graph) == []
    window = nadi.graph.choose_window(graph, [])
    assert (window.name, window.length(graph.time)) == ("whole trace", 55_000)
    with pytest.raises(nadi.errors.UsageError, match="no ProfilerStep annotations"):
        nadi.graph.choose_window(graph, [], "1")


def late_kernels(pair: PairWriter, *kernels: tuple[float, float, float, int]) -> nadi.EventGraph:
    """Write kernels: when each is launched, begins and ends (us), and on which stream."""
    pair.op("aten::mm", 0, 100)
    for number, (launch, start, end, stream) in enumerate(kernels, 1):
        pair.event("cudaLaunchKernel", launch, 1, "cuda_runtime", correlation=number)
        pair.event("gemm", start, end - start, "kernel", pid=0, tid=stream, stream=stream,
                   device=0, correlation=number)  # fmt: skip
    return nadi.build_graph(nadi.load_job(*pair.write()))


@pytest.mark.parametrize(
    ("kernels", "begin_us"),
    [
        ([(1, 2_000, 2_500, 7), (10, 2_500, 4_000, 7)], 2_000),
        # a little work on another stream does not show that the device was idle
        ([(1, 5, 9, 9), (10, 2_000, 2_500, 7), (20, 2_500, 4_000, 7)], 2_000),
        # this stream waits for something else: its device does what is recorded
        ([(1, 5, 1_990, 9), (10, 2_000, 2_500, 7), (20, 2_500, 4_000, 7)], 0),
        ([(1, 2_000, 2_500, 7), (10, 2_500, 4_000, 7), (20, 2_600, 3_900, 9)], 2_000),
        ([(1, 190, 2_500, 7), (10, 2_500, 4_000, 7)], 0),  # less than 200 us late
        ([(1, 2_000, 19_000, 7), (10, 19_000, 25_000, 7)], 0),  # less than a tenth
        ([(90, 2_000, 2_500, 7)], 2_000),
    ],
)
def test_what_follows_work_begun_before_the_recording_is_the_window(
    pair: PairWriter, kernels: list[tuple[float, float, float, int]], begin_us: int
) -> None:
    graph = late_kernels(pair, *kernels)
    window = nadi.graph.choose_window(graph, nadi.graph.find_steps(graph))
    assert window.start(graph.time) == 1_000 * begin_us
    assert window.end(graph.time) == 1_000 * max(end for _, _, end, _ in kernels)
    assert window.after_earlier_work == (begin_us > 0)
    assert window.name == (f"what follows {begin_us / 1000:.3f} ms" if begin_us else "whole trace")


@pytest.mark.parametrize("marks", [((0, 40), (40, 40)), ((0, 60), (20, 30)), ((10, 0), (50, 50))])
def test_what_is_asked_for_while_a_mark_lasts_belongs_to_it(
    pair: PairWriter, marks: tuple[tuple[int, int], ...]
) -> None:
    for number, (ts, dur) in enumerate(marks):
        pair.op(f"ProfilerStep#{number}", ts, dur, cat="user_annotation", tid=number + 1)
    for k in range(12):
        pair.op(f"op{k}", 8 * k, 5, tid=9)
        pair.event("launch", 8 * k + 1, 2, "cuda_runtime", correlation=k + 1, tid=9)
        pair.event("gemm", 10 * k + 9, 8, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=k + 1)  # fmt: skip
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    start, names = graph.time[0 : 2 * graph.num_ops : 2], graph.op_names.to_list()
    asked = {work: 8 * k + 1 for k, work in enumerate(
        sorted((op for op, name in enumerate(names) if name == "gemm"), key=lambda op: start[op])
    )}  # fmt: skip
    for step, (ts, dur) in zip(nadi.graph.find_steps(graph), marks, strict=True):
        moments = [asked.get(op, start[op] / 1000) for op in range(graph.num_ops)]
        inside = {op for op, moment in enumerate(moments) if ts <= moment < ts + dur}
        assert set((step.last // 2).tolist()) == inside | set((step.first // 2).tolist())
        assert step.last.tolist() == sorted(set(step.last.tolist()))


def of(pair: PairWriter) -> nadi.EventGraph:
    return nadi.build_graph(nadi.load_job(pair.write()[1]))


def with_queue_writer(pair: PairWriter) -> nadi.EventGraph:
    """A program of 100 us, beside a thread that waits in Python for 900 us."""
    pair.op("aten::mm", 0, 40)
    pair.op("aten::add", 60, 40)
    pair.event("threading.py: run", 0, 900, "python_function", tid=5)
    pair.event("queues.py: get", 1, 899, "python_function", tid=5)
    return of(pair)


def test_a_thread_that_only_waits_ends_no_window(pair: PairWriter) -> None:
    graph = with_queue_writer(pair)
    window = nadi.graph.choose_window(graph, [])
    assert window.length(graph.time) == 100_000
    assert sorted(graph.op_names) == ["aten::add", "aten::mm"]
    path = nadi.critical_path(nadi.graph.replay_graph(graph), window)
    assert path.by_kind()["host op"] == 80_000
    (trace,) = graph.job.traces
    counts = dict(trace.issues.select("code", "count").iter_rows())
    assert counts["link.waiting-threads"] == 1


def test_a_lone_thread_of_python_frames_is_analysed(pair: PairWriter) -> None:
    pair.event("main", 0, 900, "python_function")
    pair.event("sleep", 100, 700, "python_function")
    graph = of(pair)
    assert nadi.graph.choose_window(graph, []).length(graph.time) == 900_000


def test_frames_of_a_thread_that_copies_now_and_then_end_no_window(pair: PairWriter) -> None:
    pair.op("aten::mm", 0, 40)
    pair.op("aten::add", 60, 40)
    pair.event("pin_memory.py: loop", 0, 900, "python_function", tid=5)
    pair.op("aten::pin_memory", 10, 120, tid=5)
    graph = of(pair)
    assert nadi.graph.choose_window(graph, []).length(graph.time) == 130_000


@pytest.mark.parametrize("call", ["cudaEventQuery", "cudaEventSynchronize"])
def test_a_watchdog_with_frames_only_waits(pair: PairWriter, call: str) -> None:
    pair.op("aten::mm", 0, 40)
    pair.event("watch", 0, 900, "python_function", tid=5)
    pair.event(call, 100, 5, "cuda_runtime", tid=5)
    pair.event("cudaThreadExchangeStreamCaptureMode", 110, 5, "cuda_runtime", tid=5)
    graph = of(pair)
    assert nadi.graph.choose_window(graph, []).length(graph.time) == 40_000


def steps_of(graph: nadi.EventGraph) -> list[tuple[int, int]]:
    return [
        (step.start(graph.time) // 1000, step.end(graph.time) // 1000)
        for step in nadi.graph.find_steps(graph)
    ]


def iteration(pair: PairWriter, begin: int, correlation: int) -> None:
    """50 us of a training loop: three operators and a kernel."""
    pair.op("aten::mm", begin, 10)
    pair.event("cudaLaunchKernel", begin + 2, 3, "cuda_runtime", correlation=correlation)
    pair.event("gemm", begin + 20, 28, "kernel", pid=0, tid=7, stream=7, device=0,
               correlation=correlation)  # fmt: skip
    pair.op("aten::add", begin + 12, 8)
    pair.op("Optimizer.step#SGD.step", begin + 22, 20, cat="user_annotation")
    pair.op("aten::add_", begin + 25, 10)


def test_steps_are_found_by_the_calls_of_an_optimizer(pair: PairWriter) -> None:
    for k in range(4):
        iteration(pair, 50 * k, k + 1)
    graph = of(pair)
    steps = nadi.graph.find_steps(graph)
    assert steps_of(graph) == [(0, 48), (50, 98), (100, 148), (150, 198)]
    assert {(step.mark, step.alike) for step in steps} == {("Optimizer.step#SGD.step", 1.0)}
    assert nadi.graph.choose_window(graph, steps).name == "whole trace"
    assert nadi.graph.choose_window(graph, steps, "2") is steps[2]


def test_what_does_not_resemble_the_steps_is_none(pair: PairWriter) -> None:
    for k in range(4):
        pair.op(f"set up {k}", 10 * k, 5)
    for k in range(3):
        iteration(pair, 200 + 50 * k, k + 1)
    graph = of(pair)
    assert steps_of(graph) == [(250, 298), (300, 348)]  # the first has the set-up in front


def test_annotations_that_differ_by_a_number_are_steps(pair: PairWriter) -> None:
    for k in range(3):
        pair.op(f"iteration {k}", 100 * k, 90, cat="user_annotation")
        for layer in range(4):
            pair.op("layer", 100 * k + 20 * layer, 15, cat="user_annotation")
            pair.op("aten::mm", 100 * k + 20 * layer, 15)
    graph = of(pair)
    assert steps_of(graph) == [(0, 90), (100, 190), (200, 290)]
    assert {step.mark for step in nadi.graph.find_steps(graph)} == {"iteration #"}


@pytest.mark.parametrize("around", ["", "nn.Module: Model_0"])
def test_graph_launches_are_steps_unless_one_module_contains_them(
    pair: PairWriter, around: str
) -> None:
    if around:
        pair.event(around, 0, 300, "python_function")
    for k in range(3):
        pair.event("cudaGraphLaunch", 100 * k, 10, "cuda_runtime", correlation=k + 1)
        for j in range(5):
            pair.event(f"k{j}", 100 * k + 12 + 10 * j, 10, "kernel", pid=0, tid=7, stream=7,
                       device=0, correlation=k + 1)  # fmt: skip
    expected = [] if around else [(0, 62), (100, 162), (200, 262)]
    assert steps_of(of(pair)) == expected


def test_unlike_intervals_are_no_steps(pair: PairWriter) -> None:
    random = np.random.default_rng(5)
    for k in range(6):
        pair.op("phase", 100 * k, 5, cat="user_annotation")
        for j in range(8):
            pair.op(f"op {random.integers(1000)}", 100 * k + 6 + 10 * j, 5)
    assert steps_of(of(pair)) == []


def test_a_window_by_hand_lasts_from_the_first_to_the_last_moment_inside(pair: PairWriter) -> None:
    graph, steps = two_steps(pair)
    window = nadi.graph.choose_window(graph, steps, window="12us:125us")
    assert (window.name, window.start(graph.time), window.end(graph.time)) == (
        "12us to 125us", 15_000, 100_000,
    )  # fmt: skip
    path = nadi.critical_path(nadi.graph.replay_graph(graph), window)
    assert path.length == 85_000


@pytest.mark.parametrize(
    ("window", "step", "message"),
    [
        ("12us", "all", "two times are needed"),
        ("1us:x", "all", "'x' is not a time"),
        ("20us:10us", "all", "the second time is not later"),
        ("400us:1s", "all", "no operation starts or ends there; the recording lasts from 0 to"),
        ("1us:2us", "4", "give one of them"),
    ],
)
def test_a_window_that_cannot_be_is_refused(
    pair: PairWriter, window: str, step: str, message: str
) -> None:
    graph, steps = two_steps(pair)
    with pytest.raises(nadi.errors.UsageError, match=message):
        nadi.graph.choose_window(graph, steps, step, window)


def reporting(pair: PairWriter, *, waits: bool = False) -> nadi.EventGraph:
    """Write kernels, and a stream on which a device does something every 100 us by itself."""
    pair.op("aten::mm", 0, 50)
    for number in range(1, 6):
        pair.event("cudaLaunchKernel", 5 * number, 2, "cuda_runtime", correlation=number)
        pair.event("gemm", 100 * number, 90, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=number)  # fmt: skip
        pair.event("report", 100 * number + 95, 4, "kernel", pid=0, tid=9, stream=9, device=0)
    pair.event("report", 700, 4, "kernel", pid=0, tid=9, stream=9, device=0)
    if waits:
        pair.event("cudaStreamSynchronize", 55, 650, "cuda_runtime", correlation=9)
        pair.event("Stream Sync", 56, 648, "cuda_sync", pid=0, tid=9, stream=9, correlation=9)
    return nadi.build_graph(nadi.load_job(pair.write()[1]))


def test_what_a_device_does_by_itself_ends_no_window(pair: PairWriter) -> None:
    graph = reporting(pair)
    window = nadi.graph.choose_window(graph, nadi.graph.find_steps(graph))
    assert window.end(graph.time) == 590_000
    halved = nadi.whatif.what_if(graph, "scale gemm 0.5", window=window)
    assert halved.gain_ns > 200_000


def test_a_stream_that_is_waited_for_is_the_programs(pair: PairWriter) -> None:
    graph = reporting(pair, waits=True)
    window = nadi.graph.choose_window(graph, nadi.graph.find_steps(graph))
    assert window.end(graph.time) >= 704_000
    assert 704_000 in graph.time[window.last]
