"""Requests on their way to instances: arrivals in order of time, and who takes each."""

from __future__ import annotations

from nadi.kernels.jit import called, inner
from nadi.serving.block_kernels import mixed
from nadi.serving.engine_columns import FAR, INSTANCE, REQUEST, SETTING, Engines


@inner
def _is_before(engines: Engines, a: int, b: int) -> bool:
    heap = engines.heap
    if heap[a, 0] != heap[b, 0]:
        return bool(heap[a, 0] < heap[b, 0])
    return bool(heap[a, 1] < heap[b, 1])


@inner
def _swap(engines: Engines, a: int, b: int) -> None:
    for k in range(2):
        engines.heap[a, k], engines.heap[b, k] = engines.heap[b, k], engines.heap[a, k]


@called
def _put(engines: Engines, time: int, request: int) -> None:
    """Have a request arrive at a time."""
    at = engines.settings[SETTING.heap]
    engines.settings[SETTING.heap] = at + 1
    engines.heap[at, 0], engines.heap[at, 1] = time, request
    while at > 0 and _is_before(engines, at, (at - 1) >> 1):
        _swap(engines, at, (at - 1) >> 1)
        at = (at - 1) >> 1


@called
def _take(engines: Engines) -> int:
    """Take the first request out of the heap."""
    left = engines.settings[SETTING.heap] - 1
    engines.settings[SETTING.heap] = left
    _swap(engines, 0, left)
    at = 0
    while True:
        child = 2 * at + 1
        if child >= left:
            break
        if child + 1 < left and _is_before(engines, child + 1, child):
            child += 1
        if not _is_before(engines, child, at):
            break
        _swap(engines, child, at)
        at = child
    return int(engines.heap[left, 1])


@inner
def _next_of_file(engines: Engines) -> int:
    """Return when the next request comes that follows no other."""
    place = engines.settings[SETTING.next_arrival]
    if place == engines.arrivals.size:
        return FAR
    return int(engines.requests[engines.arrivals[place], REQUEST.arrival])


@inner
def next_arrival(engines: Engines) -> int:
    """Return when the next request comes, or FAR."""
    time = _next_of_file(engines)
    return min(time, engines.heap[0, 0]) if engines.settings[SETTING.heap] else time


@called
def _chosen(engines: Engines, request: int, first: int, end: int) -> int:
    """Return which of the instances ``first:end`` takes a request."""
    settings, routing = engines.settings, engines.settings[SETTING.routing]
    if routing == 2:
        return first + mixed(engines.requests[request, REQUEST.stream], 0) % (end - first)
    if routing == 1:
        best = first
        for i in range(first + 1, end):
            if engines.instances[i, INSTANCE.load] < engines.instances[best, INSTANCE.load]:
                best = i
        return best
    turn = SETTING.turn if first == 0 else SETTING.turn_decode
    settings[turn] += 1
    return int(first + (settings[turn] - 1) % (end - first))


@called
def arrive(engines: Engines) -> None:
    """Have the next request come to an instance, which sees it when it is looked at."""
    settings = engines.settings
    time = next_arrival(engines)
    if time == _next_of_file(engines):
        request = engines.arrivals[settings[SETTING.next_arrival]]
        settings[SETTING.next_arrival] += 1
    else:
        request = _take(engines)
    row = engines.requests[request]
    prefills, num_instances = settings[SETTING.prefills], settings[SETTING.instances]
    first, end = 0, num_instances
    if prefills:
        first, end = (prefills, num_instances) if row[REQUEST.moved] else (0, prefills)
    i = _chosen(engines, request, first, end)
    here = engines.instances[i]
    here[INSTANCE.in_system] += here[INSTANCE.load] * (time - here[INSTANCE.seen])
    here[INSTANCE.seen] = time
    here[INSTANCE.load] += 1
    if here[INSTANCE.sleeps]:
        engines.wake[i] = min(engines.wake[i], time)
    if not row[REQUEST.moved]:
        row[REQUEST.queued] = max(time, engines.wake[i])
    row[REQUEST.instance] = i
    row[REQUEST.state] = 0
    row[REQUEST.next] = -1
    if here[INSTANCE.tail] >= 0:
        engines.requests[here[INSTANCE.tail], REQUEST.next] = request
    else:
        here[INSTANCE.head] = request
    here[INSTANCE.tail] = request
    here[INSTANCE.waiting] += 1


@inner
def release_followers(engines: Engines, request: int, time: int) -> None:
    """Have the request come that follows one that is done."""
    follower = engines.requests[request, REQUEST.follower]
    if follower >= 0:
        row = engines.requests[follower]
        row[REQUEST.arrival] = time + row[REQUEST.pause]
        _put(engines, row[REQUEST.arrival], follower)


@inner
def send_on(engines: Engines, request: int, time: int) -> None:
    """Send a request whose prompt was read to those that generate."""
    row = engines.requests[request]
    row[REQUEST.moved] = 1
    engines.instances[row[REQUEST.instance], INSTANCE.lost_tokens] += row[REQUEST.computed]
    row[REQUEST.computed] = 0
    _put(engines, time, request)
