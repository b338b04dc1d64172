"""The agenda of compiled kernels against one of lists that are searched from end to end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings, strategies as st

from nadi.kernels.jit import called, kernel
from nadi.simulation.engine.event_queue import (
    COUNTER,
    LISTED,
    Agenda,
    add_event,
    add_event_of,
    after,
    content_of,
    end_list,
    find,
    find_list,
    forget,
    has_events,
    next_callback,
    next_event,
    pop_time,
)
from nadi.simulation.lowering.engine_arrays import agenda_of
from tests.amounts import examples

Ints = npt.NDArray[np.int64]
_RANKS = 5
_EVENT, _EVENT_OF, _CALLBACK = range(3)
_READ, _DONE = COUNTER.waited, COUNTER.culprit  # counters that an agenda leaves alone


@called
def _insert_some(agenda: Agenda, script: Ints, fan: int) -> None:
    """Insert the next events of a script; a counter that is free says how far it has got."""
    counters = agenda.counters
    for _ in range(fan):
        if counters[_READ] == script.shape[0]:
            return
        row = script[counters[_READ]]
        counters[_READ] += 1
        way, rank, time = row[0], row[1], counters[COUNTER.now] + row[2]
        if way == _EVENT:
            add_event(agenda, time, 1, counters[_READ], row[2])
        elif way == _EVENT_OF:
            add_event_of(agenda, rank, time, 2, counters[_READ], row[2])
        else:
            after(agenda, rank, time, 3, counters[_READ], row[2])


@called
def _note(agenda: Agenda, log: Ints, kind: int, a: int, b: int) -> None:
    done = agenda.counters[_DONE]
    log[done, 0], log[done, 1], log[done, 2], log[done, 3] = (
        agenda.counters[COUNTER.now],
        kind,
        a,
        b,
    )
    agenda.counters[_DONE] = done + 1


@kernel
def play(agenda: Agenda, script: Ints, fan: int, log: Ints) -> int:
    """Let all events happen, each of which inserts the next of the script; gives how many."""
    counters = agenda.counters
    _insert_some(agenda, script, max(fan, 1))
    while counters[COUNTER.heap] > 0 and counters[COUNTER.problem] == 0:
        counters[COUNTER.now] = agenda.heap[0]
        at, size = find(agenda, counters[COUNTER.now]), counters[COUNTER.times]
        while has_events(agenda, at) and counters[COUNTER.problem] == 0:
            what, b = next_event(agenda, at)
            kind, a, rank = content_of(what)
            if what & LISTED:
                place = find_list(agenda, rank, counters[COUNTER.now])
                while kind != 0:
                    _note(agenda, log, kind, a, b)
                    _insert_some(agenda, script, fan)
                    kind, a, b = next_callback(agenda, place)
                end_list(agenda, place)
            else:
                _note(agenda, log, kind, a, b)
                _insert_some(agenda, script, fan)
            if counters[COUNTER.times] != size:
                at, size = find(agenda, counters[COUNTER.now]), counters[COUNTER.times]
        forget(agenda, at)
        pop_time(agenda)
    return counters[_DONE] if counters[COUNTER.problem] == 0 else -1


def expected_log(script: list[tuple[int, int, int]], fan: int) -> list[tuple[int, int, int, int]]:
    """Do the same with a list of events, each a list of callbacks with its time and rank."""
    log: list[tuple[int, int, int, int]] = []
    events: list[tuple[int, int, list[tuple[int, int, int]]]] = []  # time, rank or -1, callbacks
    now, used = 0, 0

    def insert(count: int) -> None:
        nonlocal used
        for way, rank, delay in script[used : used + count]:
            used += 1
            own = (way + 1, used, delay)
            owner = rank if way == _CALLBACK else -1
            mine = [e for e in events if e[:2] == (now + delay, rank)]
            if owner >= 0 and mine:
                mine[0][2].append(own)
            else:
                events.append((now + delay, owner, [own]))

    insert(max(fan, 1))
    while events:
        now = min(time for time, _, _ in events)
        event = next(e for e in events if e[0] == now)
        for callback in event[2]:  # also those that are added meanwhile
            log.append((now, *callback))
            insert(fan)
        events.remove(event)
    return log


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, _RANKS - 1), st.sampled_from([0, 0, 1, 2, 3, 50, 977])
        ),
        min_size=1,
        max_size=400,
    ),
    st.integers(1, 3),
    st.booleans(),
)
def test_events_happen_in_order_of_time_and_insertion(
    script: list[tuple[int, int, int]], fan: int, all_apart: bool
) -> None:
    if all_apart:  # more times at once than the table has places for at first
        script = [(way, rank, 1000 - 7 * n + delay) for n, (way, rank, delay) in enumerate(script)]
        script = [(way, rank, max(delay, 1)) for way, rank, delay in script]
    log = np.zeros((len(script) + 1, 4), dtype=np.int64)
    done = play(agenda_of(len(script) + 64, _RANKS), np.array(script, dtype=np.int64), fan, log)
    expected = expected_log(script, fan)
    assert done == len(expected)
    assert [tuple(row) for row in log[:done].tolist()] == expected


def test_an_agenda_that_is_too_small_says_so() -> None:
    script = np.array([(_EVENT, 0, 10 * n) for n in range(2000)], dtype=np.int64)
    log = np.zeros((2001, 4), dtype=np.int64)
    assert play(agenda_of(4, _RANKS), script, 2000, log) == -1
