"""Waits that operations state by their names: for locks, and for data loaders."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nadi.bottlenecks.waiting.timelines import Actor, SegmentKind, Segments
from nadi.graph.event_graph import EventGraph
from nadi.recordings.dependencies.lock_ranges import LOCK_WAIT, WOKEN_BY
from nadi.trace.ancestors import nearest
from nadi.trace.arrays import Bools, Ints

__all__ = ["StatedWaits", "stated_waits"]

_LOADER = r"MultiProcessingDataLoaderIter.*(__next__|_next_data|_get_data)"
_FRAMES = ("python", "annotation")


class StatedWaits(NamedTuple):
    """What segments wait for; int64, shape (segments,).

    ``target`` is an actor or -1; ``lock`` a position in ``locks``, the names of locks, or -1.
    """

    target: Ints
    lock: Ints
    locks: list[str]


def stated_waits(
    graph: EventGraph, segments: Segments, actors: list[Actor], number_of: Callable[[Actor], int]
) -> StatedWaits | None:
    """Find work of threads that is a wait: in a lock, or for data from worker processes.

    ``nadi collect --locks`` writes ranges ``nadi::wait LOCK``, each followed by ``nadi::woken by
    THREAD``. PyTorch writes ``enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__``,
    whose own time is a wait for the worker processes. O(segments + operations).

    Parameters
    ----------
    segments
        Those of the graph; ``edge`` leads to the operation that a segment's time belongs to.

    Returns
    -------
    StatedWaits or None
        None if no operation states a wait.
    """
    ranks = np.array(graph.job.ranks, dtype=np.int64)
    loaders, lock_waits = _loaders(graph, ranks), _lock_waits(graph)
    if not loaders and not lock_waits:
        return None
    target, lock = np.full((2, segments.edge.size), -1, dtype=np.int64)
    works = np.flatnonzero(
        (segments.kind == SegmentKind.RUN) & (segments.edge >= 0)
        & (segments.edge < graph.num_edges)
    )  # fmt: skip
    owner = graph.edge_op[segments.edge[works]]
    works, owner = works[owner >= 0], owner[owner >= 0]
    for number, rank in loaders:
        of_rank = number & (ranks[graph.op_trace] == rank)
        loader = number_of(Actor(f"rank {rank} data loader", "data loader", rank))
        target[works[of_rank[owner]]] = loader
    locks: list[str] = []
    woken = {actor.name: n for n, actor in enumerate(actors) if actor.kind == "thread"}
    for op, name, thread in lock_waits:
        rank = int(ranks[graph.op_trace[op]])
        text = f"rank {rank} lock {name}"
        if text not in locks:
            locks.append(text)
        mine = works[owner == op]
        by = woken.get(f"rank {rank} thread {thread}", -1)
        target[mine] = by if by >= 0 else number_of(Actor(text, "lock", rank))
        lock[mine] = locks.index(text)
    return StatedWaits(target, lock, locks)


def _loaders(graph: EventGraph, ranks: Ints) -> list[tuple[Bools, int]]:
    """Return the operations that wait for worker processes, and each rank that has some."""
    named = graph.named(_LOADER)
    if not named.any():
        return []
    inside = nearest(np.arange(graph.num_ops), graph.op_parent, named) >= 0
    waits = inside & (named | graph.gather("category").is_in(_FRAMES).to_numpy())
    return [(waits, rank) for rank in np.unique(ranks[graph.op_trace[named]]).tolist()]


def _lock_waits(graph: EventGraph) -> list[tuple[int, str, int]]:
    """Return each wait for a lock: operation, name of the lock, thread that freed it or -1."""
    waits = np.flatnonzero(graph.named(f"^{re.escape(LOCK_WAIT)}"))
    if not waits.size:
        return []
    told = np.flatnonzero(graph.named(f"^{re.escape(WOKEN_BY)}"))
    thread = graph.numbers("thread")
    following: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for op, name in zip(told.tolist(), graph.names(told).to_list(), strict=True):
        key = int(graph.op_trace[op]), int(thread[op])
        following.setdefault(key, []).append((int(graph.time[2 * op]), name[len(WOKEN_BY) :]))
    for each in following.values():
        each.sort()
    found = []
    for op, name in zip(waits.tolist(), graph.names(waits).to_list(), strict=True):
        ahead = following.get((int(graph.op_trace[op]), int(thread[op])), [])
        end = int(graph.time[2 * op + 1])
        at = np.searchsorted([time for time, _ in ahead], end)
        by = ahead[at][1] if at < len(ahead) else ""
        found.append((op, name[len(LOCK_WAIT) :], int(by) if by.isdecimal() else -1))
    return found
