"""Classes of kernels, recognized by their names: what a device spends its time on."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["KERNEL_CLASSES", "OTHER_KERNELS", "kernel_class"]

OTHER_KERNELS = "other kernels"
KERNEL_CLASSES = {
    "communication": r"(?i)nccl|rccl|hccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all",
    "attention": r"(?i)flash|fmha|attention|attn|softmax_warp",
    "convolution": r"(?i)conv|wgrad|dgrad|fprop|winograd|igemm",
    "matrix multiplication": r"(?i)gemm|gemv|matmul|_mm_|cutlass|Cijk_|nvjet|splitK|::dot_kernel",
    "normalization": r"(?i)norm(?!al_)|batch_?norm|bn_(?:fw|bw)",
    "optimizer": r"(?i)multi_tensor_apply|adam|sgd",
    "copy": r"(?i)memcpy|memset|copy|transpose|CatArray|fill",
    "reduction": r"(?i)reduce|softmax|argmax|topk|sort|scan",
    "elementwise": r"(?i)elementwise|vectorized|pointwise|triton_poi|index|gather|scatter|embed",
}
"""Of each class, a regular expression for kernel names; the first that matches counts."""


@lru_cache(maxsize=65_536)
def kernel_class(name: str) -> str:
    """Return the class of a kernel, copy or memory set, or ``OTHER_KERNELS``."""
    for one, expression in KERNEL_CLASSES.items():
        if re.search(expression, name):
            return one
    return OTHER_KERNELS
