"""What happens when: events in order of time, and those of one time in order of insertion.

Events of one time stand in a chain, so that the heap holds each time once. A rank's own
callbacks for one time stand in a chain of their own, which is one event: it runs where the
first of them was inserted, and all of them run together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.kernels._jit import inner

__all__ = [
    "EVENTS",
    "FREE",
    "HEAP",
    "LIST",
    "LISTS",
    "NOW",
    "NUM_COUNTERS",
    "PROBLEM",
    "USED",
    "Agenda",
    "add_event",
    "after",
    "find",
    "forget",
    "next_entry",
    "pop_time",
]

# of the counters
NOW, PROBLEM, EVENTS, FREE, USED, HEAP, LISTS = range(7)
NUM_COUNTERS = 16
# of an entry: the one after it, what it is, what it is about
_NEXT, _KIND, _A, _B = range(4)
# of a chain: whose it is, its first entry and its last
_KEY, _HEAD, _TAIL = range(3)
LIST = 0  # the kind of an event that is a rank's chain of callbacks
NO_MEMORY = 1  # the problem of arrays that are too small


class Agenda(NamedTuple):
    """Arrays of events; all int64.

    ``entries`` (events at most, 4); ``times`` (a power of two, 3), chains by time; ``heap``,
    of that length, the times; ``lists`` (a power of two, 3), chains by time and rank;
    ``counters`` (NUM_COUNTERS,).
    """

    entries: np.ndarray
    times: np.ndarray
    heap: np.ndarray
    lists: np.ndarray
    counters: np.ndarray


@inner
def find(table: np.ndarray, key: int) -> int:
    """Give the place of a key in a table with open addressing, or that where it may be put."""
    mask = table.shape[0] - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = np.int64(mixed >> np.uint64(32)) & mask
    while table[at, _KEY] != key and table[at, _KEY] != -1:
        at = (at + 1) & mask
    return at


@inner
def forget(table: np.ndarray, at: int) -> None:
    """Take a key out of a table; others move up, so that each is still found."""
    mask = table.shape[0] - 1
    hole = at
    at = (at + 1) & mask
    while table[at, _KEY] != -1:
        mixed = np.uint64(table[at, _KEY]) * np.uint64(0x9E3779B97F4A7C15)
        home = np.int64(mixed >> np.uint64(32)) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole, _KEY] = table[at, _KEY]
            table[hole, _HEAD] = table[at, _HEAD]
            table[hole, _TAIL] = table[at, _TAIL]
            hole = at
        at = (at + 1) & mask
    table[hole, _KEY] = -1


@inner
def _new_entry(agenda: Agenda, kind: int, a: int, b: int) -> int:
    counters, entries = agenda.counters, agenda.entries
    new = counters[FREE]
    if new >= 0:
        counters[FREE] = entries[new, _NEXT]
    else:
        new = counters[USED]
        if new == entries.shape[0]:
            counters[PROBLEM] = NO_MEMORY
            return 0
        counters[USED] = new + 1
    entries[new, _NEXT] = -1
    entries[new, _KIND] = kind
    entries[new, _A] = a
    entries[new, _B] = b
    return new


@inner
def _append(agenda: Agenda, table: np.ndarray, at: int, new: int) -> None:
    if table[at, _HEAD] < 0:
        table[at, _HEAD] = new
    else:
        agenda.entries[table[at, _TAIL], _NEXT] = new
    table[at, _TAIL] = new


@inner
def _push_time(agenda: Agenda, time: int) -> None:
    heap, counters = agenda.heap, agenda.counters
    at = counters[HEAP]
    counters[HEAP] = at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] <= time:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = time


@inner
def pop_time(agenda: Agenda) -> None:
    """Take the earliest time off the heap."""
    heap, counters = agenda.heap, agenda.counters
    size = counters[HEAP] - 1
    counters[HEAP] = size
    time = heap[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= time:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = time


@inner
def add_event(agenda: Agenda, time: int, kind: int, a: int, b: int) -> None:
    """Insert an event, behind those of its time that are there already."""
    new = _new_entry(agenda, kind, a, b)
    times = agenda.times
    at = find(times, time)
    if times[at, _KEY] == -1:
        if 2 * agenda.counters[HEAP] >= times.shape[0]:
            agenda.counters[PROBLEM] = NO_MEMORY
            return
        times[at, _KEY] = time
        times[at, _HEAD] = -1
        _push_time(agenda, time)
    _append(agenda, times, at, new)


@inner
def after(agenda: Agenda, rank: int, num_ranks: int, time: int, kind: int, a: int, b: int) -> None:
    """Add a callback of a rank, which runs together with its others of that time."""
    lists, counters = agenda.lists, agenda.counters
    key = time * num_ranks + rank
    at = find(lists, key)
    if lists[at, _KEY] == -1:
        if 2 * counters[LISTS] >= lists.shape[0]:
            counters[PROBLEM] = NO_MEMORY
            return
        counters[LISTS] += 1
        lists[at, _KEY] = key
        lists[at, _HEAD] = -1
        add_event(agenda, time, LIST, rank, 0)
    _append(agenda, lists, at, _new_entry(agenda, kind, a, b))


@inner
def next_entry(agenda: Agenda, table: np.ndarray, at: int) -> tuple[int, int, int]:
    """Take the first entry off a chain; gives its kind and what it is about. The chain has one."""
    entries, counters = agenda.entries, agenda.counters
    first = table[at, _HEAD]
    table[at, _HEAD] = entries[first, _NEXT]
    entries[first, _NEXT] = counters[FREE]
    counters[FREE] = first
    return entries[first, _KIND], entries[first, _A], entries[first, _B]
