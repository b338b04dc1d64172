"""What a replay does: calls whose tensors are places, and views that no call made.

Each place is written once. A tensor of the trace gets a new one with each call that gives it, so
an id that a recorder reuses does not join what is not the same. Memory is shared as recorded: a
tensor that no call made is a view of what lies in its storage, or, if nothing does, a tensor that
was there before (an external one). So is memory that a call made without values and another one
reads: the program wrote it without an operator.

What is in memory (which numbers indices are below, and what nobody wrote) is known by the place
that first lay in it (its base), so views have what their base has.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod, sqrt
from typing import Any, NamedTuple

from nadi.pytorch.fake.operation_log import CALLS
from nadi.pytorch.rerunning.recorded_calls import (
    COMMUNICATION,
    RecordedCall,
    ReplayPlace,
    TensorArgument,
    places_in,
    tensors_in,
)

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


INDEX_TYPES = ("int", "long int", "long", "long long")

# operators that take indices: positions of the tensor of indices and of the one that they index,
# and the dimension of it that bounds them (a number), or the input that states the dimension
_INDEXED = {
    "aten::embedding": (1, 0, 0),
    "aten::embedding_backward": (1, -1, 2),
    "aten::embedding_dense_backward": (1, -1, 2),
    "aten::_embedding_bag": (1, 0, 0),
    "aten::embedding_bag": (1, 0, 0),
    "aten::nll_loss_forward": (1, 0, -1),
    "aten::nll_loss_backward": (2, 1, -1),
    "aten::nll_loss": (1, 0, -1),
    "aten::nll_loss_nd": (1, 0, -1),
    "aten::cross_entropy_loss": (1, 0, -1),
}
_ALONG = {"aten::index_select": (2, 1), "aten::gather": (2, 1), "aten::scatter": (2, 1)}
_PRODUCTS = re.compile(
    r"aten::(add|badd)?b?(mm|matmul)$|aten::(linear|conv\w*|_?embedding(_bag)?|\w*attention\w*)$"
)
_SHIFTS = ("bias", "running_mean")
# they give memory that has no values yet
_BLANK = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::empty_permuted",
    "aten::new_empty", "aten::new_empty_strided",
}  # fmt: skip
# they write all of their first argument, whatever was in it
_OVERWRITES = {
    "aten::copy_", "aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_",
    "aten::random_", "aten::bernoulli_", "aten::exponential_", "aten::geometric_",
    "aten::cauchy_", "aten::log_normal_", "aten::_foreach_copy_",
    "aten::_foreach_zero_",
}  # fmt: skip
# they change where memory is or how large it is, not what is in it
_LEAVE = {"aten::set_", "aten::resize_", "aten::resize_as_", "aten::record_stream"}
# what they give or write has the values of what they take
SAME_VALUES = {
    "aten::to", "aten::_to_copy", "aten::clone", "aten::contiguous", "aten::copy_", "aten::lift",
    "aten::lift_fresh", "aten::cat", "aten::stack", "aten::index_select", "aten::reshape",
    "aten::flatten", "aten::repeat", "aten::pin_memory", "aten::index", "aten::gather",
    "aten::flip", "aten::roll", "aten::repeat_interleave", "aten::masked_select", "aten::cuda",
    "aten::long", "aten::int", "aten::type_as",
}  # fmt: skip


class TensorContents:
    """Notes what calls say of the memory that they take, in the order of the calls.

    Parameters
    ----------
    base
        For each place that of its memory; it grows while calls are noted.
    """

    def __init__(self, base: Mapping[int, int]) -> None:
        self._base = base
        self._bound: dict[int, int] = {}
        self._sources: dict[int, set[int]] = {}  # memory that each has its values from
        self._factors: set[int] = set()  # of products
        self._shifts: set[int] = set()  # what is added to sums
        self._blank: set[int] = set()  # what calls made, and nobody has written

    def read_blank(self, call: RecordedCall, inputs: Sequence[Any]) -> list[int]:
        """Note what a call takes; return the memory it reads that no call has written.

        The program put values there without an operator, as ``torch.tensor`` does.
        """
        for number, bound in _index_bounds(call.name, inputs):
            base = self._base[number]
            self._bound[base] = min(self._bound.get(base, bound), bound)
        self._note_signs(call, inputs)
        found = []
        for place, is_written in self._touched(call, inputs):
            base = self._base[place.number]
            if base in self._blank:
                self._blank.discard(base)
                if not is_written:
                    found.append(base)
        return found

    def note_outputs(
        self, call: RecordedCall, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        """Note what a call gives."""
        given = [self._base[place.number] for place in places_in(outputs)]
        taken = [place for place in places_in(inputs) if place.recorded.dtype in INDEX_TYPES]
        if call.name in _BLANK:
            self._blank.update(given)
        if call.name in SAME_VALUES:
            for base in given:
                others = {self._base[place.number] for place in taken} - {base}
                self._sources.setdefault(base, set()).update(others)

    def bounds(self) -> dict[int, int]:
        """Return what indices in memory are below, also where others have their values from it."""
        found: dict[int, int] = {}
        for base, bound in self._bound.items():
            waiting, seen = [base], {base}
            while waiting:
                one = waiting.pop()
                found[one] = min(found.get(one, bound), bound)
                new = self._sources.get(one, set()) - seen
                seen |= new
                waiting += new
        return found

    def number_range(self, number: int, shape: tuple[int, ...]) -> float:
        """Return what the elements of a tensor lie below and above the negative of; 0 if above 0.

        Products then neither grow nor vanish from layer to layer: sums have a variance of 1.
        """
        if number in self._factors and len(shape) > 1:
            return round(sqrt(3 / max(prod(shape[1:]), 1)), 4)
        return 0.1 if number in self._shifts else 0

    def _note_signs(self, call: RecordedCall, inputs: Sequence[Any]) -> None:
        """Note what has elements of both signs, as in programs: else no ReLU would cut any."""
        if _PRODUCTS.match(call.name):
            self._factors |= {self._base[place.number] for place in places_in(inputs)}
        parameters = call.signature.parameters if call.signature else ()
        for name, value in zip(parameters, inputs, strict=False):
            if name in _SHIFTS and isinstance(value, ReplayPlace):
                self._shifts.add(self._base[value.number])

    def _touched(
        self, call: RecordedCall, inputs: Sequence[Any]
    ) -> Iterator[tuple[ReplayPlace, bool]]:
        """Yield the places whose memory a call reads, or writes without having read it.

        What only views memory does neither.
        """
        if call.name in _LEAVE:
            return
        written = _overwritten(call)
        viewed = {(one.storage, one.device) for one in tensors_in(call.outputs)}
        changed = call.signature.changed if call.signature else ()
        for position, value in enumerate(inputs):
            for place in places_in([value]):
                memory = place.recorded.storage, place.recorded.device
                if position in written:
                    yield place, True
                elif position in changed or memory not in viewed:
                    yield place, False


def _overwritten(call: RecordedCall) -> Iterable[int]:
    """Return the positions of arguments that a call writes without having read them."""
    if call.name.startswith(COMMUNICATION):
        known = CALLS.get(call.name)
        return [] if known is None or known.reads == known.writes else [known.writes]
    signature = call.signature
    if signature is None:
        return []
    if call.name in _OVERWRITES:
        return signature.changed
    return [position for position in signature.changed if position >= signature.by_position]


def _index_bounds(name: str, inputs: Sequence[Any]) -> Iterable[tuple[int, int]]:
    """Yield the places of indices, and what they stay below."""
    if name in _INDEXED:
        at, indexed, dimension = _INDEXED[name]
        index = inputs[at] if at < len(inputs) else None
        if not isinstance(index, ReplayPlace):
            return
        if indexed < 0:  # a number says how many rows there are
            rows = inputs[dimension] if dimension < len(inputs) else None
            if type(rows) is int:
                yield index.number, rows
            return
        whole = inputs[indexed]
        if isinstance(whole, ReplayPlace) and whole.recorded.shape:
            classes = 1 if len(whole.recorded.shape) > 1 else 0
            yield index.number, whole.recorded.shape[classes if dimension < 0 else dimension]
    elif name in _ALONG and len(inputs) > max(_ALONG[name]):
        at, along = _ALONG[name]
        whole, dimension, index = inputs[0], inputs[along], inputs[at]
        if not isinstance(whole, ReplayPlace) or not isinstance(index, ReplayPlace):
            return
        shape = whole.recorded.shape
        if type(dimension) is int and -len(shape) <= dimension < len(shape):
            yield index.number, shape[dimension]
