"""The protocol of changes: a change returns a modified copy of an event graph."""

from __future__ import annotations

from typing import Protocol

from nadi.errors import UsageError, checked
from nadi.forks import refuse_in_fork
from nadi.graph.event_graph import CycleError, EventGraph

__all__ = ["Change", "apply_change"]

_BREAK_CYCLE = "select other operations, reverse the arrow, or cut a dependency first"


class Change(Protocol):
    """Any object with an ``apply`` method; its text names it in results."""

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        ...


@checked
def apply_change(graph: EventGraph, change: Change, since: int = 0) -> EventGraph:
    """Return the graph with a change applied; the given graph is not modified.

    Parameters
    ----------
    since
        Measured time in ns since the job's origin before which nothing changes. With the
        start of a window, the change applies to that window alone: its start stays
        fixed, so less work never makes it longer.

    Raises
    ------
    UsageError
        If no operation matches (the message names similar ones), or if the change creates a
        dependency cycle (the message names its operations).
    """
    refuse_in_fork()
    try:
        return change.apply(graph, since)
    except CycleError as error:
        raise UsageError(f"change '{change}'", error.what, _BREAK_CYCLE) from None
    except UsageError as error:
        what = error.what if error.where == str(change) else f"{error.where} {error.what}"
        raise UsageError(f"change '{change}'", what, error.remedy) from None
