"""Columns of integers that grow piece by piece, in memory that is given back when they end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nadi.trace.arrays import Bools, Ints

# So large an array gets pages of its own, which go back to the system when it ends. Small ones
# would lie between what else each piece needs, and keep that memory from being given back.
_CHUNK_BYTES = 1 << 26


class GrowingColumn:
    """A column of integers, stored in a narrow type where they fit and in int64 elsewhere.

    Parameters
    ----------
    narrow
        The narrow type.
    """

    def __init__(self, narrow: npt.DTypeLike) -> None:
        self._narrow = np.dtype(narrow)
        self._chunks: list[npt.NDArray[Any]] = []
        self._sizes: list[int] = []

    def __len__(self) -> int:
        return sum(self._sizes)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Append integers. O(values)."""
        if not values.size:
            return
        limits = np.iinfo(self._narrow)
        fits = limits.min <= values.min() and values.max() <= limits.max
        dtype = self._narrow if fits else np.dtype(np.int64)
        done = 0
        while done < values.size:
            if not self._chunks or self._chunks[-1].dtype != dtype or not self._room():
                self._chunks.append(np.empty(_CHUNK_BYTES // dtype.itemsize, dtype=dtype))
                self._sizes.append(0)
            count, at = min(self._room(), values.size - done), self._sizes[-1]
            self._chunks[-1][at : at + count] = values[done : done + count]
            self._sizes[-1] += count
            done += count

    def _room(self) -> int:
        return self._chunks[-1].size - self._sizes[-1]

    def values(self) -> npt.NDArray[Any]:
        """Return all integers in one array, shape (rows,)."""
        parts = [one[:size] for one, size in zip(self._chunks, self._sizes, strict=True)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=self._narrow)

    def keep(self, chosen: Bools) -> None:
        """Drop rows; ``chosen`` is bool, shape (rows,)."""
        at = 0
        for number, chunk in enumerate(self._chunks):
            size = self._sizes[number]
            kept = chunk[:size][chosen[at : at + size]]
            chunk[: kept.size] = kept
            self._sizes[number] = kept.size
            at += size

    def take_ordered(self, new_row: Ints) -> Ints:
        """Return the integers in new rows, and empty the column.

        Parameters
        ----------
        new_row
            int64, shape (rows,): the new row of each, all different.

        Returns
        -------
        int64, shape (rows,)
        """
        found = np.empty(len(self), dtype=np.int64)
        at = 0
        while self._chunks:
            chunk, size = self._chunks.pop(0), self._sizes.pop(0)
            found[new_row[at : at + size]] = chunk[:size]
            at += size
        return found
