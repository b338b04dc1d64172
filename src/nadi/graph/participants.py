"""Who takes part in each collective and transfer of an event graph, and who waits in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.trace.arrays import Bools, Ints

__all__ = ["Participants", "find_participants", "group_ranks"]


class Participants(NamedTuple):
    """Operations that take part in collectives and transfers; arrays of shape (participants,).

    ``hub`` is the vertex of the graph at which the last one that others wait for has entered,
    ``op`` the operation, and ``waits`` whether it waits for that. On devices all wait for each
    other, and so do both sides of a send. On threads (gloo) the root of a broadcast or scatter does
    not wait, and only the root of a reduce or gather does.
    """

    hub: Ints
    op: Ints
    waits: Bools


def find_participants(graph: EventGraph) -> Participants:
    """Return each operation of each collective and transfer once, by hub. O(edges log edges)."""
    arriving = np.flatnonzero(graph.edge_kind == EdgeKind.ARRIVAL)
    leaving = np.flatnonzero(graph.edge_kind == EdgeKind.COMMUNICATION)
    leaving = leaving[graph.in_src[leaving] >= 2 * graph.num_ops]
    hub = np.append(graph.destinations[arriving], graph.in_src[leaving])
    op = np.append(graph.edge_op[arriving], graph.edge_op[leaving])
    waits = np.repeat([False, True], [arriving.size, leaving.size])
    order = np.lexsort((~waits, op, hub))  # where it waits comes first of its two places
    hub, op, waits = hub[order], op[order], waits[order]
    once = np.append(True, (np.diff(hub) != 0) | (np.diff(op) != 0))[: hub.size]
    return Participants(hub[once], op[once], waits[once])


def group_ranks(graph: EventGraph) -> tuple[Ints, list[tuple[int, ...]]]:
    """Assign a number to each operation's group by its ranks, -1 where they are unknown.

    int64, shape (ops,), and the ranks of each number. O(ops + groups).
    """
    number: dict[tuple[int, ...], int] = {}
    of_op = np.full(graph.num_ops, -1, dtype=np.int64)
    group = graph.numbers("group")
    for t, trace in enumerate(graph.job.traces):
        members = trace.groups["ranks"].to_list()
        own = [number.setdefault(tuple(m), len(number)) if m else -1 for m in members]
        mine = np.flatnonzero((graph.op_trace == t) & (group >= 0))
        of_op[mine] = np.array(own, dtype=np.int64)[group[mine]]
    return of_op, list(number)
