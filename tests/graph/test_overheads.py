"""Typical overheads, estimated from a recording."""

from __future__ import annotations

import pytest

import nadi
from nadi.graph.overheads import LAUNCH_CLASSES, WAIT_CLASSES
from nadi.trace.schema import DEVICE_WORK
from tests.conftest import PairWriter

DEVICE = LAUNCH_CLASSES.index("device")
KERNEL = DEVICE_WORK.index("kernel")
SYNC = WAIT_CLASSES.index("device")


def launched(pair: PairWriter, number: int, call: float, start: float, end: float) -> None:
    pair.event("cudaLaunchKernel", call, 5, "cuda_runtime", correlation=number)
    pair.event(f"k{number}", start, end - start, "kernel", pid=0, tid=7, stream=7, device=0,
               correlation=number)  # fmt: skip


def synchronized(pair: PairWriter, number: int, start: float, end: float) -> None:
    pair.event("cudaDeviceSynchronize", start, end - start, "cuda_runtime", correlation=number)


def linked(pair: PairWriter) -> nadi.Trace:
    return nadi.link_pair(*map(nadi.read, pair.write()))


def test_latency_is_the_median_over_launches_onto_an_idle_stream(pair: PairWriter) -> None:
    pair.op("op", 0, 10_000)
    for number in range(1, 26):
        begin = 200 * number
        late = 50 if number <= 5 else 2  # five stragglers do not move the median
        launched(pair, number, begin, begin + 5 + late, begin + 100)
    typical = nadi.graph.estimate_overheads(linked(pair))
    assert typical.launch_after_end[DEVICE] == 2_000
    assert typical.launch_after_start[DEVICE] == 7_000


def test_with_few_launches_it_is_the_lower_quartile_but_no_more_than_3_us(
    pair: PairWriter,
) -> None:
    pair.op("op", 0, 1_000)
    launched(pair, 1, 10, 30, 40)
    trace = linked(pair)
    typical = nadi.graph.estimate_overheads(trace)
    assert typical.launch_after_end[DEVICE] == 3_000
    assert typical.launch_after_start[DEVICE] == 20_000
    graph = nadi.build_graph(nadi.recordings.link_job([trace]))
    # 15 us after the call: 3 us are typical, 12 us are not explained
    assert graph.delay[graph.in_ptr[:-1] < graph.in_ptr[1:]].sum() == 12_000


def test_launches_onto_a_busy_stream_alone_say_little(pair: PairWriter) -> None:
    pair.event("k0", 0, 100, "kernel", pid=0, tid=7, stream=7, device=0)
    pair.op("op", 0, 1_000)
    launched(pair, 1, 10, 100, 120)
    typical = nadi.graph.estimate_overheads(linked(pair))
    assert typical.launch_after_end[DEVICE] == 3_000
    assert typical.launch_after_start[DEVICE] == 3_000


def test_turnaround_is_the_mean_over_queued_pairs_of_the_same_kind(pair: PairWriter) -> None:
    pair.op("op", 0, 1_000)
    launched(pair, 1, 10, 20, 100)
    launched(pair, 2, 30, 101, 200)  # 1 us after k1, launched long before
    launched(pair, 3, 50, 203, 300)  # 3 us after k2
    launched(pair, 4, 310, 320, 330)  # launched after k3 had ended: says nothing
    assert nadi.graph.estimate_overheads(linked(pair)).turnaround[KERNEL, KERNEL] == 2_000


def test_a_wait_has_a_time_to_return_and_one_of_its_own(pair: PairWriter) -> None:
    pair.op("op", 0, 1_000)
    launched(pair, 1, 10, 20, 100)
    synchronized(pair, 2, 30, 108)
    synchronized(pair, 3, 120, 123)
    launched(pair, 4, 130, 140, 200)
    synchronized(pair, 5, 150, 230)  # returns 30 us after the work, typically it is 8 to 30
    typical = nadi.graph.estimate_overheads(linked(pair))
    assert typical.wait_return[SYNC] == 19_000
    assert typical.wait_call[SYNC] == 3_000
    graph = nadi.build_graph(nadi.recordings.link_job([linked(pair)]))
    # 11 of the 30 us after the last wait are not explained
    assert graph.delay[graph.in_ptr[:-1] < graph.in_ptr[1:]].max() == 11_000


def test_one_stretch_of_a_recording_can_be_asked_alone(pair: PairWriter) -> None:
    pair.op("op", 0, 1_000)
    launched(pair, 1, 10, 17, 100)
    launched(pair, 2, 200, 206, 300)
    trace = linked(pair)
    first = nadi.graph.estimate_overheads(trace, (0, 100_000))
    second = nadi.graph.estimate_overheads(trace, (100_000, 10**9))
    assert first.launch_after_end[DEVICE] == 2_000
    assert second.launch_after_end[DEVICE] == 1_000
    graph = nadi.build_graph(nadi.recordings.link_job([trace]), [second])
    assert graph.delay[graph.in_ptr[:-1] < graph.in_ptr[1:]].sum() == 1_000


def test_the_table_names_every_overhead(pair: PairWriter) -> None:
    pair.op("op", 0, 1_000)
    launched(pair, 1, 10, 17, 100)
    table = nadi.graph.estimate_overheads(linked(pair)).table()
    assert table.height == 2 * len(LAUNCH_CLASSES) + 9 + 1 + 2 * len(WAIT_CLASSES)
    assert ("launch after call's end", "device", 2_000) in table.rows()


def launches_after(
    pair: PairWriter, idle: list[float], latency: list[float], *, queued: bool = False
) -> None:
    """Write kernels of 20 us, whose launches end after the device was idle for some time.

    With ``queued`` another one is launched while each of them runs.
    """
    begin = 20.0
    for number, (idle_for, late) in enumerate(zip(idle, latency, strict=True)):
        call_end = begin + idle_for
        begin = call_end + late + 20
        launched(pair, 2 * number + 1, call_end - 5, call_end + late, begin)
        if queued:
            launched(pair, 2 * number + 2, begin - 15, begin + 1, begin + 6)
            begin += 6
    pair.op("op", 0, begin + 20)


IDLE = LAUNCH_CLASSES.index("idle device")
EITHER = [*range(6, 31), *range(31, 56)]  # us that the device is idle
SHORT, LONG = [*range(6, 25)], [*range(31, 51)]  # 19 and 20 of them


@pytest.mark.parametrize("least", [2.5, 0.0])
def test_a_device_that_was_idle_for_long_starts_later(pair: PairWriter, least: float) -> None:
    launches_after(pair, EITHER, [least] * 25 + [8.0] * 25)
    trace = linked(pair)
    typical = nadi.graph.estimate_overheads(trace)
    assert typical.launch_after_end[[DEVICE, IDLE]].tolist() == [1_000 * least, 8_000]
    assert typical.launch_after_start[[DEVICE, IDLE]].tolist() == [5_000 + 1_000 * least, 13_000]
    graph = nadi.build_graph(nadi.recordings.link_job([trace]))
    launch = graph.edge_kind == nadi.graph.EdgeKind.LAUNCH
    assert sorted(graph.weight[launch].tolist()) == [1_000 * least] * 25 + [8_000] * 25
    assert graph.delay[graph.in_ptr[:-1] < graph.in_ptr[1:]].sum() == 0


def test_launches_while_the_device_is_busy_say_nothing_of_that(pair: PairWriter) -> None:
    launches_after(pair, EITHER, [2.5] * 25 + [8.0] * 25, queued=True)
    typical = nadi.graph.estimate_overheads(linked(pair))
    assert typical.launch_after_end[IDLE] == 8_000


@pytest.mark.parametrize(("least", "counts"), [(0.001, True), (0, False)])
def test_a_device_was_idle_if_its_work_had_ended_before_the_call(
    pair: PairWriter, least: float, *, counts: bool
) -> None:
    """Of 40 launches, besides the first, one comes so soon after the work before."""
    launches_after(pair, [5, least, *SHORT, *LONG], [2.5] * 21 + [8.0] * 20)
    typical = nadi.graph.estimate_overheads(linked(pair))
    assert typical.launch_after_end[IDLE] == (8_000 if counts else 0)


@pytest.mark.parametrize(
    ("idle", "latency"),
    [
        (EITHER, [2.5] * 50),  # no difference
        (EITHER, [2.5] * 25 + [4.0] * 25),  # little difference
        (EITHER, [8.0] * 25 + [2.5] * 25),  # sooner after a long time
        (EITHER, [2.5, 8.0] * 25),  # whatever the device did before
        (EITHER[:39], [2.5] * 20 + [8.0] * 19),  # few launches
        (EITHER[:40], [8.0] + [2.5] * 20 + [8.0] * 19),  # of the first nobody knows how long
        ([10.0] * 50, [2.5] * 25 + [8.0] * 25),  # idle equally long
        # a fifth of both is as the other: levels leave 64 % of the variance
        (EITHER, [8.0, 2.5, 2.5, 2.5, 2.5] * 5 + [8.0, 8.0, 8.0, 8.0, 2.5] * 5),
    ],
    ids=["equal", "similar", "sooner", "mixed", "few", "first", "same", "overlapping"],
)
def test_otherwise_all_launches_are_alike(
    pair: PairWriter, idle: list[float], latency: list[float]
) -> None:
    launches_after(pair, idle, latency)
    typical = nadi.graph.estimate_overheads(linked(pair))
    assert typical.launch_after_end[IDLE] == 0
