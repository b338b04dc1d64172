"""What is in the memory of tensors: which numbers indices are below, and what nobody wrote.

Memory is known by the place that first lay in it (its base), so views have what their base has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod, sqrt
from typing import Any

from nadi.pytorch.fake.operation_log import CALLS
from nadi.pytorch.rerunning.recorded_calls import (
    COMMUNICATION,
    RecordedCall,
    ReplayPlace,
    places_in,
    tensors_in,
)

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
