"""Floating point operations and bytes of ATen operators, from the shapes of their operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

__all__ = ["Operand", "Work", "work_of"]

Shape = tuple[int, ...]


class Operand(NamedTuple):
    """A tensor that an operator reads or writes.

    Attributes
    ----------
    tensor, storage
        Numbers of the tensor, and of its memory, which views share.
    offset
        Of its first element in the storage, in elements.
    shape, strides
        Of each dimension.
    dtype
        Type of its elements, as an execution trace names it.
    itemsize
        Size of an element, in bytes.
    """

    tensor: int
    storage: int
    offset: int
    shape: Shape
    strides: Shape
    dtype: str
    itemsize: int

    @property
    def elements(self) -> int:
        """Number of its elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of memory that it covers; a repeated element (stride 0) counts once."""
        distinct = (
            length
            for length, stride in zip(self.shape, self.strides, strict=False)
            if stride or not length
        )
        return prod(distinct) * self.itemsize


class Work(NamedTuple):
    """What an operator does: floating point operations, and bytes that it reads and writes."""

    flops: int
    bytes: int


def work_of(name: str, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> Work:
    """Derive the work of an operator.

    Products of matrices, convolutions and attention count 2 operations per multiply-add, as
    PyTorch's ``FlopCounterMode``; of causal attention, too, the whole matrix counts. Everything
    else counts 0, because its time follows from its bytes.

    Parameters
    ----------
    name
        Such as ``aten::mm``.
    inputs, outputs
        In the order of its signature. A tensor that it changes in place is in both.
    """
    count = _FLOPS.get(name)
    flops = 0
    if count is not None:
        try:
            flops = count([one.shape for one in inputs], [one.shape for one in outputs])
        except (IndexError, ValueError):  # an overload with other operands
            flops = 0
    return Work(flops, _bytes(name, inputs, outputs))


def _bytes(name: str, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> int:
    written = sum(one.bytes for one in outputs)
    if name in _ONLY_WRITE:
        return written
    if name in _GATHER and inputs:  # reads what it gives, not the whole table
        return 2 * written + sum(one.bytes for one in inputs[1:])
    if name in _SCATTER and inputs:  # a gradient is added into rows of a table
        return written + sum(one.bytes for one in inputs)
    if name in _COPY:
        inputs = inputs[1:] or inputs  # what was there before is not read
    return written + sum(one.bytes for one in dict.fromkeys(inputs))


_ONLY_WRITE = {
    f"aten::{name}"
    for name in (
        "zeros", "ones", "full", "arange", "zeros_like", "ones_like", "full_like", "fill_",
        "zero_", "new_zeros", "new_ones", "new_full", "randn", "rand", "randint", "normal_",
        "uniform_", "randn_like", "rand_like", "scalar_tensor", "_foreach_zero_", "eye", "linspace",
        "bernoulli_", "exponential_", "random_", "randperm", "triu_indices", "tril_indices",
    )
}  # fmt: skip
_GATHER = {"aten::embedding", "aten::index_select", "aten::index", "aten::gather"}
_SCATTER = {"aten::embedding_dense_backward"}
_COPY = {"aten::copy_", "aten::_foreach_copy_"}


def _mm(inputs: Sequence[Shape], _: Sequence[Shape]) -> int:
    (m, k), (_k, n) = inputs[0], inputs[1]
    return 2 * m * k * n


def _addmm(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return _mm(inputs[1:], outputs)


def _bmm(inputs: Sequence[Shape], _: Sequence[Shape]) -> int:
    (b, m, k), (_b, _k, n) = inputs[0], inputs[1]
    return 2 * b * m * k * n


def _baddbmm(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    return _bmm(inputs[1:], outputs)


def _mv(inputs: Sequence[Shape], _: Sequence[Shape]) -> int:
    return 2 * prod(inputs[0])


def _dot(inputs: Sequence[Shape], _: Sequence[Shape]) -> int:
    return 2 * prod(inputs[0])


def _attention(products: int) -> Callable[[Sequence[Shape], Sequence[Shape]], int]:
    """Count products of queries with keys, or of weights with values: each is s_q s_k d."""

    def flops(inputs: Sequence[Shape], _: Sequence[Shape]) -> int:
        first = 0 if products == _FORWARD else 1  # backward has the gradient before them
        (b, h, s_q, d), keys, values = inputs[first : first + 3]
        s_k, d_v = keys[2], values[3]
        with_keys, with_values = (1, 1) if products == _FORWARD else (3, 2)
        return 2 * b * h * s_q * s_k * (with_keys * d + with_values * d_v)

    return flops


_FORWARD, _BACKWARD = 2, 5


def _convolution(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    weight, made = inputs[1], outputs[0]
    return 2 * prod(weight) * made[0] * prod(made[2:])


def _convolution_backward(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    gradient, _, weight = inputs[:3]
    of_one = 2 * prod(weight) * gradient[0] * prod(gradient[2:])
    # of the data and of the weights; a gradient that nobody needs is not given
    return of_one * sum(len(shape) > 1 for shape in outputs)


_FLOPS: dict[str, Callable[[Sequence[Shape], Sequence[Shape]], int]] = {
    "aten::mm": _mm,
    "aten::_scaled_mm": _mm,
    "aten::_int_mm": _mm,
    "aten::addmm": _addmm,
    "aten::bmm": _bmm,
    "aten::baddbmm": _baddbmm,
    "aten::mv": _mv,
    "aten::dot": _dot,
    "aten::vdot": _dot,
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
} | {
    f"aten::_scaled_dot_product_{kind}{suffix}": _attention(products)
    for suffix, products in (("", _FORWARD), ("_backward", _BACKWARD))
    for kind in ("flash_attention", "efficient_attention", "cudnn_attention")
} | {
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(_FORWARD),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention(_BACKWARD),
    "aten::_scaled_dot_product_fused_attention_overrideable": _attention(_FORWARD),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _attention(_BACKWARD),
}  # fmt: skip
