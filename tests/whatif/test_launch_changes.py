"""Fewer launches: kernels fused, ranges captured, overheads gone; small programs, exact times."""

from __future__ import annotations

import pytest

import nadi
from tests.conftest import PairWriter
from tests.whatif.programs import kernel, launch, spans, three_kernels


def test_the_program_is_as_it_says(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    assert spans(graph) == {"step": (0, 100), "k1": (20, 60), "k2": (62, 90), "k3": (95, 110)}


def test_fused_kernels_have_one_launch_and_no_turn_around(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    assert spans(graph, "fuse k[123]") == {
        "step": (0, 92), "k1": (20, 60), "k2": (60, 88), "k3": (88, 103),
    }  # fmt: skip
    # k3 keeps its turn-around of 3.5 us and its delay of 1.5 us
    assert spans(graph, "fuse k1|k2") == {
        "step": (0, 96), "k1": (20, 60), "k2": (60, 88), "k3": (93, 108),
    }  # fmt: skip


def test_only_neighbors_are_fused(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    with pytest.raises(nadi.errors.UsageError, match="no two of these operations are neighbors"):
        nadi.what_if(graph, "fuse k1|k3")
    with pytest.raises(nadi.errors.UsageError, match="no two of these operations are neighbors"):
        nadi.what_if(graph, "fuse step")


def test_kernels_of_two_devices_and_streams_are_not_fused(pair: PairWriter) -> None:
    pair.op("step", 0, 100)
    places = [(7, 0), (7, 0), (7, 1), (7, 1), (9, 0)]
    for number, (stream, device) in enumerate(places, 1):
        launch(pair, number, 4 * number, 3)
        kernel(pair, number, f"k{number}", 10 * number, 10 * number + 10, stream, device)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    with pytest.raises(nadi.errors.UsageError, match="no two of these"):
        nadi.what_if(graph, "fuse k[235]")
    before, after = spans(graph), spans(graph, "fuse k.")
    assert after["step"] == (0, 100 - 3 * 2)  # the launches of k2 and k4
    assert after["k3"] == tuple(t - 3 for t in before["k3"])  # its call came 3 us sooner
    assert after["k5"] == tuple(t - 6 for t in before["k5"])


def test_kernels_that_the_host_waits_for_in_between_are_not_fused(pair: PairWriter) -> None:
    pair.op("step", 0, 100)
    launch(pair, 1, 10, 4)
    kernel(pair, 1, "k1", 20, 40)
    pair.event("cudaDeviceSynchronize", 15, 30, "cuda_runtime", correlation=9)
    launch(pair, 2, 50, 4)
    kernel(pair, 2, "k2", 60, 70)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    with pytest.raises(nadi.errors.UsageError, match="without a wait between them"):
        nadi.what_if(graph, "fuse k1|k2")


def test_a_captured_range_is_launched_by_its_first_call(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    assert spans(graph, "cuda-graph step") == {
        "step": (0, 4), "k1": (10, 50), "k2": (52, 80), "k3": (83.5, 98.5),
    }  # fmt: skip


def test_each_range_is_a_graph_of_its_own(pair: PairWriter) -> None:
    for step in range(3):
        pair.op(f"part {step}", 100 * step, 60)
        for k in range(2):
            number, start = 2 * step + k, 100 * step + 20 + 20 * k
            launch(pair, number + 1, start - 10, 5)
            kernel(pair, number + 1, f"k{number}", start, start + 10)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    after = spans(graph, "cuda-graph part")
    # each range is its first call of 5 us, and its kernels begin 5 us after that; gaps stay
    assert [after[f"part {k}"] for k in range(3)] == [(0, 5), (45, 50), (90, 95)]
    assert [after[f"k{k}"] for k in (0, 2, 4)] == [(10, 20), (55, 65), (100, 110)]
    assert after["k1"][0] >= 20
    one = spans(graph, "cuda-graph 'part 1'")
    assert [one[f"part {k}"] for k in range(3)] == [(0, 60), (100, 105), (145, 205)]


def test_what_another_thread_launches_is_not_captured(pair: PairWriter) -> None:
    pair.op("step", 0, 100)
    launch(pair, 1, 10, 5)
    kernel(pair, 1, "mine", 20, 30)
    pair.op("other", 15, 60, tid=2)
    launch(pair, 2, 40, 5, tid=2)
    kernel(pair, 2, "theirs", 50, 70, 9)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    after = spans(graph, "cuda-graph step")
    assert after["step"] == (0, 5)
    assert after["mine"] == (10, 20)
    assert after["other"] == (15, 75)
    assert after["theirs"] == (50, 70)


def test_a_range_that_waits_cannot_be_captured(pair: PairWriter) -> None:
    pair.op("step", 0, 100)
    launch(pair, 1, 10, 5)
    kernel(pair, 1, "k1", 20, 60)
    pair.event("cudaDeviceSynchronize", 30, 40, "cuda_runtime", correlation=2)
    pair.op("idle", 110, 10)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    with pytest.raises(
        nadi.errors.UsageError, match="1 calls in it wait for the device, such as cudaDev"
    ):
        nadi.what_if(graph, "cuda-graph step")
    with pytest.raises(nadi.errors.UsageError, match="launch no device work"):
        nadi.what_if(graph, "cuda-graph idle")
    with pytest.raises(nadi.errors.UsageError, match="launch no device work"):
        nadi.what_if(graph, "cuda-graph k1")


def test_a_copy_that_its_own_call_waits_for_cannot_be_captured(pair: PairWriter) -> None:
    pair.op("step", 0, 100)
    launch(pair, 1, 10, 5)
    kernel(pair, 1, "k1", 20, 30)
    pair.event("cudaMemcpy", 40, 40, "cuda_runtime", correlation=2)
    pair.event("Memcpy DtoH (Device -> Pageable)", 50, 20, "gpu_memcpy", pid=0, tid=7, stream=7,
               device=0, correlation=2)  # fmt: skip
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    with pytest.raises(nadi.errors.UsageError, match=r"1 calls in it wait .* such as cudaMemcpy"):
        nadi.what_if(graph, "cuda-graph step")


def test_without_overhead_work_starts_as_soon_as_it_is_asked_for(pair: PairWriter) -> None:
    graph = three_kernels(pair)
    assert spans(graph, "no-overhead") == {
        "step": (0, 88), "k1": (13, 53), "k2": (53, 81), "k3": (82.5, 97.5),
    }  # fmt: skip  # delays stay
    only = spans(graph, "no-overhead k2")
    assert only == {"step": (0, 96), "k1": (20, 60), "k2": (60, 88), "k3": (93, 108)}
    with pytest.raises(nadi.errors.UsageError, match="none of these operations was launched"):
        nadi.what_if(graph, "no-overhead step")


def test_without_gaps_a_thread_goes_from_operation_to_operation(pair: PairWriter) -> None:
    pair.op("a", 0, 10)
    pair.op("b", 30, 10)
    pair.op("c", 45, 5)
    graph = nadi.build_graph(nadi.load_job(*pair.write()))
    assert spans(graph, "no-gaps") == {"a": (0, 10), "b": (10, 20), "c": (20, 25)}
