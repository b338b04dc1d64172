"""Rules for operands of operators whose kernels do not check them, so that none leaves its memory.

Each place has the recorded shape whenever it is used: the trial sees to that. So shapes are judged
as recorded. Indices are judged by what made them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from nadi.pytorch.rerunning.index_limits import IndexLimits
from nadi.pytorch.rerunning.replay_places import ReplayPlace
from nadi.pytorch.rerunning.replay_plan import PlannedCall, ReplayPlan

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
