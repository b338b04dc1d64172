"""What a replay does: calls whose tensors are places, and views that no call made.

Each place is written once. A tensor of the trace gets a new one with each call that gives it, so
an id that a recorder reuses does not join what is not the same. Memory is shared as recorded: a
tensor that no call made is a view of what lies in its storage, or, if nothing does, a tensor that
was there before (an external one). So is memory that a call made without values and another one
reads: the program wrote it without an operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nadi.pytorch.rerunning.recorded_calls import (
    COMMUNICATION,
    RecordedCall,
    ReplayPlace,
    TensorArgument,
    places_in,
    tensors_in,
)
from nadi.pytorch.rerunning.tensor_contents import INDEX_TYPES, TensorContents

_View = tuple[ReplayPlace, ReplayPlace]  # a tensor that begins as a view of the memory of another


class External(NamedTuple):
    """A tensor that is there before the replay begins.

    ``num_bytes`` is the size of its memory. ``bound`` is what its elements stay below: indices, as
    operators say that take them, or numbers of both signs, which are above its negative, too. Else
    it is 0.
    """

    place: ReplayPlace
    num_bytes: int
    bound: float


class PlannedCall(NamedTuple):
    """A call whose tensors are places."""

    call: RecordedCall  # as recorded
    inputs: tuple[Any, ...]  # as in the call, with a ``ReplayPlace`` for each tensor
    views: tuple[_View, ...]  # what has to be made of other tensors before
    # communication, by the number of its call, that has to end before, as it works on the same
    # memory
    awaited: tuple[int, ...]
    outputs: tuple[Any, ...]  # for each output of the call a place, None, or a list of them
    ended: tuple[int, ...]  # places that nobody uses after it

    @property
    def num_view_operators(self) -> int:
        """How many operators make its views: two for one of another type of elements."""
        return sum(1 + (place.recorded.dtype != base.recorded.dtype) for place, base in self.views)


class ReplayPlan(NamedTuple):
    """Calls in their order, the tensors that are there before, and how many places there are."""

    calls: tuple[PlannedCall, ...]
    externals: tuple[External, ...]
    num_places: int

    @property
    def external_bytes(self) -> int:
        """Bytes of the tensors that are there before."""
        return sum(one.num_bytes for one in self.externals)


def plan_replay(calls: Iterable[RecordedCall]) -> ReplayPlan:
    """Give every tensor of some calls its place. O(arguments)."""
    plan = _Plan()
    planned = [plan.add(call) for call in calls]
    return ReplayPlan(tuple(plan.with_ends(planned)), tuple(plan.externals()), plan.num_places)


class _Plan:
    def __init__(self) -> None:
        self.num_places = 0
        self._of_tensor: dict[int, ReplayPlace] = {}
        self._in_storage: dict[tuple[int, str], ReplayPlace] = {}
        self._base: dict[int, int] = {}  # the place that first lay in the storage of each place
        self._external: dict[int, ReplayPlace] = {}
        self._size: dict[int, int] = {}  # bytes of the storage of an external place
        self._made: dict[int, int] = {}  # bytes of the storage of a place that a call made
        self._place: dict[int, ReplayPlace] = {}  # that first lay in memory which a call made
        self._contents = TensorContents(self._base)
        self._last: dict[int, int] = {}  # the call that last uses each place
        self._views: list[_View] = []
        self._awaited: list[int] = []
        self._under_way: dict[int, int] = {}  # communication on the memory of a place
        self._num_calls = 0

    def add(self, call: RecordedCall) -> PlannedCall:
        self._views, self._awaited = [], []
        inputs = tuple(self._input(one) for one in call.inputs)
        for base in self._contents.read_blank(call, inputs):
            self._external[base] = self._place[base]
            self._size[base] = self._made.pop(base)
        given = frozenset((one.storage, one.device) for one in tensors_in(call.inputs))
        is_communication = call.name.startswith(COMMUNICATION)  # which gives what it was given
        outputs = (
            () if is_communication else (tuple(self._output(one, given) for one in call.outputs))
        )
        self._contents.note_outputs(call, inputs, outputs)
        if is_communication:
            for place in places_in(list(inputs)):
                self._under_way[self._base[place.number]] = self._num_calls
        self._num_calls += 1
        awaited = tuple(sorted(set(self._awaited)))
        return PlannedCall(call, inputs, tuple(self._views), awaited, outputs, ())

    def with_ends(self, planned: Sequence[PlannedCall]) -> Iterable[PlannedCall]:
        """Yield the calls with the places that end after each."""
        ended: list[list[int]] = [[] for _ in planned]
        for number, last in self._last.items():
            if number not in self._external:
                ended[last].append(number)
        for one, numbers in zip(planned, ended, strict=True):
            yield one._replace(ended=tuple(numbers), outputs=self._made_by_call(one.outputs))

    def _made_by_call(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Leave out what is there before instead, as no call of the replay gives its values."""
        return tuple(
            None if isinstance(one, ReplayPlace) and one.number in self._external else one
            for one in outputs
        )

    def externals(self) -> Iterable[External]:
        bounds = self._contents.bounds()
        for number, place in self._external.items():
            is_index = place.recorded.dtype in INDEX_TYPES
            bound = bounds.get(number, 0) if is_index else 0
            numbers = self._contents.number_range(number, place.recorded.shape)
            yield External(place, self._size[number], bound or numbers)

    def _input(self, one: Any) -> Any:
        if isinstance(one, list):
            return [self._input(inner) for inner in one]
        if not isinstance(one, TensorArgument):
            return one
        known = self._of_tensor.get(one.tensor)
        if known is None or known.recorded[1:] != one[1:]:
            known = self._place_of_memory(one)
        self._use(known.number, one)
        return known

    def _place_of_memory(self, one: TensorArgument) -> ReplayPlace:
        """Give a new place to a tensor that no call gave as it is."""
        place = self._new_place(one)
        key = (one.storage, one.device)
        inside = self._in_storage.get(key)
        is_number = inside is not None and not one.shape and one.dtype != inside.recorded.dtype
        if inside is None or is_number or not self._has_room(inside, one):
            self._external[place.number] = place
            self._size[place.number] = one.end
            self._base[place.number] = place.number
            if not is_number:  # PyTorch makes one of a Python number, in memory that was freed
                self._in_storage[key] = place
        else:
            self._views.append((place, inside))
            self._base[place.number] = self._base[inside.number]
            self._use(inside.number, one)
        return place

    def _output(self, one: Any, given: frozenset[tuple[int, str]]) -> Any:
        if isinstance(one, list):
            return [self._output(inner, given) for inner in one]
        if not isinstance(one, TensorArgument):
            return None
        place = self._new_place(one)
        key = (one.storage, one.device)
        # without an input in that storage it is new memory, whatever had its id before
        inside = self._in_storage[key] if key in given else place
        self._base[place.number] = self._base.get(inside.number, place.number)
        if inside is place:
            self._made[place.number] = one.end
            self._place[place.number] = place
        self._in_storage[key] = place
        self._use(place.number, one)
        return place

    def _has_room(self, inside: ReplayPlace, one: TensorArgument) -> bool:
        """Return whether a tensor fits into the storage that its id means; else it was freed."""
        base = self._base[inside.number]
        return base in self._size or one.end <= self._made[base]

    def _new_place(self, one: TensorArgument) -> ReplayPlace:
        place = ReplayPlace(self.num_places, one)
        self.num_places += 1
        self._of_tensor[one.tensor] = place
        return place

    def _use(self, number: int, one: TensorArgument) -> None:
        self._last[number] = self._num_calls
        base = self._base[number]
        if base in self._under_way:
            self._awaited.append(self._under_way.pop(base))
        if base in self._size:
            self._size[base] = max(self._size[base], one.end)
