"""Assign slices to tracks on which they nest strictly or are disjoint.

Perfetto drops a slice that begins within another slice of its track and ends after it. A
thread or stream with such slices therefore gets additional lanes, shown as adjacent tracks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.files.timeline.track_kernels import lay_out
from nadi.kernels.groups import group_rows
from nadi.trace.arrays import Ints

__all__ = ["Lanes", "find_lanes", "lane_suffix"]


class Lanes(NamedTuple):
    """The lane of each slice.

    Attributes
    ----------
    lane
        int64, shape (slices,): 0 for the track itself.
    boundary
        int64, shape (2 * slices,): starts (``2 * slice``) and ends (``2 * slice + 1``),
        in order within each lane.
    num_moved
        Number of slices on other lanes than the first.
    """

    lane: Ints
    boundary: Ints
    num_moved: int


def find_lanes(track: Ints, start: Ints, end: Ints) -> Lanes:
    """Assign each slice a lane of its track on which it nests strictly.

    Of slices with the same interval, the first encloses the others.

    Parameters
    ----------
    track
        int64, shape (slices,): small numbers from 0.
    start, end
        int64 ns, shape (slices,), ``end >= start``. O(slices log slices).
    """
    order = np.empty(track.size, dtype=np.int64)
    first = np.empty(int(track.max(initial=-1)) + 2, dtype=np.int64)
    by_start = _order_of_starts(start, end)
    group_rows(track if by_start is None else track[by_start], first, order)
    if by_start is not None:
        order = by_start[order]
    lane = np.empty(track.size, dtype=np.int64)
    boundary = np.empty(2 * track.size, dtype=np.int64)
    num_moved = lay_out(first, order, start, end, lane, boundary)
    return Lanes(lane, boundary, num_moved)


def _order_of_starts(start: Ints, end: Ints) -> Ints | None:
    """Sort by start, longest first; None if they are already in that order."""
    later = start[1:] > start[:-1]
    if (later | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))).all():
        return None
    return np.lexsort((-end, start))


def lane_suffix(lane: int) -> str:
    """Return the suffix of the track name for a lane."""
    return "" if lane == 0 else " (overlapping)" if lane == 1 else f" (overlapping {lane})"
