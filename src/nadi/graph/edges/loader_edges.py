"""A trainer that waits for the worker processes of a DataLoader waits until a batch is there."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.graph.edges.edge_list import Limits, make_limits
from nadi.graph.edges.rank_vertices import RankOps
from nadi.graph.event_graph import EdgeKind, Edges, make_edges
from nadi.trace.ancestors import nearest
from nadi.trace.arrays import Bools, Ints

__all__ = ["loader_edges"]

_NEXT = "_MultiProcessingDataLoaderIter.__next__"
_LEAST_NS = 1_000_000  # to take a batch that is there takes less,
_LEAST_SHARE = 0.1  # and, of a large one, less than this of the time between two
_FEWEST = 3  # waits, one after the other


def loader_edges(rank: RankOps) -> tuple[Edges, Limits]:
    """Make the end of each wait for a batch depend on the end of the wait before it.

    Worker processes go on while the trainer works. If it waits for a batch again and again, they
    are what is slow: the time from one batch to the next is theirs, and a trainer that does less
    waits longer. Where the trainer did not wait for the batch before, nothing is known: the workers
    may have been idle; and to take a large batch takes a little, which is no wait.

    Returns
    -------
    Edges, Limits
        Of the loader's calls. O(boundaries of threads).
    """
    call, boundary = _waits(rank)
    chain = rank.chain
    thread = np.searchsorted(2 * chain.thread_ptr, boundary, side="right")
    follows = (thread[1:] == thread[:-1]) & (
        _number(rank, call[1:]) == _number(rank, call[:-1]) + 1
    )
    end = rank.time_of(chain.vertex[boundary])
    follows &= chain.gap[boundary[1:]] >= _LEAST_SHARE * np.diff(end)
    # of waits in a row, all but the first
    run = np.cumsum(np.append(1, ~follows))
    long = np.bincount(run, minlength=run.max(initial=0) + 1)[run] >= _FEWEST
    later = np.flatnonzero(np.append(False, follows) & long)
    vertex, before = chain.vertex[boundary[later]], chain.vertex[boundary[later - 1]]
    between = rank.time_of(vertex) - rank.time_of(before)
    op = call[later] + rank.first_op
    return make_edges(before, vertex, between, EdgeKind.HOST_GAP, op), make_limits(vertex, 0)


def _is_call(rank: RankOps) -> Bools:
    """Return which operations are calls that take a batch from worker processes."""
    names = rank.trace.nodes["name"].gather(rank.rows).cast(pl.String)
    found = names.str.contains(_NEXT, literal=True) & names.str.starts_with("enumerate(")
    return found.to_numpy()


def _number(rank: RankOps, call: Ints) -> Ints:
    """Return how many calls of loaders begin before each, on any thread."""
    starts = np.sort(rank.start[_is_call(rank)])
    return np.searchsorted(starts, rank.start[call])


def _waits(rank: RankOps) -> tuple[Ints, Ints]:
    """Return calls that wait, in order of thread and time, and the boundary of each wait's end."""
    is_call = _is_call(rank)
    chain = rank.chain
    if not is_call.any():  # most recordings
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    idle = np.flatnonzero((chain.kind == EdgeKind.HOST_GAP) & (chain.gap >= _LEAST_NS))
    idle = idle[chain.owner[idle] >= 0]
    parent = np.maximum(rank.parent - rank.first_op, -1)
    around = nearest(chain.owner[idle] - rank.first_op, parent, is_call)
    idle, around = idle[around >= 0], around[around >= 0]
    # the longest of each call
    order = np.lexsort((-chain.gap[idle], around))
    _, first = np.unique(around[order], return_index=True)
    chosen = np.sort(order[first])
    return around[chosen], idle[chosen]
