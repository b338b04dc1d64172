"""Timelines: slices on tracks with arrows between them, for trace viewers.

A timeline is independent of its source and of its file format. :mod:`nadi.results` makes timelines
of analyses, :mod:`trace_timeline` of recorded traces, and ``kineto_encode`` of traces with
Kineto's names. :mod:`chrome` and :mod:`perfetto` write them.

Assign slices to tracks on which they nest strictly or are disjoint.

Perfetto drops a slice that begins within another slice of its track and ends after it. A
thread or stream with such slices therefore gets additional lanes, shown as adjacent tracks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.files.files import write_pieces
from nadi.files.timeline.track_kernels import lay_out
from nadi.kernels.sequences import group_rows
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog

PATH_CATEGORY = "critical_path"
"""The category of slices that show a path; those of other slices are the schema's."""
CRITICAL = "critical"
"""The note of slices that have time on the critical path, which viewers may show in red."""

_WRITERS = {
    ".json": "timeline.chrome", ".pftrace": "timeline.perfetto",
    ".perfetto-trace": "timeline.perfetto",
}  # fmt: skip


class TimelineCounter(NamedTuple):
    """A value over time that is drawn below a rank.

    Attributes
    ----------
    rank
        Of the first schedule.
    title, unit
        What it is; the unit is ``bytes``, empty, or one that is written as it is.
    time
        int64 ns since the job's origin, shape (changes,), ascending.
    value
        int64, shape (changes,): from each time on.
    """

    rank: int
    title: str
    unit: str
    time: Ints
    value: Ints


@dataclass(frozen=True, eq=False)
class Timeline:
    """The content of a timeline viewer."""

    title: str  # title of the timeline
    # groups of tracks in the order in which they are shown: number, title; and where recorded,
    # label (what kind it is) and pid (of a real process, else -1)
    processes: pl.DataFrame
    # in the order in which they are shown: process (a row there), number, title; and where
    # recorded, tid (of a real thread of a real process, else -1)
    tracks: pl.DataFrame
    slices: pl.DataFrame  # track (a row there), category, name, start, end (ns)
    # arguments of each slice, by name, each of shape (slices,): Int64 (-1 is left out), Boolean
    # (only true is written), or texts (null is left out)
    notes: dict[str, pl.Series]
    # tail, head: int64, shape (arrows,): tail and head of each arrow: ``2 * slice``, the start of a
    # slice, or ``2 * slice + 1``, its end
    tail: Ints
    head: Ints
    rank: int = 0  # files of different ranks may be concatenated. -1 is unknown
    # whether times count from the epoch instead of the begin of the timeline
    is_absolute: bool = False
    # each with its process (a row there)
    counters: tuple[tuple[int, TimelineCounter], ...] = ()

    def __repr__(self) -> str:
        return f"<Timeline tracks={self.tracks.height} slices={self.slices.height}>"

    def times(self) -> tuple[Ints, Ints, Ints]:
        """Return the track, start and end of each slice as arrays; shape (slices,)."""
        track, start, end = (
            self.slices[name].to_numpy(writable=True) for name in ("track", "start", "end")
        )
        return track, start, end


def number_texts(texts: pl.Series) -> tuple[list[str], Ints]:
    """Return every distinct text once, and for each element the number of its text.

    Numbers count from 1; 0 is null. O(texts).
    """
    coded = texts.cast(pl.Categorical)
    unique = coded.unique().drop_nulls()
    codes = unique.to_physical().to_numpy()
    number = np.zeros(int(codes.max(initial=0)) + 2, dtype=np.int64)
    number[codes] = np.arange(1, codes.size + 1)
    code = coded.to_physical().fill_null(number.size - 1).to_numpy()
    return unique.cast(pl.String).to_list(), number[code]


def optional_texts(texts: pl.Series, code: Ints) -> pl.Series:
    """Return for each element of ``code`` the text with that number; null for -1."""
    coded = texts.cast(pl.Categorical)
    none = pl.Series([None], dtype=coded.dtype)
    return pl.concat([coded, none]).gather(np.where(code >= 0, code, texts.len()))


def writer_of_suffix(path: Path) -> str:
    """Return the module that writes files with this suffix.

    - Raises UsageError if the suffix names no timeline format.
    """
    name = path.name.removesuffix(".gz")
    for suffix, module in _WRITERS.items():
        if name.endswith(suffix):
            return module
    raise UsageError(
        str(path), "the suffix names no timeline format",
        f"use {', '.join(_WRITERS)}, or one of these with .gz",
    )  # fmt: skip


def write_file(path: Path, timeline: Timeline, log: IssueLog) -> None:
    """Write a timeline in the format of the suffix, compressed if it ends in .gz.

    The log collects what cannot be drawn. O(slices log slices).

    - Raises UsageError if the suffix names no timeline format.
    - Raises InputError if the file cannot be written; an existing file is unchanged.
    """
    module = import_module(f"nadi.files.{writer_of_suffix(path)}")
    encode: Callable[[Timeline, IssueLog], Iterator[bytes]] = module.encode
    write_pieces(path, encode(timeline, log))


def find_lanes(track: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Assign each slice a lane of its track on which it nests strictly.

    Of slices with the same interval, the first encloses the others.

    - ``track``: int64, shape (slices,): small numbers from 0.
    - ``start``, ``end``: int64 ns, shape (slices,), ``end >= start``. O(slices log slices).
    - Returns lane: int64, shape (slices,): 0 for the track itself.
    - and boundary: int64, shape (2 * slices,): starts (``2 * slice``) and ends (``2 * slice + 1``),
      in order within each lane.
    """
    order = np.empty(track.size, dtype=np.int64)
    first = np.empty(int(track.max(initial=-1)) + 2, dtype=np.int64)
    by_start = _order_of_starts(start, end)
    group_rows(track if by_start is None else track[by_start], first, order)
    if by_start is not None:
        order = by_start[order]
    lane = np.empty(track.size, dtype=np.int64)
    boundary = np.empty(2 * track.size, dtype=np.int64)
    lay_out(first, order, start, end, lane, boundary)
    return lane, boundary


def _order_of_starts(start: Ints, end: Ints) -> Ints | None:
    """Sort by start, longest first; None if they are already in that order."""
    later = start[1:] > start[:-1]
    if (later | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))).all():
        return None
    return np.lexsort((-end, start))


def lane_suffix(lane: int) -> str:
    """Return the suffix of the track name for a lane."""
    return "" if lane == 0 else " (overlapping)" if lane == 1 else f" (overlapping {lane})"
