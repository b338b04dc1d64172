"""Equal numbers for equal rows of tables, exactly and without hashes."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.trace.arrays import Ints

_FEW = 1 << 14  # rows that are sorted faster than a table of them is made


def number_pairs(first: Ints, second: Ints) -> Ints:
    """Return the same number for the same pairs, from 0; int64, both of shape (rows,)."""
    if 0 < first.size < _FEW:
        order = np.lexsort((second, first))
        a, b = first[order], second[order]
        is_new = np.append(False, (a[1:] != a[:-1]) | (b[1:] != b[:-1]))
        number = np.empty(first.size, dtype=np.int64)
        number[order] = np.cumsum(is_new)
        return number
    return number_table(pl.DataFrame({"first": first, "second": second}))


def number_table(frame: pl.DataFrame) -> Ints:
    """Return the same number for equal rows, from 0 in order of appearance; int64, (rows,)."""
    if not frame.height:
        return np.zeros(0, dtype=np.int64)
    names = frame.columns
    known = frame.unique(maintain_order=True).with_row_index("number")
    found = frame.join(known, on=names, how="left", maintain_order="left")
    return found["number"].cast(pl.Int64).to_numpy()


def with_entries(code: Ints, first: Ints, number: Ints) -> Ints:
    """Return numbers of rows that also tell apart what entries they have, in order.

    - ``code``: int64, shape (rows,): numbers of the rows so far.
    - ``first``: int64, shape (rows + 1,): where the entries of each row begin.
    - ``number``: int64, shape (entries,). O(entries log entries).
    """
    sizes = np.diff(first)
    code = number_pairs(code, sizes)
    for position in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > position)
        fresh = number_pairs(code[rows], number[first[rows] + position])
        code = code.copy()
        code[rows] = fresh + int(code.max()) + 1
    return code
