"""Scaled operations, through the main job."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from tests.conftest import PairWriter


def length_after(pair: PairWriter, change: str) -> int:
    """Give the makespan in us after a change."""
    run = nadi.run(*pair.write(), what_if=[change])
    assert run.measured_ns == run.replayed_ns
    return run.what_ifs[0].window_ns // 1000


def test_a_host_operation_stands_for_all_that_lies_in_it(pair: PairWriter) -> None:
    outer = pair.op("outer", 0, 100)
    pair.op("inner", 10, 40, parent=outer)
    pair.op("after", 150, 50)
    assert length_after(pair, "scale inner 0.5") == 180
    assert length_after(pair, "scale outer 0.5") == 150
    assert length_after(pair, "scale outer|inner 0.5") == 150  # inner is not scaled twice
    assert length_after(pair, "scale . 0") == 50  # the gap between them stays
    assert length_after(pair, "scale after 3") == 300


def test_a_kernel_on_the_path_shortens_the_wait_for_it(pair: PairWriter) -> None:
    pair.op("aten::mm", 0, 20)
    pair.event("cudaLaunchKernel", 10, 5, "cuda_runtime", correlation=1)
    pair.event("gemm", 20, 100, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    pair.op("aten::item", 30, 100)
    pair.event("cudaDeviceSynchronize", 40, 85, "cuda_runtime", correlation=2)
    assert length_after(pair, "scale gemm 1") == 130
    assert length_after(pair, "scale gemm 0.5") == 80
    assert length_after(pair, "scale gemm 0") == 45  # the host's own time remains
    assert length_after(pair, "scale gemm 2") == 230


def test_a_device_synchronization_waits_for_the_last_of_its_streams(pair: PairWriter) -> None:
    pair.op("aten::item", 0, 400)
    for number, name, stream, start, end in ((1, "long", 7, 20, 300), (2, "short", 8, 30, 60)):
        pair.event("cudaLaunchKernel", 10 * number, 5, "cuda_runtime", correlation=number)
        pair.event(name, start, end - start, "kernel", pid=0, tid=stream, stream=stream, device=0,
                   correlation=number)  # fmt: skip
    pair.event("cudaDeviceSynchronize", 40, 270, "cuda_runtime", correlation=3)
    assert length_after(pair, "scale long 1") == 400
    # it returns 10 us after the last of both, now short at 60, and 90 us of the operator follow
    assert length_after(pair, "scale long 0.1") == 160
    assert length_after(pair, "scale long 0.5") == 260
    assert length_after(pair, "scale short 0") == 400


def test_work_that_waits_for_its_stream_is_not_held_by_its_launch(pair: PairWriter) -> None:
    pair.op("aten::mm", 0, 200)
    pair.event("cudaLaunchKernel", 2, 3, "cuda_runtime", correlation=1)
    pair.event("first", 10, 90, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    # this call lasts longer than the kernel before its own
    pair.event("cudaLaunchKernel", 20, 100, "cuda_runtime", correlation=2)
    pair.event("second", 102, 400, "kernel", pid=0, tid=7, stream=7, device=0, correlation=2)
    assert length_after(pair, "scale first 1") == 502
    assert length_after(pair, "scale first 0") < 460


def test_work_that_is_not_on_the_path_gains_nothing(pair: PairWriter) -> None:
    pair.op("long", 0, 100)
    pair.op("short", 0, 50, tid=2)
    assert length_after(pair, "scale short 0.5") == 100
    assert length_after(pair, "scale long 0") == 50


def test_a_question_about_a_step_is_not_about_those_before(demo_folder: Path) -> None:
    change = "scale ProfilerStep#1$ 0"
    run = nadi.run(demo_folder, step=2, what_if=[change, "scale aten:: 0.5"])
    assert run.what_ifs[0].window_ns == run.measured_ns
    assert run.what_ifs[1].window_ns < run.measured_ns


def test_the_given_graph_is_not_touched(demo_run: nadi.bottlenecks.Run) -> None:
    before = demo_run.graph.weight.copy()
    changed = nadi.whatif.apply_change(demo_run.graph, nadi.whatif.parse_change("scale aten 0.1"))
    assert (demo_run.graph.weight == before).all()
    assert (changed.weight <= before).all()
    assert changed.weight.sum() < before.sum()


def test_faster_communication_gains_no_more_than_its_time_on_the_path(
    demo_run: nadi.bottlenecks.Run, demo_folder: Path
) -> None:
    run = nadi.run(demo_folder, what_if=["scale gloo: 0"])
    gain = run.measured_ns - run.what_ifs[0].window_ns
    assert 0 < gain <= demo_run.path.by_kind()["communication"]


def late_in_a_long_call(pair: PairWriter) -> None:
    pair.op("aten::mm", 0, 200)
    pair.event("cudaLaunchKernel", 10, 100, "cuda_runtime", correlation=2)
    pair.event("gemm", 108, 42, "kernel", pid=0, tid=7, stream=7, device=0, correlation=2)
    pair.event("cudaDeviceSynchronize", 111, 40, "cuda_runtime", correlation=3)


@pytest.mark.parametrize(
    ("change", "length"),
    [
        ("scale ^cudaLaunchKernel$ 1", 200),
        ("scale ^cudaLaunchKernel$ 0.5", 151),  # the kernel begins at 59
        ("scale ^aten::mm$ 0.5", 121),
        ("set ^cudaLaunchKernel$ 10us", 111),
        ("scale ^cudaLaunchKernel$ 0", 102),
        ("no-overhead kind=device", 102),
    ],
)
def test_work_that_starts_late_in_its_call_moves_with_the_call(
    pair: PairWriter, change: str, length: int
) -> None:
    late_in_a_long_call(pair)
    assert length_after(pair, change) == length


def test_so_does_work_whose_stream_became_idle_long_before(pair: PairWriter) -> None:
    late_in_a_long_call(pair)
    pair.event("cudaLaunchKernel", 0, 3, "cuda_runtime", correlation=1)
    pair.event("before", 6, 10, "kernel", pid=0, tid=7, stream=7, device=0, correlation=1)
    assert length_after(pair, "scale ^cudaLaunchKernel$ 0.5") == 149  # with the first call
    assert length_after(pair, "scale ^before$ 5") == 200
