"""Which launches, pairs and waits typical overheads are taken from: the rules at their borders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.graph.overheads import LAUNCH_CLASSES, MEASURED_WAITS, WAIT_CLASSES
from nadi.trace.categories import STAGED_COPY_BYTES
from nadi.trace.schema import DEVICE_WORK
from tests.link.test_synchronization import DeviceWriter

DEVICE = LAUNCH_CLASSES.index("device")
CATEGORIES = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
TO_HOST, TO_DEVICE = "Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable -> Device)"


@pytest.fixture
def device(tmp_path: Path) -> DeviceWriter:
    return DeviceWriter(tmp_path)


def typical(device: DeviceWriter, *within: tuple[int, int]) -> nadi.graph.Overheads:
    return nadi.graph.estimate_overheads(device.read(), *within)


@pytest.mark.parametrize("count", [1, 2, 19, 20, 21])
def test_from_20_launches_onto_an_idle_stream_on_it_is_their_median(
    device: DeviceWriter, count: int
) -> None:
    late = 100 * (1 + np.arange(count))
    for number, latency in enumerate(late.tolist()):
        begin = 100.0 * number
        device.work("k", (begin, begin + 5), (begin + 5 + latency / 1000, begin + 50))
    found = typical(device)
    guess = int(min(np.percentile(late, 25), 3_000))
    assert found.launch_after_end[DEVICE] == (np.median(late) if count >= 20 else guess)
    since_start = np.median(late) if count >= 20 else np.percentile(late, 25)
    assert found.launch_after_start[DEVICE] == int(since_start + 5_000)


def test_work_that_starts_before_its_call_has_returned_has_no_latency_from_the_end(
    device: DeviceWriter,
) -> None:
    device.work("at once", (0, 20), (20, 50))
    device.work("within", (100, 120), (110, 150))
    found = typical(device)
    assert found.launch_after_end[DEVICE] == 0
    assert found.launch_after_start[DEVICE] == 12_500  # the lower quartile of 10 and 20 us


def test_launches_of_communication_wait_for_other_ranks_and_say_nothing(
    device: DeviceWriter,
) -> None:
    device.work("ncclDevKernel_AllReduce_Sum_f32_RING_LL", (0, 5), (6, 50))
    assert not typical(device).launch_after_start.any()


@pytest.mark.parametrize(("call", "is_idle"), [(300, True), (299.999, False)])
def test_a_stream_is_idle_when_its_work_has_ended_as_the_call_begins(
    device: DeviceWriter, call: float, *, is_idle: bool
) -> None:
    for number in range(20):
        begin = 1_000 * number
        device.work("first", (begin, begin + 2), (begin + 3, begin + 300))
        device.work("next", (begin + call, begin + 320), (begin + 340, begin + 350))
    # 20 launches of 1 us; with those after 20 us there are 40, if their stream was idle
    found = typical(device).launch_after_end[DEVICE]
    assert found == (10_500 if is_idle else 1_000)


@pytest.mark.parametrize(
    ("launched_before_us", "gap_us", "counts"),
    [
        (10, 2, True), (9.999, 2, False), (50, 0, True), (50, -0.001, False),
        (50, 5, True), (50, 5.001, False),
    ],
)  # fmt: skip
def test_turnaround_is_of_work_queued_10_us_before_that_starts_within_5(
    device: DeviceWriter, launched_before_us: float, gap_us: float, counts: bool
) -> None:
    device.work("one", (0, 5), (10, 100))
    launched = 100 - launched_before_us
    device.work("two", (launched - 5, launched), (100 + gap_us, 120))
    expected = round(1000 * gap_us) if counts else 0
    assert (typical(device).turnaround == expected).all()


def test_work_held_by_another_stream_says_nothing_of_its_own(device: DeviceWriter) -> None:
    device.work("one", (0, 5), (10, 100), stream=17)
    device.work("source", (6, 8), (10, 102), stream=18)
    record = device.call("cudaEventRecord", 9, 1)
    wait = device.call("cudaStreamWaitEvent", 11, 1)
    device.sync_event("Stream Wait Event", wait, wait_on_stream=18, stream=17,
                      wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    device.work("two", (13, 15), (104, 120), stream=17)
    found = typical(device)
    assert found.turnaround.max() == 0
    assert found.crossing == 2_000


@pytest.mark.parametrize("before", CATEGORIES)
@pytest.mark.parametrize("after", CATEGORIES)
def test_turnarounds_are_told_apart_by_what_follows_what(
    device: DeviceWriter, before: str, after: str
) -> None:
    """All other pairs have the mean of what there is."""
    for number, (one, two, gap) in enumerate(
        [("kernel", "kernel", 4), (before, after, 1), (before, after, 2)]
    ):
        begin = 1_000 * number
        device.work("one", (begin, begin + 1), (begin + 100, begin + 200), cat=one)
        device.work("two", (begin + 1, begin + 2), (begin + 200 + gap, begin + 250), cat=two)
    place = [DEVICE_WORK.index(CATEGORIES[category]) for category in (before, after)]
    kernels = [DEVICE_WORK.index("kernel")] * 2
    found = typical(device).turnaround
    expected = np.full((3, 3), 7_000 // 3)
    expected[tuple(kernels)] = 4_000
    expected[tuple(place)] = 7_000 // 3 if place == kernels else 1_500
    assert found.tolist() == expected.tolist()


def crossing(device: DeviceWriter, gap_us: float, launched: float = 13) -> int:
    device.work("source", (0, 5), (10, 100), stream=17)
    record = device.call("cudaEventRecord", 6, 1)
    wait = device.call("cudaStreamWaitEvent", 8, 1)
    device.sync_event("Stream Wait Event", wait, wait_on_stream=17, stream=18,
                      wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    device.work("waits", (launched, launched + 2), (100 + gap_us, 120), stream=18)
    return typical(device).crossing


@pytest.mark.parametrize(("gap_us", "expected"), [(0, 0), (0.7, 700), (5, 5_000), (5.001, 0)])
def test_crossing_is_of_work_that_starts_within_5_us_of_what_held_it(
    device: DeviceWriter, gap_us: float, expected: int
) -> None:
    assert crossing(device, gap_us) == expected


@pytest.mark.parametrize(("launched", "expected"), [(90, 4_000), (99, 0)])
def test_work_that_its_launch_held_longer_says_nothing_of_crossing(
    device: DeviceWriter, launched: float, expected: int
) -> None:
    # 2 us for the call and at most 3 for the launch: due at 95 or 104
    assert crossing(device, 4, launched) == expected


def test_an_interval_holds_its_begin_and_not_its_end(device: DeviceWriter) -> None:
    for number, latency in enumerate((1, 2, 3)):
        begin = 100 * number
        device.work("k", (begin, begin + 5), (begin + 5 + latency, begin + 50))
    start = [6_000, 107_000, 208_000]
    within = [(start[0], start[1]), (start[0] + 1, start[1] + 1), (start[1] + 1, start[2] + 1)]
    found = [typical(device, one).launch_after_end[DEVICE] for one in within]
    assert found == [1_000, 2_000, 3_000]


@pytest.mark.parametrize(
    ("name", "size", "starts", "of"),
    [
        ("Memcpy HtoD (Pinned -> Device)", 2**30, 12, "device"),
        (TO_HOST, 4, 12, "blocking copy"),
        (TO_DEVICE, STAGED_COPY_BYTES + 1, 12, "staged copy"),
        (TO_DEVICE, STAGED_COPY_BYTES + 1, 49.999, "staged copy"),
        (TO_DEVICE, STAGED_COPY_BYTES + 1, 50, "device"),  # its call did not wait for it to start
        (TO_DEVICE, STAGED_COPY_BYTES, 12, "device"),
    ],
)
def test_launches_are_told_apart_by_what_they_launch(
    device: DeviceWriter, name: str, size: int, starts: float, of: str
) -> None:
    device.work(name, (10, 50), (starts, 90), cat="gpu_memcpy", by="cudaMemcpyAsync", bytes=size)
    found = typical(device).launch_after_start
    assert {LAUNCH_CLASSES[k]: ns for k, ns in enumerate(found.tolist()) if ns} == {
        of: round(1000 * (starts - 10))
    }


def test_work_of_gloo_is_launched_too(device: DeviceWriter) -> None:
    device.event("c10d::allreduce_", 0, 10, **{"Record function id": 5})
    device.event("gloo:all_reduce", 14, 50, "user_annotation", tid=2, **{"Record function id": 6})
    found = typical(device).launch_after_start
    assert {LAUNCH_CLASSES[k]: ns for k, ns in enumerate(found.tolist()) if ns} == {"gloo": 14_000}


@pytest.mark.parametrize(
    ("call", "of"),
    [
        ("cudaDeviceSynchronize", "device"), ("hipDeviceSynchronize", "device"),
        ("cuCtxSynchronize", "device"), ("cudaStreamSynchronize", "stream"),
        ("hipStreamSynchronize", "stream"), ("cuStreamSynchronize", "stream"),
        ("cudaEventSynchronize", "event"), ("hipEventSynchronize", "event"),
    ],
)  # fmt: skip
def test_waits_are_told_apart_by_their_call(device: DeviceWriter, call: str, of: str) -> None:
    device.work("k", (0, 5), (10, 100))
    device.call(call, 20, 87)
    found = typical(device).wait_return
    waited = {name: ns for name, ns in zip(WAIT_CLASSES, found.tolist(), strict=True) if ns}
    measured = {WAIT_CLASSES[k]: waited.pop(WAIT_CLASSES[k]) for k in MEASURED_WAITS}
    assert waited == {of: 7_000}
    assert min(measured.values()) > 10**18  # these wait as long as they do


def test_a_copy_that_its_call_waits_for_is_a_wait_of_its_own(device: DeviceWriter) -> None:
    device.work(TO_HOST, (10, 95), (20, 90), cat="gpu_memcpy", by="cudaMemcpyAsync", bytes=4)
    found = typical(device).wait_return
    assert found[WAIT_CLASSES.index("copy")] == 5_000


@pytest.mark.parametrize(("took", "expected"), [(3, 0), (3.001, 2_000)])
def test_a_call_that_took_no_longer_than_without_a_wait_does_not_tell_when_it_was_woken(
    device: DeviceWriter, took: float, expected: int
) -> None:
    device.work("k", (0, 5), (10, 100))
    device.call("cudaDeviceSynchronize", 102 - took, took)
    device.call("cudaDeviceSynchronize", 200, 3)  # nothing to wait for
    found = typical(device)
    assert found.wait_return[WAIT_CLASSES.index("device")] == expected
    assert found.wait_call[WAIT_CLASSES.index("device")] == 3_000
