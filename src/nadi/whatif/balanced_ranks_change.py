"""The change that ranks are balanced: the same amount of work on each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nadi.errors import UsageError
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.replay import Replay, replay_graph
from nadi.graph.windows import Window
from nadi.model.arrays import Ints
from nadi.whatif.dependency_changes import CutDependencies
from nadi.whatif.selection import Selection

__all__ = ["BalancedRanks", "ranks_wait"]


def ranks_wait(graph: EventGraph) -> bool:
    """Return whether a rank may wait for another one in a collective or message."""
    return bool(((graph.in_src >= 2 * graph.num_ops) & (graph.edge_op >= 0)).any())


class _Alone(NamedTuple):
    """Ranks that do not wait for each other: their replay, and what each takes, ns."""

    replay: Replay
    taken: Ints


@dataclass(frozen=True)
class BalancedRanks:
    """Each rank takes the mean of the ranks: work goes from those with much to those with little.

    How long a rank takes is from the start of the window to the end of its own work, without waits
    between ranks. All times of a rank change by one factor, so that it takes the mean.

    Attributes
    ----------
    window
        The window in which they are balanced; None for the whole recording.
    """

    window: Window | None = None

    def __str__(self) -> str:
        return "balanced ranks"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` changes.

        Raises
        ------
        UsageError
            If no rank waits for another one.
        """
        if not ranks_wait(graph):
            raise UsageError(
                str(self), "no rank waits for another one", "give the recordings of all ranks"
            )
        alone = self._without_waits(graph, since)
        taken = alone.taken[alone.taken > 0]
        mean = int(taken.mean()) if taken.size else 0
        return _scaled(alone, since, mean)

    def _without_waits(self, graph: EventGraph, since: int) -> _Alone:
        cut = CutDependencies(EdgeKind.ARRIVAL, Selection(kinds=("communication",)))
        replay = replay_graph(cut.apply(graph, since))
        last = self.window.last if self.window else 2 * np.arange(graph.num_ops) + 1
        taken = np.zeros(len(graph.job.traces), dtype=np.int64)
        np.maximum.at(taken, graph.op_trace[last // 2], replay.time[last] - since)
        return _Alone(replay, taken)


def _scaled(alone: _Alone, since: int, mean: int) -> EventGraph:
    """Return the graph in which each rank takes the mean.

    Of an edge, what it takes after ``since`` is scaled between the rounded times of its ends, so
    that a replay gives these times exactly.
    """
    graph, time = alone.replay.graph, alone.replay.time
    op = np.minimum(np.arange(graph.num_vertices) // 2, graph.num_ops - 1)
    rank = graph.op_trace[op]
    factor = mean / np.maximum(alone.taken, 1)

    def moved(moment: Ints, of: Ints) -> Ints:
        later = np.maximum(moment - since, 0)
        at: Ints = np.minimum(moment, since) + np.rint(later * factor[of]).astype(np.int64)
        return at

    into = graph.destinations
    begin = time[graph.in_src]
    weight = moved(begin + graph.weight, rank[into]) - moved(begin, rank[into])
    due = time - graph.delay
    delay = moved(time, rank) - moved(due, rank)
    return replace(graph, weight=weight, delay=delay)
