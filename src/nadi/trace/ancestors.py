"""Find enclosing operations by the ``parent`` of tables and graphs."""

from __future__ import annotations

from nadi.trace.arrays import Bools, Ints


def nearest(rows: Ints, parent: Ints, is_wanted: Bools) -> Ints:
    """Return the nearest wanted row of each row: itself, or one of its ancestors.

    Parameters
    ----------
    rows
        int64, of any shape: rows to start from; -1 for none.
    parent
        int64, shape (rows of the table,): the enclosing row of each, or -1, without cycles.
    is_wanted
        bool, shape (rows of the table,).

    Returns
    -------
    int64, of the shape of ``rows``
        -1 if neither the row nor an ancestor is wanted. O(rows * depth).
    """
    found = rows.copy()
    while (passed := (found >= 0) & ~is_wanted[found]).any():
        found[passed] = parent[found[passed]]
    return found
