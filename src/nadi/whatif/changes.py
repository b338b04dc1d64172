"""What a change is: a value that makes another graph of a graph."""

from __future__ import annotations

from typing import Protocol

from nadi.errors import UsageError
from nadi.forks import refuse_in_fork
from nadi.graph.event_graph import CycleError, EventGraph

__all__ = ["Change", "apply_change"]

_BREAK_CYCLE = "choose others, turn it round, or cut a dependency first"


class Change(Protocol):
    """Anything with an ``apply`` may be asked for; its text names it in answers."""

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Give the changed graph; before ``since``, ns since the job's origin, nothing changes."""
        ...


def apply_change(graph: EventGraph, change: Change, since: int = 0) -> EventGraph:
    """Give the graph with the change made; the graph given stays as it is.

    Parameters
    ----------
    since
        Measured time in ns since the job's origin before which nothing changes. With the
        start of a window it makes the question one about that window alone: its start
        stays, so less work never makes it longer.

    Raises
    ------
    UsageError
        If no operation matches; the message names similar ones. If operations would wait
        for each other; it names them.
    """
    refuse_in_fork()
    try:
        return change.apply(graph, since)
    except CycleError as error:
        raise UsageError(f"change '{change}'", error.what, _BREAK_CYCLE) from None
    except UsageError as error:
        what = error.what if error.where == str(change) else f"{error.where} {error.what}"
        raise UsageError(f"change '{change}'", what, error.remedy) from None
