"""The work of operations: floating point operations, and bytes of memory that must move.

A multiply-add that runs counts 2 operations. Of attention with a causal mask only the scores run
that the mask leaves: ``1 - queries / (2 keys)`` of all, which is half if there are as many keys.
PyTorch's ``FlopCounterMode`` counts all of them, too. Bytes are those of each operand once: less
cannot move, more can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

Shape = Sequence[int]
_MOST = 1 << 62
_MATRIX, _IMAGE, _HEADS = 2, 3, 4  # dimensions
_SMALL = 2  # channels of a group that fill a tile of a matrix


class Work(NamedTuple):
    """What one operation does."""

    # as pricing knows it: ``gemm``, ``conv``, ``attention``, ``norm``, ``softmax``, ``add``,
    # ``activation``, ``rope``, ``embedding``, ``cross_entropy``, ``permute``, ``optimizer``
    op_class: str
    # flops, bytes: operations that run, -1 if unknown, and bytes that are read and written
    flops: int
    bytes: int
    # ``(batch, m, n, k)`` of a product or of the product of unfolded images; of attention ``(batch
    # * heads, queries, keys, size of a head)``; empty if it is none of them
    shape: tuple[int, ...] = ()
    dtype: str = ""  # of its inputs
    extra: int = 0  # operations beside those of products: adding a bias, or those of a norm
    uncut: int = -1  # operations as ``FlopCounterMode`` counts them, without a causal mask
    missing: str = ""  # what must be known beside the operands, and is not; then ``flops`` are -1


class Lengths(NamedTuple):
    """Lengths of the sequences of a serving step, which operators of paged caches do not state."""

    # queries, keys: new tokens, and tokens that they look at, of all sequences
    queries: int
    keys: int
    scores: int  # pairs of a new token and one that it looks at, with a causal mask


class Operands(NamedTuple):
    """What an operator is given, by place in its signature, and what it gives."""

    inputs: Sequence[Shape]  # shapes; empty for what is no tensor
    # bytes of memory that each covers (``covered_bytes``), of a tensor given twice once, of a list
    # those of all; 0 for what is no tensor
    sizes: Sequence[int]
    itemsizes: Sequence[int]  # bytes of an element; 0 for what is no tensor
    values: Sequence[str]  # texts of scalars and lists; may be shorter
    outputs: Sequence[Shape] = ()  # shapes of results; empty if they are not recorded
    written: int = -1  # bytes of results; -1 if they are not recorded
    # of the step that the call is in; None if its annotation does not state them
    lengths: Lengths | None = None
    # calls within this one, which ``OF_CALLS`` need: names and operands
    inner: Sequence[tuple[str, Operands]] = ()

    def is_true(self, place: int) -> bool:
        """Return whether a flag is set, or a mask chosen."""
        return place < len(self.values) and self.values[place] in ("True", "true", "1", "2")

    def integers(self, place: int) -> list[int]:
        """Return a list of integers; empty if there is none."""
        text = self.values[place].strip("[]") if place < len(self.values) else ""
        parts = [part.strip() for part in text.split(",")] if text else []
        whole = all(part.lstrip("-").isdigit() for part in parts)
        return [int(part) for part in parts] if whole else []


def covered_bytes(shape: Shape, strides: Shape, itemsize: int) -> int:
    """Return the bytes of memory of a tensor; a repeated element (stride 0) counts once.

    Without strides it is dense.
    """
    if len(strides) != len(shape):
        return prod(shape) * itemsize
    pairs = zip(shape, strides, strict=True)
    return prod(length for length, stride in pairs if stride or not length) * itemsize


def gemm(shape: tuple[int, int, int, int], moved: int, dtype: str, op_class: str = "gemm") -> Work:
    """Return the work of ``batch`` products of ``m x k`` and ``k x n``, of ``(batch, m, n, k)``."""
    flops = 2 * prod(shape)
    return Work(op_class, flops, moved, shape, dtype, uncut=flops)


def attention(
    shape: tuple[int, int, int, int], of_value: int, moved: int, dtype: str, *,
    causal: float = 0.0, backward: bool = False,
) -> Work:  # fmt: skip
    """Return the work of fused attention, whose backward forms the scores anew.

    - ``shape``: Batch times heads, queries, keys, size of a head of queries and keys.
    - ``of_value``: Size of a head of values.
    - ``causal``: The part of the scores that a mask leaves out, as :func:`part_computed` has it.
    - ``backward``: Five products instead of two.
    """
    heads, queries, keys, deep = shape
    widths = 3 * deep + 2 * of_value if backward else deep + of_value
    whole = 2 * heads * queries * keys * widths
    return Work("attention", round(whole * (1 - causal)), moved, shape, dtype, uncut=whole)


def part_computed(queries: int, keys: int) -> float:
    """Return which part of the scores a causal mask leaves; the queries are the last tokens."""
    least, most = sorted((queries, keys))
    return 1 - least / (2 * most) if most else 1.0


def flops_utilization(flops: float, seconds: float, ranks: int, peak: float) -> float:
    """Return the model FLOPs utilization of a step: from 0 to 1, -1 if it cannot be told.

    - ``flops``: Those of the model in a step of all ranks, such as
      :func:`~nadi.models.llm.layer_pieces.model_flops`.
    - ``peak``: Operations per s of a rank, of the datatype of its products; 0 if unknown.
    """
    possible = peak * ranks * seconds
    return flops / possible if possible > 0 else -1.0


def work_of(name: str, operands: Operands) -> Work:
    """Return the work of a call of an operator.

    - ``name``: Such as ``aten::mm``.
    - Returns: ``flops`` are -1 if the operands are not those that the operator takes, or state more
      than 2^62 operations or bytes. Operators that are not known have no operations: their time
      follows from their bytes. ``bytes`` are -1 if they do not follow.
    """
    op_class, rule = OPERATORS.get(name) or OF_CALLS.get(name, ("elementwise", None))
    found = None
    if rule is not None:
        try:
            found = rule(operands)
        except (IndexError, ValueError, ZeroDivisionError, OverflowError):
            found = None
        known = found is not None and not found.missing
        if found and known and not 0 <= max(found.flops + found.extra, found.bytes) <= _MOST:
            found = None
    if found is not None:
        return found
    return Work(op_class, 0 if rule is None else -1, _moved(name, operands))


# bytes of operators without a rule


def _moved(name: str, operands: Operands) -> int:
    read, written = operands.sizes, operands.written
    if written < 0:
        return -1
    if name in _ONLY_WRITE:
        return written
    if name in GATHER and read:  # reads what it gives, not the whole table
        return 2 * written + sum(read[1:])
    if name in _BAG and len(read) > 1:
        table, rows = operands.inputs[:2]
        return prod(rows) * prod(table[1:]) * operands.itemsizes[0] + written + sum(read[1:])
    if name in _COPY:
        read = read[1:] or read  # what was there before is not read
    return written + sum(read)


_ONLY_WRITE = {
    f"aten::{name}"
    for name in (
        "zeros", "ones", "full", "arange", "zeros_like", "ones_like", "full_like", "fill_",
        "zero_", "new_zeros", "new_ones", "new_full", "randn", "rand", "randint", "normal_",
        "uniform_", "randn_like", "rand_like", "scalar_tensor", "_foreach_zero_", "eye", "linspace",
        "bernoulli_", "exponential_", "random_", "randperm", "triu_indices", "tril_indices",
    )
}  # fmt: skip
GATHER = {"aten::embedding", "aten::index_select", "aten::index", "aten::gather"}
_BAG = {"aten::_embedding_bag", "aten::_embedding_bag_forward_only"}
_COPY = {"aten::copy_", "aten::_foreach_copy_"}


# rules


def _product(operands: Operands, bias: int = -1) -> Work | None:
    first, second = operands.inputs[bias + 1 : bias + 3]
    if not first or not second or first[-1] != second[-2 if len(second) > 1 else -1]:
        return None
    rows = first[-2] if len(first) > 1 else 1
    columns = second[-1] if len(second) > 1 else 1
    shape = prod(first[:-2]), rows, columns, first[-1]
    if min(shape) < 1:
        return None
    out = prod(shape[:3])
    moved = sum(operands.sizes[: bias + 3]) + out * operands.itemsizes[bias + 1]
    found = gemm(shape, moved, "")
    return found if bias < 0 else found._replace(extra=out)


def _fused(causal_at: int, *, first: int = 0, heads_at: int = 1) -> _Rule:
    """Give the rule of attention: where the mask, the queries, and the heads are."""

    def rule(operands: Operands) -> Work | None:
        query, key, value = operands.inputs[first : first + 3]
        if not len(query) == len(key) == len(value) == _HEADS:
            return None
        length_at = 3 - heads_at
        shape = query[0] * query[heads_at], query[length_at], key[length_at], query[3]
        if min(shape) < 1:
            return None
        qkv = sum(operands.sizes[first : first + 3])
        if first:  # reads also the result and its gradient, and writes three gradients
            moved = 2 * (qkv + operands.sizes[0])
        else:
            moved = qkv + shape[0] * shape[1] * value[3] * operands.itemsizes[0]
        is_causal = operands.is_true(causal_at)
        masked = 1 - part_computed(shape[1], shape[2]) if is_causal else 0.0
        return attention(shape, value[3], moved, "", causal=masked, backward=bool(first))

    return rule


def _convolution(operands: Operands) -> Work | None:
    image, weight = operands.inputs[:2]
    if len(image) < _IMAGE or len(image) != len(weight):
        return None
    out = list(operands.outputs[0]) if operands.outputs else _convolved(operands, image, weight)
    if len(out) != len(image):
        return None
    is_transposed = operands.is_true(6)
    size = sum(operands.sizes[:3]) + prod(out) * operands.itemsizes[0]
    found = _unfolded(out if not is_transposed else image, image, weight, size, is_transposed)
    has_bias = len(operands.sizes) > 2 and operands.sizes[2] > 0
    return found._replace(extra=prod(out) if has_bias else 0)


def _unfolded(places: Shape, image: Shape, weight: Shape, size: int, is_transposed: bool) -> Work:
    """Return the work of the product of unfolded images."""
    flops = 2 * prod(places) * prod(weight[1:])
    groups = max(image[1] // weight[1], 1) if not is_transposed else 1
    shape = groups, prod(places) // places[1], weight[0] // groups, prod(weight[1:])
    is_filled = min(weight[:2]) >= 1 and min(shape) > 0
    # a filter of one channel fills no tile of a matrix: it is bound by memory
    is_filled &= groups == 1 or min(shape[2], weight[1]) >= _SMALL
    return Work("conv", flops, size, shape if is_filled else (), uncut=flops)


def _convolved(operands: Operands, image: Shape, weight: Shape) -> list[int]:
    """Return the output's shape: stride, padding, dilation, transposed, padding of the output."""
    stride, padding, dilation = (operands.integers(3 + k) for k in range(3))
    out = [image[0], weight[0]]
    is_transposed, more = operands.is_true(6), operands.integers(7)
    if is_transposed:
        groups = operands.integers(8)
        out[1] = weight[1] * (groups[0] if groups else 1)
    for k, size in enumerate(image[2:]):
        one, pad, wide = (each[k % len(each)] for each in (stride, padding, dilation))
        reach = wide * (weight[2 + k] - 1)
        out.append((size - 1) * one - 2 * pad + reach + (more[k] if k < len(more) else 0) + 1
                   if is_transposed else (size + 2 * pad - reach - 1) // one + 1)  # fmt: skip
    return out


def _convolution_backward(operands: Operands) -> Work | None:
    """Return two products, of the images and of the weights, or the one that is asked for."""
    gradient, image, weight = operands.inputs[:3]
    if len(image) < _IMAGE or len(image) != len(weight) or len(gradient) != len(image):
        return None
    if operands.outputs:  # a gradient that nobody needs is not given
        parts = sum(len(shape) > 1 for shape in operands.outputs)
    else:
        mask = operands.values[-1] if operands.values else ""
        parts = sum(part.strip() in ("True", "true") for part in mask.strip("[]").split(",")[:2])
    parts = parts or 2
    is_transposed = operands.is_true(7)
    size = operands.sizes[0] + (1 + (parts > 1)) * sum(operands.sizes[1:3])
    of_one = _unfolded(image if is_transposed else gradient, image, weight, size, is_transposed)
    flops = parts * of_one.flops
    # products whose shapes are not equal: no curve of one is theirs
    return of_one._replace(op_class="", flops=flops, uncut=flops, shape=())


def _norm(channels_at: int) -> _Rule:
    """Count mean, variance and result of each element, and what is kept and scaled by channel."""

    def rule(operands: Operands) -> Work | None:
        shape = operands.inputs[0]
        weight = operands.inputs[channels_at] if channels_at < len(operands.inputs) else ()
        if not shape:
            return None
        channels = prod(weight) if weight else 0
        size = 2 * operands.sizes[0] + 6 * channels * operands.itemsizes[0]
        return Work("norm", 0, size, extra=5 * prod(shape) + 6 * channels, uncut=0)

    return rule


# rules of serving engines: the csrc/torch_bindings.cpp of vLLM, common_extension.cc of sgl-kernel


def _linear(operands: Operands) -> Work | None:
    """Count a product with a transposed weight (columns, k), and a bias if the third is one."""
    given, weight = operands.inputs[:2]
    if len(weight) != _MATRIX or not given or given[-1] != weight[1]:
        return None
    shape = 1, prod(given[:-1]), weight[0], weight[1]
    out = shape[1] * shape[2]
    has_bias = len(operands.inputs) > 2 and tuple(operands.inputs[2]) == (weight[0],)
    moved = sum(operands.sizes[: 2 + has_bias]) + out * operands.itemsizes[0]
    return gemm(shape, moved, "")._replace(extra=out if has_bias else 0)


def _product_into(operands: Operands) -> Work | None:
    """Count a product whose result is the first operand."""
    found = _product(operands._replace(inputs=operands.inputs[1:3], sizes=operands.sizes[1:3]))
    return found and found._replace(bytes=sum(operands.sizes[:3]))


def _rms(given: int, weight: int, *, adds: bool = False) -> _Rule:
    """Count square, sum, scale and weight of each element, and with ``adds`` a residual."""

    def rule(operands: Operands) -> Work | None:
        shape = operands.inputs[given]
        if not shape or list(operands.inputs[weight]) != list(shape[-1:]):
            return None
        size = (2 + 2 * adds) * operands.sizes[given] + operands.sizes[weight]
        extra = (4 + adds) * prod(shape) + 2 * prod(shape[:-1])
        return Work("norm", 0, size, extra=extra, uncut=0)

    return rule


def _gated(operands: Operands) -> Work | None:
    """Count the four operations of SiLU, and the product with the other half."""
    out, given = operands.inputs[:2]
    if not out or list(given) != [*out[:-1], 2 * out[-1]]:
        return None
    return Work("activation", 0, sum(operands.sizes[:2]), extra=5 * prod(out), uncut=0)


def _rotated(operands: Operands) -> Work | None:
    """Count four products and two sums for each pair of elements that a position rotates."""
    positions, query, key, _, table = operands.inputs[:5]
    if not positions or not query or len(table) != _MATRIX:
        return None
    part = table[-1] / operands.integers(3)[0]
    turned = round((prod(query) + (prod(key) if key else 0)) * part)
    rows = operands.sizes[0] + prod(positions) * table[-1] * operands.itemsizes[4]
    return Work("rope", 0, 2 * turned * operands.itemsizes[1] + rows, extra=3 * turned, uncut=0)


def _stored(operands: Operands) -> Work | None:
    """Count keys and values that are read and written, and where they go."""
    key, value = operands.inputs[:2]
    if not key or not value:
        return None
    return Work("copy", 0, 2 * sum(operands.sizes[:2]) + operands.sizes[4], uncut=0)


def _paged(first: int = 0) -> _Rule:
    """Give the rule of attention with a paged cache: queries, keys and values from ``first`` on.

    Tokens outside a sliding window count, as no recording states it, and keys have the type of
    the operand.
    """

    def rule(operands: Operands) -> Work | None:
        query, key, value = operands.inputs[first : first + 3]
        if len(query) != _MATRIX + 1 or min(len(key), len(value)) <= _MATRIX:
            return None
        if (lengths := operands.lengths) is None or not 0 < lengths.queries <= query[0]:
            return Work("attention", -1, -1, missing="lengths of the step's sequences")
        widths, itemsize = query[2] + value[-1], operands.itemsizes[first]
        flops = 2 * query[1] * widths * lengths.scores
        cached = key[-2] * widths * lengths.keys * operands.itemsizes[first + 1]
        moved = query[1] * widths * lengths.queries * itemsize + cached
        shape = query[1], lengths.queries, lengths.keys, query[2]
        return Work("attention", flops, moved, shape, uncut=flops)

    return rule


def _experts(operands: Operands) -> Work | None:
    """Count experts whose weights are operands, as are the ids of those of each token."""
    hidden, up, down, _, chosen = operands.inputs[:5]
    # a map of experts to ranks: which tokens are this rank's, no shape states
    if any(len(one) == 1 and one[0] > up[0] for one in operands.inputs[5:]):
        return Work("moe", -1, -1, missing="how many tokens reach the experts of this rank")
    weights = [(up, operands.itemsizes[1]), (down, operands.itemsizes[2])]
    return _of_experts(operands, up[0], chosen[-1], weights) if hidden else None


def _routed(operands: Operands) -> Work | None:
    """Count experts that the router's scores (tokens, experts) choose: of calls within this one.

    The weights are tensors of three dimensions, the first of which is the experts.
    """
    tokens, experts = operands.inputs[1]
    chosen, weights = set(), []
    for name, inner in operands.inner:
        place = _ROUTERS.get(name, -1)
        if 0 <= place < len(inner.inputs) and len(shape := inner.inputs[place]) == _MATRIX:
            chosen |= {shape[1]} if shape[0] == tokens else set()
        elif name in _TOP:
            chosen |= set(inner.integers(1))
        for shape, itemsize in zip(inner.inputs, inner.itemsizes, strict=False):
            if len(shape) == _MATRIX + 1 and shape[0] == experts:
                weights.append((shape, itemsize))
    if len(chosen) != 1:
        return Work("moe", -1, -1, missing="how many experts a token goes to")
    return _of_experts(operands, experts, chosen.pop(), weights)


def _of_experts(
    operands: Operands, experts: int, chosen: int, weights: Sequence[tuple[Shape, int]]
) -> Work:
    """Count the two products of each token and expert; one that is gated has twice the columns.

    Weights of one byte may hold two values. Experts are read as often as even routing reaches
    them: which ones are reached is not recorded.
    """
    hidden = operands.inputs[0]
    tokens, width = prod(hidden[:-1]), hidden[-1]
    for (up, up_size), (down, down_size) in product(weights, weights):
        for packed in (1, 2) if up_size == down_size == 1 else (1,):
            sides = _other_side(up, width // packed), _other_side(down, width) * packed
            if sides[1] < 1 or sides[0] not in (sides[1], 2 * sides[1]) or up is down:
                continue
            shape = 1, tokens * chosen, width, sides[0] + sides[1]
            size = sum(map(prod, (up[1:], down[1:]))) * up_size
            reached = experts * (1 - (1 - min(chosen / experts, 1)) ** tokens)
            flops = 2 * prod(shape)
            return Work("moe", flops, 2 * operands.sizes[0] + round(reached * size), uncut=flops,
                        shape=(experts, tokens, width, sides[1]))  # fmt: skip
    return Work("moe", -1, -1, missing="the sizes of the experts' weights")


def _other_side(weight: Shape, side: int) -> int:
    """Return the side of a matrix of each expert beside a known one; 0 if it has none such."""
    first, second = weight[-2:]
    return second if first == side else first if second == side else 0


_Rule = Callable[[Operands], "Work | None"]


def _named(op_class: str, names: str, rule: _Rule | None = None) -> dict[str, _Known]:
    return {f"aten::{name}": (op_class, rule) for name in names.split()}


def _of(op_class: str, names: str, rule: _Rule) -> dict[str, _Known]:
    return dict.fromkeys(names.split(), (op_class, rule))


_Known = tuple[str, "_Rule | None"]
_DOT = "_scaled_dot_product_"
OPERATORS: dict[str, _Known] = {
    **_named("gemm", "mm bmm _scaled_mm _int_mm mv dot vdot", _product),
    **_named("gemm", "addmm baddbmm addmv", lambda one: _product(one, 0)),
    **_named("conv", "convolution _convolution cudnn_convolution miopen_convolution "
             "mkldnn_convolution", _convolution),
    **_named("conv", "convolution_backward", _convolution_backward),
    **_named("attention", f"{_DOT}flash_attention {_DOT}flash_attention_for_cpu", _fused(4)),
    **_named("attention", f"{_DOT}efficient_attention {_DOT}cudnn_attention", _fused(6)),
    **_named("attention", f"{_DOT}fused_attention_overrideable", _fused(5)),
    **_named("attention", "_flash_attention_forward", _fused(8, heads_at=2)),
    **_named("attention", "_efficient_attention_forward", _fused(9, heads_at=2)),
    **_named("attention", f"{_DOT}flash_attention_backward {_DOT}efficient_attention_backward",
             _fused(11, first=1)),
    **_named("attention", f"{_DOT}flash_attention_for_cpu_backward", _fused(7, first=1)),
    **_named("attention", f"{_DOT}cudnn_attention_backward", _fused(14, first=1)),
    **_named("attention", f"{_DOT}fused_attention_overrideable_backward", _fused(13, first=1)),
    **_named("attention", "_flash_attention_backward", _fused(11, first=1, heads_at=2)),
    **_named("attention", "_efficient_attention_backward", _fused(14, first=1, heads_at=2)),
    **_named("norm", "native_layer_norm _fused_rms_norm", _norm(2)),
    **_named("norm", "native_group_norm native_batch_norm cudnn_batch_norm miopen_batch_norm",
             _norm(1)),
    **_named("norm", "native_layer_norm_backward _fused_rms_norm_backward "
             "native_batch_norm_backward cudnn_batch_norm_backward native_group_norm_backward"),
    **_named("softmax", "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data"),
    **_named("cross_entropy", "nll_loss_forward nll_loss_backward nll_loss2d_forward "
             "nll_loss2d_backward"),
    **_named("add", "add add_ sub sub_ mul mul_ div div_"),
    **_named("activation", "gelu gelu_backward silu silu_ silu_backward relu relu_ "
             "threshold_backward sigmoid tanh"),
    **_named("embedding", "embedding embedding_dense_backward _embedding_bag "
             "_embedding_bag_forward_only _embedding_bag_dense_backward index_select gather"),
    **_named("optimizer", "_fused_adam_ _fused_adamw_ _fused_sgd_ _foreach_add_ _foreach_mul_ "
             "_foreach_addcdiv_ _foreach_addcmul_ _foreach_lerp_ _foreach_div_ _foreach_sqrt"),
    **_named("copy", "copy_ clone _to_copy cat fill_ zero_ split_with_sizes_copy"),
    **_named("scan", "cumsum cumprod sort topk"),
    **_of("gemm", "vllm::rocm_unquantized_gemm vllm::rocm_unquantized_gemm_impl "
          "aiter::gemm_a16w16", _linear),
    **_of("gemm", "sgl_kernel::fp8_scaled_mm sgl_kernel::int8_scaled_mm "
          "sgl_kernel::fp8_blockwise_scaled_mm", _product),
    **_of("gemm", "_C::cutlass_scaled_mm", _product_into),
    **_of("norm", "aiter::rms_norm", _rms(0, 1)),
    **_of("norm", "_C::rms_norm aiter::rmsnorm sgl_kernel::rmsnorm", _rms(1, 2)),
    **_of("norm", "_C::fused_add_rms_norm sgl_kernel::fused_add_rmsnorm", _rms(0, 2, adds=True)),
    **_of("norm", "aiter::rmsnorm2d_fwd_with_add_ck aiter::add_rmsnorm", _rms(1, 4, adds=True)),
    **_of("activation", "_C::silu_and_mul _C::mul_and_silu sgl_kernel::silu_and_mul", _gated),
    **_of("rope", "_C::rotary_embedding sgl_kernel::rotary_embedding", _rotated),
    **_of("copy", "_C_cache_ops::reshape_and_cache_flash _C_cache_ops::reshape_and_cache "
          "sglang::store_cache", _stored),
    **_of("moe", "vllm::inplace_fused_experts vllm::outplace_fused_experts "
          "sglang::inplace_fused_experts sglang::outplace_fused_experts", _experts),
}  # fmt: skip
"""By name of an operator of PyTorch or of serving engines: its class, and the rule of its work.

Without a rule it has no operations; others that read or write tensors are elementwise.
"""

OF_CALLS: dict[str, _Known] = {
    **_of("moe", "vllm::moe_forward vllm::moe_forward_shared", _routed),
    **_of("attention", "vllm::unified_attention vllm::unified_attention_with_output "
          "sglang::unified_attention_with_output", _paged()),
    **_of("attention", "sglang_profiler::attention_paged_attention_ragged", _paged(2)),
}  # fmt: skip
"""Operators whose work their operands alone do not tell: steps, or calls within them, do."""

# how often each token is routed: the place of the experts' ids (tokens, experts of each), or of
# their number
_ROUTERS = {
    "SortTokens": 1, "_moe_C::topk_softmax": 1, "_moe_C::moe_align_block_size": 0,
    "sgl_kernel::topk_softmax": 1, "sgl_kernel::moe_align_block_size": 0, "aiter::topk_softmax": 1,
}  # fmt: skip
_TOP = frozenset({"TopK", "aten::topk"})

VIEWS = frozenset(
    _named(
        "", "to contiguous view _unsafe_view reshape t transpose permute expand expand_as "
        "squeeze unsqueeze slice select as_strided detach detach_ alias empty empty_like "
        "empty_strided new_empty new_empty_strided split split_with_sizes chunk unbind narrow "
        "_reshape_alias flatten view_as lift_fresh resize_ set_ result_type item "
        "_local_scalar_dense",
    )
)  # fmt: skip
"""Operators that run no kernel."""
