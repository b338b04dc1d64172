"""Which thread makes each call of a replay, and where threads wait for each other.

A call begins after every call that had ended when it began in the recording, on whichever thread,
and after those that gave what it is given. So calls that were one after the other stay so, and
calls at the same time may be at the same time again.

Which stream of a GPU each call of a replay runs on, and where streams wait for each other.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nadi.pytorch.rerunning.recorded_calls import (
    COMMUNICATION,
    RecordedCalls,
    places_in,
    tensors_in,
)
from nadi.pytorch.rerunning.replay_plan import PlannedCall, ReplayPlan
from nadi.trace.trace import Trace


class ThreadOrder(NamedTuple):
    """Threads of the calls of a plan."""

    # for each call the number of its thread, from 0: that of the steps, or of the first call
    thread: tuple[int, ...]
    # numbers of two calls of different threads: the second one waits for the first one. What
    # follows from others is left out.
    handovers: tuple[tuple[int, int], ...]
    plan: ReplayPlan  # the plan; tensors that threads use without an order are kept until the end

    @property
    def num_threads(self) -> int:
        """Number of threads, at least 1."""
        return max(self.thread, default=0) + 1


def order_threads(
    recorded: RecordedCalls, plan: ReplayPlan, step_ends: Sequence[int] = (), *, first: int = -1
) -> ThreadOrder:
    """Find where the threads of a plan wait for each other. O(calls x threads + arguments).

    - ``recorded``: The calls of the trace. Of calls without times each begins after all before it.
    - ``plan``: Calls in their recorded order.
    - ``step_ends``: After how many calls each step but the last one ends. All threads meet there.
    - ``first``: Recorded number of the thread that becomes the first one; -1 for that of the first
      call.
    """
    numbers = [one.call.thread for one in plan.calls]
    first_ones = [first] if first in numbers else []
    place = {number: k for k, number in enumerate(dict.fromkeys(first_ones + numbers))}
    thread = tuple(place[number] for number in numbers)
    if len(place) <= 1:
        return ThreadOrder(thread, (), plan)
    known = _Known(len(place))
    starts = {0, *step_ends}
    handovers: list[tuple[int, int]] = []
    calls = []
    uses = _Uses(plan.calls)
    for number, planned in enumerate(plan.calls):
        if number in starts:
            known.meet()
        begin, end = recorded.span(planned.call.row)
        mine = thread[number]
        wanted = {*known.ended_by(begin, mine), *uses.given_by(number, planned)}
        latest_first = sorted(wanted, reverse=True)
        handovers += [(one, number) for one in latest_first if known.learn(mine, one)]
        known.add(mine, number, begin, end)
        ended = tuple(
            one for one in planned.ended if all(known.has(mine, use) for use in uses.of(one))
        )
        calls.append(planned._replace(ended=ended))
    return ThreadOrder(thread, tuple(handovers), plan._replace(calls=tuple(calls)))


class _Known:
    """Which calls have surely ended, as each thread knows it: clocks of vectors.

    ``_clock[a][b]`` is the number of calls of thread b that thread a knows to have ended.
    """

    def __init__(self, num_threads: int) -> None:
        self._calls: list[list[int]] = [[] for _ in range(num_threads)]
        self._ends: list[list[int]] = [[] for _ in range(num_threads)]
        self._clock = [[0] * num_threads for _ in range(num_threads)]
        self._after: list[tuple[int, int, tuple[int, ...]]] = []  # thread, place in it, clock

    def meet(self) -> None:
        counts = [len(calls) for calls in self._calls]
        self._clock = [list(counts) for _ in self._clock]

    def ended_by(self, time: int, thread: int) -> Iterator[int]:
        """Yield the last call of each other thread that had ended by a time; -1 for now."""
        for other, ends in enumerate(self._ends):
            count = len(ends) if time < 0 else bisect_right(ends, time)
            if other != thread and count:
                yield self._calls[other][count - 1]

    def has(self, thread: int, call: int) -> bool:
        of, place, _ = self._after[call]
        return self._clock[thread][of] > place

    def learn(self, thread: int, call: int) -> bool:
        """Let a thread wait for a call; False if it knows already that it has ended."""
        if self.has(thread, call):
            return False
        mine, other = self._clock[thread], self._after[call][2]
        self._clock[thread] = [max(a, b) for a, b in zip(mine, other, strict=True)]
        return True

    def add(self, thread: int, number: int, begin: int, end: int) -> None:
        self._clock[thread][thread] = len(self._calls[thread]) + 1
        self._after.append((thread, len(self._calls[thread]), tuple(self._clock[thread])))
        assert len(self._after) == number + 1
        self._calls[thread].append(number)
        last = self._ends[thread][-1] if self._ends[thread] else -1
        self._ends[thread].append(max(last, end) if begin >= 0 else last)


class _Uses:
    """Which calls made, and which use, each place."""

    def __init__(self, calls: Sequence[PlannedCall]) -> None:
        self._made_by: dict[int, int] = {}
        self._used_by: dict[int, list[int]] = {}
        for number, planned in enumerate(calls):
            for place in places_in([one for one, _ in planned.views]):
                self._made_by[place.number] = number
            for place in places_in(planned.outputs):
                self._made_by[place.number] = number
                self._used_by.setdefault(place.number, []).append(number)
            for used in _used(planned):
                self._used_by.setdefault(used, []).append(number)

    def given_by(self, number: int, planned: PlannedCall) -> Iterator[int]:
        """Yield the earlier calls without which a call cannot be made."""
        yield from planned.awaited
        for used in _used(planned):
            maker = self._made_by.get(used, number)
            if maker < number:
                yield maker

    def of(self, place: int) -> list[int]:
        return self._used_by.get(place, [])


def _used(planned: PlannedCall) -> Iterator[int]:
    given: list[Any] = [*planned.inputs, *(base for _, base in planned.views)]
    for place in places_in(given):
        yield place.number


class CallStream(NamedTuple):
    """Where a call runs."""

    stream: int  # number of its stream, from 0, the one of most calls
    awaited: tuple[int, ...]  # streams whose work so far ends before: they used the same memory
    # places of its inputs that another stream made; their memory is in use here, too
    shared: tuple[int, ...]


def recorded_streams(trace: Trace) -> Mapping[int, int]:
    """Return the stream of the device work below each node, by its row; the first if of several.

    Of a host trace that is linked with its device trace; empty without one. O(launches x depth).
    """
    parent = trace.nodes["parent"].to_list()
    stream = trace.nodes["stream"].to_list()
    launches = trace.deps.filter(trace.deps["kind"] == "launch").select("src", "dst")
    found: dict[int, int] = {}
    for launch, work in launches.iter_rows():
        row = launch
        while row >= 0 and stream[work] >= 0:
            found.setdefault(row, stream[work])
            row = parent[row]
    return found


def order_streams(calls: Sequence[PlannedCall], of_row: Mapping[int, int]) -> list[CallStream]:
    """Give calls their streams. O(arguments).

    Calls without device work, and communication, which has streams of its own, run on the first
    stream. A storage orders the streams that use it, whether they read or write.
    """
    recorded = [
        -1 if one.call.name.startswith(COMMUNICATION) else of_row.get(one.call.row, -1)
        for one in calls
    ]
    known = Counter(one for one in recorded if one >= 0).most_common()
    number = {stream: k for k, (stream, _) in enumerate(known)} | {-1: 0}
    order = _Order()
    return [
        order.add(planned, number[stream]) for planned, stream in zip(calls, recorded, strict=True)
    ]


class _Order:
    def __init__(self) -> None:
        self._last: dict[tuple[int, str], dict[int, int]] = {}  # of a storage: call by stream
        self._waited: dict[tuple[int, int], int] = {}  # by two streams: the call up to which
        self._made_on: dict[int, int] = {}  # stream of each place
        self._count = 0

    def add(self, planned: PlannedCall, stream: int) -> CallStream:
        self._count += 1
        awaited = set()
        for storage in _storages(planned):
            users = self._last.setdefault(storage, {})
            awaited |= {
                other for other, call in users.items()
                if other != stream and call > self._waited.get((stream, other), 0)
            }  # fmt: skip
            users[stream] = self._count
        for other in awaited:
            self._waited[stream, other] = self._count - 1
        bases = (base for _, base in planned.views)
        used = {place.number for place in places_in([*planned.inputs, *bases])}
        shared = {one for one in used if self._made_on.get(one, stream) != stream}
        for made in places_in([*planned.outputs, *(place for place, _ in planned.views)]):
            self._made_on[made.number] = stream
        return CallStream(stream, tuple(sorted(awaited)), tuple(sorted(shared)))


def _storages(planned: PlannedCall) -> Iterator[tuple[int, str]]:
    for one in tensors_in((planned.call.inputs, planned.call.outputs)):
        yield one.storage, one.device
