"""Prefixes that replicas of a model share in a memory that they have together.

Ranks that communicate, directly or through others, are one replica of a model. Those at the same
place of other replicas hold the same keys and values of a prefix, of which a memory needs one copy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nadi.simulation.engine.codes import NodeKind
from nadi.simulation.simulation import Simulation
from nadi.trace.arrays import Ints
from nadi.trace.distinct_rows import number_rows

__all__ = ["holders_of_copies", "replicas_of"]


def holders_of_copies(simulation: Simulation, prefix: Ints, shared_by: int) -> Ints:
    """Return how many ranks of the same memory hold the prefix that each rank holds.

    Parameters
    ----------
    prefix
        int64, shape (ranks,): bytes of each rank's prefix.
    shared_by
        Neighboring ranks that have a memory together; 0 for all.

    Returns
    -------
    int64, shape (ranks,)
        At least 1. O(ranks of all groups).
    """
    replica = replicas_of(simulation)
    rank = np.arange(replica.size)
    sizes = np.bincount(replica)
    order = np.argsort(replica, kind="stable")
    first = np.cumsum(sizes) - sizes
    place = np.empty_like(rank)
    place[order] = rank - first[replica[order]]
    memory = rank // shared_by if shared_by else np.zeros_like(rank)
    which, _ = number_rows([memory, sizes[replica], place, prefix])
    return np.asarray(np.bincount(which)[which])


def replicas_of(simulation: Simulation) -> Ints:
    """Return the replica that each rank is a part of, numbered from 0; int64, shape (ranks,)."""
    of = list(range(simulation.like.size))

    def root(rank: int) -> int:
        while of[rank] != rank:
            of[rank] = of[of[rank]]
            rank = of[rank]
        return rank

    for ranks in _communicating(simulation):
        for rank in ranks[1:]:
            of[root(rank)] = root(ranks[0])
    _, number = np.unique([root(rank) for rank in of], return_inverse=True)
    return np.asarray(number.reshape(-1), dtype=np.int64)


def _communicating(simulation: Simulation) -> Iterator[list[int]]:
    """Yield ranks that communicate with each other."""
    program, trail = simulation.program, simulation.trail
    kind, group = trail.kind[: program.num_nodes], program.group
    for code in (NodeKind.COLLECTIVE, NodeKind.SEND):
        node = np.flatnonzero(kind == code)
        members = trail.peer[node]
        _, first = number_rows([group[node], members, trail.rank[node] * (code == NodeKind.SEND)])
        for one in node[first].tolist() if node.size else ():
            name = program.group_names[group[one]] if group[one] >= 0 else ""
            if name in simulation.copies:
                yield from simulation.copies[name].tolist()
            elif code == NodeKind.COLLECTIVE:
                yield trail.group_members[int(trail.peer[one])].tolist()
            else:
                yield [int(trail.rank[one]), int(trail.peer[one])]
