"""Work whose duration cannot be right, and recordings whose kernels are missing."""

from __future__ import annotations

import pytest

import nadi
from tests.conftest import PairWriter


def _issues(pair: PairWriter, durations: list[float]) -> dict[str, int]:
    """Link a recording of kernels on a stream, one each 20 us, of some durations in us."""
    pair.event("aten::mm", 0, 1_000)
    for k, duration in enumerate(durations):
        pair.event("cudaLaunchKernel", 1 + 5 * k, 3, "cuda_runtime", correlation=k + 1)
        pair.event("gemm", 100 + 20 * k, duration, "kernel", pid=0, tid=7, stream=7, device=0,
                   correlation=k + 1)  # fmt: skip
    trace = nadi.recordings.link_device(nadi.read(pair.write()[1]))
    return dict(trace.issues.select("code", "count").iter_rows())


def test_a_kernel_that_outlasts_many_after_it_is_said_to_be_corrupt(pair: PairWriter) -> None:
    durations = [18.0] * 30
    durations[4] = 9e9
    assert _issues(pair, durations)["link.outlasts"] == 1


@pytest.mark.parametrize("duration", [18.0, 28.0, 150.0])
def test_overlaps_of_dependent_launches_are_none(pair: PairWriter, duration: float) -> None:
    assert "link.outlasts" not in _issues(pair, [duration] * 30)


def test_launches_without_any_kernel_are_counted(pair: PairWriter) -> None:
    pair.event("aten::mm", 0, 100)
    for k in range(3):
        pair.event("cudaLaunchKernel", 1 + 5 * k, 3, "cuda_runtime", correlation=k + 1)
    pair.event("Memset (Device)", 50, 2, "gpu_memset", pid=0, tid=7, stream=7, device=0)
    trace = nadi.recordings.link_device(nadi.read(pair.write()[1]))
    counts = dict(trace.issues.select("code", "count").iter_rows())
    assert counts["link.no-kernels"] == 3
