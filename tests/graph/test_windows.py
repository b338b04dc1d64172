"""Steps, and what belongs to them."""

from __future__ import annotations

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
