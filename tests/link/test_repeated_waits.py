"""Dependencies that a recording does not state and that its repeats show; the truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from tests.link.test_synchronization import DeviceWriter, device, pairs

__all__ = ["device"]

MAIN, WORKER = 1, 2
LENGTHS = [900.0, 400.0, 2_300.0, 1_500.0]


def launches(device: DeviceWriter, runs: list[tuple[float, float, float]], name: str) -> None:
    """Write calls, each so long after the one before: from start to end, and the kernel's part."""
    now = 0.0
    for number, (lasts, begins, ends) in enumerate(runs):
        device.event("aten::mm", now, lasts + 10)
        device.work(
            f"kernel {number}", (now + 5, now + 5 + lasts), (now + begins, now + ends), by=name
        )
        now += lasts + 50


@pytest.mark.parametrize(
    ("returns", "blocks"),
    [
        (lambda length: length + 30, True),  # it returns when its kernel has ended
        (lambda _: 320.0, False),  # it lasts as long whatever its kernel does
    ],
)
@pytest.mark.parametrize("count", [2, 4])
def test_launches_that_return_when_their_work_has_ended(
    device: DeviceWriter, returns: object, blocks: bool, count: int
) -> None:
    runs = [(returns(n), 10.0, 10.0 + n) for n in LENGTHS[:count]]  # type: ignore[operator]
    launches(device, runs, "runFunction - submit")
    found = pairs(device.read(), "sync")
    expected = [(f"kernel {n}", "runFunction - submit") for n in range(count)]
    assert found == (expected if blocks and count >= 3 else [])


def test_a_kernel_that_is_faster_lets_its_blocking_launch_return_earlier(
    device: DeviceWriter,
) -> None:
    launches(device, [(n + 30, 10.0, 10.0 + n) for n in LENGTHS], "runFunction - submit")
    run = nadi.run(device.write()[1])
    assert run.path.by_kind()["kernel"] == pytest.approx(1_000 * sum(LENGTHS), rel=0.01)
    gain = nadi.what_if(run.graph, "scale ^kernel 0.5").gain_ns
    assert gain == pytest.approx(500 * sum(LENGTHS), rel=0.01)


def polls(device: DeviceWriter, waits: list[float], follows: float | None) -> float:
    """Write steps that launch a kernel, and go on so long after its end, or after a fixed time."""
    now = 0.0
    for lasts in waits:
        device.event("dispatch", now, 60, "user_annotation")
        device.work("notify", (now + 10, now + 20), (now + 40, now + 20 + lasts))
        resumes = now + 20 + lasts + follows if follows is not None else now + 500
        device.events[-3]["dur"] = resumes + 40 - now
        device.event("aten::empty", resumes, 30)
        now = max(resumes, now + 20 + lasts) + 100
    device.event("aten::last", now, 10)
    return now


@pytest.mark.parametrize(
    ("waits", "follows", "found"),
    [
        (LENGTHS, 5.0, 4),
        (LENGTHS, 50.0, 4),
        (LENGTHS, 51.0, 0),
        (LENGTHS, -40.0, 4),  # the kernel tells the host before it ends
        (LENGTHS, -101.0, 0),
        (LENGTHS[:3], 5.0, 3),
        (LENGTHS[:2], 5.0, 0),  # too few
        (LENGTHS, None, 0),
        ([900.0] * 4, 5.0, 0),  # as long each time: the host may just take so long
    ],
)
def test_a_thread_that_goes_on_when_its_kernel_has_ended_has_polled_it(
    device: DeviceWriter, waits: list[float], follows: float | None, found: int
) -> None:
    polls(device, waits, follows)
    assert pairs(device.read(), "thread") == [("notify", "aten::empty")] * found


@pytest.mark.parametrize("follows", [5.0, -40.0])
def test_what_polls_a_faster_kernel_goes_on_earlier(device: DeviceWriter, follows: float) -> None:
    polls(device, LENGTHS, follows)
    run = nadi.run(device.write()[1])
    times = run.replay.time
    assert times[: run.graph.num_vertices].tolist() == run.graph.time.tolist()
    kernels = 1_000 * sum(n - 20 + min(follows, 0) for n in LENGTHS)  # up to where they tell
    assert run.path.by_kind()["kernel"] == pytest.approx(kernels, rel=0.01)
    gain = nadi.what_if(run.graph, "scale ^notify$ 0.5").gain_ns
    assert gain == pytest.approx(kernels / 2, rel=0.02)


def crossings(
    device: DeviceWriter, gaps: list[float], *, name: str = "gemm", same: bool = True
) -> None:
    """Write kernels of stream 9 that are launched early, and begin so long after one of 20 ends."""
    now = 0.0
    for number, gap in enumerate(gaps):
        device.event("aten::mm", now, 100)
        ends = now + 3_000 + 700 * (number % 3)
        source = name if same else f"{name} {number}"
        device.work(source, (now + 5, now + 10), (now + 12, ends), stream=20)
        device.work("after", (now + 20, now + 25), (ends + gap, ends + gap + 200), stream=9)
        device.work("next", (now + 30, now + 35), (ends + 1, ends + 1_000), stream=20)
        now = ends + 3_000


@pytest.mark.parametrize(
    ("gaps", "same", "found"),
    [
        ([3.0] * 4, True, 4),
        ([10.0] * 3, True, 3),
        ([3.0, 3.0], True, 0),  # too few
        ([3.0] * 4, False, 0),  # after another kernel each time
        ([3.0, 3.0, 3.0, 900.0, 950.0, 970.0, 990.0], True, 0),  # more often it does not
        ([3.0, 3.0, 3.0, 900.0], True, 3),
        ([-30.0] * 4, True, 4),  # in the tail of the kernel
        ([-51.0] * 4, True, 0),
    ],
)
def test_kernels_that_begin_when_those_of_another_stream_end(
    device: DeviceWriter, gaps: list[float], same: bool, found: int
) -> None:
    crossings(device, gaps, same=same)
    assert pairs(device.read(), "event") == [("gemm", "after")] * found


def test_a_kernel_moves_up_with_its_cause_to_what_else_holds_it(device: DeviceWriter) -> None:
    crossings(device, [3.0] * 4)
    graph = nadi.build_graph(nadi.load_job(device.write()[1]))
    done = nadi.what_if(graph, "scale ^gemm$ 0.25")
    started = [
        done.replay.time[2 * op] for op in np.flatnonzero((graph.op_names == "after").to_numpy())
    ]
    ended = [
        done.replay.time[2 * op + 1] for op in np.flatnonzero((graph.op_names == "gemm").to_numpy())
    ]
    assert [a - b for a, b in zip(started, ended, strict=True)] == [3_000] * 4
    done = nadi.what_if(graph, "scale ^gemm$ 0")  # then its launch holds it
    call = np.flatnonzero((graph.op_names == "cudaLaunchKernel").to_numpy())[1]
    op = np.flatnonzero((graph.op_names == "after").to_numpy())[0]
    assert done.replay.time[2 * op] >= done.replay.time[2 * call + 1]


def test_threads_of_which_only_calls_are_recorded_hand_over_work(device: DeviceWriter) -> None:
    for number in range(3):
        at = 30.0 * number
        device.work(f"forward {number}", (at, at + 5), (at + 10, at + 30))
    for number in range(20):  # the backward pass makes more calls than the forward pass
        at = 200.0 + 20 * number
        device.work(f"backward {number}", (at, at + 5), (at + 8, at + 15), tid=WORKER)
    device.call("cudaDeviceSynchronize", 700, 50)
    trace = device.read()
    assert sorted(pairs(trace, "thread")) == [
        ("cudaLaunchKernel", "cudaDeviceSynchronize"), ("cudaLaunchKernel", "cudaLaunchKernel"),
    ]  # fmt: skip
    assert nadi.run(device.write()[1]).unexplained.total_ns <= 50_000  # of 200 up to its first call


def test_a_wait_for_gloo_without_a_recorded_call_begins_what_it_waits_for(
    device: DeviceWriter,
) -> None:
    device.event("aten::mm", 0, 5_000)
    device.event("c10d::allgather_", 5_000, 10)  # there is a call, of something else
    device.event("gloo:barrier", 5_200, 20, "user_annotation", tid=WORKER)
    device.event("aten::add", 5_300, 10)
    trace = device.read()
    assert pairs(trace, "thread") == [
        ("c10d::allgather_", "gloo:barrier"), ("gloo:barrier", "aten::add"),
    ]  # fmt: skip
    run = nadi.run(device.write()[1])
    assert run.verdict.leading.name == "aten::mm"
    assert run.unexplained.total_ns == 0


@pytest.mark.parametrize("category", ["Operator", "cpu_op"])
def test_labels_of_torch_1_8_are_no_operators(device: DeviceWriter, category: str) -> None:
    names = [
        "ProfilerStep#3", "Optimizer.step#SGD.step", "enumerate(DataLoader)#_It.__next__",
        "gloo:all_reduce", "nccl:broadcast", "aten::mm", "ProfilerStep", "Optimizer",
    ]  # fmt: skip
    for number, name in enumerate(names):
        device.event(name, 10.0 * number, 5, category)
    trace = nadi.read(device.write()[1])
    labels = 5 if category == "Operator" else 0
    expected = ["annotation"] * labels + ["operator"] * (len(names) - labels)
    assert trace.nodes["category"].cast(str).to_list() == expected


def test_the_backward_pass_of_torch_1_8_is_waited_for(device: DeviceWriter, tmp_path: Path) -> None:
    device.event("ProfilerStep#1", 0, 1_000, "Operator")
    for number in range(3):
        device.event("aten::mm", 10 + 20 * number, 15, "Operator", **{"Sequence number": number})
    for number in range(8):  # more than the forward pass has
        device.event("MmBackward", 200 + 50 * number, 40, "Operator", tid=WORKER,
                     **{"Sequence number": 2 - number % 3})  # fmt: skip
    device.event("Optimizer.step#SGD.step", 700, 200, "Operator")
    found = pairs(device.read(), "thread")
    assert ("aten::mm", "MmBackward") in found
    assert ("MmBackward", "Optimizer.step#SGD.step") in found
