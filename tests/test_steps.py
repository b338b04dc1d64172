"""Steps, and what belongs to them."""

from __future__ import annotations

import pytest

import nadi
from tests.conftest import PairWriter


def two_steps(pair: PairWriter) -> tuple[nadi.EventGraph, list[nadi.Window]]:
    pair.op("ProfilerStep#4", 0, 100, cat="user_annotation")
    pair.op("aten::mm", 10, 20)
    pair.event("cudaLaunchKernel", 15, 5, "cuda_runtime", correlation=1)
    pair.op("ProfilerStep#5", 100, 100, cat="user_annotation")
    # launched in step 4, runs into step 5
    pair.event("gemm", 90, 40, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    pair.op("after", 300, 10)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    return graph, nadi.find_steps(graph)


def test_device_work_belongs_to_the_step_that_launched_it(pair: PairWriter) -> None:
    graph, steps = two_steps(pair)
    assert [step.number for step in steps] == [4, 5]
    assert [step.length(graph.time) for step in steps] == [130_000, 100_000]
    assert steps[1].start(graph.time) == 100_000


def test_all_steps_end_with_the_last_of_them(pair: PairWriter) -> None:
    graph, steps = two_steps(pair)
    window = nadi.choose_window(graph, steps)
    assert (window.name, window.length(graph.time)) == ("steps 4 to 5", 200_000)


def test_one_step_is_found_by_its_number(pair: PairWriter) -> None:
    graph, steps = two_steps(pair)
    assert nadi.choose_window(graph, steps, "5") is steps[1]
    with pytest.raises(nadi.UsageError, match="give all or one of: 4, 5"):
        nadi.choose_window(graph, steps, "6")


def test_without_marks_the_whole_trace_is_the_window(pair: PairWriter) -> None:
    pair.op("op", 5, 10)
    pair.op("op", 50, 10)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert nadi.find_steps(graph) == []
    window = nadi.choose_window(graph, [])
    assert (window.name, window.length(graph.time)) == ("whole trace", 55_000)
    with pytest.raises(nadi.UsageError, match="marks no steps"):
        nadi.choose_window(graph, [], "1")
