"""Compute the size of an operation's input tensors, from recorded shapes and types."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from nadi.trace.arrays import Ints
from nadi.trace.attributes import Attributes
from nadi.trace.dtypes import ITEMSIZE, MAX_BYTES

__all__ = ["recorded_bytes", "tensor_bytes"]


def recorded_bytes(rows: Ints, attributes: Attributes) -> Ints:
    """Sum the bytes of the tensors in Kineto's ``Input Dims`` and ``Input type``.

    Parameters
    ----------
    rows
        int64: rows of nodes.
    attributes
        The trace's; only those of ``rows`` are read.

    Returns
    -------
    int64, shape (rows,)
        Bytes; -1 if the profiler recorded no shapes, or no types (lists of tensors).
    """
    return np.array([_bytes(attributes.of(int(row)).get("args")) for row in rows], dtype=np.int64)


def _bytes(args: Any) -> int:
    dims = args.get("Input Dims") if isinstance(args, dict) else None
    types = args.get("Input type") if isinstance(args, dict) else None
    if not isinstance(dims, list) or not isinstance(types, list):
        return -1
    sizes = []
    for shape, name in zip(dims, types, strict=False):
        size = ITEMSIZE.get(name) if isinstance(name, str) else None
        if size and isinstance(shape, list):
            if not all(isinstance(length, int) and 0 <= length < 2**40 for length in shape):
                return -1
            sizes.append(size * prod(shape))
    return min(sum(sizes), MAX_BYTES) if sizes else -1


def tensor_bytes(value: Any) -> Iterator[int]:
    """Return the total bytes of tensors in nested lists.

    A tensor is [id, storage, offset, elements, itemsize, device].
    """
    if not isinstance(value, list):
        return
    if len(value) == 6 and isinstance(value[5], str):
        elements, itemsize = value[3:5]
        if all(isinstance(number, int) and 0 <= number < 2**40 for number in (elements, itemsize)):
            yield elements * itemsize
    else:
        for item in value:
            yield from tensor_bytes(item)
