"""The walk from operations to those around them, which tables and graphs name as ``parent``."""

from __future__ import annotations

from nadi.model.arrays import Bools, Ints

__all__ = ["nearest"]


def nearest(rows: Ints, parent: Ints, is_wanted: Bools) -> Ints:
    """Climb from each row to the first that is wanted: itself, or one around it.

    Parameters
    ----------
    rows
        int64, of any shape: where to begin; -1 for nowhere.
    parent
        int64, shape (rows of the table,): what is around each, or -1. No row is around itself.
    is_wanted
        bool, shape (rows of the table,).

    Returns
    -------
    int64, of the shape of ``rows``
        -1 where none is wanted all the way up. O(rows * depth).
    """
    found = rows.copy()
    while (passed := (found >= 0) & ~is_wanted[found]).any():
        found[passed] = parent[found[passed]]
    return found
