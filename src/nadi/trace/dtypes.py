"""Element types of tensors: their sizes, and their names in PyTorch and its profiler."""

from __future__ import annotations

from typing import NamedTuple

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
