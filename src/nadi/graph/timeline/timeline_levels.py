"""Levels of detail: short events that follow each other in a row, drawn as one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.trace.arrays import Ints

__all__ = ["DetailLevel", "detail_levels"]

_FACTOR = 4  # of the width from one level to the next
_SHRINKS = 0.6  # a level has at most this part of the runs of the one before
_FEW = 2000  # runs: below, no further level is needed


class DetailLevel(NamedTuple):
    """Events joined to runs.

    Attributes
    ----------
    width
        ns: events that are as long or longer stand alone; a run of shorter ones begins within this
        time, so that it is less than twice as long.
    counts
        int64, shape (runs,): how many events, in their order, each run has; their sum is the
        number of events. A run has events of one row.
    """

    width: int
    counts: Ints


def detail_levels(row: Ints, start: Ints, end: Ints) -> list[DetailLevel]:
    """Join events for drawings in which a pixel is long; from fine to coarse.

    Parameters
    ----------
    row
        int64, shape (events,), ascending: the row of each event.
    start, end
        int64 ns, shape (events,), ascending within each row, where no event overlaps another.
        O(events) for each level.
    """
    levels: list[DetailLevel] = []
    if not start.size:
        return levels
    number, width = start.size, 256
    span = int(end.max() - start.min())
    while number > _FEW and width < span:
        is_long = end - start >= width
        cell = (start - start.min()) // width
        begins = np.ones(start.size, dtype=np.bool_)
        begins[1:] = (row[1:] != row[:-1]) | (cell[1:] != cell[:-1]) | is_long[1:] | is_long[:-1]
        first = np.flatnonzero(begins)
        if first.size <= _SHRINKS * number:
            number = first.size
            levels.append(DetailLevel(width, np.diff(np.append(first, start.size))))
        width *= _FACTOR
    return levels
