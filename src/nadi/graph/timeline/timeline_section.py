"""The timeline of a page: events, levels of detail and dependencies, packed into a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nadi.graph.timeline.page_timeline import (
    TimelineEvents,
    detail_levels,
    operand_texts,
    packed,
    timeline_events,
)
from nadi.graph.timeline.schedule_timeline import TimelinePart
from nadi.results.page.html_page import PageTimeline
from nadi.results.page.page_sections import RenderedSection
from nadi.trace.arrays import Ints
from nadi.trace.schema import DEP_KINDS
from nadi.units import format_count

__all__ = ["packed_timeline", "page_timeline"]

_COLLECTIVE = len(DEP_KINDS)  # the kind of a dependency between the members of a collective
_INFERRED = 128


_HELP = (
    "Scroll for rows; Ctrl + wheel zooms, Shift + wheel or a drag pans. Keys: W S zoom, A D pan, "
    "0 all, / search, N next, [ ] neighbors, F zoom to the selection."
)
_ORDER = 10  # of the timeline among the sections


def page_timeline(
    parts: Sequence[TimelinePart], window: tuple[int, int] | None = None
) -> PageTimeline:
    """Draw schedules for a page.

    Parameters
    ----------
    parts
        Drawn one below the other, rank by rank.
    window
        The time range that is shown first, ns since the job's origin; all of it by default.
    """
    packed, number = packed_timeline(parts, window)
    html = f"""<section id="timeline"><h2>Timeline</h2>
<div class=tools>
<button class=button id=timeline-in aria-label="zoom in">+</button>
<button class=button id=timeline-out aria-label="zoom out">&minus;</button>
<button class=button id=timeline-home>all</button>
<button class=button id=timeline-path aria-pressed=false>critical path only</button>
<input type=search id=timeline-search placeholder="search operations"
 aria-label="search operations">
<button class=button id=timeline-next>next</button>
<output id=timeline-found></output>
<small>{format_count(number)} events, all in this file</small>
</div>
<div id=timeline-rows><canvas id=timeline-canvas tabindex=0 role=application
 aria-label="timeline: ranks, threads and streams over time"></canvas>
<div id=timeline-room></div></div>
<p id=timeline-status role=status>loading ...</p>
<div id=timeline-details aria-live=polite></div>
<small>{_HELP} Red: the critical path. Arrows of the chosen operation: blue, what it waits for;
those in the color of text, what waits for it; dashed, inferred.</small>
</section>
"""
    return PageTimeline(RenderedSection(_ORDER, "timeline", "Timeline", html), packed)


def packed_timeline(
    parts: Sequence[TimelinePart], window: tuple[int, int] | None = None
) -> tuple[str, int]:
    """Pack schedules for the page's timeline.

    Parameters
    ----------
    parts
        Drawn one below the other, rank by rank.
    window
        The time range that is shown first, ns since the job's origin; all of it by default.

    Returns
    -------
    str
        As :func:`nadi.graph.timeline.page_timeline.packed` makes it.
    int
        Number of events.
    """
    events = timeline_events(parts)
    row = np.repeat(np.arange(len(events.rows)), [one.size for one in events.rows])
    levels = detail_levels(row, events.start, events.end)
    src, dst, kind = _dependencies(parts, events)
    texts, text = operand_texts(parts, events)
    begin = int(events.start.min()) if events.start.size else 0
    header = {
        "processes": events.processes,
        "tracks": [list(one) for one in events.tracks],
        "rows": [list(one) for one in events.rows],
        "names": events.names,
        "texts": texts,
        "dependencyKinds": [*DEP_KINDS, "collective"],
        "levels": [level.width for level in levels],
        "begin": begin,
        "window": window,
        "leftOut": events.left_out,
    }
    columns = {
        "start±": np.diff(events.start, prepend=begin),
        "length": events.end - events.start,
        "name": 2 * events.name + events.is_critical,
        "text": text,
        "node±": np.diff(events.node, prepend=0),
        "dependencyTarget": np.diff(dst, prepend=0),
        "dependencySource±": dst - src,
        "dependencyKind": kind,
        **{f"level{i}": level.counts for i, level in enumerate(levels)},
    }
    return packed(header, columns), events.start.size


def _dependencies(parts: Sequence[TimelinePart], events: TimelineEvents) -> tuple[Ints, Ints, Ints]:
    """Return the dependencies between drawn events, in order of their targets.

    Calls are left out: what is called stands below its caller. The members of a collective depend
    on the one that entered last.
    """
    pieces = [np.empty((3, 0), dtype=np.int64)]
    for number, part in enumerate(parts):
        for place, trace in enumerate(part.job.traces):
            deps = trace.deps.filter(pl.col("kind") != "call")
            event_of = events.event_of[number, place]
            kind = deps["kind"].to_physical().to_numpy().astype(np.int64)
            kind += _INFERRED * deps["inferred"].to_numpy()
            src, dst = event_of[deps["src"].to_numpy()], event_of[deps["dst"].to_numpy()]
            pieces.append(np.stack([src, dst, kind]))
        pieces.append(_collectives(part, number, events))
    src, dst, kind = np.concatenate(pieces, axis=1)
    drawn = np.flatnonzero((src >= 0) & (dst >= 0))
    order = drawn[np.argsort(dst[drawn], kind="stable")]
    return src[order], dst[order], kind[order]


def _collectives(part: TimelinePart, number: int, events: TimelineEvents) -> Ints:
    """Return dependencies on the last member of each collective; int64, shape (3, ...)."""
    matches = part.job.matches
    if matches.is_empty():
        return np.empty((3, 0), dtype=np.int64)
    place = np.searchsorted(np.array(part.job.ranks), matches["rank"].to_numpy())
    node, event = matches["node"].to_numpy(), np.empty(matches.height, dtype=np.int64)
    for at in range(len(part.job.traces)):
        mine = place == at
        event[mine] = events.event_of[number, at][node[mine]]
    collective = matches["collective"].to_numpy()[event >= 0]
    event = event[event >= 0]
    order = np.lexsort((events.start[event], collective))
    collective, event = collective[order], event[order]
    last = np.append(np.diff(collective) != 0, True) if event.size else event.astype(np.bool_)
    which = np.cumsum(last) - last
    src = event[last][which]
    others = src != event
    return np.stack([src[others], event[others], np.full(int(others.sum()), _COLLECTIVE)])
