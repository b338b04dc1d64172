"""What happens when: events in order of time, and those of one time in order of insertion.

Events of one time stand in a chain, so that the heap holds each time once. A chain is made of
blocks of entries one behind the other, because in symmetrical jobs chains are long and most of
what is in them was not looked at for a while. A rank's own callbacks for one time are one event:
it runs where the first of them was inserted, and all of them run together.

Other queues are of rows of arrays: two columns side by side of whatever is waited for, the first
and the last that wait, and one column of those that wait: the next.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.columns import Columns, column
from nadi.kernels.jit import called, inner
from nadi.kernels.sequences import put_in, take_first
from nadi.simulation.engine.codes import Problem

NO_MEMORY = 1  # the problem of arrays that are too small
_AHEAD = 5  # at most BLOCK - 1
BLOCK = 8  # entries, of which the first says which block comes next
# an entry is what it is about and, above that, what it is, whether it is the first callback of a
# rank for its time, and the rank; then what else there is to know
_KIND_AT, _LISTED_AT, _RANK_AT = 32, 39, 40
LISTED = 1 << _LISTED_AT
MOST_RANKS = 1 << (63 - _RANK_AT)


class COUNTER(Columns, of="counters"):
    """What there is one of in a simulation."""

    now = column("the time", "ns")
    problem = column("why it stopped, 0 if it did not: NO_MEMORY, or a Problem of the engine")
    events = column("how many happened")
    free = column("the first free block of ENTRY")
    used = column("the last block of ENTRY that was ever used")
    heap = column("how many times there are")
    lists = column("how many CALLBACKS there are")
    free_more = column("the first free CALLBACK")
    free_stream = column("the first free stream")
    used_stream = column("how many streams were ever used")
    free_message = column("the first free message")
    used_message = column("how many messages were ever used")
    culprit = column("a node that met one unlike it")
    depth = column("how much is to be done on buses")
    used_more = column("the last CALLBACK that was ever used")
    list_bits = column("bits of a rank in the place of its CALLBACKS")
    list_spread = column("bits of a time there")
    times = column("places for times in use")
    waited = column("how many phases have waited in lines")
    free_transfer = column("the first free transfer")
    used_transfer = column("how many transfers were ever used")


class ENTRY(Columns, of="entries"):
    """Of an event; the first of a block says in ``what`` which block comes next."""

    what = column("what it is about; above that its kind, LISTED, and its rank")
    b = column("what else there is to know")


class TIME(Columns, of="times"):
    """Of a chain of events of one time."""

    key = column("the time, and 1 more; 0 if there is none", "ns")
    head = column("its first entry")
    tail = column("its last entry")


class CALLBACKS(Columns, of="lists"):
    """Of a rank's callbacks for one time."""

    key = column("time and rank, and 1 more; 0 if there are none")
    last = column("the last of them but the first, which is an event")


class CALLBACK(Columns, of="more"):
    """Of a further callback of a rank for a time."""

    next = column("the one after it, in a circle")
    kind = column("what it is")
    a = column("what it is about")
    b = column("what else there is to know")


class Agenda(NamedTuple):
    """Arrays of events; all int64, (rows, columns), and all 0 where nothing is.

    ``entries`` has rows for all events at most, in blocks of BLOCK, of which the first is not
    used. ``times``, twice a power of two, and ``lists``, 2 to the power of ``list_bits`` and
    ``list_spread``, are tables in which a key is searched from where it belongs. ``heap``, half as
    long as ``times``, holds the times; ``counters`` has no rows.
    """

    entries: np.ndarray
    times: np.ndarray
    heap: np.ndarray
    lists: np.ndarray
    more: np.ndarray
    counters: np.ndarray


# chains by time


@inner
def _place_of(time: int, size: int) -> int:
    """Give where a time belongs among ``size`` places, which begin with the place of that number.

    The table begins small, and goes on behind itself twice as large when that is half full.
    """
    mixed = np.uint64(time) * np.uint64(0x9E3779B97F4A7C15)
    return size + (np.int64(mixed >> np.uint64(32)) & (size - 1))


@inner
def _find_in(times: np.ndarray, time: int, size: int) -> int:
    at = _place_of(time, size)
    while times[at, TIME.key] != time + 1 and times[at, TIME.key] != 0:
        at = size + ((at + 1) & (size - 1))
    return at


@inner
def find(agenda: Agenda, time: int) -> int:
    """Give the place of the chain of a time, or that where it may be put."""
    return _find_in(agenda.times, time, agenda.counters[COUNTER.times])


@called
def forget(agenda: Agenda, at: int) -> None:
    """Take a time out of the table; others move up, so that each is still found."""
    times, size = agenda.times, agenda.counters[COUNTER.times]
    hole = at
    at = size + ((at + 1) & (size - 1))
    while times[at, TIME.key] != 0:
        home = _place_of(times[at, TIME.key] - 1, size)
        if ((at - home) & (size - 1)) >= ((at - hole) & (size - 1)):
            times[hole, TIME.key] = times[at, TIME.key]
            times[hole, TIME.head] = times[at, TIME.head]
            times[hole, TIME.tail] = times[at, TIME.tail]
            hole = at
        at = size + ((at + 1) & (size - 1))
    times[hole, TIME.key] = 0


@called
def _enlarge_times(agenda: Agenda) -> None:
    times, heap, counters = agenda.times, agenda.heap, agenda.counters
    size = counters[COUNTER.times]
    if 4 * size > times.shape[0]:
        counters[COUNTER.problem] = NO_MEMORY
        return
    for k in range(counters[COUNTER.heap]):
        old, new = _find_in(times, heap[k], size), _find_in(times, heap[k], 2 * size)
        times[new, TIME.key] = times[old, TIME.key]
        times[new, TIME.head] = times[old, TIME.head]
        times[new, TIME.tail] = times[old, TIME.tail]
    counters[COUNTER.times] = 2 * size


@called
def _new_block(agenda: Agenda) -> int:
    """Give a block: the place of its first entry, which holds the next block's."""
    counters, entries = agenda.counters, agenda.entries
    new = counters[COUNTER.free]
    if new != 0:
        counters[COUNTER.free] = entries[new, ENTRY.what]
    else:
        new = counters[COUNTER.used] + BLOCK
        if new == entries.shape[0]:
            counters[COUNTER.problem] = NO_MEMORY
            return 0
        counters[COUNTER.used] = new
    return new


@called
def _append(agenda: Agenda, at: int, what: int, b: int) -> None:
    """Put an event behind those of a time."""
    times, entries = agenda.times, agenda.entries
    new = times[at, TIME.tail] + 1
    if times[at, TIME.head] == 0:
        new = _new_block(agenda) + 1
        times[at, TIME.head] = new
    elif new % BLOCK == 0:
        block = _new_block(agenda)
        entries[new - BLOCK, ENTRY.what] = block
        new = block + 1
    entries[new, ENTRY.what] = what
    entries[new, ENTRY.b] = b
    times[at, TIME.tail] = new


@inner
def has_events(agenda: Agenda, at: int) -> bool:
    """Tell whether a chain by time has any."""
    return agenda.times[at, TIME.head] != 0


@called
def next_event(agenda: Agenda, at: int) -> tuple[int, int]:
    """Take the first event off a chain by time, which has one; gives its two numbers."""
    times, entries, counters = agenda.times, agenda.entries, agenda.counters
    first = times[at, TIME.head]
    what, b = entries[first, ENTRY.what], entries[first, ENTRY.b]
    after_it = first + 1
    if first == times[at, TIME.tail]:
        block = first - first % BLOCK
        entries[block, ENTRY.what] = counters[COUNTER.free]
        counters[COUNTER.free] = block
        after_it = 0
    elif after_it % BLOCK == 0:
        block = after_it - BLOCK
        after_it = entries[block, ENTRY.what] + 1
        entries[block, ENTRY.what] = counters[COUNTER.free]
        counters[COUNTER.free] = block
    times[at, TIME.head] = after_it
    return what, b


@called
def event_ahead(agenda: Agenda, at: int) -> tuple[int, int]:
    """Look at an event that comes some way after the first of a chain; 0 if there is none."""
    times, entries = agenda.times, agenda.entries
    ahead, tail = times[at, TIME.head] + _AHEAD, times[at, TIME.tail]
    if times[at, TIME.head] == 0:
        return 0, 0
    block = times[at, TIME.head] & -BLOCK
    if ahead >= block + BLOCK:
        if tail < block + BLOCK and tail > block:
            return 0, 0
        ahead = entries[block, ENTRY.what] + 1 + ahead - block - BLOCK
    if ahead > tail and ahead & -BLOCK == tail & -BLOCK:
        return 0, 0
    return entries[ahead, ENTRY.what], entries[ahead, ENTRY.b]


@inner
def content_of(what: int) -> tuple[int, int, int]:
    """Give what an event is, what it is about, and whose it is if that was stated."""
    return (
        (what >> _KIND_AT) & ((1 << (_LISTED_AT - _KIND_AT)) - 1),
        what & ((1 << _KIND_AT) - 1),
        what >> _RANK_AT,
    )


@inner
def pop_time(agenda: Agenda) -> None:
    """Take the earliest time off the heap."""
    agenda.counters[COUNTER.heap] -= 1
    take_first(agenda.heap, 0, agenda.counters[COUNTER.heap])


@called
def _insert(agenda: Agenda, time: int, what: int, b: int) -> None:
    times, counters = agenda.times, agenda.counters
    at = find(agenda, time)
    if times[at, TIME.key] == 0:
        if 2 * counters[COUNTER.heap] >= counters[COUNTER.times]:
            _enlarge_times(agenda)
            if counters[COUNTER.problem] != 0:
                return
            at = find(agenda, time)
        times[at, TIME.key] = time + 1
        times[at, TIME.head] = 0
        put_in(agenda.heap, 0, counters[COUNTER.heap], time)
        counters[COUNTER.heap] += 1
    _append(agenda, at, what, b)


@inner
def add_event(agenda: Agenda, time: int, kind: int, a: int, b: int) -> None:
    """Insert an event, behind those of its time that are there already."""
    _insert(agenda, time, (kind << _KIND_AT) | a, b)


@inner
def add_event_of(agenda: Agenda, rank: int, time: int, kind: int, a: int, b: int) -> None:
    """Insert an event that says whose it is."""
    _insert(agenda, time, (rank << _RANK_AT) | (kind << _KIND_AT) | a, b)


# callbacks of a rank


@inner
def _home(counters: np.ndarray, key: int) -> int:
    """Give where a list of callbacks belongs: those of a rank lie together."""
    bits, spread = counters[COUNTER.list_bits], counters[COUNTER.list_spread]
    mixed = np.uint64(key >> bits) * np.uint64(0x9E3779B97F4A7C15)
    return ((key & ((1 << bits) - 1)) << spread) + np.int64(mixed >> np.uint64(64 - spread))


@inner
def home_of_list(agenda: Agenda, rank: int, time: int) -> int:
    """Give where a rank's callbacks for a time are, or near it."""
    return _home(agenda.counters, (time << agenda.counters[COUNTER.list_bits]) | rank)


@inner
def find_list(agenda: Agenda, rank: int, time: int) -> int:
    """Give the place of a rank's callbacks for a time, or that where they may be put."""
    lists = agenda.lists
    key = (time << agenda.counters[COUNTER.list_bits]) | rank
    mask = lists.shape[0] - 1
    at = _home(agenda.counters, key)
    while lists[at, CALLBACKS.key] != key + 1 and lists[at, CALLBACKS.key] != 0:
        at = (at + 1) & mask
    return at


@called
def end_list(agenda: Agenda, at: int) -> None:
    """Take a rank's callbacks for a time out of their table."""
    lists = agenda.lists
    mask = lists.shape[0] - 1
    hole = at
    at = (at + 1) & mask
    while lists[at, CALLBACKS.key] != 0:
        home = _home(agenda.counters, lists[at, CALLBACKS.key] - 1)
        if ((at - home) & mask) >= ((at - hole) & mask):
            lists[hole, CALLBACKS.key] = lists[at, CALLBACKS.key]
            lists[hole, CALLBACKS.last] = lists[at, CALLBACKS.last]
            hole = at
        at = (at + 1) & mask
    lists[hole, CALLBACKS.key] = 0
    agenda.counters[COUNTER.lists] -= 1


@called
def _add_callback(agenda: Agenda, at: int, kind: int, a: int, b: int) -> None:
    """Put a callback behind those of its rank and time."""
    counters, more, lists = agenda.counters, agenda.more, agenda.lists
    new = counters[COUNTER.free_more]
    if new != 0:
        counters[COUNTER.free_more] = more[new, CALLBACK.next]
    else:
        new = counters[COUNTER.used_more] + 1
        if new == more.shape[0]:
            counters[COUNTER.problem] = NO_MEMORY
            return
        counters[COUNTER.used_more] = new
    last = lists[at, CALLBACKS.last]
    if last == 0:
        more[new, CALLBACK.next] = new
    else:
        more[new, CALLBACK.next] = more[last, CALLBACK.next]
        more[last, CALLBACK.next] = new
    lists[at, CALLBACKS.last] = new
    more[new, CALLBACK.kind] = kind
    more[new, CALLBACK.a] = a
    more[new, CALLBACK.b] = b


@called
def after(agenda: Agenda, rank: int, time: int, kind: int, a: int, b: int) -> None:
    """Add a callback of a rank, which runs together with its others of that time."""
    lists, counters = agenda.lists, agenda.counters
    at = find_list(agenda, rank, time)
    if lists[at, CALLBACKS.key] != 0:
        _add_callback(agenda, at, kind, a, b)
        return
    if 2 * counters[COUNTER.lists] >= lists.shape[0]:
        counters[COUNTER.problem] = NO_MEMORY
        return
    counters[COUNTER.lists] += 1
    lists[at, CALLBACKS.key] = ((time << counters[COUNTER.list_bits]) | rank) + 1
    lists[at, CALLBACKS.last] = 0
    _insert(agenda, time, (rank << _RANK_AT) | LISTED | (kind << _KIND_AT) | a, b)


@called
def next_callback(agenda: Agenda, at: int) -> tuple[int, int, int]:
    """Take a rank's next callback for a time; gives what it is, 0 if there is none."""
    more, lists, counters = agenda.more, agenda.lists, agenda.counters
    last = lists[at, CALLBACKS.last]
    if last == 0:
        return 0, 0, 0
    first = more[last, CALLBACK.next]
    lists[at, CALLBACKS.last] = 0 if first == last else last
    more[last, CALLBACK.next] = more[first, CALLBACK.next]
    more[first, CALLBACK.next] = counters[COUNTER.free_more]
    counters[COUNTER.free_more] = first
    return more[first, CALLBACK.kind], more[first, CALLBACK.a], more[first, CALLBACK.b]


@inner
def put_behind(
    table: np.ndarray, row: int, head: int, items: np.ndarray, following: int, item: int
) -> None:
    """Put an item behind those in the queue at a row, whose first is in the column ``head``."""
    items[item, following] = -1
    if table[row, head] < 0:
        table[row, head] = item
    else:
        items[table[row, head + 1], following] = item
    table[row, head + 1] = item


@inner
def take_queued(table: np.ndarray, row: int, head: int, items: np.ndarray, following: int) -> int:
    """Take the first item out of the queue at a row; -1 if none waits."""
    item = table[row, head]
    if item >= 0:
        table[row, head] = items[item, following]
    return item


@called
def new_row(counters: np.ndarray, free: int, table: np.ndarray, following: int) -> int:
    """Give a row that came free, else the next that was never used; -1 if there is none.

    ``free`` is the counter that says which came free last; that behind it counts those ever used.
    """
    row = counters[free]
    if row >= 0:
        counters[free] = table[row, following]
        return row
    row = counters[free + 1]
    if row == table.shape[0]:
        counters[COUNTER.problem] = Problem.TOO_SMALL
        return -1
    counters[free + 1] = row + 1
    return row


@inner
def free_row(counters: np.ndarray, free: int, table: np.ndarray, following: int, row: int) -> None:
    """Let a row be used again."""
    table[row, following] = counters[free]
    counters[free] = row
