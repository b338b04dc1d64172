"""Floating point operations and bytes of operators, against sums written out."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st

from nadi.collect.operation_work import Operand, work_of


def tensor(*shape: int, number: int = 1, strides: tuple[int, ...] = ()) -> Operand:
    dense = []
    step = 1
    for length in reversed(shape):
        dense.insert(0, step)
        step *= length
    return Operand(number, number, 0, shape, strides or tuple(dense), "float", 4)


SIZE = st.integers(1, 5)


@given(SIZE, SIZE, SIZE, SIZE)
def test_products_count_two_per_multiply_add(b: int, m: int, k: int, n: int) -> None:
    naive = sum(2 for _ in product(range(b), range(m), range(k), range(n)))
    one = work_of("aten::bmm", [tensor(b, m, k), tensor(b, k, n, number=2)], [tensor(b, m, n)])
    assert one.flops == naive
    assert one.bytes == 4 * (b * m * k + b * k * n + b * m * n)
    matrices = [tensor(m, k), tensor(k, n, number=2)]
    assert work_of("aten::mm", matrices, [tensor(m, n)]).flops * b == naive
    bias = tensor(n, number=3)
    assert work_of("aten::addmm", [bias, *matrices], [tensor(m, n)]).flops * b == naive


@pytest.mark.parametrize("kind", ["flash_attention", "efficient_attention"])
def test_attention_forward_has_two_products_and_backward_five(kind: str) -> None:
    q, k, v = (tensor(2, 8, length, 32, number=n) for n, length in enumerate((64, 48, 48)))
    name = f"aten::_scaled_dot_product_{kind}"
    one = 2 * 2 * 8 * 64 * 48 * 32
    assert work_of(name, [q, k, v], [q]).flops == 2 * one
    assert work_of(f"{name}_backward", [q, q, k, v], [q, k, v]).flops == 5 * one


def test_a_convolution_and_its_gradients() -> None:
    x, weight, made = tensor(2, 3, 8, 8), tensor(16, 3, 3, 3, number=2), tensor(2, 16, 6, 6)
    forward = 2 * 2 * 16 * 6 * 6 * 3 * 3 * 3
    assert work_of("aten::convolution", [x, weight], [made]).flops == forward
    gradients = [x, weight, tensor(16)]
    backward = work_of("aten::convolution_backward", [made, x, weight], gradients)
    assert backward.flops == 2 * forward


def test_bytes_are_those_that_memory_has_to_move() -> None:
    x = tensor(4, 8)
    repeated = tensor(4, 8, number=2, strides=(0, 1))
    assert work_of("aten::add", [x, repeated], [x]) == (0, 4 * (32 + 8 + 32))
    assert work_of("aten::mul", [x, x], [x]).bytes == 4 * 64  # which is read once
    assert work_of("aten::zeros", [], [x]).bytes == 4 * 32
    assert work_of("aten::copy_", [x, tensor(4, 8, number=3)], [x]).bytes == 4 * 64
    table, words = tensor(10_000, 8, number=4), tensor(5, number=5)
    assert work_of("aten::embedding", [table, words], [tensor(5, 8)]).bytes == 4 * (40 + 40 + 5)


def test_an_operator_with_other_operands_has_no_known_operations() -> None:
    assert work_of("aten::mm", [tensor(4)], [tensor(4)]).flops == 0
    assert work_of("aten::of_tomorrow", [tensor(4)], [tensor(4)]) == (0, 32)
