"""Changes that remove operations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.graph.recorded_launches import recorded_launchers
from nadi.trace.arrays import Bools
from nadi.whatif.edge_edits import calls_without_work, into_ops, join, of_ops, without_calls
from nadi.whatif.selection import Selection, covered, select, selected_modules

__all__ = ["Remove"]


@dataclass(frozen=True)
class Remove:
    """Remove operations: they take no time, are not launched, and wait for nothing.

    Removing a host operation also removes its nested operations and launched work; removing
    the last work of a call also removes the call. Operations that waited for a removed one
    wait for its predecessor on the thread or stream; ranks no longer wait for it in collectives.
    Time of threads between operations stays, but not between two removed parts of modules.
    """

    selection: Selection

    def __str__(self) -> str:
        return f"remove {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes."""
        gone = _with_launched(graph, select(graph, self.selection))
        gone &= graph.time[0 : 2 * graph.num_ops : 2] >= since
        calls = gone | calls_without_work(graph, gone, since)
        edges = without_calls(_without_meetings(graph, gone), calls)
        if selected_modules(graph, self.selection):
            edges = _without_gaps(edges, gone)
        into = into_ops(edges, gone)
        turn_around = into & (edges.kind == EdgeKind.STREAM)
        edges = edges._replace(weight=np.where(turn_around, 0, edges.weight))
        edges = Edges(*(column[~(into & (edges.kind == EdgeKind.LAUNCH))] for column in edges))
        delay = graph.delay.copy()
        entered = np.append(np.diff(graph.in_ptr)[: 2 * graph.num_ops] > 0, False)
        vertices = np.flatnonzero(np.repeat(gone, 2))
        delay[vertices[entered[vertices]]] = 0
        return replace(graph, delay=delay).rewired(edges, since)


def _without_gaps(edges: Edges, gone: Bools) -> Edges:
    """Set the time of threads between two removed operations to 0."""
    first = np.minimum(edges.src // 2, gone.size)
    between = into_ops(edges, gone) & np.append(gone, False)[first]
    between &= edges.kind == EdgeKind.HOST_GAP
    return edges._replace(weight=np.where(between, 0, edges.weight))


def _with_launched(graph: EventGraph, chosen: Bools) -> Bools:
    """Add nested operations and launched work to the chosen operations, repeatedly."""
    call = recorded_launchers(graph)
    while True:
        wider = covered(graph, chosen)
        wider = wider | ((call >= 0) & wider[call])
        if (wider == chosen).all():
            return chosen
        chosen = wider


def _without_meetings(graph: EventGraph, gone: Bools) -> Edges:
    """Return the edges without the waits between ranks in removed operations."""
    edges = graph.edges
    hub = 2 * graph.num_ops
    meets = of_ops(edges, gone) & ((edges.src >= hub) | (edges.dst >= hub))
    op = np.unique(edges.op[meets & (edges.src >= hub)])
    kept = Edges(*(column[~meets] for column in edges))
    # what only waited for others has no other edge from its start to its end
    return join(kept, make_edges(2 * op, 2 * op + 1, 0, EdgeKind.COMMUNICATION, op))
