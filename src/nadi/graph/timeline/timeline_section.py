"""The timeline of a page: events, levels of detail and dependencies, packed into a text."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.files.communication_names import comm_type_of_host
from nadi.files.timeline.timeline_values import TimelineCounter
from nadi.graph.timeline.page_timeline import (
    TimelineEvents,
    detail_levels,
    operand_texts,
    timeline_events,
)
from nadi.graph.timeline.schedule_timeline import TimelinePart
from nadi.graph.windows import MARK
from nadi.results.page.figures import packed
from nadi.results.page.html_page import PageTimeline, RenderedSection
from nadi.trace.arrays import Ints
from nadi.trace.schema import DEP_KINDS, DEVICE_WORK
from nadi.units import format_count

_COLLECTIVE = len(DEP_KINDS)  # the kind of a dependency between the members of a collective
_INFERRED = 128


_HELP = (
    "A drag selects an area, Shift + drag or Shift + wheel pans, Ctrl + wheel zooms. Keys: W S "
    "zoom, A D or arrows pan, 0 all, M maximise, / search, N next, [ ] neighbors, F zoom to the "
    "chosen operation, X sum what is in view, K keep an area to compare; of a track that is "
    "clicked: P pin, H hide, Shift + arrows move. The address of the page says what is shown."
)
_ORDER = 4  # of the timeline among the sections: below the verdict


class PageStep(NamedTuple):
    """A step of a schedule: its number, and where it begins and ends, ns since the job's origin."""

    number: int
    begin: int
    end: int


class TimelineExtras(NamedTuple):
    """What a timeline shows beside its schedules."""

    focus: int = -1  # the rank that is in view at first; -1 for the first
    counters: Sequence[TimelineCounter] = ()  # values over time
    # the type of device work by name and category, as ``kernel_type_codes`` gives it
    type_codes: Callable[[pl.Series, pl.Series], Ints] | None = None
    # of the first schedules the steps of each; those of a second one are drawn below those of the
    # first: each begins where the longer of the two steps before it ends
    steps: Sequence[Sequence[PageStep]] = ()


def page_timeline(
    parts: Sequence[TimelinePart], window: tuple[int, int] | None = None,
    extras: TimelineExtras | None = None,
) -> PageTimeline:  # fmt: skip
    """Draw schedules for a page.

    - ``parts``: Drawn one below the other, rank by rank.
    - ``window``: The time range that is shown first, ns since the job's origin; all of it by
      default.
    - ``extras``: What is shown beside them.
    """
    content, number = packed_timeline(parts, window, extras or TimelineExtras())
    html = f"""<section id="timeline"><h2>Timeline</h2>
<div class=tools role=toolbar aria-label="timeline">
<button class=button id=timeline-in aria-label="zoom in">+</button>
<button class=button id=timeline-out aria-label="zoom out">&minus;</button>
<button class=button id=timeline-home>all</button>
<button class=button id=timeline-most aria-pressed=false>maximise</button>
<button class=button id=timeline-path aria-pressed=false>critical path only</button>
<input type=search id=timeline-search placeholder="search: text or /regex/"
 aria-label="search operations: a text or a /regular expression/">
<button class=button id=timeline-next>next</button>
<output id=timeline-found></output>
<input type=search id=timeline-filter placeholder="only tracks with ..."
 aria-label="show only tracks with a text or a /regular expression/">
<button class=button id=timeline-shown hidden></button>
<small>{format_count(number)} events, all in this file</small>
</div>
<div id=timeline-body><div id=timeline-rows><canvas id=timeline-canvas tabindex=0 role=application
 aria-label="timeline: ranks, threads and streams over time"
 aria-describedby=timeline-help></canvas>
<div id=timeline-room></div></div>
<div id=timeline-side role=region aria-label="what is chosen" tabindex=0 hidden>
<div id=timeline-details aria-live=polite></div>
<div id=timeline-results></div><div id=timeline-area aria-live=polite></div></div></div>
<p id=timeline-status role=status>loading ...</p>
<p class=legend id=timeline-legend></p>
<details class=help><summary>keys and pointer</summary><span id=timeline-help>{_HELP} Arrows of
the chosen operation: blue, what it waits for; those in the color of text, what waits for it;
dashed, inferred.</span></details>
</section>
"""
    return PageTimeline(RenderedSection(_ORDER, "timeline", "Timeline", html), content)


def packed_timeline(
    parts: Sequence[TimelinePart], window: tuple[int, int] | None, extras: TimelineExtras
) -> tuple[str, int]:
    """Pack schedules for the page's timeline.

    - ``parts``: Drawn one below the other, rank by rank.
    - ``window``: The time range that is shown first, ns since the job's origin; all of it if None.
    - ``extras``: What is shown beside them.
    - Returns str: As :func:`nadi.results.page.figures.packed` makes it.
    - and int: Number of events.
    """
    events = timeline_events(parts)
    row = np.repeat(np.arange(len(events.rows)), [one.size for one in events.rows])
    levels = detail_levels(row, events.start, events.end)
    src, dst, kind = _dependencies(parts, events)
    texts, text = operand_texts(parts, events)
    begin = int(events.start.min()) if events.start.size else 0
    ranks = [int(title.split()[1]) for title, _ in events.processes]
    later, window = _later(extras.steps, window)
    counters = [one for one in extras.counters if one.rank in ranks and one.time.size]
    header = {
        "processes": events.processes,
        "tracks": _titled_tracks(events),
        "rows": [list(one) for one in events.rows],
        "names": events.names,
        "types": _types(events.names, extras),
        "texts": texts,
        "dependencyKinds": [*DEP_KINDS, "collective"],
        "levels": [level.width for level in levels],
        "begin": begin,
        "window": window, "steps": extras.steps, "later": later,
        "focus": ranks.index(extras.focus) if extras.focus in ranks else 0,
        "counters": [[ranks.index(one.rank), one.title, one.unit] for one in counters],
    }  # fmt: skip
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
        **{f"time{i}±": np.diff(one.time, prepend=begin) for i, one in enumerate(counters)},
        **{f"value{i}±": np.diff(one.value, prepend=0) for i, one in enumerate(counters)},
    }
    return packed(header, columns), events.start.size


def _later(
    steps: Sequence[Sequence[PageStep]], window: tuple[int, int] | None
) -> tuple[list[list[tuple[int, int]]], tuple[int, int] | None]:
    """Return how much later what begins in each step of two schedules is drawn, and the window.

    Of each schedule, pairs of the time at which a step begins or the last one ends, and ns; empty
    without two.
    """
    if len(steps) < 2:
        return [], window
    pairs = list(zip(*steps, strict=False))
    found: list[list[tuple[int, int]]] = [[], []]
    place = pairs[0][0].begin if pairs else 0
    for pair in pairs:
        for one, step in zip(found, pair, strict=True):
            one.append((step.begin, place - step.begin))
        place += max(step.end - step.begin for step in pair)
    for one, step in zip(found, pairs[-1] if pairs else (), strict=False):
        one.append((step.end, place - step.end))
    return found, (window[0], place) if window and pairs else window


def _types(names: Sequence[tuple[str, str]], extras: TimelineExtras) -> list[int]:
    """Return the type of each name: 0 unless it is of device work, or communicates."""
    found = [2 * (comm_type_of_host(name) != "none") for name, _ in names]
    rows = [i for i, (_, category) in enumerate(names) if category in DEVICE_WORK]
    if extras.type_codes is not None and rows:
        name = pl.Series([names[i][0] for i in rows], dtype=pl.String)
        category = pl.Series([names[i][1] for i in rows], dtype=pl.String)
        for i, code in zip(rows, extras.type_codes(name, category).tolist(), strict=True):
            found[i] = code + 1
    return found


def _titled_tracks(events: TimelineEvents) -> list[tuple[int, str, bool]]:
    """Return tracks; threads are named after what they do, as far as it is known."""
    says = [_says_of_thread(name, category) for name, category in events.names]
    code = np.array(says, dtype=np.int64)[events.name] if says else events.name
    last = np.cumsum([row.size for row in events.rows])
    counts = np.zeros((len(events.tracks), len(_THREADS)), dtype=np.int64)
    for row, end in zip(events.rows, last.tolist(), strict=True):
        np.add.at(counts[row.track], code[end - row.size : end], 1)
    titles = [one.title for one in events.tracks]
    for process in range(len(events.processes)):
        mine = [i for i, one in enumerate(events.tracks)
                if one.process == process and one.title.startswith("thread ")]  # fmt: skip
        main = max(mine, key=lambda i: (counts[i, 1], counts[i].sum()), default=-1)
        for i in mine:
            told = "main" if i == main else _THREADS[int(counts[i, 2:].argmax()) + 2]
            if i == main or counts[i, 2:].any():
                titles[i] += f", {told}"
    return [(one.process, title, one.is_path)
            for one, title in zip(events.tracks, titles, strict=True)]  # fmt: skip


_THREADS = ("", "main", "autograd", "loader")


def _says_of_thread(name: str, category: str) -> int:
    """Return which of ``_THREADS`` an operation tells of the thread it runs on."""
    if category == "annotation":
        return 1 if name.startswith(MARK) else 0
    if name.startswith("autograd::engine::evaluate_function"):
        return 2
    return (
        3 if category == "python" and ("_pin_memory_loop" in name or "_worker_loop" in name) else 0
    )


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
