"""What long gaps between operations are named after: functions of samples of other steps."""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

import nadi
from nadi.pytorch.collecting.hook import recorded_steps
from nadi.pytorch.collecting.hook.garbage_timer import GarbageTimer
from nadi.pytorch.collecting.hook.sampled_gaps import (
    GARBAGE,
    Called,
    Named,
    Sample,
    Span,
    StackSampler,
    _ran_ns,
    _stack,
    garbage_spans,
    is_of_program,
    lock_waits,
    name_gaps,
    name_operations,
    named_events,
    scheduled_ns,
    spans_of,
)
from nadi.pytorch.collecting.hook.traced_calls import CallTracer, TracedCall
from tests.conftest import PairWriter

MS = 1_000_000
LIBRARY = sysconfig.get_path("stdlib")


def called(file: str, function: str, line: int = 1) -> Called:
    source = f"def {function}(): pass"
    (code,) = (c for c in compile(source, file, "exec").co_consts if isinstance(c, CodeType))
    return Called(code, line)


MAIN, STEP = called("/home/user/train.py", "main"), called("/home/user/train.py", "step", 7)
GET = called(f"{LIBRARY}/queue.py", "get", 80)
BACKWARD = called(f"{LIBRARY}/site-packages/torch/_tensor.py", "backward")
CALL = called(f"{LIBRARY}/site-packages/torch/nn/module.py", "_call", 1774)


def wrapper() -> Called:
    """Make a function as a decorator of a library makes it."""
    source = "def hook():\n    def wrapped(): pass"
    code = compile(source, f"{LIBRARY}/site-packages/torch/optim.py", "exec")
    for _ in range(2):
        (code,) = (one for one in code.co_consts if isinstance(one, CodeType))
    return Called(code, 509)


def gap_names(samples: list[Sample], spans: list[Span]) -> dict[tuple[str, str], list[str]]:
    found = name_gaps(samples, spans)
    return {place: [one.name for one in functions] for place, functions in found.items()}


def spans(first: int, gap: int) -> list[Span]:
    """Make two steps of two operations, the second after a gap; ns."""
    found = []
    for number in range(2):
        begin = first + number * (gap + 2 * MS)
        end = begin + gap + 2 * MS
        found += [
            Span(1, begin, end, f"ProfilerStep#{number}"), Span(1, begin, begin + MS, "aten::a"),
            Span(1, begin + MS + gap, end, "aten::b"),
        ]  # fmt: skip
    return found


def samples(*stack: Called, runs: float, gap: int = 10 * MS, sampling: float = 0) -> list[Sample]:
    """Sample the gaps of spans that begin at 0 every millisecond.

    The thread and the sampler run for shares of the time.
    """
    return [
        Sample(begin + at + MS // 2, 1, stack, *(int((begin + at) * x) for x in (runs, sampling)))
        for begin in (MS, gap + 3 * MS)
        for at in range(0, gap, MS)
    ]


@pytest.mark.parametrize(("stack", "runs", "names"), [
    ((MAIN, STEP), True, ["train.py(7): step"]),
    ((MAIN, STEP), False, ["wait in train.py(7): step"]),
    ((MAIN, STEP, GET), False, ["train.py(7): step", "wait in queue.py(80): get"]),
    ((MAIN, BACKWARD), True, ["train.py(1): main", "_tensor.py(1): backward"]),
    ((MAIN, CALL, wrapper(), BACKWARD), True, ["train.py(1): main", "_tensor.py(1): backward"]),
    ((MAIN, CALL), True, ["train.py(1): main", "module.py(1774): _call"]),
    ((MAIN, BACKWARD), False, None),  # PyTorch waits for what is recorded
])  # fmt: skip
def test_functions_of_a_place(
    stack: tuple[Called, ...], runs: bool, names: list[str] | None
) -> None:
    found = gap_names(samples(*stack, runs=runs), spans(0, 10 * MS))
    assert found == ({("aten::a", "aten::b"): names} if names else {})


@pytest.mark.parametrize(
    ("runs", "sampling", "waits"),
    [(0.4, 0, True), (0.4, 0.3, False), (0.0, 0.9, True), (1.0, 0.9, False)],
)
def test_a_thread_does_not_sleep_while_the_sampler_has_its_turn(
    runs: float, sampling: float, *, waits: bool
) -> None:
    found = gap_names(samples(MAIN, STEP, runs=runs, sampling=sampling), spans(0, 10 * MS))
    name = "wait in train.py(7): step" if waits else "train.py(7): step"
    assert found == {("aten::a", "aten::b"): [name]}


def test_a_function_that_calls_many_is_named_alone() -> None:
    several = [
        one._replace(stack=(MAIN, STEP, called(f"{LIBRARY}/re.py", f"f{number % 3}")))
        for number, one in enumerate(samples(MAIN, runs=True))
    ]
    assert list(gap_names(several, spans(0, 10 * MS)).values()) == [["train.py(7): step"]]


def test_a_place_without_a_majority_has_no_name() -> None:
    several = [
        one._replace(stack=(called("/home/user/a.py", f"f{number % 3}"),))
        for number, one in enumerate(samples(MAIN, runs=True))
    ]
    assert name_gaps(several, spans(0, 10 * MS)) == {}
    assert name_gaps(samples(MAIN, runs=True)[:1], spans(0, 10 * MS)) == {}


def test_the_share_of_what_a_function_calls_is_that_of_its_time() -> None:
    found = name_gaps(
        [one._replace(stack=(MAIN, STEP, GET) if number % 4 else (MAIN, STEP))
         for number, one in enumerate(samples(MAIN, runs=True, gap=9 * MS))],
        spans(0, 9 * MS),
    )  # fmt: skip
    ((step, get),) = found.values()
    assert step == ("train.py(7): step", 1)
    assert get.name == "queue.py(80): get"
    assert 0.6 < get.share < 0.9


def test_a_sample_stands_for_the_time_in_which_nothing_could_be_sampled() -> None:
    late = Sample(300 * MS, 1, (MAIN, STEP), 300 * MS, 0)
    early = Sample(2 * MS, 1, (MAIN,), 2 * MS, 0)
    around = [Span(1, 0, MS, "aten::a"), Span(1, 301 * MS, 302 * MS, "aten::b")]
    assert gap_names([early, late], around) == {("aten::a", "aten::b"): ["train.py(7): step"]}


def test_events_fill_long_gaps_of_their_place() -> None:
    half = [Named("outer", 1), Named("wait in inner", 0.5)]
    names = {("aten::a", "aten::b"): half, ("aten::b", "aten::a"): [Named("next", 1)]}
    events = named_events(spans(1000 * MS, 3 * MS), names, 1000 * MS)
    assert [(one["name"], one["ts"], one["dur"]) for one in events] == [
        ("outer", 1000.001, 2999.998), ("wait in inner", 1000.002, 1499.998),
        ("outer", 6000.001, 2999.998), ("wait in inner", 6000.002, 1499.998),
    ]  # fmt: skip
    assert named_events(spans(0, 10_000), names, 0) == []
    first = [Span(1, 0, 9 * MS, "ProfilerStep#1"), Span(1, 4 * MS, 5 * MS, "aten::a"),
             Span(1, 6 * MS, 7 * MS, "aten::b")]  # fmt: skip
    begun = named_events(first, {("aten::b", "aten::a"): [Named("load", 1)]}, 0)
    assert [(one["ts"], one["dur"]) for one in begun] == [(0.001, 3999.998)]


@pytest.mark.parametrize(
    ("runs", "names"), [(True, ["train.py(7): step"]), (False, None)], ids=["runs", "waits"]
)
def test_gaps_inside_of_a_range_have_names_and_its_waits_are_its_own(
    runs: bool, names: list[str] | None
) -> None:
    ranged = [*spans(0, 10 * MS), Span(1, 0, 12 * MS, "fetch", True),
              Span(1, 12 * MS, 24 * MS, "fetch", True)]  # fmt: skip
    found = gap_names(samples(MAIN, STEP, runs=runs), ranged)
    assert found == ({("aten::a", "aten::b"): names} if names else {})


def test_the_mark_of_a_step_is_no_range() -> None:
    marked = [one._replace(is_range="#" in one.name) for one in spans(0, 10 * MS)]
    found = gap_names(samples(MAIN, STEP, runs=False), marked)
    assert found == {("aten::a", "aten::b"): ["wait in train.py(7): step"]}


def test_events_end_with_a_range() -> None:
    timed = [Span(1, 0, 2 * MS, "aten::a"), Span(1, 1, 5 * MS, "fetch", True),
             Span(1, 9 * MS, 10 * MS, "aten::b")]  # fmt: skip
    events = named_events(timed, {("aten::a", "aten::b"): [Named("save", 1)]}, 0)
    assert [(one["ts"], one["dur"]) for one in events] == [
        (2000.001, 2999.998),
        (5000.001, 3999.998),
    ]


@pytest.mark.parametrize(("end", "is_known"), [(9, True), (6, False), (2, True)])
def test_functions_hold_operations_in_a_range_and_cross_none(end: int, *, is_known: bool) -> None:
    ranged = [*step_of(0), Span(1, 0, end * MS, "part", True)]
    events = name_operations([call(LOG, 4, 8)], ranged, ranged, 0)
    assert held(events) == ([("train.py(20): log", 4, 8)] if is_known else [])


def test_events_end_with_the_mark_of_a_step() -> None:
    marked = [Span(1, 0, 2 * MS, "aten::a"), Span(1, -MS, 5 * MS, "ProfilerStep#1"),
              Span(1, 5 * MS, 9 * MS, "ProfilerStep#2"),
              Span(1, 6 * MS, 7 * MS, "aten::b")]  # fmt: skip
    events = named_events(marked, {("aten::a", "aten::b"): [Named("save", 1)]}, 0)
    assert [(one["ts"], one["dur"]) for one in events] == [
        (2000.001, 2999.998),
        (5000.001, 999.998),
    ]


def test_what_sleeps_is_sampled() -> None:
    sampler, switch = StackSampler(), sys.getswitchinterval()
    sampler.start()
    until = time.monotonic() + 10
    while len(sampler.samples) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    sampler.stop()
    assert sys.getswitchinterval() == switch
    mine = [one for one in sampler.samples if one.thread == threading.get_native_id()]
    names = {call.code.co_name for one in mine for call in one.stack}
    assert "test_what_sleeps_is_sampled" in names


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says for how long a thread ran")
def test_the_time_of_a_thread_that_runs_is_exact() -> None:
    """What the system lists of it changes every 4 ms or so, and it seemed to sleep in between."""
    is_over, until = threading.Event(), time.monotonic() + 20
    data = bytes(1 << 20)

    def work() -> None:
        while not is_over.is_set():
            hashlib.sha256(data)  # releases the GIL

    thread = threading.Thread(target=work)
    thread.start()
    in_a_row = 0
    while in_a_row < 12 and time.monotonic() < until:
        before = _ran_ns(thread.native_id or 0)
        time.sleep(0.0002)
        in_a_row = in_a_row + 1 if _ran_ns(thread.native_id or 0) > before else 0
    is_over.set()
    thread.join()
    assert in_a_row == 12


COUNT = called("/home/user/train.py", "count", 50)
IN_COUNT = "wait in the GIL, locked by train.py(50): count"


def threads(*, runs: float, moves: bool = True) -> list[Sample]:
    """Sample the thread of two steps, and one that runs for a share of the time."""
    return [
        one for at in range(20)
        for one in (Sample(at * MS, 1, (MAIN,), at * MS, 0, at),
                    Sample(at * MS, 2, (COUNT,), int(at * MS * runs), 0, at if moves else 0))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pause", "usual", "slept", "found", "names"),
    [
        (8, 1, 6, threads(runs=1), [IN_COUNT]),
        (8, 1, 3, threads(runs=1), []),  # it was ready, and others had the processors
        (4, 1, 6, threads(runs=1), [IN_COUNT]),  # a thread may give the lock before it is asked
        (8, 7, 6, threads(runs=1), []),  # it waits as long where others give the GIL at once
        (8, 1, 6, threads(runs=0.3), []),
        (8, 1, 6, threads(runs=1, moves=False), []),  # a call that may have released the GIL
        (8, 1, 6, [], []),
    ],
)
def test_waits_for_the_lock_of_the_interpreter(
    pause: int, usual: int, slept: int, found: list[Sample], names: list[str]
) -> None:
    timed = spans(1000 * MS, pause * MS)[:3]
    waits = lock_waits(found, spans(0, usual * MS), timed, [slept * MS], {})
    assert [one.name for one in waits] == names
    at = 1001 * MS + 1
    assert [(one.thread, one.begin, one.end) for one in waits] == [
        (1, at, at + (pause - usual) * MS - 2) for _ in names
    ]


@pytest.mark.parametrize(
    ("slept", "lengths"), [(20, [9, 4]), (9, [9]), (5, [4]), (2, [])]
)  # fmt: skip
def test_waits_for_the_lock_are_no_longer_than_the_thread_slept(
    slept: int, lengths: list[int]
) -> None:
    timed = [*spans(1000 * MS, 10 * MS)[:3], *spans(1012 * MS, 5 * MS)[:3]]
    waits = lock_waits(threads(runs=1), spans(0, MS), timed, [slept * MS], {})
    assert [one.end - one.begin + 2 for one in waits] == [length * MS for length in lengths]


@pytest.mark.parametrize(
    ("name", "is_lock"), [("wait in queue.py(80): get", False), ("train.py(7): step", True)]
)
def test_a_wait_that_samples_name_is_none_for_the_lock_of_the_interpreter(
    name: str, *, is_lock: bool
) -> None:
    timed = spans(1000 * MS, 8 * MS)[:3]
    names = {("aten::a", "aten::b"): [Named(name, 1.0)]}
    assert bool(lock_waits(threads(runs=1), spans(0, MS), timed, [9 * MS], names)) == is_lock


@pytest.mark.parametrize(
    ("around", "is_lock"), [("evaluate", True), ("gloo:all_reduce", False), ("c10d::wait", False)]
)
def test_waits_for_the_lock_inside_of_operations_and_in_equal_steps_only(
    around: str, *, is_lock: bool
) -> None:
    outer = [one._replace(name=around) for one in spans(1000 * MS, 8 * MS)[:1]]
    timed = [*spans(1000 * MS, 8 * MS)[:3], *outer]
    observed = [*spans(0, MS)[:3], *(one._replace(name=around) for one in spans(0, MS)[:1])]
    found = threads(runs=1)
    waits = lock_waits(found, observed, timed, [9 * MS], {})
    assert [wait.name for wait in waits] == [IN_COUNT] * is_lock
    assert lock_waits(found, spans(0, MS), timed, [9 * MS], {}) == []


def test_collections_of_garbage_are_noted_while_the_timer_is_on() -> None:
    timer = GarbageTimer()
    gc.collect()
    before = time.time_ns()
    timer.start()
    gc.collect()
    timer.stop()
    after = time.time_ns()
    gc.collect()
    timer.stop()
    found = [one for one in timer.collections if one[0] == threading.get_native_id()]
    assert found
    assert all(before <= begin <= end <= after for _, begin, end in found)


@pytest.mark.parametrize(
    ("begin", "end", "kept"),
    [
        (3, 7, (3, 7)),
        (1.9995, 7, (2.000001, 7)),  # the clocks differ: it cannot begin in an operation
        (3, 10.0003, (3, 9.999999)),
        (0.5, 1.5, (0.5, 1.5)),  # inside of an operation
        (3, 3.01, None),
        (-9, -5, None),  # before the steps
        (13, 14, None),
    ],
)
def test_collections_of_garbage_cross_no_operation(
    begin: float, end: float, kept: tuple[float, float] | None
) -> None:
    timed = [Span(1, 0, 12 * MS, "ProfilerStep#1"), Span(1, 0, 2 * MS, "aten::a"),
             Span(1, 10 * MS, 11 * MS, "aten::b")]  # fmt: skip
    noted = [(1, round(begin * MS), round(end * MS))]
    found = garbage_spans([*noted, (2, 3 * MS, 7 * MS)], timed)
    assert found == [
        Span(1, *(round(time * MS) for time in kept), GARBAGE, is_range=True)
        for kept in ([kept] if kept else [])
    ]


def test_what_collects_garbage_is_no_function() -> None:
    timed = spans(0, 10 * MS)[:3]
    garbage = Span(1, 3 * MS, 7 * MS, GARBAGE, is_range=True)
    names = {("aten::a", "aten::b"): [Named("step", 1)]}
    events = named_events([*timed, garbage], names, 0)
    assert [(one["ts"], one["dur"]) for one in events] == [
        (1000.001, 1999.998),
        (7000.001, 3999.998),
    ]


@pytest.mark.parametrize("collects", [True, False])
def test_what_collects_garbage_does_not_wait_for_the_lock(*, collects: bool) -> None:
    timed = spans(1000 * MS, 8 * MS)[:3]
    garbage = [Span(1, 1003 * MS, 1004 * MS, GARBAGE, is_range=True)] if collects else []
    waits = lock_waits(threads(runs=1), spans(0, MS), timed, [9 * MS], {}, garbage)
    assert bool(waits) != collects


def test_short_steps_are_sampled_oftener() -> None:
    lengths = (1000 * MS, 20 * MS, 8 * MS, 4 * MS, 1)
    assert [StackSampler(one).every_ns for one in lengths] == [MS, MS, 400_000, 200_000, 200_000]
    one = MS // 5
    two = [Sample(MS + at, 1, (MAIN, STEP), at, 0) for at in (one, 2 * one)]
    assert name_gaps(two[:1], spans(0, 2 * MS), one) == {}
    found = name_gaps(two, spans(0, 2 * MS), one)
    assert list(found.values()) == [[Named("train.py(7): step", 1.0)]]


def test_expressions_are_parts_of_their_function() -> None:
    source = (
        "def rows(seen):\n"
        "    [seen(one) for one in range(1)]\n"
        "    any(seen(one) for one in range(1))\n"
        "    (lambda: seen(1))()\n"
        "    def inner(): seen(1)\n"
        "    inner()\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(source, "/home/user/rows.py", "exec"), scope)
    found: list[str] = []
    scope["rows"](lambda _: found.append(_stack(sys._getframe(1))[-1].code.co_name))
    assert found == ["rows", "rows", "rows", "inner"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says for how long a thread ran")
def test_files_of_threads_stay_open_and_say_the_same() -> None:
    files: dict[int, int] = {}
    here = threading.get_native_id()
    first, alone, second = (scheduled_ns(here, kept) for kept in (files, None, files))
    assert first is not None
    assert alone is not None
    assert second is not None
    assert first <= alone <= second
    assert list(files) == [here]
    os.close(files[here])
    assert scheduled_ns(0, files) is None  # no such thread


def test_waits_of_the_recorder_itself_are_none_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others have the processors, it waits while it reads for how long the thread did."""
    ready = itertools.count(0, 50 * MS)

    def scheduled(_: int) -> tuple[int, int]:
        time.sleep(0.05)
        return 0, next(ready)

    monkeypatch.setattr(recorded_steps, "_sampled_gaps",
                        lambda: SimpleNamespace(scheduled_ns=scheduled))  # fmt: skip
    timer = recorded_steps.StepTimer()
    timer.begin()
    time.sleep(0.02)
    timer.end()
    assert timer.ready == [0]
    assert timer.slept[0] > 15 * MS


def test_spans_of_a_profiler() -> None:
    def event(kind: str, **others: bool) -> SimpleNamespace:
        values = {"device_resource_id": 5, "start_ns": 7, "duration_ns": 2, "name": "aten::a",
                  "device_type": f"DeviceType.{kind}", **others}  # fmt: skip
        return SimpleNamespace(**{key: lambda value=value: value for key, value in values.items()})

    events = [event("CPU"), event("CUDA"), event("CPU", is_user_annotation=True)]
    operation = Span(5, 7, 9, "aten::a")  # older versions do not say what is a range
    assert spans_of(SimpleNamespace(events=lambda: events)) == [
        operation, operation._replace(is_range=True)
    ]  # fmt: skip


def test_a_named_wait_is_a_wait(pair: PairWriter, tmp_path: Path) -> None:
    for step in range(3):
        at = 8_000.0 * step
        pair.op("aten::view", at, 500)
        pair.event("wait in queue.py(80): get", at + 500.1, 5_000, "python_function")
        pair.op("aten::last", at + 5_500.3, 2_499)
    run = nadi.run(pair.write()[1])
    assert run.verdict.leading.name == "wait in queue.py(80): get"
    (best, *_) = run.best_changes
    assert (best.about, best.gain_ns) == ("wait in queue.py(80): get", 15_000_000)


LOG = called("/home/user/train.py", "log", 20)
MODULE = Called(compile("0", "/home/user/train.py", "exec"), 40)


def step_of(begin: int, count: int = 10, name: str = "aten::a") -> list[Span]:
    """Make a marked step of operations of 1 ms each."""
    return [
        Span(1, begin, begin + count * MS, "ProfilerStep#1"),
        Span(1, begin, begin + count * MS, "Optimizer.step#SGD.step"),
        *(Span(1, begin + at * MS, begin + at * MS + MS - 1, name) for at in range(count)),
    ]


def call(function: Called, first: int, end: int, begin: int = 0) -> TracedCall:
    """Call a function just around some operations of a step that begins at a time."""
    code = function.code.replace(co_firstlineno=function.line)
    return TracedCall(code, 1, begin + first * MS, begin + end * MS)


def held(events: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    return [
        (one["name"], one["ts"] / 1000, round((one["ts"] + one["dur"]) / 1000)) for one in events
    ]


def test_a_thread_that_sleeps_and_keeps_the_lock_of_the_interpreter_writes_a_file() -> None:
    save = called(f"{LIBRARY}/site-packages/torch/serialization.py", "save")
    early = Sample(2 * MS, 1, (MAIN, save), 2 * MS, 0)
    late = Sample(20 * MS, 1, (MAIN, save), 3 * MS, 0)
    around = [Span(1, 0, MS, "aten::a"), Span(1, 21 * MS, 22 * MS, "aten::b")]
    names = ["train.py(1): main", "serialization.py(1): save"]
    assert list(gap_names([early, late], around).values()) == [names]


def test_a_function_holds_the_operations_that_it_calls() -> None:
    observed = [*step_of(0), *step_of(100 * MS)]
    calls = [call(LOG, 3, 8, 100 * MS), call(MAIN, 0, 10, 100 * MS)]
    events = name_operations(calls, observed, step_of(1000 * MS), 1000 * MS)
    assert held(events) == [("train.py(20): log", 3, 8)]  # main holds the whole step
    assert name_operations(calls, observed, step_of(1000 * MS, 9), 0) == []  # another step


def test_two_calls_of_a_function_are_two_events() -> None:
    events = name_operations([call(LOG, 1, 2), call(LOG, 6, 9)], step_of(0), step_of(0), 0)
    assert held(events) == [("train.py(20): log", 1, 2), ("train.py(20): log", 6, 9)]


def test_functions_nest_as_they_call_each_other() -> None:
    inner = called("/home/user/train.py", "histogram", 30)
    same = called("/home/user/train.py", "wrapped", 40)
    calls = [call(inner, 4, 6), call(LOG, 2, 8), call(same, 2, 8)]
    events = name_operations(calls, step_of(0), step_of(0), 0)
    assert held(events) == [("train.py(30): histogram", 4, 6), ("train.py(20): log", 2, 8)]


def test_hooks_in_a_backward_are_named_inside_of_the_node_that_calls_them() -> None:
    node = "autograd::engine::evaluate_function: MmBackward0"
    backward = [*step_of(0), *(Span(1, at * MS, (at + 5) * MS - 1, node) for at in (0, 5))]
    train = called("/home/user/train.py", "train", 50)
    calls = [call(LOG, 2, 4), call(train, 0, 8), call(train, 5, 10)]  # one ends inside of a node
    events = name_operations(calls, backward, backward, 0)
    assert held(events) == [
        ("train.py(20): log", 2, 4), ("train.py(50): train", 0, 5), ("train.py(50): train", 5, 10)
    ]  # fmt: skip


def test_a_module_is_named_before_functions_that_call_the_same() -> None:
    of = call(called("/home/user/train.py", "forward", 30), 2, 8)
    linear, layer = (of._replace(module=f"nn.Module: {one}") for one in ("Linear_0", "Layer_0"))
    calls = [linear, of, layer, call(LOG, 1, 9)]
    events = name_operations(calls, step_of(0), step_of(0), 0)
    assert held(events) == [("nn.Module: Linear_0", 2, 8), ("train.py(20): log", 1, 9)]


def test_calls_of_modules_are_traced_by_class_and_number() -> None:
    class Net:
        def __init__(self, *inner: Net) -> None:
            self.inner = inner

        def call(self, *, is_last: bool) -> None:
            for one in self.inner:
                one.call(is_last=is_last)

    class Layer(Net):
        pass

    net = Net(Layer(), Layer(Net()))
    tracer = CallTracer(lambda _: False, Net.call.__code__)
    tracer.start()
    net.call(is_last=False)
    net.inner[1].call(is_last=True)
    tracer.stop()
    names = [one.module.removeprefix("nn.Module: ") for one in tracer.calls]
    assert names == ["Layer_0", "Net_1", "Layer_1", "Net_0", "Net_1", "Layer_1"]


def test_calls_are_traced_until_the_tracer_is_stopped() -> None:
    def inner() -> int:
        return 1

    def outer() -> int:
        return sum([inner() for _ in range(2)])

    def busy() -> None:
        pass

    tracer = CallTracer(lambda code: code.co_name in ("outer", "inner", "busy"))
    tracer.start()
    outer()
    for _ in range(11_000):
        busy()
    tracer.stop()
    outer()
    assert [one.code.co_name for one in tracer.calls] == ["inner", "inner", "outer"]
    first, second, around = tracer.calls
    assert around.begin <= first.begin <= first.end <= second.begin <= second.end <= around.end


def test_a_program_that_traces_its_calls_itself_goes_on_to() -> None:
    def own(*_: object) -> None:
        pass

    tracer = CallTracer(lambda _: True)
    sys.setprofile(own)
    tracer.start()
    tracer.stop()
    try:
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)
    assert not tracer.calls


def test_a_tracer_that_another_thread_stops_ends_with_the_next_call() -> None:
    tracer = CallTracer(lambda _: True)
    tracer.start()
    stopping = threading.Thread(target=tracer.stop)
    stopping.start()
    stopping.join()
    compute_nothing()
    assert sys.getprofile() is None


def test_what_goes_wrong_while_calls_are_traced_does_not_reach_the_program() -> None:
    def broken(_: CodeType) -> bool:
        raise ValueError

    tracer = CallTracer(broken)
    tracer.start()
    compute_nothing()
    assert sys.getprofile() is None
    tracer.stop()
    assert not tracer.calls


def compute_nothing() -> None:
    pass


@pytest.mark.parametrize(("file", "name", "is_known"), [
    ("/home/user/train.py", "step", True),
    (f"{LIBRARY}/queue.py", "get", False),
    (str(Path(recorded_steps.__file__)), "step", False),
])  # fmt: skip
def test_functions_of_the_program(file: str, name: str, *, is_known: bool) -> None:
    assert is_of_program(called(file, name).code) is is_known


def test_the_verdict_names_the_function_with_most_operations(pair: PairWriter) -> None:
    for step in range(3):
        at = 1_000.0 * step
        pair.event(f"ProfilerStep#{step}", at, 1_000, "user_annotation")
        pair.event("train.py(20): log", at + 300, 650, "python_function")
        for number in range(10):
            pair.op(f"aten::small{number % 5}", at + 300 + 65 * number, 65)
        pair.op("aten::mm", at, 200)
    run = nadi.run(pair.write()[1])
    leads = run.verdict.leading
    assert (leads.range_name, leads.name) == ("train.py(20): log", "aten::small0")
