"""Columns that a kernel read from the bytes of a file: numbers, and where texts stand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from nadi.errors import FormatError
from nadi.files.files import RawFile
from nadi.files.json_file import Texts, find_texts
from nadi.trace.arrays import Bools, Floats, Ints, Ints32

MISSING = -(2**63)
"""The value of a column of numbers in rows that have none."""
OTHER, NULL, INTEGER = -3, -2, -1
"""Instead of a length, for values that are no text."""
_MOST = 2**62


@dataclass(frozen=True, eq=False)
class ReadColumns:
    """Rows of which some columns were read; columns that the file lacks have no values."""

    raw: RawFile  # its content has the texts
    row_of: Mapping[str, int]  # of each column in ``values``
    # values, lengths: int64 and int32, shape (columns, rows): integers; of texts where they begin,
    # and their bytes, which are OTHER, NULL or INTEGER of what is no text
    values: Ints
    lengths: Ints32
    read: Callable[[bytes], str]  # gives a text of its bytes

    @property
    def height(self) -> int:
        """The number of rows."""
        return int(self.values.shape[1])

    def numbers(self, name: str) -> Ints:
        """Return the integers of a column, ``MISSING`` where there is none; int64, (rows,)."""
        if name not in self.row_of:
            return np.full(self.height, MISSING)
        row = self.row_of[name]
        return np.where(self.lengths[row] == INTEGER, self.values[row], MISSING)

    def whole(self, name: str, otherwise: int | None = None) -> Ints:
        """Return the whole numbers of a column, ``otherwise`` where there is no value.

        - Raises FormatError if a value is anything else, or is absent and ``otherwise`` is None.
        """
        row = self.row_of[name]
        values: Ints = self.values[row]
        kinds = self.lengths[row]
        is_good = (kinds == INTEGER) & (values >= 0) & (values < _MOST)
        if otherwise is not None:
            is_good |= kinds == NULL
            values = np.where(kinds == NULL, otherwise, values)
        if not is_good.all():
            raise self.error(name, "no whole number", ~is_good)
        return values

    def error(self, name: str, what: str, is_bad: Bools) -> FormatError:
        """Return the error of the first row that is bad."""
        place = f"{self.raw.name}, record {int(np.flatnonzero(is_bad)[0]) + 1}"
        return FormatError(place, f"{name} is {what}", "record it again")

    def reals(self, name: str) -> Floats:
        """Return the numbers of a column, NaN where there is none; float64, (rows,)."""
        values, kinds = self.values[self.row_of[name]], self.lengths[self.row_of[name]]
        found = np.where(kinds == INTEGER, values, np.nan).astype(np.float64)
        rows = np.flatnonzero(kinds < OTHER)
        written = find_texts(
            self.raw, values[rows], OTHER - kinds[rows].astype(np.int64), bytes.decode
        )
        found[rows] = np.array([*map(_real, written.unique), np.nan])[written.codes]
        return found

    def texts(self, name: str) -> Texts:
        """Return the texts of a column, with code -1 where there is none."""
        codes = np.full(self.height, -1, dtype=np.int32)
        if name not in self.row_of:
            return Texts(codes, ())
        at, length = self.values[self.row_of[name]], self.lengths[self.row_of[name]]
        rows = np.flatnonzero(length >= 0)
        found = find_texts(self.raw, at[rows], length[rows].astype(np.int64), self.read)
        codes[rows] = found.codes
        return Texts(codes, found.unique)


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
