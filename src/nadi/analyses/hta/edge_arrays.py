"""The nodes and edges of HTA's graph as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.errors import InputError
from nadi.trace.arrays import Bools, Ints
from nadi.trace.runtime_calls import hta_calls

__all__ = ["EDGE_TYPES", "EdgeList", "Moments", "join_edges", "make_moments", "weighted_edges"]


EDGE_TYPES = (
    "OPERATOR_KERNEL", "DEPENDENCY", "KERNEL_LAUNCH_DELAY", "KERNEL_KERNEL_DELAY",
    "SYNC_DEPENDENCY",
)  # fmt: skip
_WEIGHTLESS = tuple(EDGE_TYPES.index(name) for name in ("DEPENDENCY", "SYNC_DEPENDENCY"))
_HOST_WORK = ("operator", "runtime", "driver")


@dataclass(frozen=True, eq=False)
class Moments:
    """The nodes of the graph: starts and ends of events.

    Attributes
    ----------
    events
        The events, columns as in ``parsing.parse_events``.
    row
        int64, shape (moments,): the event of each, a row of ``events``.
    time
        int64 ns, shape (moments,).
    is_start
        bool, shape (moments,).
    start, end
        int64, shape (events,): the moments of each event; -1 for an event without.
    is_blocking
        bool, shape (events,): whether the event is a call that waits for a device.
    """

    events: pl.DataFrame
    row: Ints
    time: Ints
    is_start: Bools
    start: Ints
    end: Ints
    is_blocking: Bools

    def column(self, name: str) -> Ints:
        """Return an integer column of the events."""
        return self.events[name].to_numpy()


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Edges in the order in which HTA adds them.

    Attributes
    ----------
    begin, end
        int64, shape (edges,): moments.
    type
        int64, shape (edges,): position in ``EDGE_TYPES``.
    weight
        int64 ns, shape (edges,).
    event
        int64, shape (edges,): row of the event that the time is attributed to, or -1.
    """

    begin: Ints
    end: Ints
    type: Ints
    weight: Ints
    event: Ints

    def taken(self, rows: Ints | Bools) -> EdgeList:
        """Return some of the edges, in the order of ``rows``."""
        return EdgeList(
            self.begin[rows], self.end[rows], self.type[rows], self.weight[rows], self.event[rows]
        )


def make_moments(events: pl.DataFrame) -> Moments:
    """N1, N2: create the nodes, sorted by time, then index, with starts before ends."""
    stream, partner = events["stream"].to_numpy(), events["partner"].to_numpy()
    has_moments = events["category"].is_in(_HOST_WORK).to_numpy() | (
        (stream != -1) & (partner >= 0)
    )
    rows = np.flatnonzero(has_moments)
    begin = events["start"].to_numpy()[rows]
    time = np.concatenate([begin, begin + events["duration"].to_numpy()[rows]])
    row = np.concatenate([rows, rows])
    is_end = np.repeat([False, True], rows.size)
    order = np.lexsort((is_end, events["index"].to_numpy()[row], time))
    number = np.empty(order.size, dtype=np.int64)
    number[order] = np.arange(order.size)
    start, end = np.full((2, events.height), -1, dtype=np.int64)
    start[rows], end[rows] = number[: rows.size], number[rows.size :]
    is_blocking = events["name"].is_in(hta_calls("blocks")).to_numpy()
    return Moments(events, row[order], time[order], ~is_end[order], start, end, is_blocking)


def weighted_edges(
    moments: Moments,
    kind: Ints,
    begin: Ints,
    end: Ints,
    event: Ints,
    weightless: Bools,
) -> EdgeList:
    """Create edges whose weight is the time between their moments.

    Edges of a type without weight, and edges marked by ``weightless``, get weight 0.
    """
    weight = moments.time[end] - moments.time[begin]
    weight[np.isin(kind, _WEIGHTLESS) | weightless] = 0
    return EdgeList(begin, end, kind, weight, event)


def join_edges(moments: Moments, *lists: EdgeList) -> EdgeList:
    """E2, E3: concatenate edges; an edge added twice keeps its first position and its last data.

    Raises
    ------
    InputError
        If work of a stream waits for an event of the same stream, for which HTA's rules
        define no result.
    """
    every = EdgeList(*(
        np.concatenate([getattr(part, name) for part in lists])
        for name in ("begin", "end", "type", "weight", "event")
    ))  # fmt: skip
    _check_streams(moments, every)
    key = every.begin * moments.time.size + every.end
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    last = np.empty(first.size, dtype=np.int64)
    last[place] = np.arange(key.size)  # of equal positions the last assignment counts
    return every.taken(last[np.argsort(first, kind="stable")])


def _check_streams(moments: Moments, edges: EdgeList) -> None:
    stream = moments.column("stream")[moments.row]
    wrong = (edges.type == EDGE_TYPES.index("SYNC_DEPENDENCY")) & (
        stream[edges.begin] == stream[edges.end]
    )
    if wrong.any():
        at = int(edges.end[np.argmax(wrong)])
        event = moments.events.row(int(moments.row[at]), named=True)
        raise InputError(
            f"traceEvents[{event['index']}]",
            f"{event['name']!r} waits for an event of its own stream {event['stream']}, "
            "for which HTA's rules have no answer",
            "use Nadi's rules",
        )  # fmt: skip
