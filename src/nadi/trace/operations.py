"""Operations as columns: what a price depends on; and element types of tensors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.trace.arrays import Ints

MAX_BYTES = 2**62
"""Sums of sizes are capped here, so that a file cannot make an int64 overflow."""


class Dtype(NamedTuple):
    """One element type."""

    torch: str  # name in Python: ``torch.float32``
    scalar_type: str  # name in ``dtype`` of ``record_param_comms``
    # name in the profiler's ``Input type`` and in the types of an execution trace
    cpp: tuple[str, ...]
    itemsize: int  # bytes per element


DTYPES = (
    Dtype("bool", "Bool", ("bool",), 1),
    Dtype("uint8", "Byte", ("unsigned char",), 1),
    Dtype("int8", "Char", ("signed char",), 1),
    Dtype("int16", "Short", ("short", "short int"), 2),
    Dtype("int32", "Int", ("int",), 4),
    Dtype("int64", "Long", ("long", "long int"), 8),
    Dtype("float8_e5m2", "Float8_e5m2", ("c10::Float8_e5m2",), 1),
    Dtype("float8_e4m3fn", "Float8_e4m3fn", ("c10::Float8_e4m3fn",), 1),
    Dtype("float8_e5m2fnuz", "Float8_e5m2fnuz", ("c10::Float8_e5m2fnuz",), 1),
    Dtype("float8_e4m3fnuz", "Float8_e4m3fnuz", ("c10::Float8_e4m3fnuz",), 1),
    Dtype("float16", "Half", ("c10::Half",), 2),
    Dtype("bfloat16", "BFloat16", ("c10::BFloat16",), 2),
    Dtype("float32", "Float", ("float",), 4),
    Dtype("float64", "Double", ("double",), 8),
    Dtype("complex64", "ComplexFloat", ("c10::complex<float>",), 8),
    Dtype("complex128", "ComplexDouble", ("c10::complex<double>",), 16),
)
ITEMSIZE = {
    name: dtype.itemsize
    for dtype in DTYPES
    for name in (dtype.torch, dtype.scalar_type, *dtype.cpp)
}
"""Bytes per element, by any name of its type."""


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
