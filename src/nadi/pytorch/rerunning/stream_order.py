"""Which stream of a GPU each call of a replay runs on, and where streams wait for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nadi.pytorch.rerunning.recorded_calls import COMMUNICATION, tensors_in
from nadi.pytorch.rerunning.replay_places import places_in
from nadi.pytorch.rerunning.replay_plan import PlannedCall
from nadi.trace.trace import Trace

__all__ = ["CallStream", "order_streams", "recorded_streams"]


class CallStream(NamedTuple):
    """Where a call runs.

    Attributes
    ----------
    stream
        Number of its stream, from 0, the one of most calls.
    awaited
        Streams whose work so far ends before: they used the same memory.
    shared
        Places of its inputs that another stream made; their memory is in use here, too.
    """

    stream: int
    awaited: tuple[int, ...]
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
