"""Threads of a replay: which calls wait for which, and that they do."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nadi.pytorch import plan_replay, replay_source
from nadi.pytorch.rerunning.order import ThreadOrder, order_threads
from nadi.pytorch.rerunning.recorded_calls import RecordedCall, TensorArgument
from nadi.pytorch.rerunning.thread_team import ThreadTeam

_MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
Row = tuple[int, int, int, int, int]  # thread, begin, end, the tensor that is read, that is made


def tensor(number: int) -> TensorArgument:
    return TensorArgument(number, 100 + number, 0, "float", (2, 2), (2, 1), "cpu", 4)


class Times:
    """What is asked of the recorded calls."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def span(self, row: int) -> tuple[int, int]:
        return self.rows[row][1:3]


def ordered(rows: list[Row], ends: tuple[int, ...] = (), first: int = -1) -> ThreadOrder:
    calls = [
        RecordedCall(row, "aten::mm", _MM, (tensor(a), tensor(a)), (tensor(b),), thread)
        for row, (thread, _, _, a, b) in enumerate(rows)
    ]
    recorded: Any = Times(rows)
    return order_threads(recorded, plan_replay(calls), ends, first=first)


def test_what_was_one_after_the_other_stays_so() -> None:
    found = ordered([(7, 0, 10, 0, 1), (8, 5, 20, 2, 3), (7, 30, 40, 0, 4), (8, 50, 60, 2, 5)])
    assert found.thread == (0, 1, 0, 1)
    assert found.handovers == ((1, 2), (2, 3))  # calls 0 and 1 were at the same time


def test_the_thread_of_the_steps_is_the_first() -> None:
    assert ordered([(7, 0, 1, 0, 1), (8, 2, 3, 0, 2)], first=8).thread == (1, 0)


def test_a_tensor_is_made_before_it_is_used_whatever_the_times_say() -> None:
    assert ordered([(7, 0, 50, 0, 1), (8, 10, 20, 1, 2)]).handovers == ((0, 1),)


def test_threads_meet_where_a_step_ends() -> None:
    rows = [(7, 0, 10, 0, 1), (8, 20, 30, 2, 3)]
    assert ordered(rows).handovers == ((0, 1),)
    assert ordered(rows, (1,)).handovers == ()


def test_calls_without_times_follow_each_other() -> None:
    assert ordered([(7, -1, -1, 0, 1), (8, -1, -1, 2, 3), (7, -1, -1, 4, 5)]).handovers == (
        (0, 1), (1, 2),
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 30),
                          st.integers(0, 4), st.integers(5, 9)), max_size=14))  # fmt: skip
def test_handovers_say_the_order_of_times_and_no_more_than_is_needed(rows: list[Row]) -> None:
    calls: list[Row] = []
    free = [0, 0, 0]
    for number, (thread, gap, length, read, made) in enumerate(rows):
        begin = max(free[thread] + gap, number and calls[-1][1])
        free[thread] = begin + length
        calls.append((thread, begin, begin + length, read, made))
    found = ordered(calls)
    edges = set(found.handovers)
    for b in range(len(calls)):  # a thread makes its calls one after the other
        edges |= {(a, b) for a in range(b) if calls[a][0] == calls[b][0]}
    after = closure(edges, len(calls))
    for b in range(len(calls)):
        assert all((a, b) in after for a in range(b) if calls[a][2] <= calls[b][1])
    for edge in found.handovers:
        assert edge not in closure(edges - {edge}, len(calls))
    for number, planned in enumerate(found.plan.calls):  # who frees a tensor comes last
        for place in planned.ended:
            users = [k for k, one in enumerate(found.plan.calls)
                     if place in {p.number for p in (*one.inputs, *one.outputs)}]  # fmt: skip
            assert all(user == number or (user, number) in after for user in users)


def closure(edges: set[tuple[int, int]], number: int) -> set[tuple[int, int]]:
    found = set(edges)
    for k in range(number):
        into = [a for a, b in found if b == k]
        out = [b for a, b in found if a == k]
        found |= {(a, b) for a in into for b in out}
    return found


def test_a_team_keeps_the_order_and_its_threads() -> None:
    locks = [threading.Lock(), threading.Lock()]
    seen: list[tuple[str, int]] = []

    def note(what: str) -> None:
        time.sleep(0.002)
        seen.append((what, threading.get_ident()))

    def mine(_: Any) -> None:
        note("a")
        locks[0].release()
        locks[1].acquire()
        note("c")

    def other(_: Any) -> None:
        locks[0].acquire()
        note("b")
        locks[1].release()

    team = ThreadTeam(2, locks, threading.Lock)
    for _ in range(3):
        team.run([[mine], [other]], None)
    team.close()
    assert [what for what, _ in seen] == ["a", "b", "c"] * 3
    assert len({number for what, number in seen if what == "b"}) == 1


def test_an_error_of_a_thread_ends_all() -> None:
    lock = threading.Lock()

    def fails(_: Any) -> None:
        raise ValueError("no such operator")

    team = ThreadTeam(2, [lock], threading.Lock)
    with pytest.raises(ValueError, match="no such operator"):
        team.run([[lambda _: lock.acquire() and None], [fails]], None)
    team.close()


def test_the_source_has_a_function_for_each_thread_and_their_locks() -> None:
    found = ordered([(7, 0, 10, 0, 1), (8, 20, 30, 1, 3), (7, 40, 50, 3, 4)])
    source = replay_source(found.plan, order=found)
    assert source.steps == ((("part_0",), ("part_1",)),)
    assert "    LOCKS[0].release()\n    LOCKS[1].acquire()\n" in source.text
    assert "team = ThreadTeam(2, LOCKS, torch.no_grad)" in source.text
    compile(source.text, "replay", "exec")
