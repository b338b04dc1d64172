"""How large the tensors are that the profiler saw an operation given."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nadi.model.arrays import Ints
from nadi.model.attributes import Attributes

__all__ = ["recorded_bytes"]

# C++ names of types, as "Input type" has them
_BYTES = {
    "float": 4, "double": 8, "int": 4, "long": 8, "long int": 8, "short": 2, "short int": 2,
    "signed char": 1, "unsigned char": 1, "bool": 1, "c10::Half": 2, "c10::BFloat16": 2,
    "c10::complex<float>": 8, "c10::complex<double>": 16, "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2fnuz": 1, "c10::Float8_e4m3fnuz": 1,
}  # fmt: skip
_MAX_BYTES = 2**62


def recorded_bytes(rows: Ints, attributes: Attributes) -> Ints:
    """Add up the tensors of Kineto's ``Input Dims`` and ``Input type``.

    Parameters
    ----------
    rows
        int64: rows of nodes.
    attributes
        The trace's; only those of ``rows`` are looked at.

    Returns
    -------
    int64, shape (rows,)
        Bytes; -1 where the profiler noted no shapes, or not of which type (lists of tensors).
    """
    return np.array([_bytes(attributes.of(int(row)).get("args")) for row in rows], dtype=np.int64)


def _bytes(args: Any) -> int:
    dims = args.get("Input Dims") if isinstance(args, dict) else None
    types = args.get("Input type") if isinstance(args, dict) else None
    if not isinstance(dims, list) or not isinstance(types, list):
        return -1
    sizes = []
    for shape, name in zip(dims, types, strict=False):
        size = _BYTES.get(name) if isinstance(name, str) else None
        if size and isinstance(shape, list):
            if not all(isinstance(length, int) and 0 <= length < 2**40 for length in shape):
                return -1
            sizes.append(size * prod(shape))
    return min(sum(sizes), _MAX_BYTES) if sizes else -1
