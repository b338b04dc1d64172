"""Several moves, each chosen after the previous ones are applied."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nadi.errors import UsageError, checked
from nadi.graph.event_graph import EventGraph
from nadi.graph.replay import replay_graph
from nadi.graph.windows import Window
from nadi.whatif.changes import apply_change
from nadi.whatif.reordering.move_search import Candidate, Found, find_reorders
from nadi.whatif.what_if_results import WhatIf, what_if

__all__ = ["Reordering", "reorder"]


@dataclass(frozen=True, eq=False)
class Reordering:
    """The moves found in a window and their gains.

    Attributes
    ----------
    window
        The analysed window.
    start_ns
        Start of the window, since the job's origin.
    found
        Possible moves in the measured job.
    applied
        Applied moves in order; gain and step are those after the previous moves.
    together
        The window after all moves; None if no move was requested.
    """

    window: Window
    start_ns: int
    found: Found
    applied: list[Candidate]
    together: WhatIf | None


@checked
def reorder(graph: EventGraph, window: Window, most: int | None = 0) -> Reordering:
    """Find operations that can start earlier, and apply the best moves.

    After each search its candidates are gone through, best first: each is made if it is still
    legal and still gains. That is repeated until a search finds nothing that gains, because
    one move opens the way for others.

    Parameters
    ----------
    most
        The most moves to apply; None for all that gain.

    Raises
    ------
    UsageError
        If the job has no data dependencies.
    """
    since = window.start(graph.time)
    found = first = find_reorders(graph, window)
    applied: list[Candidate] = []
    current = graph
    while most is None or len(applied) < most:
        before = len(applied)
        for candidate in found.candidates:
            if candidate.gain_ns <= 0 or (most is not None and len(applied) == most):
                break
            length = applied[-1].step_ns if applied else found.step_ns
            try:
                changed = apply_change(current, candidate.change, since)
            except UsageError:  # a former move has taken its place
                continue
            step = window.length(replay_graph(changed).time)
            if step < length:
                current = changed
                applied.append(replace(candidate, gain_ns=length - step, step_ns=step))
        if len(applied) == before:
            break
        found = find_reorders(current, window)
    changes = [candidate.change for candidate in applied]
    together = what_if(graph, *changes, window=window) if applied else None
    return Reordering(window, since, first, applied, together)
