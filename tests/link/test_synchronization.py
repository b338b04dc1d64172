"""What calls and streams wait for: stated by the recording, or found from launches and times."""

from __future__ import annotations

import random
from itertools import pairwise

import networkx
import numpy as np
import polars as pl
import pytest

import nadi
from nadi.recordings.dependencies.synchronization import QUEUE_LENGTH, _closure
from tests.conftest import PairWriter

OTHER_THREAD = 2


class DeviceWriter(PairWriter):
    """Writes calls and the work that they launch; names are unique and stand for the events."""

    number = 0

    def call(self, name: str, ts: float, dur: float, **args: object) -> int:
        self.number += 1
        self.event(name, ts, dur, "cuda_runtime", correlation=self.number, **args)
        return self.number

    def work(
        self,
        name: str,
        call: tuple[float, float],
        run: tuple[float, float],
        stream: int = 7,
        cat: str = "kernel",
        by: str = "cudaLaunchKernel",
        **args: object,
    ) -> None:
        """Add a call and its work, each from one time to another."""
        thread = args.pop("tid", 1)
        number = self.call(by, call[0], call[1] - call[0], tid=thread)
        self.event(name, run[0], run[1] - run[0], cat, pid=0, tid=stream, stream=stream, device=0,
                   correlation=number, **args)  # fmt: skip

    def sync_event(self, name: str, call: int, **args: object) -> None:
        self.event(name, 0, 1, "cuda_sync", pid=0, tid=-1, correlation=call, device=0,
                   **{"stream": -1, **args})  # fmt: skip

    def read(self) -> nadi.Trace:
        _, device = self.write()
        return nadi.recordings.link_device(nadi.read(device))


@pytest.fixture
def device(tmp_path) -> DeviceWriter:
    return DeviceWriter(tmp_path)


def pairs(trace: nadi.Trace, kind: str) -> list[tuple[str, str]]:
    """Give the names on both sides of the dependencies of a kind, sorted."""
    names = trace.nodes["name"].cast(str)
    chosen = trace.deps.filter(pl.col("kind") == kind)
    return sorted(zip(names.gather(chosen["src"]), names.gather(chosen["dst"]), strict=True))


def inferred(trace: nadi.Trace, kind: str) -> list[bool]:
    return trace.deps.filter(pl.col("kind") == kind)["inferred"].to_list()


def count(trace: nadi.Trace, code: str) -> int:
    return trace.issues.filter(pl.col("code") == code)["count"].sum()


def two_streams(device: DeviceWriter) -> None:
    device.work("a", (0, 5), (10, 100), stream=7)
    device.work("b", (6, 9), (12, 200), stream=8)


def test_device_synchronization_waits_for_every_stream(device: DeviceWriter) -> None:
    two_streams(device)
    device.call("cudaDeviceSynchronize", 20, 190)
    device.work("later", (215, 220), (230, 240))
    trace = device.read()
    sync = "cudaDeviceSynchronize"
    assert pairs(trace, "sync") == [("a", sync), ("b", sync)]
    assert inferred(trace, "sync") == [False, False]


def test_it_waits_for_work_launched_before_the_recording_began(device: DeviceWriter) -> None:
    device.event("early", 0, 50, "kernel", pid=0, tid=7, stream=7, device=0, correlation=999)
    device.call("cudaDeviceSynchronize", 10, 45)
    assert pairs(device.read(), "sync") == [("early", "cudaDeviceSynchronize")]


def test_work_that_ends_after_the_call_was_not_waited_for(device: DeviceWriter) -> None:
    two_streams(device)
    device.call("cudaDeviceSynchronize", 20, 100)  # until 120, b runs until 200
    trace = device.read()
    assert pairs(trace, "sync") == [("a", "cudaDeviceSynchronize")]
    assert count(trace, "link.sync-contradicted") == 1


def test_stream_synchronization_says_which_stream(device: DeviceWriter) -> None:
    two_streams(device)
    device.sync_event("Stream Sync", device.call("cudaStreamSynchronize", 20, 85), stream=7)
    trace = device.read()
    assert pairs(trace, "sync") == [("a", "cudaStreamSynchronize")]
    assert inferred(trace, "sync") == [False]


def test_a_stated_stream_is_not_guessed_also_if_it_is_the_first(device: DeviceWriter) -> None:
    """A copy on another stream was launched last and ends as the call does."""
    device.work("a", (0, 5), (10, 100), stream=0)
    device.work("copy", (6, 9), (12, 104), stream=7, cat="gpu_memcpy", by="cudaMemcpyAsync")
    device.sync_event("Stream Sync", device.call("cudaStreamSynchronize", 20, 85), stream=0)
    trace = device.read()
    assert pairs(trace, "sync") == [("a", "cudaStreamSynchronize")]
    assert inferred(trace, "sync") == [False]


def test_a_call_of_an_unknown_stream_takes_nothing_from_those_after_it(
    device: DeviceWriter,
) -> None:
    two_streams(device)
    device.call("hipStreamSynchronize", 20, 1)
    device.sync_event("Stream Sync", device.call("cudaStreamSynchronize", 22, 85), stream=7)
    trace = device.read()
    assert pairs(trace, "sync") == [("a", "cudaStreamSynchronize")]
    assert count(trace, "link.sync-unknown") == 1


def test_else_it_waits_for_the_stream_of_the_last_copy_of_its_thread(device: DeviceWriter) -> None:
    two_streams(device)
    device.work("copy", (14, 16), (110, 195), 7, "gpu_memcpy", "cudaMemcpyAsync")
    device.call("cudaStreamSynchronize", 20, 190)
    trace = device.read()
    assert pairs(trace, "sync") == [("copy", "cudaStreamSynchronize")]
    assert inferred(trace, "sync") == [True]


def test_but_not_where_it_goes_on_for_long_after_the_copy(device: DeviceWriter) -> None:
    two_streams(device)
    device.work("copy", (14, 16), (110, 120), 7, "gpu_memcpy", "cudaMemcpyAsync")
    device.call("cudaStreamSynchronize", 20, 190)
    assert pairs(device.read(), "sync") == [("b", "cudaStreamSynchronize")]


def test_else_for_the_work_that_ends_shortly_before_it_returns(device: DeviceWriter) -> None:
    two_streams(device)
    device.call("cudaStreamSynchronize", 20, 85)  # until 105, a until 100
    device.call("cudaStreamSynchronize", 300, 5)  # nothing runs
    trace = device.read()
    assert pairs(trace, "sync") == [("a", "cudaStreamSynchronize")]
    assert inferred(trace, "sync") == [True]
    assert count(trace, "link.sync-unknown") == 1


def test_event_synchronization_waits_for_what_was_launched_before_the_record(
    device: DeviceWriter,
) -> None:
    two_streams(device)
    record = device.call("cudaEventRecord", 10, 1)
    device.work("after", (12, 14), (100, 190), stream=7)
    wait = device.call("cudaEventSynchronize", 20, 85)
    device.sync_event("Event Sync", wait, wait_on_stream=7,
                      wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    trace = device.read()
    assert pairs(trace, "sync") == [("a", "cudaEventSynchronize")]
    assert inferred(trace, "sync") == [False]


def test_without_the_record_it_waits_for_what_was_launched_before_itself(
    device: DeviceWriter,
) -> None:
    two_streams(device)
    wait = device.call("cudaEventSynchronize", 20, 190)
    device.sync_event("Event Sync", wait, wait_on_stream=8, wait_on_cuda_event_record_corr_id=-1)
    assert pairs(device.read(), "sync") == [("b", "cudaEventSynchronize")]


def test_an_event_that_nobody_recorded_is_not_waited_for(device: DeviceWriter) -> None:
    two_streams(device)
    wait = device.call("cudaEventSynchronize", 20, 85)
    device.sync_event("Event Sync", wait, wait_on_stream=-1, wait_on_cuda_event_record_corr_id=-1)
    assert pairs(device.read(), "sync") == []


def test_without_synchronization_events_it_waits_for_the_nearest_end(device: DeviceWriter) -> None:
    two_streams(device)
    device.call("cudaEventSynchronize", 20, 188)
    trace = device.read()
    assert pairs(trace, "sync") == [("b", "cudaEventSynchronize")]
    assert inferred(trace, "sync") == [True]


@pytest.mark.parametrize(
    ("by", "direction", "size", "until", "waits"),
    [
        ("cudaMemcpyAsync", "DtoH (Device -> Pageable)", 8, 80, True),
        ("cudaMemcpyAsync", "DtoH (Device -> Pinned)", 8, 80, False),
        ("cudaMemcpy", "DtoH (Device -> Pinned)", 8, 80, True),
        ("hipMemcpyWithStream", "DtoH (Device -> Pinned)", 8, 80, True),
        ("cudaMemcpy", "DtoD (Device -> Device)", 8, 80, False),
        ("cudaMemcpyAsync", "HtoD (Pageable -> Device)", 64 * 1024, 80, False),
        ("cudaMemcpyAsync", "HtoD (Pageable -> Device)", 64 * 1024 + 1, 40, True),
    ],
)
def test_calls_that_wait_for_their_own_copy(
    device: DeviceWriter, by: str, direction: str, size: int, until: float, waits: bool
) -> None:
    name = f"Memcpy {direction}"
    device.work(name, (0, until), (20, 60), 7, "gpu_memcpy", by, bytes=size)
    assert pairs(device.read(), "sync") == ([(name, by)] if waits else [])


@pytest.mark.parametrize(("begins", "waits"), [(9.999, True), (10, False)])
def test_a_copy_that_begins_when_its_call_returns_did_not_hold_it_up(
    device: DeviceWriter, begins: float, *, waits: bool
) -> None:
    device.work("copy", (0, 10), (begins, 30), 7, "gpu_memcpy", "cudaMemcpy")
    trace = device.read()
    assert pairs(trace, "sync") == [("copy", "cudaMemcpy")] * waits
    assert count(trace, "link.sync-contradicted") == (not waits)


def test_a_staged_copy_holds_its_call_up_from_its_start(device: DeviceWriter) -> None:
    device.work("before", (0, 5), (10, 300))
    name = "Memcpy HtoD (Pageable -> Device)"
    device.work(name, (10, 340), (302, 400), 7, "gpu_memcpy", "cudaMemcpyAsync", bytes=2**20)
    graph = nadi.build_graph(nadi.recordings.link_job([device.read()]))
    changed = nadi.graph.replay_graph(
        nadi.whatif.apply_change(graph, nadi.whatif.parse_change("scale ^before$ 0"))
    )
    (call,) = graph.op_names.eq("cudaMemcpyAsync").arg_true()
    assert graph.time[2 * call + 1] - changed.time[2 * call + 1] > 200_000


def test_a_launch_waits_for_the_one_a_queue_before(device: DeviceWriter) -> None:
    for number in range(QUEUE_LENGTH):
        device.work(f"k{number}", (number, number + 1), (5_000 + number, 5_001 + number))
    device.work("k last", (QUEUE_LENGTH, 5_007), (9_000, 9_001), by="cudaLaunchKernelExC")
    trace = device.read()
    assert pairs(trace, "sync") == [("k0", "cudaLaunchKernelExC")]
    assert inferred(trace, "sync") == [True]


def test_in_a_queue_only_what_was_launched_counts(
    device: DeviceWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nadi.recordings.dependencies.synchronization.QUEUE_LENGTH", 2)
    device.event("early", 0, 1, "kernel", pid=0, tid=20, stream=20, device=0, correlation=999)
    for number, call in enumerate(("cudaLaunchKernel", "cudaLaunchKernel", "cudaLaunchKernelExC")):
        begin = 4 * number + 1
        device.work(f"k{number}", (begin, begin + 1), (begin + 2, begin + 3), 20, by=call)
    assert pairs(device.read(), "sync") == [("k0", "cudaLaunchKernelExC")]


def test_a_stream_waits_for_the_event_of_another(device: DeviceWriter) -> None:
    device.work("source", (0, 5), (10, 100), stream=7)
    record = device.call("cudaEventRecord", 6, 1)
    wait = device.call("cudaStreamWaitEvent", 8, 1)
    device.sync_event("Stream Wait Event", wait, wait_on_stream=7, stream=8,
                      wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    device.work("elsewhere", (10, 12), (14, 20), stream=9)
    device.work("waits", (13, 15), (300, 310), stream=8)
    trace = device.read()
    assert pairs(trace, "event") == [("source", "waits")]
    assert inferred(trace, "event") == [False]


@pytest.mark.parametrize("streams", [(20, 21), (20, 22, 21)])
def test_work_that_ran_when_the_recording_began_is_waited_for(
    device: DeviceWriter, streams: tuple[int, ...]
) -> None:
    """By way of another stream too, which has no work and was itself told to wait."""
    device.event("early", 0, 50, "kernel", pid=0, tid=20, stream=20, device=0, correlation=999)
    for number, (of, waits) in enumerate(pairwise(streams)):
        record = device.call("cudaEventRecord", 10 * number + 1, 1)
        wait = device.call("cudaStreamWaitEvent", 10 * number + 3, 1)
        device.sync_event("Stream Wait Event", wait, wait_on_stream=of, stream=waits,
                          wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    device.work("waits", (30, 32), (60, 70), stream=21)
    trace = device.read()
    assert trace.nodes["name"][0] == "early"
    assert pairs(trace, "event") == [("early", "waits")]
    assert inferred(trace, "event") == [False]


def test_work_between_the_first_record_and_the_wait_is_not_waited_for(
    device: DeviceWriter,
) -> None:
    record = device.call("cudaEventRecord", 0, 1)
    device.event("early", 1, 50, "kernel", pid=0, tid=20, stream=20, device=0, correlation=999)
    device.work("between", (2, 3), (51, 55), stream=20)
    wait = device.call("cudaStreamWaitEvent", 4, 1)
    device.sync_event("Stream Wait Event", wait, wait_on_stream=20, stream=21,
                      wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    device.work("waits", (6, 8), (60, 70), stream=21)
    assert pairs(device.read(), "event") == [("early", "waits")]


def test_a_stream_that_gets_no_more_work_waits_for_nothing(device: DeviceWriter) -> None:
    device.work("source", (0, 5), (10, 100), stream=20)
    device.work("before", (6, 7), (10, 20), stream=21)
    wait = device.call("cudaStreamWaitEvent", 8, 1)
    device.sync_event("Stream Wait Event", wait, wait_on_stream=20, stream=21)
    trace = device.read()
    assert pairs(trace, "event") == []
    assert count(trace, "link.event-contradicted") == 0


def test_a_stated_wait_that_the_times_contradict_is_counted(device: DeviceWriter) -> None:
    device.work("source", (0, 5), (10, 100), stream=7)
    wait = device.call("cudaStreamWaitEvent", 8, 1)
    device.sync_event("Stream Wait Event", wait, wait_on_stream=7, stream=8)
    device.work("waits", (13, 15), (50, 60), stream=8)
    trace = device.read()
    assert pairs(trace, "event") == []
    assert count(trace, "link.event-contradicted") == 1


@pytest.mark.parametrize("thread", [1, OTHER_THREAD])
def test_else_late_work_that_begins_with_an_end_has_waited(
    device: DeviceWriter, thread: int
) -> None:
    device.work("source", (0, 5), (10, 100), stream=7)
    device.call("cudaStreamWaitEvent", 8, 1)
    device.work("waits", (13, 15), (102, 110), stream=8, tid=thread)
    trace = device.read()
    assert pairs(trace, "event") == [("source", "waits")]
    assert inferred(trace, "event") == [True]
    assert count(trace, "link.event-unknown") == 0


@pytest.mark.parametrize(
    ("start", "stream"), [(17, 8), (150, 8), (102, 7)], ids=["in time", "too late", "its own"]
)
def test_what_is_not_seen_to_have_waited_is_counted(
    device: DeviceWriter, start: float, stream: int
) -> None:
    device.work("source", (0, 5), (10, 100), stream=7)
    device.call("cudaStreamWaitEvent", 8, 1)
    device.work("next", (13, 15), (start, start + 1), stream=stream)
    trace = device.read()
    assert pairs(trace, "event") == []
    assert count(trace, "link.event-unknown") == 1


def test_a_thinned_out_recording_says_so(device: DeviceWriter) -> None:
    for number in range(100):
        device.event("op", 10 * number, 5, **{"External id": 1 + 3 * number})
    trace = device.read()
    assert count(trace, "link.sampled") == 198
    assert (
        "sampled or filtered" in trace.issues.filter(pl.col("code") == "link.sampled")["detail"][0]
    )


def test_a_whole_recording_is_not_taken_for_a_sample(device: DeviceWriter) -> None:
    for number in range(200):
        # two stretches recorded of one run
        device.event("op", 10 * number, 5, **{"External id": 1 + number + 5_000 * (number > 99)})
    assert count(device.read(), "link.sampled") == 0


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [(7, 20, True), (20, 7, True), (20, 24, False)],
    ids=["after the default stream", "the default stream after", "neither"],
)
def test_the_default_stream_is_seen_to_wait_and_be_waited_for(
    device: DeviceWriter, first: int, second: int, found: bool
) -> None:
    device.work("source", (0, 5), (10, 100), stream=first)
    device.work("waits", (13, 15), (102, 110), stream=second)
    trace = device.read()
    assert pairs(trace, "event") == ([("source", "waits")] if found else [])
    assert inferred(trace, "event") == [True] * found


def test_backward_comes_after_forward_of_the_same_sequence_number(device: DeviceWriter) -> None:
    forward = {"Sequence number": 5}
    device.event("aten::linear", 0, 20, **forward)
    device.event("aten::addmm", 2, 10, **forward)
    backward = {"tid": OTHER_THREAD, "Fwd thread id": 1}
    name = "autograd::engine::evaluate_function: AddmmBackward0"
    device.event(name, 100, 20, **forward, **backward)
    device.event("AddmmBackward0", 101, 10, **forward, **backward)
    device.event(f"{name} of another", 200, 20, **{"Sequence number": 4}, **backward)
    trace = device.read()
    assert pairs(trace, "thread") == [("aten::addmm", name)]
    assert inferred(trace, "thread") == [False]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_an_event_may_stand_for_work_before_the_last(
    device: DeviceWriter, *, is_recorded: bool
) -> None:
    device.work("a", (0, 5), (10, 100), stream=7)
    if is_recorded:
        device.call("cudaEventRecord", 6, 1)
    device.work("later", (8, 9), (100, 300), stream=7)
    device.call("cudaEventSynchronize", 20, 88)
    expected = [("a", "cudaEventSynchronize")] if is_recorded else []
    assert pairs(device.read(), "sync") == expected


def test_a_stream_waits_for_one_stream_by_each_event(device: DeviceWriter) -> None:
    device.work("a", (0, 5), (10, 98), stream=7)
    device.call("cudaEventRecord", 6, 1)
    device.work("later", (8, 9), (98, 300), stream=7)
    device.work("c", (10, 12), (15, 101), stream=9)
    device.call("cudaStreamWaitEvent", 20, 1)
    device.work("b", (22, 24), (104, 110), stream=8)
    assert pairs(device.read(), "event") == [("c", "b")]


def test_a_stream_waits_for_work_before_the_last(device: DeviceWriter) -> None:
    device.work("a", (0, 5), (10, 101), stream=7)
    device.call("cudaEventRecord", 6, 1)
    device.work("later", (8, 9), (101, 300), stream=7)
    device.call("cudaStreamWaitEvent", 20, 1)
    device.work("b", (22, 24), (104, 110), stream=8)
    assert pairs(device.read(), "event") == [("a", "b")]


def test_waits_of_waits_are_waits() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        drawn = [sorted(rng.sample(range(9), 2), reverse=True) for _ in range(rng.randint(1, 12))]
        found = _closure(*np.array(drawn).T)
        pairs = list(zip(*(side.tolist() for side in found), strict=True))
        assert pairs == sorted(networkx.transitive_closure(networkx.DiGraph(drawn)).edges)


def test_streams_that_wait_for_each_other_in_rows_have_nothing_to_do_with_other_rows(
    device: DeviceWriter,
) -> None:
    """Each row is of five streams, of which only the first and the last have work."""
    for row in (10, 20, 30):
        device.work(f"source{row}", (row, row + 0.5), (row + 1, row + 100), stream=row)
        for of in range(row, row + 4):
            record = device.call("cudaEventRecord", row + of % 10 + 1, 0.2)
            wait = device.call("cudaStreamWaitEvent", row + of % 10 + 1.5, 0.2)
            device.sync_event("Stream Wait Event", wait, wait_on_stream=of, stream=of + 1,
                              wait_on_cuda_event_record_corr_id=record)  # fmt: skip
        device.work(f"waits{row}", (row + 8, row + 9), (row + 150, row + 151), stream=row + 4)
    expected = [(f"source{row}", f"waits{row}") for row in (10, 20, 30)]
    assert pairs(device.read(), "event") == expected


@pytest.mark.parametrize(("late", "waits"), [(0, "second"), (8, "first"), (30, "")])
def test_a_device_whose_clock_is_a_little_late_is_waited_for(
    device: DeviceWriter, late: int, waits: str
) -> None:
    device.work("first", (0, 5), (10, 190 + late // 2 - 8))
    device.work("second", (6, 9), (190, 199 + late))
    device.sync_event("Stream Sync", device.call("cudaStreamSynchronize", 20, 180), stream=7)
    trace = device.read()
    assert pairs(trace, "sync") == ([(waits, "cudaStreamSynchronize")] if waits else [])
    assert count(trace, "link.sync-clocks") == (waits == "first")
    assert count(trace, "link.sync-contradicted") == (waits == "")
