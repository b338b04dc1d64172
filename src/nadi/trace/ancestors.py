"""Find enclosing operations by the ``parent`` of tables and graphs."""

from __future__ import annotations

import numpy as np

from nadi.trace.arrays import Bools, Ints


def nearest(rows: Ints, parent: Ints, is_wanted: Bools) -> Ints:
    """Return the nearest wanted row of each row: itself, or one of its ancestors.

    - ``rows``: int64, of any shape: rows to start from; -1 for none.
    - ``parent``: int64, shape (rows of the table,): the enclosing row of each, or -1, without
      cycles.
    - ``is_wanted``: bool, shape (rows of the table,).
    - Returns int64, of the shape of ``rows``: -1 if neither the row nor an ancestor is wanted.
      O(rows * depth).
    """
    found = rows.copy()
    while (passed := (found >= 0) & ~is_wanted[found]).any():
        found[passed] = parent[found[passed]]
    return found


def with_ancestors(rows: Ints, parent: Ints) -> Bools:
    """Return which rows of a table are among some rows, -1 for none, or enclose one of these.

    bool, shape (rows of the table,). O(rows of the table + rows * depth).
    """
    found = np.zeros(parent.size, dtype=np.bool_)
    while rows.size:
        rows = np.unique(rows[rows >= 0])
        rows = rows[~found[rows]]
        found[rows] = True
        rows = parent[rows]
    return found
