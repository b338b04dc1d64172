"""The words that may leave with an obfuscated job: everything else becomes a pseudonym or goes.

The list is short and closed. A column, attribute or word that is not on it cannot leak, because
traces are built from it and not by taking things away.
"""

from __future__ import annotations

import re

from nadi.formats.chakra.chakra_attributes import NAMES_OF_COLUMNS
from nadi.model.kernel_classes import KERNEL_CLASSES, OTHER_KERNELS, kernel_class
from nadi.model.runtime_calls import HTA_CALLS
from nadi.model.schema import CATEGORIES, COMM_TYPES, DEP_KINDS, NODE_KINDS
from nadi.pricing.aten_operations import ATEN
from nadi.pricing.operations import DTYPE_NAMES, OP_CLASSES

__all__ = ["ATTRIBUTES", "BACKENDS", "PHASES", "WORDS", "class_word", "kept_name"]

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
    return prefix + (op_class or ATEN.get(name, "") or category)
