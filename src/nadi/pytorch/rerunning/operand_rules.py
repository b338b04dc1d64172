"""Rules for operands of operators whose kernels do not check them, so that none leaves its memory.

Each place has the recorded shape whenever it is used: the trial sees to that. So shapes are judged
as recorded. Indices are judged by what made them.

A trace states which tensors share memory, and may be wrong. So tensors are taken to share it where
the operators of this PyTorch say so, or give a tensor of the type of one that they take. What is
written to memory at any time counts at every time, since a replay runs again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from nadi.pytorch.rerunning.argument_rules import SAFE_OPERATORS, find_operator
from nadi.pytorch.rerunning.recorded_calls import COMMUNICATION, ReplayPlace, places_in
from nadi.pytorch.rerunning.replay_plan import INDEX_TYPES, SAME_VALUES, PlannedCall, ReplayPlan

_SHAPES = "its operands have shapes that do not belong together"
_INDICES = "its indices may lie outside of what they index"
_SIZE = "its result depends on values"


class _Operands(NamedTuple):
    """The inputs of a call by name, and what is known of indices when it is made."""

    call: PlannedCall
    given: dict[str, Any]
    limits: IndexLimits

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor; None if it is not given."""
        value = self.given.get(name)
        return value.recorded.shape if isinstance(value, ReplayPlace) else None

    def count(self, name: str) -> int:
        """Return the number of elements of a tensor; -1 if it is not given."""
        shape = self.shape(name)
        return -1 if shape is None else prod(shape)

    def have_shape(self, shape: tuple[int, ...] | None, *names: str) -> bool:
        return shape is not None and all(self.shape(name) == shape for name in names)

    def have_count(self, count: int, *names: str) -> bool:
        """Return whether tensors have a number of elements, those that are given."""
        return all(self.count(name) in (-1, count) for name in names)

    def below(self, name: str, limit: int) -> bool:
        """Return whether all indices of a tensor are known to lie below a limit."""
        value = self.given.get(name)
        return isinstance(value, ReplayPlace) and self.limits.below(value, limit)


def refused_operands(plan: ReplayPlan) -> dict[int, str]:
    """Return the rows of the calls that must not be made as planned, with the reason.

    O(arguments).
    """
    limits = IndexLimits(plan)
    found = {}
    for planned in plan.calls:
        signature = planned.call.signature
        names = signature.parameters if signature else ()
        given = dict(zip(names, planned.inputs, strict=False))
        operands = _Operands(planned, given, limits)
        rule = _RULES.get(planned.call.name)
        reason = rule(operands) if rule else ""
        if not reason and _has_mask(planned):
            reason = _SIZE
        if reason:
            found[planned.call.row] = reason
    return found


def _has_mask(planned: PlannedCall) -> bool:
    """Return whether elements are chosen by a mask: how many these are depends on its values."""
    if planned.call.name != "aten::index" or len(planned.inputs) < 2:
        return False
    chosen = planned.inputs[1]
    return isinstance(chosen, list) and any(
        isinstance(one, ReplayPlace) and one.recorded.itemsize == 1 for one in chosen
    )


def _when(right: bool, reason: str = _SHAPES) -> str:
    return "" if right else reason


def _same_as(*names: str) -> Callable[[_Operands], str]:
    """Make a rule: tensors have the shape of the first one."""
    return lambda one: _when(one.have_shape(one.shape(names[0]), *names[1:]))


def _pooled(one: _Operands) -> str:
    grad, whole = one.shape("grad_output"), one.shape("self")
    return _when(grad is not None and whole is not None and len(grad) == len(whole) > 2
                 and grad[:2] == whole[:2]
                 and (one.call.call.name.endswith("3d_backward") or grad[:-2] == whole[:-2])
                 and (len(whole) == 4 or len(whole) == 5))  # fmt: skip


def _fused(*lists: str) -> Callable[[_Operands], str]:
    """Make a rule: lists of tensors that are as long and whose tensors have the same shapes."""

    def rule(one: _Operands) -> str:
        first = one.given.get("self")
        if not isinstance(first, list) or not all(isinstance(each, ReplayPlace) for each in first):
            return _SHAPES
        for name in lists:
            others = one.given.get(name)
            if not isinstance(others, list) or (not others and name in _MAY_BE_EMPTY):
                if isinstance(others, list) and not _needs(one, name):
                    continue
                return _SHAPES
            alike = len(others) == len(first) and all(
                isinstance(other, ReplayPlace) and isinstance(own, ReplayPlace)
                and _fused_shape(name, own) in (other.recorded.shape, (prod(other.recorded.shape),))
                and (name == "state_steps" or other.recorded.dtype == own.recorded.dtype)
                and (name == "state_steps" or other.recorded.strides == own.recorded.strides)
                for own, other in zip(first, others, strict=True)
            )  # fmt: skip
            if not alike:
                return _SHAPES
        return ""

    return rule


_MAY_BE_EMPTY = ("max_exp_avg_sqs", "momentum_buffer_list")


def _fused_shape(name: str, own: ReplayPlace) -> tuple[int, ...]:
    return (1,) if name == "state_steps" else own.recorded.shape


def _needs(one: _Operands, name: str) -> bool:
    """Return whether a list that is empty would be read."""
    if name == "max_exp_avg_sqs":
        return bool(one.given.get("amsgrad"))
    return one.given.get("momentum") != 0


def _batch_norm(one: _Operands) -> str:
    shape = one.shape("input")
    if shape is None or len(shape) < 2:
        return _SHAPES
    return _when(one.have_count(shape[1], "weight", "bias", "running_mean", "running_var"))


def _batch_norm_backward(one: _Operands) -> str:
    shape = one.shape("input")
    if shape is None or len(shape) < 2 or one.shape("grad_out") != shape:
        return _SHAPES
    per_channel = ("weight", "running_mean", "running_var", "save_mean", "save_invstd")
    needed = ("save_mean", "save_invstd") if one.given.get("train") else (
        "running_mean", "running_var")  # fmt: skip
    return _when(
        one.have_count(shape[1], *per_channel)
        and all(one.count(name) == shape[1] for name in needed)
    )


def _layer_norm_backward(one: _Operands) -> str:
    shape, normalized = one.shape("input"), one.given.get("normalized_shape")
    if shape is None or not isinstance(normalized, list) or len(normalized) > len(shape):
        return _SHAPES
    rows, size = prod(shape[: len(shape) - len(normalized)]), prod(normalized)
    return _when(
        tuple(normalized) == shape[len(shape) - len(normalized) :]
        and one.have_shape(shape, "grad_out") and one.count("mean") == one.count("rstd") == rows
        and one.have_count(size, "weight", "bias")
    )  # fmt: skip


def _loss_backward(one: _Operands) -> str:
    shape, target = one.shape("self"), one.shape("target")
    if shape is None or target is None or not 1 <= len(shape) <= 4:
        return _SHAPES
    classes = shape[0] if len(shape) == 1 else shape[1]
    if target != ((1,) if len(shape) == 1 else (*shape[:1], *shape[2:])) and (target or shape[1:]):
        return _SHAPES
    whole = one.given.get("reduction") == 0
    if one.count("grad_output") != (prod(target) if whole else 1) or one.count("total_weight") != 1:
        return _SHAPES
    if not one.have_count(classes, "weight"):
        return _SHAPES
    return _when(one.below("target", classes), _INDICES)


def _embedding_backward(one: _Operands) -> str:
    number, grad = one.given.get("num_weights"), one.shape("grad_output") or one.shape("grad")
    indices = one.shape("indices")
    if not isinstance(number, int) or grad is None or indices is None:
        return _SHAPES
    if grad[: len(indices)] != indices or len(grad) != len(indices) + 1:
        return _SHAPES
    if one.given.get("sparse"):
        return "it gives a sparse tensor"
    return _when(one.below("indices", number), _INDICES)


def _pool_backward(one: _Operands) -> str:
    indices = one.given.get("indices")
    maker = one.limits.maker(indices, output=1) if isinstance(indices, ReplayPlace) else None
    forward = one.call.call.name.removesuffix("_backward")
    if maker is None or maker.call.name != forward or not isinstance(maker.inputs[0], ReplayPlace):
        return _INDICES
    same_input = maker.inputs[0].recorded.shape == one.shape("self")
    same_windows = maker.inputs[1:] == one.call.inputs[2 : 1 + len(maker.inputs)]
    return _when(same_input and same_windows
                 and one.have_shape(one.shape("indices"), "grad_output"))  # fmt: skip


def _bag(one: _Operands) -> str:
    weight, indices, offsets = one.shape("weight"), one.shape("indices"), one.given.get("offsets")
    if weight is None or len(weight) != 2 or indices is None or len(indices) != 1:
        return _SHAPES
    ordered = isinstance(offsets, ReplayPlace) and one.limits.is_ordered(offsets)
    if not ordered or not one.below("offsets", indices[0] + 1):
        return _INDICES
    if one.count("per_sample_weights") not in (-1, indices[0]):
        return _SHAPES
    return _when(one.below("indices", weight[0]), _INDICES)


def _bag_backward(one: _Operands) -> str:
    makers = [
        one.limits.maker(value, output=at) if isinstance(value, ReplayPlace) else None
        for at, name in ((1, "offset2bag"), (2, "bag_size"), (3, "maximum_indices"))
        for value in (one.given.get(name),)
    ]
    forward = makers[0]
    if forward is None or any(one is not forward for one in makers):
        return _INDICES
    if forward.call.name not in ("aten::_embedding_bag", "aten::embedding_bag"):
        return _INDICES
    weight, indices, made = forward.inputs[0], forward.inputs[1], forward.outputs[0]
    mode = dict(zip(forward.call.signature.parameters, forward.inputs, strict=False)) if (
        forward.call.signature) else {}  # fmt: skip
    same = (
        isinstance(weight, ReplayPlace) and weight.recorded.shape[0] == one.given.get("num_weights")
        and indices == one.given.get("indices") and isinstance(made, ReplayPlace)
        and one.have_shape(made.recorded.shape, "grad")
        and mode.get("mode", 0) == one.given.get("mode")
        and one.count("per_sample_weights") in (-1, one.count("indices"))
        and one.below("indices", weight.recorded.shape[0])
    )  # fmt: skip
    if one.call.call.name == "aten::_embedding_bag_dense_backward":  # reads it for each index
        same = same and one.count("offset2bag") == one.count("indices")
        return _when(same, _INDICES)
    if one.given.get("sparse"):
        return "it gives a sparse tensor"
    # it finds the bags by the offsets where the forward has not, which has judged the offsets
    same = same and forward.inputs[2] == one.given.get("offsets")
    return _when(same and not mode.get("include_last_offset"), _INDICES)


def _attention(one: _Operands) -> str:
    query, key, value = one.shape("query"), one.shape("key"), one.shape("value")
    if query is None or key is None or value is None or not len(query) == len(key) == 4:
        return _SHAPES
    if key != value or query[:2] != key[:2] or query[3] != key[3]:
        return _SHAPES
    mask = one.shape("attn_mask")
    if mask is not None and mask[-2:] != (query[2], key[2]):
        return _SHAPES
    if mask is not None and mask[:-2] not in ((), query[:2], (query[0], 1), (1, 1)):
        return _SHAPES
    if "out" not in one.given:
        return ""
    return _when(one.have_shape(query, "out", "grad_out") and one.shape("logsumexp") in (
        query[:3], (query[0], query[2], query[1])))  # fmt: skip


def _upsampled(one: _Operands) -> str:
    """Scales say the same as sizes: kernels find what they read by them."""
    output = one.given.get("output_size")
    given = one.given.get("input_size")
    sizes = list(one.shape("self") or ()) if given is None else given
    if not isinstance(sizes, list) or len(sizes) < 3:
        return _SHAPES
    scales = [value for name, value in one.given.items() if name.startswith("scale")]
    flat = [each for one in scales for each in (one if isinstance(one, list) else [one])]
    if all(each is None for each in flat):
        return ""
    if not isinstance(output, list) or len(flat) != len(output) or len(sizes) != len(flat) + 2:
        return _SHAPES
    return _when(all(
        each is None or abs(each * before - after) <= 1
        for each, before, after in zip(flat, sizes[2:], output, strict=True)
    ))  # fmt: skip


def _convolution_backward(one: _Operands) -> str:
    """Check that the gradient has the shape of the result of the forward."""
    shape, weight, grad = one.shape("input"), one.shape("weight"), one.shape("grad_output")
    sizes = [one.given.get(name) for name in ("stride", "padding", "dilation", "output_padding")]
    groups = one.given.get("groups")
    if shape is None or weight is None or grad is None or not isinstance(groups, int):
        return _SHAPES
    number = len(shape) - 2
    if len(weight) != len(shape) or number < 1:
        return _SHAPES
    if not all(isinstance(each, list) and len(each) in (1, number) for each in sizes):
        return _SHAPES
    steps = [(*each, *each[:1] * (number - len(each))) for each in sizes if isinstance(each, list)]
    extents = []
    for before, window, stride, edge, apart, more in zip(
        shape[2:], weight[2:], *steps, strict=True
    ):
        span = apart * (window - 1) + 1
        if one.given.get("transposed"):
            extents.append((before - 1) * stride - 2 * edge + span + more)
        else:
            extents.append((before + 2 * edge - span) // max(stride, 1) + 1)
    channels = weight[1] * groups if one.given.get("transposed") else weight[0]
    return _when(grad == (shape[0], channels, *extents))


def _only_whole(one: _Operands) -> str:
    """Refuse the overload for packed sequences: its kernels take sizes from values."""
    return _when("batch_sizes" not in one.given, _SIZE)


def _where(one: _Operands) -> str:
    return _when("self" in one.given, _SIZE)  # else it gives the places of true elements


_UPSAMPLES = [
    f"aten::{kind}{end}"
    for kind in ("upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d",
                 "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
                 "upsample_trilinear3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
                 "_upsample_nearest_exact3d")
    for end in ("", "_backward")
]  # fmt: skip
_ADAM = _fused("grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps")
_RULES: dict[str, Callable[[_Operands], str]] = {
    "aten::_adaptive_avg_pool2d_backward": _pooled,
    "aten::_adaptive_avg_pool3d_backward": _pooled,
    "aten::_embedding_bag": _bag,
    "aten::_embedding_bag_backward": _bag_backward,
    "aten::_embedding_bag_dense_backward": _bag_backward,
    "aten::_fused_adagrad_": _fused("grads", "state_sums", "state_steps"),
    "aten::_fused_adam_": _ADAM,
    "aten::_fused_adamw_": _ADAM,
    "aten::_fused_sgd_": _fused("grads", "momentum_buffer_list"),
    "aten::_log_softmax_backward_data": _same_as("output", "grad_output"),
    "aten::_softmax_backward_data": _same_as("output", "grad_output"),
    "aten::_native_batch_norm_legit": _batch_norm,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention,
    "aten::convolution_backward": _convolution_backward,
    "aten::embedding_backward": _embedding_backward,
    "aten::embedding_bag": _bag,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::gru": _only_whole,
    "aten::lstm": _only_whole,
    "aten::max_pool2d_with_indices_backward": _pool_backward,
    "aten::max_pool3d_with_indices_backward": _pool_backward,
    "aten::native_batch_norm": _batch_norm,
    "aten::native_batch_norm_backward": _batch_norm_backward,
    "aten::native_layer_norm_backward": _layer_norm_backward,
    "aten::nll_loss2d_backward": _loss_backward,
    "aten::nll_loss_backward": _loss_backward,
    "aten::rnn_relu": _only_whole,
    "aten::rnn_tanh": _only_whole,
    "aten::scaled_dot_product_attention": _attention,
    "aten::where": _where,
    **dict.fromkeys(_UPSAMPLES, _upsampled),
}

CHECKED_OPERATORS = frozenset(_RULES)
"""Names of the operators that have a rule."""


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


def _pooled_elements(given: Mapping[str, Any]) -> int | None:
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
    "max_pool2d_with_indices max_pool3d_with_indices": _pooled_elements,
    "randperm": _permuted,
    "_embedding_bag embedding_bag": lambda _: _UNKNOWN,
}))  # fmt: skip
# what they give is new memory, whatever types they take
_NEW = {"aten::_embedding_bag", "aten::embedding_bag", "aten::arange", "aten::randint",
        "aten::argmax", "aten::argsort", "aten::sort", "aten::topk", "aten::cat",
        "aten::remainder", "aten::clamp"}  # fmt: skip
