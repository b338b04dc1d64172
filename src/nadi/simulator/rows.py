"""Rows of several columns, told apart: what ``numpy.unique`` with an axis does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = ["number_rows"]

_Ints = npt.NDArray[np.int64]


def number_rows(columns: Sequence[_Ints]) -> tuple[_Ints, _Ints]:
    """Give a number to each different row, from 0, in ascending order of the columns.

    They are found by a hash: to sort all of them byte by byte, as ``numpy.unique`` does, takes
    twenty times as long, 0.3 s for 240,000 rows.

    Parameters
    ----------
    columns
        int64, shape (rows,) each.

    Returns
    -------
    number, first
        int64: of each row, shape (rows,); the first row of each number, shape (numbers,).
    """
    names = [str(number) for number in range(len(columns))]
    rows = pl.DataFrame(dict(zip(names, columns, strict=True)))
    different = (
        rows.with_row_index("first").group_by(names).agg(pl.col("first").min()).sort(names)
    ).with_row_index("number")
    number = rows.join(different, on=names, how="left", maintain_order="left")["number"]
    return number.to_numpy().astype(np.int64), different["first"].to_numpy().astype(np.int64)
