"""The words that may leave with an obfuscated job: everything else becomes a pseudonym or goes.

The list is short and closed. A column, attribute or word that is not on it cannot leak, because
traces are built from it and not by taking things away.
"""

from __future__ import annotations

import re

from nadi.files.chakra.chakra_attributes import NAMES_OF_COLUMNS
from nadi.trace.kernel_classes import KERNEL_CLASSES, OTHER_KERNELS, kernel_class
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from nadi.trace.runtime_calls import HTA_CALLS
from nadi.trace.schema import CATEGORIES, COMM_TYPES, DEP_KINDS, NODE_KINDS
from nadi.trace.work import OPERATORS

__all__ = [
    "ATTRIBUTES", "BACKENDS", "PHASES", "WORDS", "class_word", "kept_name", "learned_label",
]  # fmt: skip

PHASES = ("forward", "backward", "recompute", "optimizer")
BACKENDS = ("nccl", "gloo", "mpi", "ucc", "rccl", "hccl", "cuda:nccl", "cpu:gloo")
ATTRIBUTES = ("op_class", "dtype", "gemm_shape", "comm_priority", "involved_dim")
"""Attributes of nodes that stay, if their values are words of this module or numbers."""

_RUNTIME = frozenset(HTA_CALLS) | {
    f"{runtime}{call}"
    for runtime in ("cuda", "hip")
    for call in (
        "DeviceSynchronize", "StreamSynchronize", "EventSynchronize", "EventRecord",
        "EventRecordWithFlags", "StreamWaitEvent", "EventQuery", "Memcpy", "MemcpyAsync",
        "MemsetAsync", "GraphLaunch", "LaunchKernel", "LaunchKernelExC", "Malloc", "Free",
        "StreamIsCapturing", "ThreadExchangeStreamCaptureMode",
    )
}  # fmt: skip
_STEP = re.compile(r"ProfilerStep#\d{1,9}")
_PREFIXES = ("c10d::", "gloo:", "nccl:")  # by which analyses recognize communication
# each word is of the class that a kernel of this name has
_KERNEL_WORDS = {
    "communication": "nccl", "attention": "attention", "convolution": "conv",
    "matrix multiplication": "gemm", "normalization": "norm", "optimizer": "multi_tensor_apply",
    "copy": "copy", "reduction": "reduce", "elementwise": "elementwise", OTHER_KERNELS: "kernel",
}  # fmt: skip
_ON_DEVICE = ("kernel", "memcpy", "memset")

WORDS = frozenset({
    *PHASES, *BACKENDS, *ATTRIBUTES, *_RUNTIME, *_KERNEL_WORDS.values(), *OP_CLASSES, *DTYPE_NAMES,
    *CATEGORIES, *COMM_TYPES, *DEP_KINDS, *NODE_KINDS, *KERNEL_CLASSES, *NAMES_OF_COLUMNS,
    "ProfilerStep", "block", "c10d", "gloo", "nccl",
    *(prefix + word for prefix in _PREFIXES for word in (*COMM_TYPES, *CATEGORIES)),
})  # fmt: skip
"""All words that can be in the files of an obfuscated job besides the names of their fields."""


_NUMBER = re.compile(r"\d+")
# of which the modules, products and messages of generated jobs are named
_GENERATED = frozenset({
    "act", "activation", "adaln", "add_time", "all_gather", "all_reduce", "all_to_all",
    "attention", "attn", "avgpool", "blocks", "bn", "bottom", "box", "boxes", "boxes_loss",
    "broadcast", "bucket", "buffers", "class_token", "classes", "classes_loss", "combine",
    "condition", "conv", "conv_act", "conv_in", "conv_norm_out", "conv_out", "conv_proj",
    "conv_shortcut", "core", "counters", "cross", "depthwise", "dispatch", "down",
    "downsample", "dp", "embedding", "expand", "experts", "fc", "ff", "final", "fpn",
    "from_experts", "gated_", "geglu", "gradient_norm", "gradient_sum", "gradients", "head",
    "image", "indices", "inner", "input", "input_gradient", "interaction", "join",
    "key_value_down", "key_value_norm", "key_value_up", "label", "largest", "layer", "layers",
    "linear", "ln", "ln_", "logits", "loss", "mask", "masks", "maxpool", "mid", "mlp",
    "modulate", "norm", "objectness", "objectness_loss", "optimizer", "out_proj", "output",
    "p", "pointwise", "pool", "pos_embed", "pos_embedding", "pp", "product", "proj",
    "proj_in", "proj_out", "project", "qk_norm", "qkv", "query_down", "query_norm",
    "query_up", "receive_activations", "receive_gradients", "reduce_scatter", "regions",
    "relu", "residual", "resnet", "rest", "rope", "router", "rpn", "send_activations",
    "send_gradients", "shared", "silu", "silu_time", "statistics", "stem", "sum", "sum_",
    "t_embedder", "tables", "time_emb_proj", "time_embedding", "to_experts", "to_kv",
    "to_out", "to_q", "to_qkv", "tokens", "top", "tp", "trunk", "unpatchify", "up", "up_relu",
    "upsample", "upsample_conv", "v", "w", "weight_gradient", "weights", "whole",
    "x_embedder", "y_embedder",
})  # fmt: skip
# of operators that PyTorch and its libraries define, kernels of theirs, and calls of runtimes
_LIBRARIES = (
    r"(aten|prims|prim|c#d|c#d_functional|_c#d_functional|gloo|nccl|fbgemm|torchvision)::[\w.#]+",
    r"gloo:\w+",
    r"nccl:\w+",
    r"(autograd::engine::evaluate_function: )?[\w#]+Backward#",
    r"(autograd::engine::evaluate_function: )?torch::autograd::(AccumulateGrad|CopySlices)",
    r"Optimizer\.(step|zero_grad)#(Adam|AdamW|SGD|RMSprop|Adagrad|NAdam|RAdam)\.(step|zero_grad)",
    r"(cuda|hip|cu)[A-Z][\w#]{2,60}",
    r"(Memcpy|Memset) [\w() >-]+",
    r"nccl\w+(\([\w *,:<>]*\))?",
    r"(void )?(at::native|at::cuda|cudnn|cublas\w*|cutlass\w*|cub|thrust)(::|<)[^/\\\"'@]+",
    r"(ampere|volta|turing|hopper|sm#|maxwell|pascal|implicit_convolve|Cijk)_[\w#]+",
    r"\((no operation|before the recording)\)",
    r"ProfilerStep##",
)
_LIBRARY = re.compile("|".join(f"(?:{one})" for one in _LIBRARIES))


def learned_label(name: str, category: str, comm_type: str, op_class: str) -> str:
    """Return what a model may know an operation by: a name that everybody has, or its class.

    Modules, annotations, files, users and kernels of a job's own become a word of a closed list.
    Numbers in names become ``#``.
    """
    label = _NUMBER.sub("#", name)
    generated = all(part.strip("#") in _GENERATED or part == "#" for part in label.split("."))
    if generated or label in WORDS or _LIBRARY.fullmatch(label):
        return label
    return _NUMBER.sub("#", class_word(name, category, comm_type, op_class)) or "operation"


def kept_name(name: str, category: str) -> bool:
    """Return whether the name of an operation stays: marks of steps, and calls of a runtime."""
    if category in ("runtime", "driver"):
        return name in _RUNTIME
    return _STEP.fullmatch(name) is not None


def class_word(name: str, category: str, comm_type: str, op_class: str) -> str:
    """Return the word before a pseudonym: what kind of operation it is, from a closed list."""
    prefix = next((one for one in _PREFIXES if name.startswith(one)), "")
    if comm_type != "none":
        return prefix + comm_type
    if category in _ON_DEVICE and not op_class:
        return _KERNEL_WORDS[kernel_class(name)]
    return prefix + (op_class or OPERATORS.get(name, ("",))[0] or category)
