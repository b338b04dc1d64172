"""The event loop of a LogGP model: operations and messages in order of time.

Times are in ps. An event is an operation that may begin, or a message that has arrived: number
``operations + k`` for that of the send ``k``. Equal times are in order of a number that an event
gets when it is first put in the queue; one that finds its processor or interface occupied keeps it
when it is put in again. This order decides who goes first, and so results depend on it.
"""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import called, inner, kernel

_SEND, _RECEIVE, _COMPUTE = range(3)
_ANY = -1
# of what is sorted by kind: longer lists than these are not left in order by the sort
_SORTED_AT_ONCE = 16


class LoggpOperations(NamedTuple):
    """A program; int64. ``*_first`` and ``*_next`` list who waits for each operation."""

    rank: np.ndarray
    action: np.ndarray
    size: np.ndarray
    peer: np.ndarray
    tag: np.ndarray
    processor: np.ndarray  # counted over all ranks
    cpu: np.ndarray
    interface: np.ndarray
    start_first: np.ndarray
    start_next: np.ndarray
    end_first: np.ndarray
    end_next: np.ndarray


class Costs(NamedTuple):
    """Parameters of the model in ps, and bytes."""

    latency: int
    overhead: int
    gap: int
    gap_per_byte: int
    overhead_per_byte: int
    eager_limit: int
    cpus: int  # of a rank
    interfaces: int


class State(NamedTuple):
    """What changes; int64. -1 is none."""

    waits: np.ndarray  # (operations,): how many it waits for yet
    ready: np.ndarray  # (operations,): when the last of those ended
    start: np.ndarray  # (operations,)
    end: np.ndarray  # (operations,)
    time: np.ndarray  # (events,)
    stamp: np.ndarray  # (events,)
    heap: np.ndarray  # (events,)
    fresh: np.ndarray  # (operations,): those that came free in this event
    free: np.ndarray  # (processors,): when each is free
    sends: np.ndarray  # (interfaces,): when each can send
    receives: np.ndarray  # (interfaces,): when each can receive
    posted: np.ndarray  # (ranks, 2): first and last receive that waits for its message
    arrived: np.ndarray  # (ranks, 2): first and last message that waits for its receive
    next: np.ndarray  # (operations,): behind it there
    busy: np.ndarray  # (ranks, 3): time of processors in sends, receives and computations
    parts: np.ndarray  # (128, 2): of a list that is sorted
    counts: np.ndarray  # events in the queue, stamps given, came free, ended


_QUEUED, _STAMPS, _FRESH, _ENDED = range(4)


@inner
def _is_before(state: State, a: int, b: int) -> bool:
    if state.time[a] != state.time[b]:
        return bool(state.time[a] < state.time[b])
    return bool(state.stamp[a] < state.stamp[b])


@called
def _put(state: State, event: int, time: int) -> None:
    """Put an event in the queue at a time, with the stamp that it has."""
    heap, at = state.heap, state.counts[_QUEUED]
    state.counts[_QUEUED] = at + 1
    state.time[event] = time
    while at > 0:
        parent = (at - 1) >> 1
        if _is_before(state, heap[parent], event):
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = event


@called
def _take(state: State) -> int:
    """Take the first event out of the queue."""
    heap, left = state.heap, state.counts[_QUEUED] - 1
    state.counts[_QUEUED] = left
    first, item, at = heap[0], heap[left], 0
    while True:
        child = 2 * at + 1
        if child >= left:
            break
        if child + 1 < left and _is_before(state, heap[child + 1], heap[child]):
            child += 1
        if _is_before(state, item, heap[child]):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = item
    return int(first)


@inner
def _put_new(state: State, event: int, time: int) -> None:
    state.stamp[event] = state.counts[_STAMPS]
    state.counts[_STAMPS] += 1
    _put(state, event, time)


@inner
def _let_go(state: State, first: np.ndarray, following: np.ndarray, k: int, time: int) -> None:
    """Tell those who wait for an operation that it started, or ended, at a time."""
    for at in range(first[k], first[k + 1]):
        other = following[at]
        state.ready[other] = max(state.ready[other], time)
        state.waits[other] -= 1
        if state.waits[other] == 0:
            state.fresh[state.counts[_FRESH]] = other
            state.counts[_FRESH] += 1


@inner
def _has_started(operations: LoggpOperations, state: State, k: int, time: int) -> None:
    state.start[k] = time
    _let_go(state, operations.start_first, operations.start_next, k, time)


@inner
def _has_ended(operations: LoggpOperations, state: State, k: int, time: int) -> None:
    state.end[k] = time
    state.counts[_ENDED] += 1
    _let_go(state, operations.end_first, operations.end_next, k, time)


@called
def _sort_positions(fresh: np.ndarray, size: int) -> None:
    """Sort by position, which they nearly are: each list of those who wait is."""
    for i in range(1, size):
        item, j = fresh[i], i
        while j > 0 and fresh[j - 1] > item:
            fresh[j] = fresh[j - 1]
            j -= 1
        fresh[j] = item


@inner
def _median_to(fresh: np.ndarray, action: np.ndarray, to: int, x: int, y: int, z: int) -> None:
    """Swap the middle one of three, by kind, with the one at ``to``."""
    a, b, c = action[fresh[x]], action[fresh[y]], action[fresh[z]]
    low, high = (x, y) if a < b else (y, x)
    middle = low if action[fresh[low]] >= c else (z if c <= action[fresh[high]] else high)
    fresh[to], fresh[middle] = fresh[middle], fresh[to]


@called
def _sort_kinds(
    fresh: np.ndarray, action: np.ndarray, stack: np.ndarray, first: int, last: int
) -> None:
    """Sort by kind, as LogGOPSim does by the C++ library's sort, which keeps no order of equals.

    Up to 16 stay in order. Of more, a quicksort with the median of three leaves parts of up
    to 16, the later part first, and what it swaps meanwhile is swapped (D. Musser, Introspective
    Sorting and Selection Algorithms, 1997).
    """
    # the rest of each part is looked at after what is behind it: parts wait on a stack
    stack[0, 0], stack[0, 1] = first, last
    depth = 1
    while depth > 0:
        depth -= 1
        low, high = stack[depth, 0], stack[depth, 1]
        if high - low <= _SORTED_AT_ONCE:
            continue
        _median_to(fresh, action, low, low + 1, low + (high - low) // 2, high - 1)
        pivot = action[fresh[low]]
        f, b = low + 1, high
        while True:
            while action[fresh[f]] < pivot:
                f += 1
            b -= 1
            while pivot < action[fresh[b]]:
                b -= 1
            if f >= b:
                break
            fresh[f], fresh[b] = fresh[b], fresh[f]
            f += 1
        stack[depth, 0], stack[depth, 1] = low, f
        stack[depth + 1, 0], stack[depth + 1, 1] = f, high
        depth += 2
    for i in range(first + 1, last):
        item, j = fresh[i], i
        while j > first and action[item] < action[fresh[j - 1]]:
            fresh[j] = fresh[j - 1]
            j -= 1
        fresh[j] = item


@called
def _queue_fresh(operations: LoggpOperations, costs: Costs, state: State) -> None:
    """Put all that came free in the queue, rank by rank: sends, receives, computations."""
    fresh, size = state.fresh, state.counts[_FRESH]
    _sort_positions(fresh, size)
    at = 0
    while at < size:
        rank, stop = operations.rank[fresh[at]], at + 1
        while stop < size and operations.rank[fresh[stop]] == rank:
            stop += 1
        if stop > at + 1:
            _sort_kinds(fresh, operations.action, state.parts, at, stop)
        for i in range(at, stop):
            k = fresh[i]
            time = max(state.free[operations.processor[k]], state.ready[k])
            if operations.action[k] == _SEND:
                port = rank * costs.interfaces + operations.interface[k]
                time = max(time, state.sends[port])
            _put_new(state, k, time)
        at = stop
    state.counts[_FRESH] = 0


@inner
def _append(queue: np.ndarray, following: np.ndarray, rank: int, k: int) -> None:
    following[k] = -1
    if queue[rank, 0] < 0:
        queue[rank, 0] = k
    else:
        following[queue[rank, 1]] = k
    queue[rank, 1] = k


@inner
def _remove(queue: np.ndarray, following: np.ndarray, rank: int, before: int, k: int) -> None:
    if before < 0:
        queue[rank, 0] = following[k]
    else:
        following[before] = following[k]
    if queue[rank, 1] == k:
        queue[rank, 1] = before


@inner
def _fits(operations: LoggpOperations, receive: int, send: int) -> bool:
    source, tag = operations.peer[receive], operations.tag[receive]
    of_it = source == _ANY or source == operations.rank[send]
    return bool(of_it and (tag == _ANY or tag == operations.tag[send]))


@inner
def _beyond_first(size: int) -> int:
    return max(size - 1, 0)


@called
def _compute(operations: LoggpOperations, state: State, k: int, now: int) -> None:
    processor = operations.processor[k]
    if state.free[processor] > now:
        _put(state, k, state.free[processor])
        return
    time = operations.size[k] * 1000
    state.free[processor] = now + time
    state.busy[operations.rank[k], _COMPUTE] += time
    _has_started(operations, state, k, now)
    _has_ended(operations, state, k, now + time)


@called
def _send(operations: LoggpOperations, costs: Costs, state: State, k: int, now: int) -> None:
    processor, rank = operations.processor[k], operations.rank[k]
    port = rank * costs.interfaces + operations.interface[k]
    possible = max(state.free[processor], state.sends[port])
    if possible > now:
        _put(state, k, possible)
        return
    beyond = _beyond_first(operations.size[k])
    time = costs.overhead + beyond * costs.overhead_per_byte
    state.free[processor] = now + time
    state.sends[port] = now + costs.gap + beyond * costs.gap_per_byte
    state.busy[rank, _SEND] += time
    _has_started(operations, state, k, now)
    _put_new(state, operations.rank.size + k, now + costs.overhead + costs.latency)
    if operations.size[k] <= costs.eager_limit:
        _has_ended(operations, state, k, now + time)


@called
def _end_rendezvous(
    operations: LoggpOperations, costs: Costs, state: State, send: int, now: int
) -> None:
    """End a send that waited for its receive, and let its sender go on from now."""
    processor = operations.processor[send]
    port = operations.rank[send] * costs.interfaces + operations.interface[send]
    state.free[processor] = max(state.free[processor], now)
    state.sends[port] = max(state.sends[port], now)
    _has_ended(operations, state, send, now)


@called
def _receive(operations: LoggpOperations, costs: Costs, state: State, k: int, now: int) -> None:
    """Take a message that has arrived, or wait for it."""
    rank = operations.rank[k]
    _has_started(operations, state, k, now)
    before, send = -1, state.arrived[rank, 0]
    while send >= 0 and not _fits(operations, k, send):
        before, send = send, state.next[send]
    if send < 0:
        _append(state.posted, state.next, rank, k)
        return
    _remove(state.arrived, state.next, rank, before, send)
    _has_ended(operations, state, k, now)
    if operations.size[send] > costs.eager_limit:
        _end_rendezvous(operations, costs, state, send, now)


@called
def _arrive(operations: LoggpOperations, costs: Costs, state: State, send: int, now: int) -> None:
    """Let the receiver's processor and interface take a message."""
    rank = operations.peer[send]
    # of the numbers that the sender states
    processor = rank * costs.cpus + operations.cpu[send]
    port = rank * costs.interfaces + operations.interface[send]
    possible = max(state.free[processor], state.receives[port])
    if possible > now:
        _put(state, operations.rank.size + send, possible)
        return
    size = operations.size[send]
    beyond = _beyond_first(size)
    time = costs.overhead + beyond * max(costs.overhead_per_byte, costs.gap_per_byte)
    state.free[processor] = now + time
    state.receives[port] = now + costs.gap + beyond * costs.gap_per_byte
    state.busy[rank, _RECEIVE] += time
    before, receive = -1, state.posted[rank, 0]
    while receive >= 0 and not _fits(operations, receive, send):
        before, receive = receive, state.next[receive]
    if receive < 0:
        _append(state.arrived, state.next, rank, send)
        return
    _remove(state.posted, state.next, rank, before, receive)
    if size > costs.eager_limit:
        _end_rendezvous(operations, costs, state, send, now)
    _has_ended(operations, state, receive, now + time)


@kernel
def run_messages(operations: LoggpOperations, costs: Costs, state: State) -> int:
    """Run a program until nothing is left to do; returns how many operations have ended."""
    size = operations.rank.size
    for k in range(size):
        if state.waits[k] == 0:
            state.fresh[state.counts[_FRESH]] = k
            state.counts[_FRESH] += 1
    _queue_fresh(operations, costs, state)
    while state.counts[_QUEUED] > 0:
        event = _take(state)
        now = state.time[event]
        if event >= size:
            _arrive(operations, costs, state, event - size, now)
        elif operations.action[event] == _SEND:
            _send(operations, costs, state, event, now)
        elif operations.action[event] == _RECEIVE:
            _receive(operations, costs, state, event, now)
        else:
            _compute(operations, state, event, now)
        if state.counts[_FRESH] > 0:
            _queue_fresh(operations, costs, state)
    return int(state.counts[_ENDED])
