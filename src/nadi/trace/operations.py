"""Operations as columns: what a price depends on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.trace.arrays import Ints
from nadi.trace.dtypes import DTYPES

OP_CLASSES = (
    "", "gemm", "attention", "norm", "softmax", "elementwise", "add", "activation", "rope",
    "embedding", "optimizer", "cross_entropy", "permute", "copy", "scan",
    "conv",
)  # fmt: skip
"""Classes of operations, as the attribute ``op_class`` states them; ``""`` is unknown."""

DTYPE_NAMES = ("", *(dtype.torch for dtype in DTYPES))
"""Names of types, as the attribute ``dtype`` states them; ``""`` is unknown."""

_CLASS = {name: code for code, name in enumerate(OP_CLASSES)}
_DTYPE = {
    name: code
    for code, dtype in enumerate(DTYPES, 1)
    for name in (dtype.torch, f"torch.{dtype.torch}", dtype.scalar_type, *dtype.cpp)
}


class Operations(NamedTuple):
    """A row per operation.

    Attributes
    ----------
    flops, bytes
        int64, shape (operations,): operations, and bytes read and written; -1 if unknown.
    op_class, dtype
        int64, shape (operations,): positions in :data:`OP_CLASSES` and :data:`DTYPE_NAMES`.
    shape
        int64, shape (operations, 4): of gemm batch, m, n, k, and of conv those of the product
        of unfolded images; of attention batch times heads, queries, keys, size of a head; -1 if
        unknown.
    """

    flops: Ints
    bytes: Ints
    op_class: Ints
    dtype: Ints
    shape: Ints

    def at(self, rows: Ints) -> Operations:
        """Return some rows."""
        return Operations(*(column[rows] for column in self))


def no_operations(size: int) -> Operations:
    """Return operations of which nothing is known."""
    unknown = np.full(size, -1, dtype=np.int64)
    none = np.zeros(size, dtype=np.int64)
    return Operations(
        unknown, unknown.copy(), none, none.copy(), np.full((size, 4), -1, dtype=np.int64)
    )


def op_class_code(name: str) -> int:
    """Return the position of a class; that of ``""`` if it is not known."""
    return _CLASS.get(name, 0)


def dtype_code(name: str) -> int:
    """Return the position of a type by any of its names; that of ``""`` if it is not known."""
    return _DTYPE.get(name, 0)
