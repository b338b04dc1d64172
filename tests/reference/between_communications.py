"""A job's graph without the insides of ranks: what is left when vertices are taken out one by one.

A vertex is replaced by an edge from each of its sources to each of its destinations, as long as the
path through it, if these are no more than the edges that it had. So the graph only gets smaller,
and all that stays occurs when it did.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from nadi.graph.event_graph import EventGraph

ROOT = -1


class Between(NamedTuple):
    """Vertices that stay, in topological order, and the edges into each: source and ns."""

    vertices: list[int]
    into: dict[int, dict[int, int]]

    def times(self) -> dict[int, int]:
        """Return when each vertex occurs."""
        time = {ROOT: 0}
        for vertex in self.vertices:
            time[vertex] = max(time[source] + ns for source, ns in self.into[vertex].items())
        return time


def without_insides(graph: EventGraph) -> Between:
    """Take out what lies between communications of all ranks, and of no two.

    Moments at which all have entered stay, and so does what enters or leaves them.
    """
    into: dict[int, dict[int, int]] = defaultdict(dict)
    out: dict[int, dict[int, int]] = defaultdict(dict)

    def join(source: int, vertex: int, ns: int) -> None:
        longest = max(ns, into[vertex].get(source, ns))
        into[vertex][source] = out[source][vertex] = longest

    delay = graph.delay.tolist()
    src, dst = graph.in_src, graph.destinations
    for source, vertex, ns in zip(src.tolist(), dst.tolist(), graph.weight.tolist(), strict=True):
        join(source, vertex, ns + delay[vertex])
    for vertex in np.flatnonzero(np.diff(graph.in_ptr) == 0).tolist():
        join(ROOT, vertex, delay[vertex])
    hub = 2 * graph.num_ops
    stay = {*range(hub, graph.num_vertices), *src[dst >= hub].tolist(), *dst[src >= hub].tolist()}
    inside = [vertex for vertex in range(hub) if vertex not in stay]
    while True:
        kept = []
        for vertex in inside:
            before, after = into[vertex], out[vertex]
            if len(before) * len(after) > len(before) + len(after):
                kept.append(vertex)
                continue
            for source, ns in before.items():
                del out[source][vertex]
                for later, more in after.items():
                    join(source, later, ns + more)
            for later in after:
                del into[later][vertex]
            del into[vertex], out[vertex]
        if len(kept) == len(inside):
            break
        inside = kept
    left = {*stay, *inside}
    return Between([vertex for vertex in graph.order.tolist() if vertex in left], into)
