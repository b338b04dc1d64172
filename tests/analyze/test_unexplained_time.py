"""What a critical path leaves unexplained, by cause; what only inferred dependencies explain."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from nadi.graph.unexplained import CAUSES
from tests.conftest import PairWriter

BEFORE, NOT_SCHEDULED, UNKNOWN_WAIT, BEGINS_LATER, UNKNOWN = CAUSES


def found(pair: PairWriter, window: str = "") -> nadi.graph.UnexplainedPath:
    return nadi.run(pair.write()[1], window=window).unexplained


def causes(pair: PairWriter, window: str = "") -> dict[str, int]:
    return {cause: time for cause, time in found(pair, window).by_cause.items() if time}


def kernel(pair: PairWriter, launch: float, start: float, dur: float, number: int) -> None:
    pair.event("cudaLaunchKernel", launch, 5, "cuda_runtime", correlation=number)
    pair.event("gemm", start, dur, "kernel", pid=0, tid=7, stream=7, device=0, correlation=number)


def test_the_first_work_of_a_device_that_is_late_waits_for_what_was_not_recorded(
    pair: PairWriter,
) -> None:
    pair.op("aten::mm", 0, 30)
    kernel(pair, 2, 2_000, 500, 1)
    kernel(pair, 10, 2_500, 500, 2)
    time = causes(pair, "0ms:3ms")
    assert set(time) == {BEFORE}
    assert 1_990_000 <= time[BEFORE] <= 1_993_000


def test_a_short_kernel_on_another_stream_does_not_show_that_the_device_was_idle(
    pair: PairWriter,
) -> None:
    pair.op("aten::mm", 0, 30)
    kernel(pair, 12, 2_000, 500, 2)
    pair.event("cudaLaunchKernel", 2, 5, "cuda_runtime", correlation=1)
    pair.event("fill", 10, 4, "kernel", pid=0, tid=9, stream=9, device=0, correlation=1)
    assert set(causes(pair, "0ms:3ms")) == {BEFORE}


def test_later_work_that_is_late_has_no_known_cause(pair: PairWriter) -> None:
    pair.op("aten::mm", 0, 30)
    kernel(pair, 2, 10, 20, 1)
    kernel(pair, 12, 2_000, 500, 2)
    assert set(causes(pair)) == {UNKNOWN}
    assert causes(pair)[UNKNOWN] >= 1_950_000


def test_the_window_begins_with_the_first_rank(shared_traces: Path) -> None:
    run = nadi.run(shared_traces / "gpu_dlrm8")
    first = run.window.start(run.graph.time)
    seventh = run.graph.ops_of_trace(7)
    late = int(run.graph.time[2 * seventh.start : 2 * seventh.stop].min()) - first
    assert run.unexplained.by_cause[BEGINS_LATER] == late > 7_000_000


def test_all_is_explained_where_nothing_is_late(pair: PairWriter) -> None:
    for k in range(10):
        pair.op("aten::mm", 20 * k, 15)
    assert causes(pair) == {}
    assert found(pair).inferred_ns == 0


@pytest.mark.parametrize("framed", [True, False])
def test_a_long_gap_without_a_python_function_has_no_cause(pair: PairWriter, framed: bool) -> None:
    if framed:
        pair.event("main.py: train", 0, 50_500, "python_function")
    for k in range(12):
        pair.op("aten::mm", 20 * k + 50_000 * (k == 11), 10 + k % 3)
    expected = {} if framed else {UNKNOWN: 50_009_000}
    assert causes(pair) == expected


def test_a_synchronization_without_work_waits_for_the_unknown(pair: PairWriter) -> None:
    pair.op("aten::mm", 0, 10)
    pair.event("cudaStreamSynchronize", 15, 800, "cuda_runtime", correlation=4)
    pair.op("aten::mm", 820, 10)
    assert causes(pair) == {UNKNOWN_WAIT: 800_000}


def with_gloo(pair: PairWriter, late: float) -> None:
    """Six waits for gloo's work, the last of which ends late."""
    for k in range(6):
        begin = 1_000 * k
        pair.op("aten::mm", begin, 20)
        pair.event("c10d::allreduce_", begin + 20, 5, **{"Record function id": 1_000 + 2 * k})
        pair.event("gloo:all_reduce", begin + 30, 300, "user_annotation", tid=5,
                   **{"Record function id": 1_001 + 2 * k})  # fmt: skip
        pair.op("aten::add", begin + 380 + late * (k == 5), 400)


def test_a_thread_that_goes_on_late_was_not_scheduled(pair: PairWriter) -> None:
    with_gloo(pair, 5_000)
    assert causes(pair) == {NOT_SCHEDULED: 5_000_000}


def test_waits_from_times_alone_rest_on_inferred_dependencies(pair: PairWriter) -> None:
    with_gloo(pair, 0)
    result = found(pair)
    assert result.by_cause == dict.fromkeys(CAUSES, 0)
    # in each round from the end of the call, at 25 us, to the operator after the wait, at 380
    assert result.inferred_ns == 6 * 355_000


def test_a_window_counts_its_own_time_only(pair: PairWriter) -> None:
    with_gloo(pair, 5_000)
    result = found(pair, "6ms:12ms")
    assert sum(result.by_cause.values()) <= result.length_ns
    assert result.inferred_ns <= result.length_ns


def test_parts_of_real_paths_are_no_longer_than_the_paths(shared_traces: Path) -> None:
    for name in ("gpu_dlrm8", "gpu_hta/alexnet.json.gz", "cpu_ddp4", "gpu_simple_add_pair"):
        run = nadi.run(shared_traces / name)
        assert 0 <= run.unexplained.total_ns <= run.path.length
        assert 0 <= run.unexplained.inferred_ns <= run.path.length
        assert run.unexplained.total_ns == run.path.by_kind()["unexplained"]


@pytest.mark.parametrize(
    ("ready_us", "cause"), [(60_000, NOT_SCHEDULED), (50_000, UNKNOWN), (0, UNKNOWN)]
)
def test_a_gap_is_of_a_thread_that_was_ready_where_the_recorder_saw_it_wait_for_as_long(
    pair: PairWriter, ready_us: int, cause: str
) -> None:
    for k in range(12):
        pair.op("aten::mm", 20 * k + 50_000 * (k == 11), 10 + k % 3)
    lengths = {"timed_ns": [60_000_000], "ready_ns": [1_000 * ready_us]}
    pair.device_keys["nadi"] = lengths
    assert causes(pair) == {cause: 50_009_000}
