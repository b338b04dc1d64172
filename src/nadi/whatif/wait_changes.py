"""Changes of waits in which a thread runs no operation."""

from dataclasses import dataclass, replace

import numpy as np

from nadi.errors import UsageError
from nadi.graph.event_graph import EventGraph
from nadi.graph.idle_threads import ThreadWaits, thread_waits
from nadi.graph.replay import replay_graph
from nadi.units import format_count, plain_number
from nadi.whatif.selection import Selection, select, within

_LONGEST_NS = 2**62


@dataclass(frozen=True)
class ScaleWait:
    """Multiply the time by a factor in which threads sleep, or wait for what is not recorded.

    Such waits are found by :func:`nadi.graph.thread_waits`. The selection's name and conditions
    are those of the operation that the thread begins next; the condition ``in=`` is what the
    thread waits in.
    """

    selection: Selection
    factor: float

    def __str__(self) -> str:
        chosen = "" if self.selection == Selection() else f" {self.selection}"
        if self.factor == 0:
            return f"remove wait{chosen}"
        return f"scale wait{chosen} {plain_number(self.factor)}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If no wait is selected, and none was removed before.
        """
        waits = selected_waits(graph, self.selection)
        if not waits.edge.size and _is_as_measured(graph):
            count = format_count(thread_waits(graph).edge.size)
            raise UsageError(
                str(self), f"selects none of the {count} waits",
                "in= names what a thread waits in, all else the operation that follows",
            )  # fmt: skip
        waits = waits.chosen(graph.time[waits.vertex] - waits.time_ns >= since)
        if float(waits.time_ns.sum()) * self.factor >= _LONGEST_NS:
            raise UsageError(str(self), "the step would exceed a century", "give a smaller factor")
        weight, delay = graph.weight.copy(), graph.delay.copy()
        is_edge = waits.edge >= 0
        for times, at in ((weight, waits.edge[is_edge]), (delay, waits.vertex[~is_edge])):
            times[at] = np.rint(times[at] * self.factor)
        return replace(graph, weight=weight, delay=delay)


def selected_waits(graph: EventGraph, selection: Selection) -> ThreadWaits:
    """Find the waits of a selection.

    - Raises UsageError if the names or conditions fit no operation.
    """
    waits = thread_waits(graph)
    found = np.ones(waits.edge.size, dtype=np.bool_)
    others = replace(selection, inside="")
    if others != Selection():
        found &= np.append(select(graph, others), False)[waits.next_op]
    if selection.inside:
        found &= np.append(within(graph, selection), False)[waits.around]
    return waits.chosen(found)


def _is_as_measured(graph: EventGraph) -> bool:
    """Return whether no earlier change has been made, which may have removed all waits."""
    return bool((replay_graph(graph).time == graph.time).all())
