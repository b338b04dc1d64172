"""Which thread makes each call of a replay, and where threads wait for each other.

A call begins after every call that had ended when it began in the recording, on whichever thread,
and after those that gave what it is given. So calls that were one after the other stay so, and
calls at the same time may be at the same time again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from nadi.pytorch.rerunning.recorded_calls import RecordedCalls
from nadi.pytorch.rerunning.replay_places import places_in
from nadi.pytorch.rerunning.replay_plan import PlannedCall, ReplayPlan

__all__ = ["ThreadOrder", "order_threads"]


class ThreadOrder(NamedTuple):
    """Threads of the calls of a plan.

    Attributes
    ----------
    thread
        For each call the number of its thread, from 0: that of the steps, or of the first call.
    handovers
        Numbers of two calls of different threads: the second one waits for the first one. What
        follows from others is left out.
    plan
        The plan; tensors that threads use without an order are kept until the end.
    """

    thread: tuple[int, ...]
    handovers: tuple[tuple[int, int], ...]
    plan: ReplayPlan

    @property
    def num_threads(self) -> int:
        """Number of threads, at least 1."""
        return max(self.thread, default=0) + 1


def order_threads(
    recorded: RecordedCalls, plan: ReplayPlan, step_ends: Sequence[int] = (), *, first: int = -1
) -> ThreadOrder:
    """Find where the threads of a plan wait for each other. O(calls x threads + arguments).

    Parameters
    ----------
    recorded
        The calls of the trace. Of calls without times each begins after all before it.
    plan
        Calls in their recorded order.
    step_ends
        After how many calls each step but the last one ends. All threads meet there.
    first
        Recorded number of the thread that becomes the first one; -1 for that of the first call.
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
