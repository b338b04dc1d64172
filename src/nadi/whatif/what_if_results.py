"""The step time after changes, its new bottleneck, sweeps, and upper bounds.

A window before and after changes as a timeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from nadi.errors import Parameter, UsageError, check_kind, checked
from nadi.graph.contention import PUBLISHED
from nadi.graph.critical_paths import CriticalPath, walk_critical_path
from nadi.graph.event_graph import EventGraph
from nadi.graph.replay import Replay, replay_graph
from nadi.graph.timeline.schedule_timeline import TimelinePart, write_timelines
from nadi.graph.windows import Window, choose_window, find_steps
from nadi.trace.notebook_html import notebook_html, times_of
from nadi.trace.schema import DEVICE_WORK
from nadi.units import as_list, format_ns, format_percent, format_range
from nadi.whatif.balance_change import Balance, ranks_wait
from nadi.whatif.change_syntax import given_changes, parse_values
from nadi.whatif.changes import Change, NoGaps, NoOverhead, Remove, Scale, apply_change
from nadi.whatif.contended_replay import contended, unknown_beside_ns
from nadi.whatif.prediction_intervals import Interval, confirmed_gains, interval_of
from nadi.whatif.selection import Selection, describe_inside, describe_parts, selected_modules

if TYPE_CHECKING:
    from nadi.results.charts.chart_files import Figure


@dataclass(frozen=True, eq=False)
class WhatIf:
    """A window of a job after changes.

    Attributes
    ----------
    graph
        The job before the changes.
    changes
        In order of application.
    window
        The analysed window.
    measured_ns, window_ns
        Its length as measured, and after the changes.
    replay
        When everything would happen; ``replay.graph`` is the changed graph.
    applied
        The changed graph whose kernels are as fast as recorded, whatever runs beside them then.
    confirmed_gain
        The gain if unconfirmed dependencies are none, in ns; None where the interval is to find it.
    """

    graph: EventGraph
    changes: tuple[Change, ...]
    window: Window
    measured_ns: int
    window_ns: int
    replay: Replay
    applied: EventGraph
    confirmed_gain: int | None = None

    def __repr__(self) -> str:
        return f"<WhatIf {'; '.join(map(str, self.changes))}: {self.window_ns} ns>"

    def _repr_html_(self) -> str:
        gain = f"{format_ns(self.gain_ns)} ({format_percent(self.gain_ns, self.measured_ns)})"
        interval = format_range(self.interval.low_ns, self.interval.high_ns)
        facts = {
            "measured": format_ns(self.measured_ns),
            "predicted": f"{format_ns(self.window_ns)} (90 % interval: {interval})",
            "gain": gain,
        }
        changes = "; ".join(map(str, self.changes)) or "no change"
        title = f"{self.window.name}, what if: {changes}"
        return notebook_html(title, facts, times_of(self.path.by_kind()))

    def plot(self) -> Figure:
        """Draw the critical path as measured and after the changes, by kind."""
        from nadi.results.charts.chart_files import Figure  # only where charts are drawn
        from nadi.results.charts.charts import time_bars

        measured = walk_critical_path(replay_graph(self.graph), self.window).by_kind()
        paths = measured, self.path.by_kind()
        kinds = list(dict.fromkeys((*paths[0], *paths[1])))
        times = [[path.get(kind, 0) for kind in kinds] for path in paths]
        changes = "; ".join(map(str, self.changes)) or "no change"
        title = f"{self.window.name}: {changes}"
        return Figure([time_bars(title, ["measured", "predicted"], kinds, times)])

    @property
    def step_ns(self) -> int:
        """Length of a step after the changes: the mean of the window; all of it without steps."""
        return self.window.per_step(self.window_ns)

    @property
    def gain_ns(self) -> int:
        """How much sooner the window ends; below 0 if it takes longer."""
        return self.measured_ns - self.window_ns

    @cached_property
    def interval(self) -> Interval:
        """How sure the step time is; the changes are applied and replayed again."""
        since = self.window.start(self.graph.time)
        found = interval_of(
            self.graph, self.replay, self.window,
            lambda graph: _changed(graph, self.changes, since),
            confirmed_gain=self.confirmed_gain,
        )  # fmt: skip
        return found if self.published_ns is None else found.with_length(
            self.published_ns, self.measured_ns
        )  # fmt: skip

    @cached_property
    def unknown_ns(self) -> int:
        """For how long kernels run beside communication whose slowdown is unknown, as measured."""
        ends = self.window.start(self.graph.time), self.window.end(self.graph.time)
        return unknown_beside_ns(self.graph, *ends)

    @cached_property
    def published_ns(self) -> int | None:
        """Length of the window if these are slowed as much as published at most; None without any.

        :data:`nadi.graph.contention.PUBLISHED` says how much; ``window_ns`` takes them as not
        slowed.
        """
        if not self.unknown_ns:
            return None
        since = self.window.start(self.graph.time)
        slowed = contended(self.graph, self.applied, since, PUBLISHED[2])
        return self.window.length(replay_graph(slowed).time)

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path after the changes."""
        return walk_critical_path(self.replay, self.window)

    @cached_property
    def included(self) -> tuple[str, ...]:
        """What the conditions ``in=`` of the changes name, in words.

        Of modules such as ``Net_0.Block_2: forward 33 operators, backward 72 operators, optimizer
        90 operators``: all of the recording, whatever else a selection demands. Of other operations
        that are scaled, that only what is called in them is.
        """
        selections = [s for change in self.changes for s in _selections(change)]
        parts = [selected_modules(self.graph, selection) for selection in selections]
        texts = [describe_parts(self.graph, part) for part in parts if part]
        scaled = [change.selection for change in self.changes if isinstance(change, Scale)]
        texts += filter(None, (describe_inside(self.graph, selection) for selection in scaled))
        return tuple(dict.fromkeys(texts))

    @property
    def bound_by(self) -> tuple[str, str]:
        """The bottleneck: the kind with most of the path, and the operation with most of that."""
        by_kind = self.path.by_kind()
        kind = max(by_kind, key=by_kind.__getitem__)
        operations = self.path.by_operation().filter(kind=kind)
        return kind, operations["name"][0] if operations.height else ""


def _selections(change: Change) -> list[Selection]:
    return [value for value in vars(change).values() if isinstance(value, Selection)]


@checked
def what_if(graph: EventGraph, *changes: Change | str, window: Window | None = None) -> WhatIf:
    """Apply changes one after the other, and replay.

    Parameters
    ----------
    changes
        Values, or strings that :func:`parse_change` reads. They change nothing before the
        window.
    window
        By default all steps, or the whole trace if it has no steps.

    Returns
    -------
    WhatIf
        The given graph is not modified. O(changes * (vertices + edges)).

    Raises
    ------
    UsageError
        If a change is invalid or matches nothing.
    """
    check_kind("graph", graph, EventGraph, "make one with nadi.build_graph(nadi.load_job(...))")
    asked = window or choose_window(graph, find_steps(graph))
    since = asked.start(graph.time)
    made = tuple(given_changes(changes))
    applied = _applied(graph, made, since)
    replay = replay_graph(contended(graph, applied, since))
    lengths = asked.length(graph.time), asked.length(replay.time)
    return WhatIf(graph, made, asked, *lengths, replay, applied)


def what_ifs(graph: EventGraph, changes: Sequence[Change], window: Window) -> Iterator[WhatIf]:
    """Yield a window after each of several changes, whose intervals take less memory.

    - Raises UsageError if a change matches nothing.
    """
    since = window.start(graph.time)
    gains = confirmed_gains(
        graph, window, (partial(_changed, changes=(one,), since=since) for one in changes)
    )
    for change, gain in zip(changes, gains, strict=True):
        yield replace(what_if(graph, change, window=window), confirmed_gain=gain)


def _changed(graph: EventGraph, changes: Sequence[Change], since: int) -> EventGraph:
    """Return the graph after changes, with kernels as fast as they are then."""
    return contended(graph, _applied(graph, changes, since), since)


def _applied(graph: EventGraph, changes: Sequence[Change], since: int) -> EventGraph:
    """Return the graph after changes, with kernels as fast as recorded."""
    for change in changes:
        graph = apply_change(graph, change, since)
    return graph


@checked
def sweep(
    graph: EventGraph,
    changes: str | Sequence[str],
    values: str | Sequence[str],
    window: Window | None = None,
) -> list[tuple[str, WhatIf]]:
    """Replay changes for several values that replace ``{}``.

    Parameters
    ----------
    changes
        A change, or several that are applied together.
    values
        A string that :func:`parse_values` reads, or the values.
    window
        As of :func:`what_if`.

    Raises
    ------
    UsageError
        If no change contains the placeholder {}, or as of :func:`what_if`.
    """
    made = as_list(changes)
    if not any("{}" in change for change in made):
        raise UsageError(
            Parameter("changes"), "no change contains the placeholder {}", "write {} in one"
        )
    each = parse_values(values, "values") if isinstance(values, str) else values
    return [
        (value, what_if(graph, *(c.replace("{}", value) for c in made), window=window))
        for value in each
    ]


@dataclass(frozen=True)
class Limit:
    """An upper bound: the time of a window with one kind of cost removed, and of a step of it."""

    name: str
    window_ns: int
    step_ns: int


@checked
def ideal_limits(graph: EventGraph, window: Window) -> list[Limit]:
    """Compute upper bounds of the gain: the window with one kind of cost removed.

    The cases are no communication, no launch overhead, no time between operations, and balanced
    ranks. Cases that do not apply to a trace are
    omitted.
    """
    limits = []
    ideals: list[tuple[str, Change]] = [
        ("no communication", Remove(Selection(kinds=("communication",)))),
        ("no launch overhead", NoOverhead(Selection(kinds=("device",)))),
        ("no gaps between operations", NoGaps()),
    ]
    present = {
        "no communication": bool((graph.gather("comm_type") != "none").any()),
        "no launch overhead": bool(graph.gather("category").is_in(DEVICE_WORK).any()),
        "no gaps between operations": True,
    }
    for name, change in ideals:
        if present[name]:
            answer = what_if(graph, change, window=window)
            limits.append(Limit(name, answer.window_ns, answer.step_ns))
    if (balanced := balanced_ranks(graph, window)) is not None:
        limits.append(Limit("balanced ranks", balanced.window_ns, balanced.step_ns))
    return limits


@checked
def balanced_ranks(graph: EventGraph, window: Window) -> WhatIf | None:
    """Return a window with balanced ranks; None if no work can be balanced.

    So it is if no rank waits for another, or if ranks have none in common stretches of the window.
    """
    try:
        return what_if(graph, Balance(), window=window) if ranks_wait(graph) else None
    except UsageError:
        return None


_BEFORE, _AFTER = "before", "after"


def redraw(answer: WhatIf, path: Path | str) -> pl.DataFrame:
    """Write a window before and after changes as a timeline, side by side.

    A result without changes is drawn once.

    Parameters
    ----------
    path
        As of :func:`write_timelines`, which says what is drawn, returned and raised too.
    """
    check_kind("answer", answer, WhatIf, "make one with nadi.what_if")
    after = TimelinePart.of_replay(answer.replay, answer.path, _AFTER if answer.changes else "")
    if not answer.changes:
        return write_timelines(path, [after], answer.window.name)
    replay = replay_graph(answer.graph)
    before = TimelinePart.of_replay(replay, walk_critical_path(replay, answer.window), _BEFORE)
    changes = "; ".join(map(str, answer.changes))
    return write_timelines(path, [before, after], f"{answer.window.name}: {changes}")
