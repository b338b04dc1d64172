"""Names of the array types that annotations use."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import UsageError

Ints = npt.NDArray[np.int64]
"""Times in nanoseconds, sizes in bytes, row numbers and ids; -1 is a missing reference."""
Ints32 = npt.NDArray[np.int32]
"""Codes of names, and other numbers with few values."""
Numbers = npt.NDArray[np.integer[Any]]
"""Whole numbers of any width, such as positions that 32 bits hold."""
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]


def whole_numbers(values: Sequence[Any], what: str) -> Ints:
    """Return numbers that were computed, of any size, as int64.

    - ``what``: Of what they are, for the error, such as ``model``.
    - Raises UsageError if one is beyond 64 bits.
    """
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise UsageError(
            what, "an operation has over 2^63 - 1 floating point operations or bytes",
            "state a smaller model, batch or sequence",
        ) from None  # fmt: skip


def text_codes(texts: pl.Series) -> Ints:
    """Return a number for each text, the same for equal ones; another call may number anew.

    int64, shape (texts,); 0 or more. O(texts).
    """
    return texts.cast(pl.Categorical).to_physical().to_numpy().astype(np.int64)


def counted_texts(texts: pl.Series) -> dict[str, int]:
    """Return how often each text occurs, the most frequent first, then by name. O(texts)."""
    counts = texts.alias("text").value_counts().cast({"text": pl.String})
    return dict(counts.sort("count", "text", descending=[True, False]).iter_rows())


def numbered_texts(texts: pl.Series) -> tuple[Ints, list[str]]:
    """Return the number of each text, int64, and each different text once, by its number.

    They are numbered as they come, so equal columns are numbered alike. O(texts).
    """
    codes = text_codes(texts)
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(first.size, dtype=np.int64)
    number[order] = np.arange(first.size)
    return number[place.reshape(-1)], texts.gather(first[order]).to_list()
