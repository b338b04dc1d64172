"""Floating point operations and bytes of operators, against sums written out."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import pytest
from hypothesis import given, strategies as st

from nadi.trace.work import Lengths, Operands, Work, covered_bytes, part_computed, work_of

SIZE = st.integers(1, 5)
FLASH = "aten::_scaled_dot_product_flash_attention"


def of(name: str, *inputs: Any, outputs: Any = ((),), written: int = 0) -> Work:
    """Return the work of a call; inputs are shapes of floats, or texts of scalars."""
    shapes = [() if isinstance(one, str) else one for one in inputs]
    sizes = [4 * prod(one) if one else 0 for one in shapes]
    values = [one if isinstance(one, str) else "" for one in inputs]
    written = written or sum(4 * prod(one) for one in outputs if one)
    return work_of(name, Operands(shapes, sizes, [4] * len(shapes), values, outputs, written))


@given(SIZE, SIZE, SIZE, SIZE)
def test_products_count_two_per_multiply_add(b: int, m: int, k: int, n: int) -> None:
    naive = sum(2 for _ in product(range(b), range(m), range(k), range(n)))
    one = of("aten::bmm", (b, m, k), (b, k, n), outputs=[(b, m, n)])
    assert (one.flops, one.uncut, one.shape) == (naive, naive, (b, m, n, k))
    assert one.bytes == 4 * (b * m * k + b * k * n + b * m * n)
    assert of("aten::mm", (m, k), (k, n)).flops * b == naive
    added = of("aten::addmm", (n,), (m, k), (k, n))
    assert (added.flops * b, added.extra) == (naive, m * n)
    assert of("aten::mv", (m, k), (k,)).flops == of("aten::mm", (m, k), (k, 1)).flops


@given(st.integers(1, 12), st.integers(0, 12))
def test_a_causal_mask_leaves_what_runs(queries: int, before: int) -> None:
    """Each query sees the keys before it, and half of its own: scores beside the diagonal."""
    keys = queries + before
    seen = sum(before + row + 0.5 for row in range(queries))
    assert part_computed(queries, keys) == pytest.approx(seen / (queries * keys))


@pytest.mark.parametrize("kind", ["flash_attention", "efficient_attention", "cudnn_attention"])
def test_attention_forward_has_two_products_and_backward_five(kind: str) -> None:
    q, k = (2, 8, 64, 32), (2, 8, 48, 32)
    name = f"aten::_scaled_dot_product_{kind}"
    one = 2 * 2 * 8 * 64 * 48 * 32
    assert of(name, q, k, k).flops == 2 * one
    assert of(f"{name}_backward", q, q, k, k).flops == 5 * one


def test_flags_of_attention_are_told_from_masks() -> None:
    q = (1, 2, 4, 8)
    whole = 2 * 2 * 4 * 4 * 16
    masked = of(FLASH, q, q, q, "0.0", "true", "false")
    assert (masked.flops, masked.uncut, masked.bytes) == (whole // 2, whole, 4 * 4 * 64)
    # the flag that efficient attention has before it asks for sums
    efficient = "aten::_scaled_dot_product_efficient_attention"
    assert of(efficient, q, q, q, "", "true", "0.0", "false").flops == whole
    assert of(efficient, q, q, q, "", "true", "0.0", "true").flops == whole // 2
    # without a batch of heads: batch, length, heads
    inner = of("aten::_flash_attention_forward", (1, 4, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8),
               "", "", "4", "4", "0.0", "true")  # fmt: skip
    assert (inner.flops, inner.shape) == (whole // 2, (2, 4, 4, 8))


def test_a_convolution_and_its_gradients() -> None:
    x, weight, made = (2, 3, 8, 8), (16, 3, 3, 3), (2, 16, 6, 6)
    forward = 2 * 2 * 16 * 6 * 6 * 3 * 3 * 3
    one = of("aten::convolution", x, weight, outputs=[made])
    assert (one.flops, one.shape) == (forward, (1, 72, 16, 27))
    gradients = [x, weight, (16,)]
    both = of("aten::convolution_backward", made, x, weight, outputs=gradients)
    assert (both.flops, both.shape) == (2 * forward, ())
    only = of("aten::convolution_backward", made, x, weight, outputs=[(), weight, (16,)])
    assert only.flops == forward
    # each channel on its own fills no tile of a matrix
    assert of("aten::convolution", (2, 16, 8, 8), (16, 1, 3, 3), outputs=[made]).shape == ()
    assert of("aten::convolution", (2, 16, 8, 8), (16, 8, 3, 3), outputs=[made]).shape == (
        2, 72, 8, 72,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "flops", "elements"), [
    ("addmm", [[3], [2, 5], [5, 3], "1", "1"], 66, 3 + 10 + 15 + 6),
    ("bmm", [[7, 2, 5], [7, 5, 3]], 7 * 60, 7 * (10 + 15 + 6)),
    ("_scaled_dot_product_flash_attention", [[1, 2, 4, 8]] * 3 + ["0.", "False", "False"],
     2 * 2 * 4 * 4 * 16, 4 * 64),
    ("convolution", [[1, 2, 5, 5], [3, 2, 3, 3], "", "[1, 1]", "[0, 0]", "[1, 1]", "False",
     "[0, 0]", "1"], 2 * 27 * 18, 50 + 54 + 27),
    ("convolution", [[1, 2, 3, 3], [2, 3, 2, 2], "", "[2, 2]", "[0, 0]", "[1, 1]", "True",
     "[0, 0]", "1"], 2 * 18 * 12, 18 + 24 + 3 * 36),
    ("native_layer_norm", [[4, 8], "[8]", [8], [8], "1e-5"], 5 * 32 + 48, 64 + 48),
])  # fmt: skip
def test_work_follows_from_inputs_alone(
    name: str, inputs: list[Any], flops: int, elements: int
) -> None:
    """As the profiler states them, which records no results."""
    found = of(f"aten::{name}", *inputs, outputs=(), written=-1)
    assert (found.flops + found.extra, found.bytes) == (flops, 4 * elements)


@pytest.mark.parametrize("inputs", [[], [[2]], [[2, 3], [4, 5]], [[1 << 31, 1 << 31]] * 2])
def test_shapes_that_do_not_fit_have_no_known_operations(inputs: list[list[int]]) -> None:
    assert of("aten::mm", *inputs).flops == -1


def test_bytes_are_those_that_memory_has_to_move() -> None:
    assert covered_bytes((4, 8), (0, 1), 4) == 4 * 8
    x = (4, 8)
    assert of("aten::add", x, (8,), outputs=[x]).bytes == 4 * (32 + 8 + 32)
    assert of("aten::zeros", outputs=[x]).bytes == 4 * 32
    assert of("aten::copy_", x, x, outputs=[x]).bytes == 4 * 64
    assert of("aten::of_tomorrow", (4,), outputs=[(4,)])[:3] == ("elementwise", 0, 32)


def test_tables_are_read_by_the_rows_looked_up() -> None:
    table, rows = (10_000, 8), (5,)
    assert of("aten::embedding", table, rows, outputs=[(5, 8)]).bytes == 4 * (40 + 40 + 5)
    bags = of("aten::_embedding_bag", table, rows, (2,), outputs=[(2, 8)])
    assert bags.bytes == 4 * (5 * 8 + 2 * 8 + 5 + 2)


def test_operators_of_serving_engines_count_as_written_out() -> None:
    given, weight = (6, 16), (8, 16)
    linear = of("vllm::rocm_unquantized_gemm", given, weight, (8,))
    assert (linear.flops, linear.extra) == (of("aten::mm", given, (16, 8)).flops, 6 * 8)
    assert linear.bytes == 4 * (6 * 16 + 8 * 16 + 8 + 6 * 8)
    assert of("_C::cutlass_scaled_mm", (6, 8), given, (16, 8))[1:4] == linear._replace(
        bytes=linear.bytes - 4 * 8)[1:4]  # fmt: skip
    norm, added = of("_C::rms_norm", given, given, (16,)), of("_C::fused_add_rms_norm", given,
                                                             given, (16,))  # fmt: skip
    assert (norm.extra, added.extra) == (4 * 96 + 12, 5 * 96 + 12)
    assert (norm.bytes, added.bytes) == (4 * (2 * 96 + 16), 4 * (4 * 96 + 16))
    gated = of("_C::silu_and_mul", given, (6, 32))
    assert (gated.extra, gated.bytes) == (5 * 96, 4 * 3 * 96)
    # half of each head of 8 is rotated
    rotated = of("_C::rotary_embedding", (6,), (6, 32), given, "8", (100, 4), "True")
    assert rotated.extra == 6 * (48 // 2) * 6 // 2
    assert rotated.bytes == 4 * (2 * 6 * 24 + 6 + 6 * 4)
    stored = of(
        "_C_cache_ops::reshape_and_cache_flash", *[(6, 2, 8)] * 2, *[(9, 4, 2, 8)] * 2, (6,)
    )
    assert stored.bytes == 4 * (4 * 96 + 6)


@given(st.lists(st.tuples(SIZE, st.integers(0, 9)), min_size=1, max_size=3), SIZE, SIZE)
def test_paged_attention_counts_the_scores_of_each_sequence(
    sequences: list[tuple[int, int]], groups: int, heads: int
) -> None:
    queries, keys = sum(q for q, _ in sequences), sum(q + k for q, k in sequences)
    scores = sum(1 for q, k in sequences for new in range(q) for _ in range(k + new + 1))
    query, key = (queries + 1, groups * heads, 8), (queries + 1, heads, 8)
    shapes = [query, key, key]
    given = Operands(shapes, [4 * prod(one) for one in shapes], [4] * 3, ())
    name = "vllm::unified_attention_with_output"
    found = work_of(name, given._replace(lengths=Lengths(queries, keys, scores)))
    assert found.flops == sum(2 * 2 * 8 for _ in range(scores * groups * heads))
    assert found.bytes == 4 * 2 * 8 * heads * (groups * queries + keys)
    unknown = work_of(name, given)
    assert unknown.flops == -1
    assert "lengths" in unknown.missing
    assert work_of(name, given._replace(lengths=Lengths(queries + 2, keys, scores))).flops == -1


@given(SIZE, st.integers(2, 6), st.booleans(), st.booleans(), st.booleans(), st.data())
def test_experts_count_the_products_of_each_token(
    tokens: int, experts: int, gated: bool, turned: bool, packed: bool, data: st.DataObject
) -> None:
    chosen = data.draw(st.integers(1, experts))
    width, inner, ways = 12, 32, 2 if gated else 1
    pack, itemsize = (2, 1) if packed else (1, 2)
    up, down = (experts, ways * inner, width // pack), (experts, width, inner // pack)
    if turned:
        up, down = (experts, *up[:0:-1]), (experts, *down[:0:-1])
    hidden, ids = (tokens, width), (tokens, chosen)
    flops = sum(2 * width * inner * (ways + 1) for _ in range(tokens * chosen))
    missed = (1 - chosen / experts) ** tokens  # a token chooses without repeating an expert
    size = (ways + 1) * width * inner * itemsize // pack * experts * (1 - missed)
    shapes = [hidden, up, down, ids, ids]
    alone = Operands(shapes, [2 * prod(hidden), 0, 0, 0, 0], [2, itemsize, itemsize, 4, 4], ())
    found = work_of("vllm::inplace_fused_experts", alone)
    assert (found.flops, found.bytes) == (flops, 2 * 2 * prod(hidden) + round(size))
    of_map = alone._replace(inputs=[*shapes, (4 * experts,)])
    assert "this rank" in work_of("vllm::inplace_fused_experts", of_map).missing

    routed = Operands([hidden, (tokens, experts)], [2 * prod(hidden), 0], [2, 2], ())
    weights = [("aten::view", Operands([one], [0], [itemsize], ())) for one in (up, down)]
    router = "_moe_C::topk_softmax", Operands([ids, ids, ids], [0] * 3, [4] * 3, ())
    name = "vllm::moe_forward"
    assert work_of(name, routed._replace(inner=[router, *weights])) == found
    assert "weights" in work_of(name, routed._replace(inner=[router, weights[0]])).missing
    assert "how many" in work_of(name, routed._replace(inner=weights)).missing


def test_uncut_operations_are_those_of_flop_counter_mode() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    from nadi.pytorch.fake.operation_log import LoggedOperand, operands_of

    def tensor(*shape: int) -> Any:
        return torch.empty(shape, device="meta")

    def shown(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return LoggedOperand(
                id(value), id(value), 0, tuple(value.shape), value.stride(), "float", 4
            )
        return value

    x, w = tensor(2, 6, 9, 9), tensor(8, 6, 3, 3)
    turned, by_group = tensor(6, 8, 3, 3), tensor(8, 3, 3, 3)
    q, kv = tensor(2, 4, 16, 32), tensor(2, 4, 24, 32)
    calls = [
        ("mm", (tensor(3, 4), tensor(4, 5))), ("addmm", (tensor(5), tensor(3, 4), tensor(4, 5))),
        ("bmm", (tensor(2, 3, 4), tensor(2, 4, 5))),
        ("convolution", (x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
        ("convolution", (x, by_group, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 2)),
        ("convolution", (x, turned, None, [2, 2], [1, 1], [1, 1], True, [0, 0], 1)),
        ("convolution_backward", (tensor(2, 8, 7, 7), x, w, [8], [1, 1], [0, 0], [1, 1], False,
                                  [0, 0], 1, [True, True, False])),
        ("_scaled_dot_product_flash_attention", (q, kv, kv, 0.0, False)),
        ("_scaled_dot_product_flash_attention", (q, q, q, 0.0, True)),
        ("_scaled_dot_product_efficient_attention", (q, kv, kv, None, True, 0.0, False)),
    ]  # fmt: skip
    for name, args in calls:
        with FlopCounterMode(display=False) as counter:
            made = getattr(torch.ops.aten, name)(*args)
        outputs = [one for one in (made if isinstance(made, tuple) else [made]) if shown(one) is not
                   one]  # fmt: skip
        given = operands_of([shown(one) for one in args], [shown(one) for one in outputs])
        assert work_of(f"aten::{name}", given).uncut == counter.get_total_flops(), (name, args)
