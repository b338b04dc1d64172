"""What each actor did when: it ran, was ready to run, or waited for another actor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import polars as pl

from nadi.trace.arrays import Ints


class SegmentKind(IntEnum):
    """What an actor does during a segment."""

    RUN = 0  # it works
    RUNNABLE = 1  # it could work, and does not yet: scheduling, launch latency
    WAIT = 2  # it waits for another actor


@dataclass(frozen=True)
class Actor:
    """One that works and waits.

    Attributes
    ----------
    name
        Such as ``rank 0 thread 1234``, ``rank 0 stream 7`` or ``network``.
    kind
        ``thread``, ``stream``, or something that only others wait for: ``channel`` (transfers of a
        process group), ``data loader``, ``interrupt``, ``unexplained``.
    rank
        Its rank, or -1.
    """

    name: str
    kind: str
    rank: int = -1


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments of actors; all arrays int64, shape (segments,).

    Attributes
    ----------
    actor
        Whose it is.
    kind
        A :class:`SegmentKind`.
    start, end
        ns; segments of one actor do not overlap.
    target
        The actor that a WAIT waits for, or -1.
    edge
        The edge of the event graph whose weight is this time, or -1.
    """

    actor: Ints
    kind: Ints
    start: Ints
    end: Ints
    target: Ints
    edge: Ints

    def chosen(self, which: Ints | slice | np.ndarray) -> Segments:
        """Return some of them, by position or mask."""
        return Segments(*(getattr(self, name)[which] for name in _COLUMNS))


_COLUMNS = ("actor", "kind", "start", "end", "target", "edge")


@dataclass(frozen=True, eq=False)
class Timelines:
    """The segments of all actors in a window.

    Attributes
    ----------
    actors
        By number.
    segments
        In order of actor, then time.
    begin, end
        ns: the window.
    """

    actors: tuple[Actor, ...]
    segments: Segments
    begin: int
    end: int

    def __repr__(self) -> str:
        return f"<Timelines actors={len(self.actors)} segments={self.segments.actor.size}>"

    @property
    def length_ns(self) -> int:
        """Length of the window."""
        return self.end - self.begin

    @property
    def first(self) -> Ints:
        """Where the segments of each actor begin; int64, shape (actors + 1,)."""
        found: Ints = np.searchsorted(self.segments.actor, np.arange(len(self.actors) + 1))
        return found

    def frame(self) -> pl.DataFrame:
        """Return the segments as a table: actor, kind, start, end (ns), waits_for."""
        names = [one.name for one in self.actors]
        kinds = [kind.name.lower() for kind in SegmentKind]
        s = self.segments
        return pl.DataFrame({
            "actor": [names[a] for a in s.actor.tolist()],
            "kind": [kinds[k] for k in s.kind.tolist()],
            "start": s.start,
            "end": s.end,
            "waits_for": [names[t] if t >= 0 else "" for t in s.target.tolist()],
        })  # fmt: skip


def make_timelines(actors: list[Actor], segments: Segments, begin: int, end: int) -> Timelines:
    """Sort segments, cut them at the borders of the window, and drop empty ones. O(n log n)."""
    start, stop = np.maximum(segments.start, begin), np.minimum(segments.end, end)
    kept = np.flatnonzero(start < stop)
    kept = kept[np.argsort(start[kept], kind="stable")]
    is_short = len(actors) <= np.iinfo(np.uint16).max  # which are sorted in linear time
    numbers = segments.actor.astype(np.uint16 if is_short else np.int64)
    kept = kept[np.argsort(numbers[kept], kind="stable")]
    cut = Segments(segments.actor, segments.kind, start, stop, segments.target, segments.edge)
    return Timelines(tuple(actors), cut.chosen(kept), begin, end)
