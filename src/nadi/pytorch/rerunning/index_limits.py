"""What the indices in a replay stay below, as far as the calls that make them say.

A trace states which tensors share memory, and may be wrong. So tensors are taken to share it
where the operators of this PyTorch say so, or give a tensor of the type of one that they take. What
is written to memory at any time counts at every time, since a replay runs again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from nadi.pytorch.rerunning.argument_rules import find_operator
from nadi.pytorch.rerunning.recorded_calls import COMMUNICATION
from nadi.pytorch.rerunning.replay_places import ReplayPlace, places_in
from nadi.pytorch.rerunning.replay_plan import PlannedCall, ReplayPlan
from nadi.pytorch.rerunning.safe_operators import SAFE_OPERATORS
from nadi.pytorch.rerunning.tensor_contents import INDEX_TYPES, SAME_VALUES

_UNKNOWN = 2**63
_NARROW = 2**31  # numbers from here on are others, or negative, where indices have 32 bits


class _Written(NamedTuple):
    """What is written to memory: numbers from 0 to below a limit, or those of other memory."""

    limit: int
    sources: tuple[int, ...] = ()
    call: PlannedCall | None = None


class IndexLimits:
    """Limits of all indices of a plan. O(arguments)."""

    def __init__(self, plan: ReplayPlan) -> None:
        self._memory: dict[int, int] = {}  # of each place, towards the first of those that share it
        self._written: dict[int, list[_Written]] = {}  # by place
        for one in plan.externals:
            is_index = one.place.recorded.dtype in INDEX_TYPES
            self._write(one.place, _Written(max(int(one.bound), 1) if is_index else _UNKNOWN))
        for planned in plan.calls:
            for place, base in planned.views:
                self._share(place, base)
            self._note(planned)
        self._of_memory: dict[int, list[_Written]] = {}
        for number, written in self._written.items():
            self._of_memory.setdefault(self._first(number), []).extend(written)

    def below(self, place: ReplayPlace, limit: int) -> bool:
        """Return whether all elements of a tensor are known to be from 0 to below a limit."""
        if place.recorded.dtype not in INDEX_TYPES:
            return False
        waiting, seen = [self._first(place.number)], set()
        while waiting:
            memory = waiting.pop()
            if memory in seen:
                continue
            seen.add(memory)
            written = self._of_memory.get(memory, [])
            if not written or any(one.limit > limit for one in written):
                return False
            waiting += [self._first(source) for one in written for source in one.sources]
        return True

    def is_ordered(self, place: ReplayPlace) -> bool:
        """Return whether the elements of a tensor are known to be in ascending order."""
        written = self._of_memory.get(self._first(place.number), [])
        if len(written) != 1 or place.recorded.strides not in ((1,), ()):
            return False
        call = written[0].call
        return call.call.name == "aten::arange" if call else written[0].limit == 1

    def maker(self, place: ReplayPlace, output: int) -> PlannedCall | None:
        """Return the call whose output a tensor is, if nobody else writes to it."""
        written = self._of_memory.get(self._first(place.number), [])
        call = written[0].call if len(written) == 1 else None
        if call is None or output >= len(call.outputs):
            return None
        return call if call.outputs[output] == place else None

    def _note(self, planned: PlannedCall) -> None:
        """Note what a call shares and writes."""
        taken, given = list(places_in(planned.inputs)), list(places_in(planned.outputs))
        name = planned.call.name
        signature = planned.call.signature
        operator = find_operator(signature) if signature else None
        if name.startswith(COMMUNICATION) or name not in SAFE_OPERATORS or operator is None:
            for place in (*taken, *given):
                self._write(place, _Written(_UNKNOWN))
            return
        changed, viewed = _schema_sets(operator, planned)
        written = _what_is_written(planned)
        for place in changed if name != "aten::detach_" else ():  # which writes no elements
            self._write(place, written)
        first: dict[str, ReplayPlace] = {}
        for place in given:
            dtype = place.recorded.dtype
            if dtype not in first:
                first[dtype] = place
                if place.number not in viewed and not changed:
                    self._write(place, written)
            self._share(place, first[dtype])
            sources = viewed.get(place.number, ())
            if name not in _NEW:
                sources = (*sources, *(one for one in taken if one.recorded.dtype == dtype))
            for source in sources:
                self._share(place, source)

    def _write(self, place: ReplayPlace, written: _Written) -> None:
        self._written.setdefault(place.number, []).append(written)

    def _share(self, one: ReplayPlace, other: ReplayPlace) -> None:
        first, second = self._first(one.number), self._first(other.number)
        if first != second:
            self._memory[first] = second

    def _first(self, number: int) -> int:
        while (found := self._memory.get(number, number)) != number:
            above = self._memory.get(found, found)
            self._memory[number] = above  # the way is half as long next time
            number = found
        return number


def _schema_sets(
    operator: Any, planned: PlannedCall
) -> tuple[list[ReplayPlace], dict[int, list[ReplayPlace]]]:
    """Return the places that an operator changes, and what each output that is a view views."""
    schema = operator._schema
    signature = planned.call.signature
    assert signature is not None
    given = dict(zip(signature.parameters, planned.inputs, strict=False))
    changed: list[ReplayPlace] = []
    of_set: dict[str, list[ReplayPlace]] = {}
    for argument in schema.arguments:
        info = argument.alias_info
        if info is None or argument.name not in given:
            continue
        inside = list(places_in([given[argument.name]]))
        if info.is_write:
            changed += inside
        for name in info.before_set:
            of_set.setdefault(name, []).extend(inside)
    viewed = {}
    for output, result in zip(planned.outputs, schema.returns, strict=False):
        if result.alias_info is not None:
            sources = [one for name in result.alias_info.before_set for one in of_set.get(name, [])]
            for place in places_in([output]):
                viewed[place.number] = sources or list(places_in(planned.inputs))
    return changed, viewed


def _what_is_written(planned: PlannedCall) -> _Written:
    """Return what a call writes to the indices that it gives or changes."""
    call = planned.call
    signature = call.signature
    given = dict(zip(signature.parameters if signature else (), planned.inputs, strict=False))
    if call.name in SAME_VALUES:
        taken = list(places_in(planned.inputs))
        if all(one.recorded.dtype in INDEX_TYPES for one in taken):
            return _Written(0, tuple(one.number for one in taken), planned)
        return _Written(_UNKNOWN)
    rule = _LIMITS.get(call.name)
    limit = rule(given) if rule else None
    return _Written(_UNKNOWN if limit is None else limit, (), planned)


def _whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and value >= least


def _drawn(given: Mapping[str, Any]) -> int | None:
    low = given.get("low", given.get("from", 0))
    high = given.get("high", given.get("to"))
    return high if _whole(low) and _whole(high, 1) else None


def _counted(given: Mapping[str, Any]) -> int | None:
    start, end, step = given.get("start", 0), given.get("end", -1), given.get("step", 1)
    if not _whole(start) or not _whole(end) or not _whole(step, 1):
        return None
    return max(int(end), 1)


def _filled(given: Mapping[str, Any]) -> int | None:
    value = given.get("fill_value", given.get("value"))
    return int(value) + 1 if _whole(value) else None


def _divided(given: Mapping[str, Any]) -> int | None:
    """Return the limit of a remainder, whose sign is that of the divisor."""
    divisor: Any = given.get("other")
    return divisor if _whole(divisor, 1) and divisor < _NARROW else None


def _clamped(given: Mapping[str, Any]) -> int | None:
    least: Any = given.get("min")
    most: Any = given.get("max")
    if not _whole(least) or not _whole(most) or max(least, most) >= _NARROW:
        return None
    return int(most) + 1  # also if the least is above it: all are the most then


def _chosen(given: Mapping[str, Any]) -> int | None:
    """Return the limit of the places of elements of a tensor, along a dimension if one is given."""
    whole, dim = given.get("self"), given.get("dim", -1 if "k" in given else None)
    if not isinstance(whole, ReplayPlace) or whole.recorded.dtype in INDEX_TYPES:
        return None  # its elements are given, too
    shape = whole.recorded.shape
    if type(dim) is int and -len(shape) <= dim < len(shape):
        return shape[dim]
    return prod(shape)


def _pooled(given: Mapping[str, Any]) -> int | None:
    whole, window = given.get("self"), given.get("kernel_size")
    if not isinstance(whole, ReplayPlace) or not isinstance(window, list):
        return None
    return prod(whole.recorded.shape[-len(window) :])


def _permuted(given: Mapping[str, Any]) -> int | None:
    number = given.get("n")
    return number if _whole(number) else None


def _named(
    rules: Mapping[str, Callable[[Mapping[str, Any]], int | None]],
) -> Iterator[tuple[str, Callable[[Mapping[str, Any]], int | None]]]:
    for names, rule in rules.items():
        for name in names.split():
            yield f"aten::{name}", rule


_LIMITS = dict(_named({
    "randint randint_like random_": _drawn,
    "arange": _counted,
    "full full_like new_full fill_": _filled,
    "zeros zeros_like new_zeros zero_": lambda _: 1,
    "ones ones_like new_ones": lambda _: 2,
    "remainder remainder_": _divided,
    "clamp clamp_": _clamped,
    "argmax argmin argsort kthvalue max median min mode sort topk": _chosen,
    "max_pool2d_with_indices max_pool3d_with_indices": _pooled,
    "randperm": _permuted,
    "_embedding_bag embedding_bag": lambda _: _UNKNOWN,
}))  # fmt: skip
# what they give is new memory, whatever types they take
_NEW = {"aten::_embedding_bag", "aten::embedding_bag", "aten::arange", "aten::randint",
        "aten::argmax", "aten::argsort", "aten::sort", "aten::topk", "aten::cat",
        "aten::remainder", "aten::clamp"}  # fmt: skip
