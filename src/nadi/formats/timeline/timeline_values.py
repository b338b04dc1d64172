"""Timelines: slices on tracks with arrows between them, for trace viewers.

What answers draw, whatever it was made of; :mod:`chrome_timeline` and
:mod:`perfetto_timeline` write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import polars as pl

from nadi.errors import UsageError
from nadi.formats.files import write_pieces
from nadi.model.arrays import Ints
from nadi.model.issues import IssueLog

__all__ = ["PATH_CATEGORY", "Timeline", "check_suffix", "write_file"]

PATH_CATEGORY = "critical_path"
"""The category of slices that show a path; those of other slices are the schema's."""

_WRITERS = {
    ".json": "timeline.chrome_timeline", ".pftrace": "timeline.perfetto_timeline",
    ".perfetto-trace": "timeline.perfetto_timeline",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Timeline:
    """What a viewer shows.

    Attributes
    ----------
    title
        What it is about.
    processes
        Groups of tracks in the order in which they are shown: number (different, no less
        than 0), title.
    tracks
        In the order in which they are shown: process (a row there), title.
    slices
        track (a row there), category, name, start, end (ns, no less than 0; slices of a
        track lie in each other or apart), node (its id, or -1), critical (whether it has
        time on the path), longest (of a path's slice: the operation that most of it is; of
        others empty).
    tail, head
        int64, shape (arrows,): slices whose starts each arrow leaves and reaches.
    """

    title: str
    processes: pl.DataFrame
    tracks: pl.DataFrame
    slices: pl.DataFrame
    tail: Ints
    head: Ints

    def __repr__(self) -> str:
        return f"<Timeline tracks={self.tracks.height} slices={self.slices.height}>"


def check_suffix(path: Path) -> str:
    """Give the module that writes such files.

    Raises
    ------
    UsageError
        If the suffix names no format of timelines.
    """
    name = path.name.removesuffix(".gz")
    for suffix, module in _WRITERS.items():
        if name.endswith(suffix):
            return module
    raise UsageError(
        str(path), "the suffix names no format of timelines",
        f"use {', '.join(_WRITERS)}, or one of these with .gz",
    )  # fmt: skip


def write_file(path: Path, timeline: Timeline, log: IssueLog) -> None:
    """Write a timeline in the format of the suffix, compressed if it ends in .gz.

    The log is told what cannot be drawn. O(slices log slices).

    Raises
    ------
    UsageError
        If the suffix names no format of timelines.
    InputError
        If the file cannot be written; what stood there before is still there.
    """
    module = import_module(f"nadi.formats.{check_suffix(path)}")
    encode: Callable[[Timeline, IssueLog], Iterator[bytes]] = module.encode
    write_pieces(path, encode(timeline, log))
