"""Operators of PyTorch: their class, and shapes and operations that follow from their operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

__all__ = ["ATEN", "VIEWS", "shape_of"]

_Shape = Sequence[int]
_UNKNOWN = (-1, -1, -1, -1)


def _named(op_class: str, names: str) -> dict[str, str]:
    return {f"aten::{name}": op_class for name in names.split()}


ATEN = {
    **_named("gemm", "mm addmm bmm baddbmm _scaled_mm _int_mm mv addmv dot convolution "
             "_convolution cudnn_convolution miopen_convolution mkldnn_convolution"),
    **_named("attention", "_scaled_dot_product_flash_attention _flash_attention_forward "
             "_scaled_dot_product_efficient_attention _efficient_attention_forward "
             "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu "
             "_scaled_dot_product_flash_attention_backward _flash_attention_backward "
             "_scaled_dot_product_efficient_attention_backward _efficient_attention_backward "
             "_scaled_dot_product_cudnn_attention_backward"),
    **_named("norm", "native_layer_norm native_layer_norm_backward _fused_rms_norm "
             "_fused_rms_norm_backward native_batch_norm native_batch_norm_backward "
             "cudnn_batch_norm cudnn_batch_norm_backward native_group_norm "
             "native_group_norm_backward"),
    **_named("softmax", "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data"),
    **_named("cross_entropy", "nll_loss_forward nll_loss_backward nll_loss2d_forward "
             "nll_loss2d_backward"),
    **_named("add", "add add_ sub sub_ mul mul_ div div_"),
    **_named("activation", "gelu gelu_backward silu silu_ silu_backward relu relu_ "
             "threshold_backward sigmoid tanh"),
    **_named("embedding", "embedding embedding_dense_backward _embedding_bag "
             "_embedding_bag_dense_backward index_select gather"),
    **_named("optimizer", "_fused_adam_ _fused_adamw_ _fused_sgd_ _foreach_add_ _foreach_mul_ "
             "_foreach_addcdiv_ _foreach_addcmul_ _foreach_lerp_ _foreach_div_ _foreach_sqrt"),
    **_named("copy", "copy_ clone _to_copy cat fill_ zero_ split_with_sizes_copy"),
    **_named("", "convolution_backward"),
    **_named("scan", "cumsum cumprod sort topk"),
}  # fmt: skip
"""The class of an operator; others that read or write tensors are elementwise."""

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

_MATRICES = 2
_DIMENSIONS = 4
_BACKWARD = 2.5  # operations of attention's backward pass, over those of its forward pass


def shape_of(
    name: str, op_class: str, inputs: Sequence[_Shape], outputs: Sequence[_Shape], *, causal: bool
) -> tuple[tuple[int, ...], int]:
    """Return an operator's shape as pricing takes it, and its operations; -1 if unknown.

    Parameters
    ----------
    inputs, outputs
        The shapes of its tensors.
    causal
        Whether attention leaves out half of the scores.

    Returns
    -------
    shape, flops
        Four sizes, and the number of operations.
    """
    if op_class == "gemm":
        shape = _matrix(name, inputs, outputs)
        return shape, 2 * prod(shape) if shape != _UNKNOWN else -1
    if op_class == "attention":
        shape = _heads(name, inputs)
        whole = 4 * prod(shape) * (_BACKWARD if "backward" in name else 1)
        return shape, round(whole / (2 if causal else 1)) if shape != _UNKNOWN else -1
    if name == "aten::convolution_backward":  # two products, whose shapes are not equal
        shape = _matrix(name, inputs[1:], inputs)
        return _UNKNOWN, 4 * prod(shape) if shape != _UNKNOWN else -1
    return _UNKNOWN, 0


def _matrix(
    name: str, inputs: Sequence[_Shape], outputs: Sequence[_Shape]
) -> tuple[int, int, int, int]:
    """Return batch, m, n and k."""
    if "convolution" in name:
        if not outputs or len(inputs) < _MATRICES or len(inputs[1]) < _MATRICES:
            return _UNKNOWN
        out, weight = outputs[0], inputs[1]
        if len(out) < _MATRICES or out[1] < 1:
            return _UNKNOWN
        found = 1, prod(out) // out[1], weight[0], prod(weight[1:])
        return found if min(found) > 0 else _UNKNOWN
    added = name in ("aten::addmm", "aten::baddbmm", "aten::addmv")
    operands = inputs[1:] if added else inputs
    if len(operands) < _MATRICES or not operands[0] or not operands[1]:
        return _UNKNOWN
    left, right = operands[0], operands[1]
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    found = prod(left[:-2]), rows, columns, left[-1]
    return found if min(found) > 0 else _UNKNOWN


def _heads(name: str, inputs: Sequence[_Shape]) -> tuple[int, int, int, int]:
    """Return batch times heads, queries, keys and the size of a head."""
    first = 1 if "backward" in name else 0  # after the gradient of the output
    if len(inputs) < first + _MATRICES:
        return _UNKNOWN
    query, key = inputs[first], inputs[first + 1]
    if len(query) != _DIMENSIONS or len(key) != _DIMENSIONS:
        return _UNKNOWN
    # scaled_dot_product: batch, heads, length, size; the functions below: batch, length, heads
    head, length = (1, 2) if "scaled_dot_product" in name else (2, 1)
    found = query[0] * query[head], query[length], key[length], query[3]
    return found if min(found) > 0 else _UNKNOWN
