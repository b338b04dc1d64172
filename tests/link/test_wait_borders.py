"""From when to when a wait is seen in the times: each rule at its border, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.link.test_synchronization import DeviceWriter, count, inferred, pairs

NEAR = 0.001  # us, the least there is
SYNC = "cudaStreamSynchronize"


@pytest.fixture
def device(tmp_path: Path) -> DeviceWriter:
    return DeviceWriter(tmp_path)


@pytest.mark.parametrize(("returns", "waited_for"), [(140, "copy"), (140 + NEAR, "b")])
def test_a_call_that_returns_within_20_us_of_its_thread_s_copy_waited_for_it(
    device: DeviceWriter, returns: float, waited_for: str
) -> None:
    device.work("b", (6, 9), (12, 130), stream=18)
    device.work("copy", (14, 16), (110, 120), 17, "gpu_memcpy", "cudaMemcpyAsync")
    device.call(SYNC, 20, returns - 20)
    assert pairs(device.read(), "sync") == [(waited_for, SYNC)]


@pytest.mark.parametrize(("begins", "waited_for"), [(130, "copy"), (130 - NEAR, "b")])
def test_it_is_counted_from_the_call_s_begin_if_the_copy_was_done_before(
    device: DeviceWriter, begins: float, waited_for: str
) -> None:
    device.work("b", (6, 9), (12, 140), stream=18)
    device.work("copy", (14, 16), (20, 40), 17, "gpu_memcpy", "cudaMemcpyAsync")
    device.call(SYNC, begins, 150 - begins)
    found = pairs(device.read(), "sync")
    assert found == ([(waited_for, SYNC)] if waited_for == "b" else [("copy", SYNC)])


def test_a_copy_of_another_thread_says_nothing(device: DeviceWriter) -> None:
    device.work("b", (6, 9), (12, 130), stream=18)
    device.work("copy", (14, 16), (110, 120), 17, "gpu_memcpy", "cudaMemcpyAsync", tid=2)
    device.call(SYNC, 20, 112)
    assert pairs(device.read(), "sync") == [("b", SYNC)]


@pytest.mark.parametrize("call", [SYNC, "cudaEventSynchronize"])
@pytest.mark.parametrize(
    ("begins", "returns", "waits"),
    [
        (20, 150, True), (20, 150 + NEAR, False),  # returns at most 50 us later
        (20, 100, True), (20, 100 - NEAR, False),  # and not before the end
        (100 - NEAR, 105, True), (100, 105, False),  # nor had it ended when the call began
    ],
)  # fmt: skip
def test_a_call_waited_for_work_that_ended_in_it_within_50_us_of_its_return(
    device: DeviceWriter, call: str, begins: float, returns: float, *, waits: bool
) -> None:
    device.work("a", (0, 5), (10, 100))
    device.call(call, begins, returns - begins)
    assert pairs(device.read(), "sync") == ([("a", call)] if waits else [])


@pytest.mark.parametrize(("last", "waits"), [(19, True), (20, False)])
def test_only_what_was_launched_before_is_waited_for(
    device: DeviceWriter, last: float, *, waits: bool
) -> None:
    device.work("a", (last, last + 5), (30, 100))
    device.call(SYNC, 20, 85, tid=2)
    assert pairs(device.read(), "sync") == ([("a", SYNC)] if waits else [])


def test_work_may_begin_with_its_call(device: DeviceWriter) -> None:
    device.work("k", (10, 12), (10, 30))
    trace = device.read()
    assert pairs(trace, "launch") == [("cudaLaunchKernel", "k")]
    assert count(trace, "link.before-launch") == 0


def waiting(
    device: DeviceWriter, start: float, *, called: float = 13, returned: float = 15,
    streams: tuple[int, int] = (17, 18), devices: tuple[int, int] = (0, 0),
) -> list[tuple[str, str]]:  # fmt: skip
    """Record work that may wait for other work, which ends at 100 us."""
    for name, number, call, run in (
        ("source", 0, (0, 5), (10, 100)), ("waits", 1, (called, returned), (start, start + 10)),
    ):  # fmt: skip
        correlation = device.call("cudaLaunchKernel", call[0], call[1] - call[0])
        device.event(name, run[0], run[1] - run[0], "kernel", pid=devices[number],
                     tid=streams[number], stream=streams[number], device=devices[number],
                     correlation=correlation)  # fmt: skip
    return pairs(device.read(), "event")


@pytest.mark.parametrize(
    ("start", "waits"),
    [(100, True), (100 - NEAR, False), (110, True), (110 + NEAR, False)],
)
def test_work_was_woken_by_what_ended_at_most_10_us_before(
    device: DeviceWriter, start: float, *, waits: bool
) -> None:
    device.call("cudaStreamWaitEvent", 8, 1)
    assert waiting(device, start) == ([("source", "waits")] if waits else [])


@pytest.mark.parametrize(("start", "waits"), [(102, False), (102 + NEAR, True)])
def test_work_that_begins_within_3_us_of_its_call_s_end_waited_for_nothing_else(
    device: DeviceWriter, start: float, *, waits: bool
) -> None:
    device.call("cudaStreamWaitEvent", 8, 1)
    found = waiting(device, start, called=90, returned=99)
    assert found == ([("source", "waits")] if waits else [])


@pytest.mark.parametrize(("start", "waits"), [(105, False), (105 + NEAR, True)])
def test_work_within_its_call_may_begin_20_us_into_it(
    device: DeviceWriter, start: float, *, waits: bool
) -> None:
    device.call("cudaStreamWaitEvent", 8, 1)
    found = waiting(device, start, called=85, returned=200)
    assert found == ([("source", "waits")] if waits else [])


@pytest.mark.parametrize(("start", "waits"), [(103, False), (103 + NEAR, True)])
def test_work_that_begins_within_3_us_of_the_work_before_waited_for_nothing_else(
    device: DeviceWriter, start: float, *, waits: bool
) -> None:
    device.work("before", (5, 7), (20, 100), stream=18)
    device.call("cudaStreamWaitEvent", 8, 1)
    found = waiting(device, start)
    assert found == ([("source", "waits")] if waits else [])


@pytest.mark.parametrize(
    ("first", "second"), [(a, b) for a in (0, 1, 6, 7, 8) for b in (0, 1, 7, 8) if a != b]
)
def test_streams_0_and_7_are_the_default_ones(
    device: DeviceWriter, first: int, second: int
) -> None:
    """One of both is: then they wait for each other, without any event."""
    found = waiting(device, 102, streams=(first, second))
    assert found == [("source", "waits")] * bool({first, second} & {0, 7})


def test_work_of_the_first_call_may_wait_for_what_was_launched_before_the_recording(
    device: DeviceWriter,
) -> None:
    device.event("source", 5, 95, "kernel", pid=0, tid=7, stream=7, device=0)
    device.work("waits", (0, 5), (102, 110), stream=20)
    assert pairs(device.read(), "event") == [("source", "waits")]


@pytest.mark.parametrize(("devices", "waits"), [((0, 0), True), ((0, 1), False), ((1, 1), True)])
def test_default_streams_are_of_a_device(
    device: DeviceWriter, devices: tuple[int, int], *, waits: bool
) -> None:
    assert waiting(device, 102, streams=(7, 20), devices=devices) == [("source", "waits")] * waits


def test_an_event_of_another_device_may_be_waited_for(device: DeviceWriter) -> None:
    device.call("cudaStreamWaitEvent", 8, 1)
    assert waiting(device, 102, streams=(20, 20), devices=(0, 1)) == [("source", "waits")]


@pytest.mark.parametrize("waits", [1, 2, 3])
def test_a_stream_waits_for_as_many_streams_as_it_was_told_to_the_last_to_end(
    device: DeviceWriter, waits: int
) -> None:
    for number, end in enumerate((97, 100, 98, 99)):
        device.work(f"until {end}", (number, number + 1), (10, end), stream=20 + number)
    for number in range(waits):
        device.call("cudaStreamWaitEvent", 5 + 2 * number, 1)
    device.work("waits", (13, 15), (102, 110), stream=30)
    expected = [(f"until {end}", "waits") for end in (100, 99, 98)[:waits]]
    trace = device.read()
    assert pairs(trace, "event") == sorted(expected)
    assert inferred(trace, "event") == [True] * waits
    assert count(trace, "link.event-unknown") == 0


@pytest.mark.parametrize(
    ("ids", "missing"),
    [
        (range(1, 200, 2), 99),  # a hundred, every second one missing
        (range(1, 198, 2), 0),  # with fewer nothing is said
        (range(1, 101), 0),
        ([*range(1, 53), *range(54, 152, 2)], 0),  # mostly one after the other
        ([*range(1, 51), *range(52, 154, 2)], 51),
    ],
)
def test_a_hundred_operations_most_of_them_two_apart_are_a_sample(
    device: DeviceWriter, ids: range | list[int], missing: int
) -> None:
    for number in ids:
        device.event("op", 10 * number, 5, **{"External id": number})
    assert count(device.read(), "link.sampled") == missing


@pytest.mark.parametrize(("start", "waits"), [(103, False), (103 + NEAR, True)])
def test_work_that_begins_within_3_us_of_the_work_before_did_not_wait_for_the_default_stream(
    device: DeviceWriter, start: float, *, waits: bool
) -> None:
    device.work("before", (5, 7), (20, 100), stream=20)
    found = waiting(device, start, streams=(7, 20))
    assert found == ([("source", "waits")] if waits else [])


def test_a_wait_is_for_the_next_launch_of_its_thread_and_for_that_of_any(
    device: DeviceWriter,
) -> None:
    device.work("source", (0, 5), (10, 100), stream=17)
    device.call("cudaStreamWaitEvent", 6, 1)
    device.work("of another", (8, 9), (104, 110), stream=18, tid=2)
    device.work("of its own", (11, 12), (105, 112), stream=19)
    device.work("later", (13, 14), (106, 112), stream=20)
    device.work("later still", (15, 16), (107, 112), stream=21, tid=2)
    expected = [("source", "of another"), ("source", "of its own")]
    assert pairs(device.read(), "event") == expected
