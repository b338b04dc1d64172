"""The type of device work: computation, communication or memory."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl

from nadi.files.communication_names import comm_type_of_kernel
from nadi.trace.arrays import Ints
from nadi.trace.categories import COPY_KERNELS

KERNEL_TYPES = ("computation", "communication", "memory")
"""Memory is copies and memory sets; computation is every other kernel that does not communicate."""

_COMPUTATION, _COMMUNICATION, _MEMORY = range(len(KERNEL_TYPES))


@cache
def is_communication(name: str) -> bool:
    """Return whether a kernel communicates, by its name."""
    return comm_type_of_kernel(name) != "none"


def kernel_type_codes(name: pl.Series, category: pl.Series) -> Ints:
    """Return the type of device work, as its position in ``KERNEL_TYPES``.

    - ``name``, ``category``: Columns of ``schema.NODES``, shape (rows,).
    - Returns int64, shape (rows,): Each distinct name is looked at once.
    """
    distinct = name.unique()
    texts = distinct.cast(pl.String)
    talks = distinct.filter(pl.Series([is_communication(one) for one in texts], dtype=pl.Boolean))
    codes = np.where(name.is_in(talks.implode()).to_numpy(), _COMMUNICATION, _COMPUTATION)
    copies = distinct.filter(texts.str.contains(COPY_KERNELS))
    is_copy = category.is_in(["memcpy", "memset"]) | name.is_in(copies.implode())
    codes[is_copy.to_numpy()] = _MEMORY
    return codes.astype(np.int64)
