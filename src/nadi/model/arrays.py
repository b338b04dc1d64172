"""Names of the array types that annotations use."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Bools", "Bytes", "Floats", "Hashes", "Ints", "Ints32"]

Ints = npt.NDArray[np.int64]
"""Times in nanoseconds, sizes in bytes, row numbers and ids; -1 is a missing reference."""
Ints32 = npt.NDArray[np.int32]
"""Codes of names, and other numbers with few values."""
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]
