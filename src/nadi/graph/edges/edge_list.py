"""Edges and limits: the result of each rule for the graph, concatenated at the end."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.graph.event_graph import Edges
from nadi.trace.arrays import Ints


class WaitLimits(NamedTuple):
    """Boundaries before which a thread waits: at most ``most`` of the time before is its own work.

    int64, shape (limits,): vertex; ns.
    """

    vertex: Ints
    most: Ints


def make_limits(vertex: Ints, most: Ints | int) -> WaitLimits:
    """Make limits; a scalar ``most`` applies to all of them."""
    return WaitLimits(vertex, np.broadcast_to(np.asarray(most, dtype=np.int64), vertex.shape))


def join_edges(parts: Sequence[Edges]) -> Edges:
    """Concatenate edges, in order."""
    return Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def join_limits(parts: Sequence[WaitLimits]) -> WaitLimits:
    """Concatenate limits, in order."""
    none = np.empty(0, dtype=np.int64)
    columns = zip(WaitLimits(none, none), *parts, strict=True)
    return WaitLimits(*(np.concatenate(column) for column in columns))
