"""Whether the arguments of a recorded call are such as this PyTorch's operator may be given.

The schema in a trace is what its author wrote. Which operator is called, and what each of its
arguments is, is asked of this PyTorch.
"""

import importlib
from collections.abc import Collection
from typing import Any

from nadi.pytorch.rerunning.recorded_calls import (
    RecordedCall,
    Signature,
    TensorArgument,
    Unrecorded,
)

_DEVICES = ("cpu", "cuda", "meta")
_LARGEST = 2**63
_NUMBERS = {
    "IntType": (int,), "SymIntType": (int,), "BoolType": (bool, int), "FloatType": (float, int),
    "SymBoolType": (bool, int), "NumberType": (float, int),
}  # fmt: skip


def find_operator(signature: Signature) -> Any:
    """Return the operator of this PyTorch that a schema names; None if there is none."""
    torch: Any = importlib.import_module("torch")
    try:
        packet = getattr(getattr(torch.ops, signature.space), signature.name)
        return getattr(packet, signature.overload)
    except (AttributeError, RuntimeError):
        return None


def refused_arguments(call: RecordedCall, allowed: Collection[str]) -> str:
    """Return why a call must not be made; nothing if it may be, as far as its arguments say.

    - ``allowed``: Names of further operators, which the user trusts; these get any arguments.
    """
    signature = call.signature
    if signature is None:
        return "its schema cannot be read"
    name = f"{signature.space}::{signature.name}"
    if len(call.inputs) > len(signature.parameters):
        return "it has more arguments than its schema"
    for parameter, value in zip(signature.parameters, call.inputs, strict=False):
        kind = _unrecorded(value)
        if kind:
            return f"the trace does not hold its argument {parameter} ({kind})"
    if name not in allowed and name not in SAFE_OPERATORS:
        return "it is not among the operators that are known to be safe (--allow)"
    operator = find_operator(signature)
    if operator is None:
        return "this PyTorch has no such operator"
    known = operator._schema.arguments
    for place, (parameter, value) in enumerate(
        zip(signature.parameters, call.inputs, strict=False)
    ):
        by_place = place < signature.by_position
        same = place < len(known) and known[place].name == parameter
        argument = next((one for one in known if one.name == parameter), None)
        if argument is None or (by_place and (not same or argument.kwarg_only)):
            return f"this PyTorch's operator has another argument than {parameter}"
        if not _fits(argument.type, parameter, value) and name not in allowed:
            return f"its argument {parameter} is not what the operator takes"
    return ""


def _unrecorded(value: Any) -> str:
    if isinstance(value, Unrecorded):
        return value.kind
    if isinstance(value, list):
        return next((kind for one in value if (kind := _unrecorded(one))), "")
    return ""


def _fits(kind: Any, parameter: str, value: Any) -> bool:
    """Return whether a value is of the type of an argument."""
    name = kind.kind()
    if name == "OptionalType":
        return value is None or _fits(kind.getElementType(), parameter, value)
    if name == "ListType":
        inner = kind.getElementType()
        if isinstance(value, list):
            return all(_fits(inner, parameter, one) for one in value)
        return inner.kind() in _NUMBERS and _fits(inner, parameter, value)  # one for all dimensions
    if parameter in CODES:
        return value is None or value in CODES[parameter]
    if name == "TensorType":
        return value is None or isinstance(value, TensorArgument)
    if name in _NUMBERS:
        return isinstance(value, _NUMBERS[name]) and (value != value or abs(value) < _LARGEST
                                                      or isinstance(value, float))  # fmt: skip
    if name == "StringType":
        return value in STRINGS.get(parameter, ())
    if name == "DeviceObjType":  # the chosen one is given instead
        return (
            parameter == "device" and isinstance(value, str) and value.partition(":")[0] in _DEVICES
        )
    return name == "GeneratorType" and value is None


# name and name_ : element by element, through TensorIterator, which checks and broadcasts shapes
_ELEMENTWISE_OR_IN_PLACE = """
abs acos acosh add addcdiv addcmul arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan
atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
ceil celu clamp clamp_max clamp_min clip conj_physical copysign cos cosh cumprod cumsum deg2rad
digamma div divide dropout elu eq erf erfc erfinv exp exp2 expm1 feature_alpha_dropout
feature_dropout fill fix floor floor_divide fmod frac gcd ge gelu greater greater_equal gt
hardsigmoid hardswish hardtanh heaviside hypot i0 lcm ldexp le leaky_relu lerp less less_equal
lgamma log log10 log1p log2 logical_and logical_not logical_or logical_xor logit lt masked_fill
mish mul multiply nan_to_num ne neg negative nextafter not_equal polygamma pow rad2deg reciprocal
relu relu6 remainder renorm round rrelu rsqrt selu sgn sigmoid sign silu sin sinc sinh sqrt square
sub subtract tan tanh threshold tril triu true_divide trunc xlogy zero alpha_dropout index_add
index_copy index_fill index_put index_reduce masked_scatter put scatter scatter_add scatter_reduce
addbmm addmm addmv addr baddbmm bernoulli fill_diagonal
"""
_ELEMENTWISE = """
__and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__ __xor__
angle complex fmax fmin hardshrink isclose isfinite isinf isnan isneginf isposinf isreal log_sigmoid
log_sigmoid_forward logaddexp logaddexp2 maximum minimum polar positive prelu _prelu_kernel rsub
signbit softplus softshrink special_erf special_erfc special_expit special_expm1 special_log1p
special_logit where glu _conj_physical
elu_backward gelu_backward glu_backward hardshrink_backward hardsigmoid_backward hardswish_backward
hardtanh_backward leaky_relu_backward log_sigmoid_backward mish_backward native_dropout_backward
sigmoid_backward silu_backward softplus_backward softshrink_backward tanh_backward
threshold_backward
binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits huber_loss
huber_loss_backward kl_div l1_loss mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward
soft_margin_loss soft_margin_loss_backward cosine_embedding_loss cosine_similarity
hinge_embedding_loss margin_ranking_loss pairwise_distance poisson_nll_loss triplet_margin_loss
native_dropout _masked_scale _fused_dropout
"""
# over lists of tensors, one after the other where shapes differ
_FOREACH = """
abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min copy cos cosh div erf erfc exp expm1
floor frac lerp lgamma log log10 log1p log2 maximum minimum mul neg pow reciprocal round rsqrt
sigmoid sign sin sinh sqrt sub tan tanh trunc zero
"""
_FOREACH_ONLY = "_foreach_norm _foreach_max _foreach_clone"
_REDUCTIONS = """
all amax amin aminmax any argmax argmin argsort count_nonzero cummax cummin diff equal is_nonzero
item _local_scalar_dense kthvalue linalg_vector_norm logcumsumexp logsumexp max mean median min mode
msort nanmean nanmedian nansum norm prod sort std std_mean sum sum_to_size topk trace var var_mean
_is_all_true _is_any_true _log_softmax _softmax _safe_softmax log_softmax softmax softmin
special_softmax special_log_softmax
"""
_PRODUCTS = """
bilinear bmm chain_matmul dot inner kron linear matmul mm mv outer ger tensordot vdot vecdot
linalg_vecdot linalg_multi_dot linalg_matmul cross linalg_cross _euclidean_dist cdist
"""
# memory is shared and nothing is written; sizes and bounds are checked
_VIEWS = """
adjoint alias as_strided atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to chunk _conj
conj contiguous detach detach_ diagonal dsplit expand expand_as flatten flatten_dense_tensors hsplit
imag is_pinned is_same_size lift lift_fresh mT mH matrix_H moveaxis movedim narrow _neg_view
numpy_T permute pin_memory _pin_memory ravel real reshape reshape_as resolve_conj resolve_neg
result_type select size slice split split_with_sizes squeeze stride swapaxes swapdims t
tensor_split transpose unbind unflatten unflatten_dense_tensors unfold unsafe_chunk unsafe_split
unsafe_split_with_sizes _unsafe_view unsqueeze view view_as view_as_complex view_as_real vsplit
"""
_NEW_TENSORS = """
arange bartlett_window blackman_window empty empty_like empty_permuted empty_strided eye full
full_like hamming_window hann_window linspace logspace new_empty new_empty_strided new_full new_ones
new_zeros normal normal_functional ones ones_like rand rand_like randint randint_like randn
randn_like randperm scalar_tensor tril_indices triu_indices zeros zeros_like _efficientzerotensor
cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_ multinomial poisson
"""
_COPIES = """
block_diag cat clone column_stack concat concatenate constant_pad_nd copy copy_ diag diag_embed
dstack embedding flip fliplr flipud gather hstack index index_select meshgrid one_hot pad
pixel_shuffle pixel_unshuffle channel_shuffle repeat roll rot90 row_stack select_backward
select_scatter slice_backward slice_scatter diagonal_backward stack take take_along_dim tile to
_to_copy type_as vstack _cast_Float _cast_Half _cast_Double _cast_Long _cast_Int _chunk_cat
reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
replication_pad3d bucketize searchsorted
"""
_LAYERS = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d
_adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d
avg_pool2d avg_pool2d_backward avg_pool3d batch_norm _batch_norm_impl_index col2im conv1d conv2d
conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution
convolution_backward cross_entropy_loss embedding_bag _embedding_bag group_norm gru gru_cell im2col
instance_norm layer_norm lstm lstm_cell max_pool1d max_pool2d max_pool2d_with_indices max_pool3d
max_pool3d_with_indices native_group_norm native_group_norm_backward native_layer_norm nll_loss
nll_loss2d nll_loss2d_forward nll_loss_forward nll_loss_nd rms_norm _fused_rms_norm rnn_relu
rnn_relu_cell rnn_tanh rnn_tanh_cell scaled_dot_product_attention _scaled_dot_product_attention_math
grid_sampler grid_sampler_2d grid_sampler_3d affine_grid_generator upsample_bicubic2d
upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
upsample_bicubic2d_backward upsample_bilinear2d_backward upsample_linear1d_backward
upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
upsample_trilinear3d_backward
_amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_
"""
# operand_rules checks their operands: their kernels rely on them
_CHECKED_BEFORE = """
_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward _embedding_bag_backward
_embedding_bag_dense_backward
_fused_adagrad_ _fused_adam_ _fused_adamw_ _fused_sgd_ _log_softmax_backward_data
_native_batch_norm_legit _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward _softmax_backward_data embedding_backward
embedding_dense_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward
native_batch_norm native_batch_norm_backward native_layer_norm_backward nll_loss2d_backward
nll_loss_backward
"""
_TRANSFORMS = """
fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_irfft fft_irfft2 fft_irfftn fft_rfft
fft_rfft2 fft_rfftn fft_fftshift fft_ifftshift fft_fftfreq fft_rfftfreq _fft_c2c _fft_c2r _fft_r2c
"""


def _names() -> frozenset[str]:
    found = {*_ELEMENTWISE_OR_IN_PLACE.split(), *_ELEMENTWISE.split(), *_REDUCTIONS.split(),
             *_PRODUCTS.split(), *_VIEWS.split(), *_NEW_TENSORS.split(), *_COPIES.split(),
             *_LAYERS.split(), *_CHECKED_BEFORE.split(), *_TRANSFORMS.split(),
             *_FOREACH_ONLY.split()}  # fmt: skip
    found |= {f"{name}_" for name in _ELEMENTWISE_OR_IN_PLACE.split()}
    found |= {f"_foreach_{name}" for name in _FOREACH.split()}
    found |= {f"_foreach_{name}_" for name in _FOREACH.split()}
    return frozenset(f"aten::{name}" for name in found)


SAFE_OPERATORS = _names()
"""Names of operators that a replay may call, of all their overloads."""

STRINGS = {
    "approximate": ("none", "tanh"),
    "indexing": ("ij", "xy"),
    "mode": ("constant", "reflect", "replicate", "circular"),
    "norm": ("backward", "forward", "ortho"),
    "padding": ("valid", "same"),
    "reduce": ("add", "multiply", "sum", "prod", "mean", "amax", "amin"),
    "rounding_mode": ("trunc", "floor"),
    "side": ("left", "right"),
}
"""What an argument may be whose operator takes a text, by its name."""

# of torch/headeronly/core/ScalarType.h: numbers, bool, bfloat16 and float8
_DTYPES = (*range(12), 15, 23, 24, 25, 26)
CODES = {
    "dtype": _DTYPES, "input_dtype": _DTYPES, "output_dtype": _DTYPES,
    "layout": (0,), "memory_format": (0, 1, 2, 3),
}  # fmt: skip
"""What the number may be that stands for a type, or for a layout, which is dense."""
