"""Changes that add or cut dependencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nadi.errors import UsageError
from nadi.graph.event_graph import EdgeKind, Edges, EventGraph, make_edges
from nadi.units import format_count
from nadi.whatif.edge_edits import into_ops, join, of_ops
from nadi.whatif.selection import Selection, select

__all__ = ["CUTTABLE", "AddDependency", "CutDependencies"]

CUTTABLE = (EdgeKind.LAUNCH, EdgeKind.STREAM, EdgeKind.SYNC, EdgeKind.THREAD, EdgeKind.ARRIVAL)


@dataclass(frozen=True)
class AddDependency:
    """Make operations wait for the end of others.

    If both sides have equally many operations, they are paired in order of time; a single
    operation on the left is waited for by all on the right.
    """

    source: Selection
    target: Selection

    def __str__(self) -> str:
        return f"add {self.source} -> {self.target}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; operations that start before ``since`` get no dependencies.

        Raises
        ------
        UsageError
            If both numbers differ.
        CycleError
            If operations would wait for each other.
        """
        sources, targets = (
            np.flatnonzero(select(graph, selection)) for selection in (self.source, self.target)
        )
        start = graph.time[0 : 2 * graph.num_ops : 2]
        sources = sources[np.argsort(start[sources], kind="stable")]
        targets = targets[np.argsort(start[targets], kind="stable")]
        if sources.size not in (1, targets.size):
            raise UsageError(
                str(self),
                f"{format_count(sources.size)} operations on the left and "
                f"{format_count(targets.size)} on the right do not pair up",
                "select equally many on both sides, or a single one on the left",
            )
        sources = np.broadcast_to(sources, targets.shape)
        later = start[targets] >= since
        new = make_edges(
            2 * sources[later] + 1, 2 * targets[later], 0, EdgeKind.ADDED, targets[later]
        )
        return graph.rewired(join(graph.edges, new), since)


@dataclass(frozen=True)
class CutDependencies:
    """Remove the dependencies of a kind that delay the selected operations.

    Operations without any remaining dependency start with the window, after their delay if
    they have one. Without arrival edges, a rank does not wait for others in a collective: its
    transfer takes as long as before, from its own start.
    """

    kind: EdgeKind
    selection: Selection

    def __str__(self) -> str:
        return f"cut {self.kind.name.lower()} {self.selection}"

    def apply(self, graph: EventGraph, since: int = 0) -> EventGraph:
        """Return the changed graph; nothing before ``since`` (ns since the origin) changes.

        Raises
        ------
        UsageError
            If no operation chosen has such a dependency.
        """
        chosen = select(graph, self.selection)
        edges = graph.edges
        entering = into_ops(edges, chosen)
        from_meeting = of_ops(edges, chosen) & (edges.src >= 2 * graph.num_ops)
        arrivals = self.kind == EdgeKind.ARRIVAL
        held = from_meeting if arrivals else entering & (edges.kind == self.kind)
        if not held.any():
            kinds = [kind for kind in CUTTABLE if kind in edges.kind[entering]]
            kinds += [EdgeKind.ARRIVAL] * bool(from_meeting.any())
            there = ", ".join(kind.name.lower() for kind in kinds)
            raise UsageError(
                str(self), f"no {self.kind.name.lower()} dependency delays these operations",
                f"theirs are: {there}" if there else "choose others",
            )  # fmt: skip
        held &= graph.time[edges.dst] >= since
        if arrivals:
            own_start = np.where(held, 2 * edges.op, edges.src)
            return graph.rewired(edges._replace(src=own_start), since)
        return graph.rewired(Edges(*(column[~held] for column in edges)), since)
