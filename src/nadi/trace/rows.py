"""Rows of tables: which are alike (``numpy.unique`` is slower), and which enclose others."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from nadi.kernels.sequences import climb
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import writable

_LARGEST = 2**62
# of a hash: an odd number whose bits are spread, and half of its bits
_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def number_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Assign numbers to the distinct rows from 0, in ascending order of the columns.

    Looked up as one number each where few numbers are possible, else sorted, or found by a hash
    where numbers would be too large: ``numpy.unique`` compares rows byte by byte, which takes ten
    times as long.

    - ``columns``: int64, shape (rows,) each.
    - Returns number, first: int64: of each row, shape (rows,); the first row of each number, shape
      (numbers,).
    """
    key = _as_one(columns)
    if key is None:
        return _by_hash(columns)
    if key.size and (most := int(key.max())) < key.size:
        # a table of the first row of each number: of several, the last that is assigned stays
        row = np.full(most + 1, -1)
        row[key[::-1]] = np.arange(key.size)[::-1]
        is_there = row >= 0
        return (np.cumsum(is_there) - 1)[key], row[is_there]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    is_new = np.append(True, ordered[1:] != ordered[:-1])[: key.size]
    number = np.empty(key.size, dtype=np.int64)
    number[order] = np.cumsum(is_new) - 1
    return number, order[is_new].astype(np.int64, copy=False)


def _as_one(columns: Sequence[Ints]) -> Ints | None:
    """Encode each row as one number of the same order; None if it would overflow."""
    key, span = np.zeros(columns[0].size, dtype=np.int64), 1
    for column in columns if key.size else ():
        least, most = int(column.min()), int(column.max())
        span *= most - least + 1
        if span > _LARGEST:
            return None
        if most > least:
            key = key * (most - least + 1) + (column - least)
    return key


def _by_hash(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Sort hashes of rows, and the distinct rows by their columns."""
    hashed = np.zeros(columns[0].size, dtype=np.uint64)
    for column in columns:
        hashed ^= column.view(np.uint64) if column.flags.c_contiguous else column.astype(np.uint64)
        hashed *= _FACTOR
        hashed ^= hashed >> _SHIFT
    order = np.argsort(hashed, kind="stable")
    ordered = hashed[order]
    is_new = np.append(True, ordered[1:] != ordered[:-1])[: hashed.size]
    group = np.empty(hashed.size, dtype=np.int64)
    group[order] = np.cumsum(is_new) - 1
    first = order[is_new].astype(np.int64, copy=False)
    if any((column != column[first][group]).any() for column in columns):
        return _by_frame(columns)  # different rows have one hash
    by_columns = np.lexsort([column[first] for column in reversed(columns)])
    number = np.empty(first.size, dtype=np.int64)
    number[by_columns] = np.arange(first.size)
    return number[group], first[by_columns]


def _by_frame(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    names = [str(number) for number in range(len(columns))]
    rows = pl.DataFrame(dict(zip(names, columns, strict=True)))
    different = (
        rows.with_row_index("first").group_by(names).agg(pl.col("first").min()).sort(names)
    ).with_row_index("number")
    number = rows.join(different, on=names, how="left", maintain_order="left")["number"]
    return number.to_numpy().astype(np.int64), different["first"].to_numpy().astype(np.int64)


def nearest(rows: Ints, parent: Ints, is_wanted: Bools) -> Ints:
    """Return the nearest wanted row of each row: itself, or one of its ancestors.

    - ``rows``: int64, of any shape: rows to start from; -1 for none.
    - ``parent``: int64, shape (rows of the table,): the enclosing row of each, or -1, without
      cycles.
    - ``is_wanted``: bool, shape (rows of the table,).
    - Returns int64, of the shape of ``rows``: -1 if neither the row nor an ancestor is wanted.
      O(rows * depth).
    """
    found = rows.ravel().astype(np.int64)  # a copy
    climb(found, writable(parent), writable(is_wanted))
    return found.reshape(rows.shape)


def with_ancestors(rows: Ints, parent: Ints) -> Bools:
    """Return which rows of a table are among some rows, -1 for none, or enclose one of these.

    bool, shape (rows of the table,). O(rows of the table + rows * depth).
    """
    found = np.zeros(parent.size, dtype=np.bool_)
    while rows.size:
        rows = rows[rows >= 0]
        rows = rows[~found[rows]]
        found[rows] = True
        rows = parent[rows]
    return found
