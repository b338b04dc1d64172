"""The work of operators by their shapes: floating point operations, and bytes that must move.

Bytes are those of each operand once: less cannot move, more can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from nadi.model.dtypes import ITEMSIZE

__all__ = ["OPERATORS", "Inputs", "OperatorWork", "work_of"]

_Shape = Sequence[int]
_MOST = 1 << 62


class Inputs(NamedTuple):
    """The inputs of a call as the profiler states them, in order.

    Attributes
    ----------
    dims
        Shapes; empty for what is no tensor.
    types
        Such as ``c10::BFloat16``.
    values
        Texts of scalars and lists.
    """

    dims: list[list[int]]
    types: list[str]
    values: list[str]

    def size(self, place: int) -> int:
        """Return the bytes of a tensor; 0 if it is none, or its type is not known."""
        if place >= len(self.dims) or place >= len(self.types) or not self.dims[place]:
            return 0
        return prod(self.dims[place]) * self.itemsize(place)

    def itemsize(self, place: int) -> int:
        """Return the bytes of an element; 0 if its type is not known."""
        return ITEMSIZE.get(self.types[place], 0)

    def is_true(self, place: int) -> bool:
        """Return whether a flag is set."""
        return place < len(self.values) and self.values[place] in ("True", "true", "1")

    def integers(self, place: int) -> list[int]:
        """Return a list of integers; empty if there is none."""
        text = self.values[place].strip("[]") if place < len(self.values) else ""
        parts = [part.strip() for part in text.split(",")] if text else []
        return [int(part) for part in parts] if all(_is_integer(part) for part in parts) else []


class OperatorWork(NamedTuple):
    """What one call does: its shape as text, and its operations and bytes."""

    shape: str
    flops: int
    size: int


def _is_integer(text: str) -> bool:
    return text.lstrip("-").isdigit()


def _matmul(inputs: Inputs, a: int, b: int, bias: int = -1) -> OperatorWork | None:
    first, second = inputs.dims[a], inputs.dims[b]
    if len(first) < 2 or len(second) < 2 or first[-1] != second[-2]:
        return None
    batch, rows, inner, columns = prod(first[:-2]), first[-2], first[-1], second[-1]
    out = batch * rows * columns
    flops = 2 * out * inner + (out if bias >= 0 else 0)
    size = inputs.size(a) + inputs.size(b) + out * inputs.itemsize(a)
    size += inputs.size(bias) if bias >= 0 else 0
    text = f"{rows} x {columns} x {inner}"
    return OperatorWork(f"{batch} x ({text})" if len(first) > 2 else text, flops, size)


def _attention(inputs: Inputs, causal_at: int) -> OperatorWork | None:
    query, key, value = inputs.dims[:3]
    if not len(query) == len(key) == len(value) == 4:
        return None
    batch, heads, asked, deep = query
    kept, wide = key[2], value[3]
    flops = batch * heads * 2 * asked * kept * (deep + wide)
    is_causal = inputs.is_true(causal_at)
    if is_causal:  # the corner that is masked: half, if as many are kept as asked
        flops = round(flops * (1 - asked / (2 * kept))) if asked <= kept else flops // 2
    out = batch * heads * asked * wide * inputs.itemsize(0)
    size = sum(inputs.size(place) for place in range(3)) + out
    text = f"{batch} x {heads} heads, {asked} x {kept}, {deep}"
    return OperatorWork(f"{text}{' causal' if is_causal else ''}", flops, size)


def _attention_backward(inputs: Inputs, causal_at: int) -> OperatorWork | None:
    """Five products for the forward's two: scores again, and four gradients."""
    forward = _attention(Inputs(inputs.dims[1:], inputs.types[1:], inputs.values), causal_at)
    if forward is None:
        return None
    size = 2 * sum(inputs.size(place) for place in range(1, 4)) + 2 * inputs.size(0)
    return OperatorWork(forward.shape, forward.flops * 5 // 2, size)


def _convolved(inputs: Inputs, image: _Shape, weight: _Shape, at: int) -> list[int]:
    """Return the output's shape: stride, padding, dilation, transposed, padding of the output."""
    stride, padding, dilation = (inputs.integers(at + k) for k in range(3))
    out = [image[0], weight[0]]
    is_transposed = inputs.is_true(at + 3)
    more = inputs.integers(at + 4)
    if is_transposed:
        groups = inputs.integers(at + 5)
        out[1] = weight[1] * (groups[0] if groups else 1)
    for k, size in enumerate(image[2:]):
        one, pad, wide = (each[k % len(each)] for each in (stride, padding, dilation))
        reach = wide * (weight[2 + k] - 1)
        out.append((size - 1) * one - 2 * pad + reach + (more[k] if k < len(more) else 0) + 1
                   if is_transposed else (size + 2 * pad - reach - 1) // one + 1)  # fmt: skip
    return out


def _convolution(inputs: Inputs) -> OperatorWork | None:
    image, weight = inputs.dims[:2]
    if (
        len(image) < 3
        or len(image) != len(weight)
        or not all(inputs.integers(k) for k in (3, 4, 5))
    ):
        return None
    out = prod(_convolved(inputs, image, weight, 3))
    each = prod(image) if inputs.is_true(6) else out
    bias = inputs.size(2)
    flops = 2 * each * prod(weight[1:]) + (out if bias else 0)
    size = inputs.size(0) + inputs.size(1) + bias + out * inputs.itemsize(0)
    return OperatorWork(_image_text(image, weight, inputs.integers(3)), flops, size)


def _convolution_backward(inputs: Inputs) -> OperatorWork | None:
    gradient, image, weight = inputs.dims[:3]
    if len(image) < 3 or len(image) != len(weight):
        return None
    mask = inputs.values[-1] if inputs.values else ""
    parts = sum(part.strip() == "True" for part in mask.strip("[]").split(",")[:2]) or 2
    flops = parts * 2 * prod(gradient) * prod(weight[1:])
    size = inputs.size(0) + (1 + (parts > 1)) * (inputs.size(1) + inputs.size(2))
    return OperatorWork(_image_text(image, weight, inputs.integers(4)), flops, size)


def _image_text(image: _Shape, weight: _Shape, stride: Sequence[int]) -> str:
    texts = ["x".join(map(str, one)) for one in (image, weight)]
    return f"{texts[0]} * {texts[1]} / {'x'.join(map(str, stride))}"


def _normalization(inputs: Inputs, channels_at: int) -> OperatorWork | None:
    """Mean, variance and result of each element, and what is kept and scaled by channel."""
    shape = inputs.dims[0]
    weight = inputs.dims[channels_at] if channels_at < len(inputs.dims) else []
    if not shape:
        return None
    elements, channels = prod(shape), prod(weight) if weight else 0
    size = 2 * inputs.size(0) + 6 * channels * inputs.itemsize(0)
    return OperatorWork("x".join(map(str, shape)), 5 * elements + 6 * channels, size)


_Count = Callable[[Inputs], "OperatorWork | None"]
OPERATORS: dict[str, tuple[str, _Count]] = {
    "aten::mm": ("matrix multiplication", lambda one: _matmul(one, 0, 1)),
    "aten::bmm": ("matrix multiplication", lambda one: _matmul(one, 0, 1)),
    "aten::addmm": ("matrix multiplication", lambda one: _matmul(one, 1, 2, 0)),
    "aten::baddbmm": ("matrix multiplication", lambda one: _matmul(one, 1, 2, 0)),
    "aten::_scaled_mm": ("matrix multiplication", lambda one: _matmul(one, 0, 1)),
    "aten::_scaled_dot_product_flash_attention": ("attention", lambda one: _attention(one, 4)),
    "aten::_scaled_dot_product_efficient_attention": ("attention", lambda one: _attention(one, 6)),
    "aten::_scaled_dot_product_cudnn_attention": ("attention", lambda one: _attention(one, 6)),
    "aten::_scaled_dot_product_flash_attention_backward": (
        "attention", lambda one: _attention_backward(one, 11)),
    "aten::_scaled_dot_product_efficient_attention_backward": (
        "attention", lambda one: _attention_backward(one, 11)),
    "aten::convolution": ("convolution", _convolution),
    "aten::convolution_backward": ("convolution", _convolution_backward),
    "aten::native_layer_norm": ("normalization", lambda one: _normalization(one, 2)),
    "aten::native_group_norm": ("normalization", lambda one: _normalization(one, 1)),
    "aten::native_batch_norm": ("normalization", lambda one: _normalization(one, 1)),
    "aten::cudnn_batch_norm": ("normalization", lambda one: _normalization(one, 1)),
    "aten::miopen_batch_norm": ("normalization", lambda one: _normalization(one, 1)),
    "aten::_fused_rms_norm": ("normalization", lambda one: _normalization(one, 2)),
}  # fmt: skip
"""By name: the class, and how a call's work follows from its inputs."""


def work_of(name: str, inputs: Inputs) -> OperatorWork | None:
    """Return the work of a call; None if its inputs are not those that the operator takes.

    More than 2^62 operations or bytes are those of no call.
    """
    try:
        done = OPERATORS[name][1](inputs)
    except (IndexError, ValueError, ZeroDivisionError, OverflowError):
        return None
    if done is None or not (0 <= done.flops <= _MOST and 0 <= done.size <= _MOST):
        return None
    return done
