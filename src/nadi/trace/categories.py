"""Classes of kernels, recognized by their names: what a device spends its time on.

The calls of the CUDA and HIP runtimes and drivers that synchronize host and device.

:data:`CALLS` declares every kind of call for all runtimes; a new runtime is one more prefix in its
rows. :data:`HTA_CALLS` declares the calls in HTA's rules, which match whole names. Copies are
distinguished by the names that the profiler gives them on the device, as in
``Memcpy DtoH (Device -> Pageable)``.

The values of categorical columns: kinds, types, categories.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from nadi.trace.collectives import COLLECTIVES
from nadi.trace.protobuf_values import VALUE_TYPES

OTHER_KERNELS = "other kernels"
KERNEL_CLASSES = {
    "communication": r"(?i)nccl|rccl|hccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all",
    "attention": r"(?i)flash|fmha|attention|attn|softmax_warp",
    "convolution": r"(?i)conv|wgrad|dgrad|fprop|winograd|igemm|[hs]cudnn_",
    "embedding": r"(?i)embedding|bounds_check_indices|fbgemm_gpu::permute|\bsplit_eb_",
    "matrix multiplication": (
        r"(?i)(?<!fb)gemm|gemv|matmul|_mm_|cutlass|Cijk_|nvjet|splitK|::dot_kernel|\bfc-"
    ),
    "normalization": r"(?i)norm(?!al_)|batch_?norm|bn_(?:fw|bw)",
    "optimizer": r"(?i)multi_tensor_apply|adam|sgd",
    "copy": r"(?i)memcpy|memset|copy|transpose|CatArray|fill",
    "sort": r"(?i)topk|sort",
    "reduction": r"(?i)reduce|softmax|argmax|scan",
    "elementwise": (
        r"(?i)elementwise|vectorized|pointwise|triton_poi|index|gather|scatter|embed|quantize"
    ),
}
"""Of each class, a regular expression for kernel names; the first that matches counts."""


@lru_cache(maxsize=65_536)
def kernel_class(name: str) -> str:
    """Return the class of a kernel, copy or memory set, or ``OTHER_KERNELS``."""
    for one, expression in KERNEL_CLASSES.items():
        if re.search(expression, name):
            return one
    return OTHER_KERNELS


class RuntimeCall(NamedTuple):
    """One kind of runtime call."""

    kind: str  # name of the kind in the linking rules
    # the prefixes of the runtimes and drivers that have it: ``cu`` is CUDA's driver
    runtimes: tuple[str, ...]
    # regular expression for the rest of the name after the prefix. A version (``_v2``) or a variant
    # (``WithFlags``) may follow, unless the expression ends in ``$``.
    name: str
    effect: str  # effect of the call on the calling thread and on streams


_ALL = ("cuda", "hip", "cu")
_RUNTIMES = ("cuda", "hip")
CALLS = (
    RuntimeCall("device sync", _RUNTIMES, "DeviceSynchronize", "waits for all work of the device"),
    RuntimeCall("device sync", ("cu", "hip"), "CtxSynchronize", "waits for all work of the device"),
    RuntimeCall("stream sync", _ALL, "StreamSynchronize", "waits for all work of a stream"),
    RuntimeCall("event sync", _ALL, "EventSynchronize", "waits until a recorded event is reached"),
    RuntimeCall("event record", _ALL, "EventRecord", "puts an event after the work of a stream"),
    RuntimeCall("stream wait", _ALL, "StreamWaitEvent", "lets a stream wait for an event"),
    RuntimeCall("event query", _RUNTIMES, "EventQuery$", "asks for an event and goes on"),
    RuntimeCall(
        "capture mode",
        _RUNTIMES,
        "ThreadExchangeStreamCaptureMode$",
        "sets how the thread may call while a stream is captured",
    ),
    RuntimeCall("copy", _RUNTIMES, "Memcpy", "copies; waits for it, unless it is asynchronous"),
    RuntimeCall("blocking copy", _RUNTIMES, "Memcpy$", "copies and waits for it"),
    RuntimeCall("asynchronous copy", _RUNTIMES, "Memcpy.*Async", "copies and goes on"),
)

COPY_TO_PAGEABLE = r"(?i)->\s*pageable"
COPY_FROM_PAGEABLE = r"(?i)pageable\s*->"
COPY_ON_DEVICE = r"(?i)\bDtoD\b|\bPtoP\b|device\s*->\s*device"
STAGED_COPY_BYTES = 64 * 1024  # up to this size copies from pageable memory do not block
COPY_KERNELS = r"^dma_"  # of devices without a category for copies

# what HTA takes a call to do: launch work, make its thread wait, take the lock of the runtime
HTA_CALLS = {
    "cudaLaunchKernel": ("launches", "locks"),
    "cudaLaunchKernelExC": ("launches",),
    "cuLaunchKernel": ("launches",),
    "cuLaunchKernelEx": ("launches",),
    "cudaMemcpyAsync": ("launches", "blocks", "locks"),
    "cudaMemsetAsync": ("launches",),
    "hipLaunchKernel": ("launches",),
    "hipExtModuleLaunchKernel": ("launches",),
    "hipMemsetAsync": ("launches",),
    "hipMemcpyAsync": ("launches",),
    "hipMemcpyWithStream": ("launches",),
    "runFunction - job_prep_and_submit_for_execution": ("launches",),
    "cudaDeviceSynchronize": ("blocks",),
    "cudaStreamSynchronize": ("blocks",),
    "cudaEventQuery": ("blocks",),
    "cudaEventSynchronize": ("blocks",),
    "cudaMemcpy": ("blocks",),
    "cudaHostAlloc": ("locks",),
}
HTA_EVENT_RECORD = "cudaEventRecord"


def pattern(*kinds: str) -> str:
    """Return a regular expression that matches the names of calls of the given kinds."""
    chosen = [call for call in CALLS if call.kind in kinds]
    return "|".join(f"^({'|'.join(call.runtimes)}){call.name}" for call in chosen)


def hta_calls(effect: str) -> tuple[str, ...]:
    """Return the calls with an effect in HTA's rules: launches, blocks or locks."""
    return tuple(name for name, effects in HTA_CALLS.items() if effect in effects)


NODE_KINDS = (
    "INVALID",
    "METADATA",
    "MEM_LOAD",
    "MEM_STORE",
    "COMP",
    "COMM_SEND",
    "COMM_RECV",
    "COMM_COLL",
)
CATEGORIES = (
    "metadata",
    "annotation",
    "python",
    "operator",
    "runtime",
    "driver",
    "kernel",
    "memcpy",
    "memset",
    "sync",
    "device_annotation",
)
# what the profiler of PyTorch calls them
KINETO_CATEGORIES = {
    "cpu_op": "operator",
    "user_annotation": "annotation",
    "python_function": "python",
    "cuda_runtime": "runtime",  # of HIP too
    "cuda_driver": "driver",
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
    "cuda_sync": "sync",
    "gpu_user_annotation": "device_annotation",
}
# what other vendors call them, and torch 1.8 to 1.11; written again as they were
VENDOR_CATEGORIES = {
    "hpu_op": "operator",
    "mtia_runtime": "runtime",
    "mtia_ccp_events": "kernel",
    "mtia_insight": "device_annotation",
    "xpu_runtime": "runtime",
    "xpu_driver": "driver",
    "glow_runtime": "runtime",
    "privateuse1_runtime": "runtime",
    "privateuse1_driver": "driver",
    "enqueue": "operator",  # of Ascend: work handed to another thread
    "dequeue": "operator",
    "Operator": "operator",
    "Annotation": "annotation",
    "Runtime": "runtime",
    "Driver": "driver",
    "Kernel": "kernel",
    "Memcpy": "memcpy",
    "Memset": "memset",
}
COMMUNICATION_KINDS = ("COMM_COLL", "COMM_SEND", "COMM_RECV")
LABELS = ("annotation", "python")  # ranges around operations, which do no work of their own
THREAD_WORK = ("annotation", "python", "operator", "runtime", "driver")
DEVICE_WORK = ("kernel", "memcpy", "memset")
ON_DEVICE = (*DEVICE_WORK, "sync", "device_annotation")  # every category of a device
COMM_TYPES = ("none", *COLLECTIVES, "send", "recv", "other")
DEP_KINDS = (
    "call",
    "order",
    "launch",
    "stream",
    "event",
    "sync",
    "thread",
    "comm",
    "raw",
    "war",
    "waw",
    "data",
    "ctrl",
)
TENSOR_DEPS = (
    "raw",
    "war",
    "waw",
)  # derived from tensors read and written, regardless of the order of issue
GIVEN_DEPS = ("data", "ctrl")  # stated by a file, regardless of times and row order
# Chakra's types of values, and everything else that is kept of a file: raw JSON; texts of operands;
# a dependency on a missing node, or a repeated one; a comment on the attribute before it;
# protobuf fields unknown to this version
ATTRIBUTE_TYPES = (
    *VALUE_TYPES,
    "none",
    "json",
    "operand",
    "dependency",
    "doc_string",
    "unknown",
)
UNBOUNDED = 2**62  # a clock shift without an upper bound; negative for one without a lower bound
PART = "nadi_part"  # the attribute of a trace that is a part of another: what crosses its border
UNREADABLE = "unreadable"  # the type of an operand that holds a whole text that cannot be parsed
SEVERITIES = ("info", "warning", "error")
# what tensors are for; kv is the cache of keys and values of inference, prefix what sequences share
TENSOR_ROLES = (
    "weights", "gradients", "optimizer", "activations", "kv", "other", "prefix", "tables",
)  # fmt: skip
ROLE_SOURCES = ("stated", "inferred")
