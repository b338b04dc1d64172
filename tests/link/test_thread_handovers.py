"""Where a thread is taken to wait for another one: the rules in the module, at their borders."""

from __future__ import annotations

import pytest

import nadi
from tests.link.test_synchronization import DeviceWriter, device, inferred, pairs

__all__ = ["device"]

MAIN, WORKER, OTHER = 1, 2, 3
GLOO, C10D = "gloo:all_reduce", "c10d::allreduce_"


def asked(device: DeviceWriter, work: list[tuple[float, float]], thread: int = WORKER) -> None:
    """Let the main thread ask for work of gloo at 0 to 10 us, and gloo do it on a thread."""
    for number, (start, end) in enumerate(work):
        device.event(f"{C10D} {number}", number, 1, **{"Record function id": 100 + number})
        device.event(GLOO, start, end - start, "user_annotation", tid=thread,
                     **{"Record function id": 101 + number})  # fmt: skip


def waited_for_gloo(trace: nadi.Trace) -> list[tuple[str, str]]:
    """Give the dependencies on gloo's work, but for those of its launch."""
    return [pair for kind in ("sync", "thread") for pair in pairs(trace, kind) if "gloo" in pair[0]]


@pytest.mark.parametrize(("late_us", "waits"), [(0, True), (175, True), (176, False)])
def test_work_of_another_thread_s_call_is_waited_for_if_the_thread_goes_on_as_soon_as_usual(
    device: DeviceWriter, late_us: float, waits: bool
) -> None:
    # the thread waits for its own work twice, and goes on after 100 and after 200 us
    asked(device, [(20, 300), (1_020, 1_300)])
    device.event("aten::add", 400, 600)
    device.event("aten::mul", 1_500, 100)
    device.event(f"{C10D} of another thread", 1_550, 10, tid=OTHER, **{"Record function id": 200})
    device.event(GLOO, 1_600, 400, "user_annotation", tid=WORKER, **{"Record function id": 201})
    device.event("aten::div", 2_000 + late_us, 10)
    assert ((GLOO, "aten::div") in waited_for_gloo(device.read())) == waits


def test_work_without_an_id_belongs_to_the_call_that_is_left(device: DeviceWriter) -> None:
    asked(device, [(20, 300)])
    device.event(f"{C10D} 1", 1_000, 5, **{"Record function id": 300})
    device.event(GLOO, 1_020, 400, "user_annotation", tid=WORKER)
    device.event("aten::add", 1_500, 10)
    assert pairs(device.read(), "launch") == [(f"{C10D} 0", GLOO), (f"{C10D} 1", GLOO)]


@pytest.mark.parametrize("wake_up_us", [100, 4_000, 32_000])
def test_a_thread_with_nothing_else_to_do_has_waited_however_late_it_goes_on(
    device: DeviceWriter, wake_up_us: float
) -> None:
    asked(device, [(20, 200)])
    device.event("aten::add", 200 + wake_up_us, 10)
    assert waited_for_gloo(device.read()) == [(GLOO, "aten::add")]


@pytest.mark.parametrize(("idle_from", "waits"), [(200, True), (1_400, True), (1_401, False)])
def test_a_thread_that_waited_longer_than_it_then_took_has_waited(
    device: DeviceWriter, idle_from: float, waits: bool
) -> None:
    asked(device, [(20, 2_000)])
    device.event("aten::mul", 5, idle_from - 5)
    device.event("aten::add", 2_600, 10)
    assert waited_for_gloo(device.read()) == ([(GLOO, "aten::add")] if waits else [])


@pytest.mark.parametrize(("again", "waits"), [("aten::mul", 2), ("aten::div", 1)])
def test_a_thread_that_waits_at_a_place_waits_there_again(
    device: DeviceWriter, again: str, waits: int
) -> None:
    asked(device, [(20, 200), (3_020, 3_200)])
    device.event("aten::mul", 5, 15)
    device.event("aten::add", 250, 10)
    device.event(again, 300, 2_800)
    device.event("aten::add", 9_000, 10)  # after 100 us of waiting, and 5.8 ms of something else
    assert len(waited_for_gloo(device.read())) == waits


@pytest.mark.parametrize(("idle_us", "waits"), [(29.999, False), (30, True), (31, True)])
def test_a_stretch_of_under_30_us_is_no_wait(
    device: DeviceWriter, idle_us: float, waits: bool
) -> None:
    asked(device, [(2, 20)])  # the call ends at 1
    device.event("aten::add", 1 + idle_us, 10)
    found = waited_for_gloo(device.read())
    assert found == ([(GLOO, "aten::add")] if waits else [])


def test_it_waits_for_all_of_gloo_s_work_that_ends_in_the_stretch(device: DeviceWriter) -> None:
    asked(device, [(10, 100), (30, 700), (40, 900)])
    device.event("aten::add", 800, 10)
    trace = device.read()
    rows = trace.deps.filter(trace.deps["kind"].is_in(["sync", "thread"]))
    ends = trace.column("start")[rows["src"]] + trace.column("duration")[rows["src"]]
    origin = trace.column("start").min()
    assert sorted((ends - origin).tolist()) == [100_000, 700_000]  # at 900 it runs no longer
    assert set(trace.nodes["name"].gather(rows["dst"]).cast(str)) == {"aten::add"}


def test_who_does_not_ask_gloo_does_not_wait_for_it(device: DeviceWriter) -> None:
    asked(device, [(20, 200)])
    for start in (0, 205):
        device.event("aten::mul", start, 5, tid=OTHER)
    device.event("aten::add", 205, 10)
    assert waited_for_gloo(device.read()) == [(GLOO, "aten::add")]


def test_gloo_s_work_on_the_thread_itself_is_not_waited_for(device: DeviceWriter) -> None:
    asked(device, [(20, 200)], thread=MAIN)
    device.event("aten::add", 205, 10)
    assert waited_for_gloo(device.read()) == []


def test_the_first_operation_of_a_thread_has_waited_for_nothing(device: DeviceWriter) -> None:
    asked(device, [(20, 200)])
    device.event("aten::mul", 0, 5, tid=OTHER)
    device.event("aten::first", 205, 10, tid=OTHER + 1)
    device.event(C10D, 300, 1, tid=OTHER + 1, **{"Record function id": 200})
    assert waited_for_gloo(device.read()) == []


def test_work_that_ended_before_the_stretch_is_not_waited_for(device: DeviceWriter) -> None:
    asked(device, [(20, 50)])
    device.event("aten::mul", 20, 30)  # ends with it: the stretch comes after
    device.event("aten::add", 100, 10)
    assert [dst for _, dst in waited_for_gloo(device.read())] == []


def test_within_an_operator_a_thread_computes_and_within_a_label_it_may_wait(
    device: DeviceWriter,
) -> None:
    asked(device, [(20, 200)])
    device.event("aten::add", 2, 300)
    device.event("aten::mul", 205, 10)
    assert waited_for_gloo(device.read()) == []


def communicates(device: DeviceWriter, name: str, at: float, done: float, until: float) -> None:
    """Let an operator ask for a collective 10 us after ``at``, which is done before it ends."""
    number = int(at)
    device.event(name, at, until - at)
    device.event(C10D, at + 10, 10, **{"Record function id": 100 + number})
    device.event(GLOO, at + 15, done - at - 15, "user_annotation", tid=WORKER,
                 **{"Record function id": 101 + number})  # fmt: skip


@pytest.mark.parametrize("name", ["Sum", "mylib::all_reduce", "aten::mm",
                                  "autograd::engine::evaluate_function: SumBackward"])  # fmt: skip
@pytest.mark.parametrize(("done", "waits"), [(600, True), (510, True), (509, False)])
def test_an_operator_that_asks_for_communication_may_wait_for_it_by_itself(
    device: DeviceWriter, name: str, done: float, waits: bool
) -> None:
    # from the end of the call, at 20, until the work is done it waits, and goes on until 1,000
    communicates(device, name, 0, done, 1_000)
    trace = device.read()
    assert waited_for_gloo(trace) == ([(GLOO, name)] if waits else [])
    assert pairs(trace, "sync") == waited_for_gloo(trace)  # its end waits


@pytest.mark.parametrize(
    ("name", "waiting", "computing", "waits"),
    [
        ("Later", 1, 0, 0),  # one case does not confirm it
        ("Later", 2, 0, 0),
        ("Later", 3, 0, 3),
        ("Later", 3, 3, 3),
        ("Later", 3, 4, 0),  # at that place the work ends by chance
        ("aten::mm", 5, 0, 0),
    ],
)
def test_an_operator_that_waits_for_what_was_asked_for_before_does_so_repeatedly(
    device: DeviceWriter, name: str, waiting: int, computing: int, waits: int
) -> None:
    for step in range(waiting + computing):
        at, is_waiting = 10_000.0 * step, step < waiting
        done = at + 1_000 if is_waiting else at + 700
        device.event("step", at, 5_000, "user_annotation")
        device.event(C10D, at + 10, 10, **{"Record function id": 100 + 10 * step})
        device.event(GLOO, at + 15, done - at - 15, "user_annotation", tid=WORKER,
                     **{"Record function id": 101 + 10 * step})  # fmt: skip
        device.event("aten::add", at + 20, 80)
        device.event(name, at + 100, 990)
        device.event("aten::sum", at + 1_090, 50)
    assert waited_for_gloo(device.read()) == [(GLOO, name)] * waits


def test_the_end_of_a_label_may_be_what_waited(device: DeviceWriter) -> None:
    asked(device, [(20, 200)])
    device.event("step", 5, 200, "user_annotation")
    trace = device.read()
    (pair,) = waited_for_gloo(trace)
    assert pair == (GLOO, "step")
    assert pairs(trace, "sync") == [pair]  # its end waits, its start did not
    assert inferred(trace, "sync") == [True]


def backward(device: DeviceWriter, work: list[tuple[float, float]], *, inside: bool) -> None:
    """Let the main thread compute up to 40 us and from 300, and another one in between."""
    for start in (0, 20, 300):
        device.event(f"aten::main {start}", start, 20)
    if inside:
        device.event("loss.backward", 40, 260, "user_annotation")
    for start, end in work:
        name = f"autograd::engine::evaluate_function: at {start}"
        device.event(name, start, end - start, tid=WORKER)


def between_threads(trace: nadi.Trace) -> dict[str, list[tuple[str, str]]]:
    """Give the inferred dependencies by kind; names shortened to what tells them apart."""
    short = {kind: pairs(trace, kind) for kind in ("thread", "launch", "sync")}
    return {
        kind: [(src.split(": ")[-1], dst.split(": ")[-1]) for src, dst in found]
        for kind, found in short.items() if found
    }  # fmt: skip


def test_the_first_work_waits_for_the_hand_over_and_the_thread_for_the_last(
    device: DeviceWriter,
) -> None:
    backward(device, [(50, 100), (110, 200), (210, 290)], inside=False)
    assert between_threads(device.read()) == {
        "thread": [("aten::main 20", "at 50"), ("at 210", "aten::main 300")]
    }


def test_within_a_label_its_start_hands_over_and_its_end_waits(device: DeviceWriter) -> None:
    backward(device, [(50, 100), (210, 290)], inside=True)
    assert between_threads(device.read()) == {
        "launch": [("loss.backward", "at 50")], "sync": [("at 210", "loss.backward")]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("work", "found"),
    [
        ([(40, 290)], False),  # begins with the stretch, not because of it
        ([(40.001, 290)], True),
        ([(50, 300)], True),
        ([(50, 300.001)], False),  # goes on after it
        ([(50, 100), (110, 400)], True),  # the stretch ends with the first
        ([(10, 100), (110, 290)], True),  # and begins with the second
    ],
)
def test_only_work_that_begins_and_ends_in_the_stretch_is_handed_over(
    device: DeviceWriter, work: list[tuple[float, float]], *, found: bool
) -> None:
    backward(device, work, inside=False)
    assert bool(between_threads(device.read())) == found


def test_threads_without_operators_are_handed_nothing(device: DeviceWriter) -> None:
    backward(device, [], inside=False)
    device.event("cudaEventQuery", 50, 30, "cuda_runtime", tid=WORKER)
    device.event("watch", 90, 30, "user_annotation", tid=WORKER)
    assert between_threads(device.read()) == {}


def test_the_thread_of_the_forward_pass_is_the_one_that_waits(device: DeviceWriter) -> None:
    """The backward thread has more operators, but those lie within autograd's."""
    backward(device, [(50, 280)], inside=False)
    for start in range(60, 260, 20):
        device.event(f"aten::of backward {start}", start, 10, tid=WORKER)
    assert between_threads(device.read()) == {
        "thread": [("aten::main 20", "at 50"), ("at 50", "aten::main 300")]
    }


def test_each_worker_is_handed_work_of_its_own(device: DeviceWriter) -> None:
    backward(device, [(50, 200)], inside=False)
    device.event("aten::there", 60, 100, tid=OTHER)
    assert between_threads(device.read()) == {
        "thread": [
            ("aten::main 20", "aten::there"), ("aten::main 20", "at 50"),
            ("aten::there", "aten::main 300"), ("at 50", "aten::main 300"),
        ]
    }  # fmt: skip


@pytest.mark.parametrize(("ends", "starts", "pairs_up"), [(20, 20, True), (20.001, 20, False)])
def test_backward_comes_after_a_forward_that_has_ended(
    device: DeviceWriter, ends: float, starts: float, *, pairs_up: bool
) -> None:
    number = {"Sequence number": 0}  # the first number of all
    name = "autograd::engine::evaluate_function: MulBackward0"
    device.event("aten::mul", 0, ends, **number)
    device.event(name, starts, 20, tid=WORKER, **number)
    assert pairs(device.read(), "thread") == ([("aten::mul", name)] if pairs_up else [])


@pytest.mark.parametrize("name", [
    "_c10d_functional::wait_tensor", "c10d_functional::wait_tensor",
    "_c10d_functional_autograd::wait_tensor",
])  # fmt: skip
def test_a_functional_collective_is_waited_for_in_an_operator(
    device: DeviceWriter, name: str
) -> None:
    asked(device, [(20, 2_000)])
    device.event("aten::mul", 5, 15)
    device.event(name, 100, 1_950)
    device.event("aten::add", 2_100, 10)
    assert pairs(device.read(), "sync") == [(GLOO, name)]
