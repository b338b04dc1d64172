"""Edges between moments on the host: the CUDA runtime lock and call stacks.

The rules are numbered L1, L2 and C1 to C6 as in ``docs/critical-path.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.analyses.hta.device_edges import EDGE_TYPES, EdgeList, Moments, weighted_edges
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import hta_calls

_OPERATOR, _DEPENDENCY = EDGE_TYPES.index("OPERATOR_KERNEL"), EDGE_TYPES.index("DEPENDENCY")


def _is_locking(moments: Moments) -> Bools:
    return moments.events["name"].is_in(hta_calls("locks")).to_numpy()


def lock_edges(moments: Moments) -> EdgeList:
    """L1: calls that take the runtime lock end one after the other, on any thread.

    All that have begun lead to the next end, newest first; an end that follows an end
    waits for it.
    """
    at = np.flatnonzero(_is_locking(moments)[moments.row])
    is_start = moments.is_start[at]
    ends = np.flatnonzero(~is_start)
    next_end = np.searchsorted(ends, np.arange(at.size))
    open_starts = np.flatnonzero(is_start & (next_end < ends.size))
    into = ends[next_end[open_starts]]
    after_end = np.flatnonzero(~is_start[1:] & ~is_start[:-1]) + 1
    begin = np.concatenate([open_starts, after_end - 1])
    end = np.concatenate([into, after_end])
    order = np.lexsort((-begin, end))
    begin, end = at[begin[order]], at[end[order]]
    own = (moments.row[begin] == moments.row[end]) & moments.is_start[begin]
    kinds = np.where(own, _OPERATOR, _DEPENDENCY)
    event = np.where(own, moments.row[begin], -1)
    return weighted_edges(moments, kinds, begin, end, event, np.zeros(own.size, dtype=np.bool_))


@dataclass(frozen=True, eq=False)
class _Walk:
    """Starts and ends of the events of all threads, thread by thread."""

    row: Ints  # int64, shape (boundaries,): the event
    # is_start, group: bool and int64, shape (boundaries,)
    is_start: Bools
    group: Ints
    parent: Ints  # int64, shape (events,): the event on top of the stack when it began, or -1


def stack_edges(moments: Moments) -> EdgeList:
    """C1 to C6, L2: edges from each moment of a thread to the next, through its call stack."""
    walk = _walk(moments)
    # events without moments stay in the tree but are skipped
    kept = moments.start[walk.row] >= 0
    row, is_start, group = walk.row[kept], walk.is_start[kept], walk.group[kept]
    depth = np.cumsum(np.where(is_start, 1, -1)) - is_start  # how many are open around it
    moment = np.where(is_start, moments.start[row], moments.end[row])
    same = group[1:] == group[:-1]
    kinds = np.where(is_start & (depth == 0), _DEPENDENCY, _OPERATOR)[1:]
    # a start stands for itself; between two ends it is the outer one's time; after an end,
    # the time of what was around it
    event = np.where(is_start[1:], walk.parent[row[:-1]], row[1:])
    event = np.where(is_start[:-1], row[:-1], event)
    event = np.where(kinds == _OPERATOR, event, -1)
    waits = ~is_start[1:] & moments.is_blocking[row[1:]]
    locking = _is_locking(moments)[row]
    by_lock = locking[1:] & locking[:-1] & ~(~is_start[:-1] & is_start[1:])
    edges = weighted_edges(moments, kinds, moment[:-1], moment[1:], event, waits)
    return edges.taken(same & ~by_lock)


def _walk(moments: Moments) -> _Walk:
    """Order the boundaries of every thread's events and match them as brackets.

    An end closes whatever is on top of the stack, even if that is another event's: in
    the sequence it stands for the event that it closes. O(events log events).
    """
    events = moments.events
    group = _grouped(events)
    row = np.flatnonzero(group >= 0)
    start, duration = (events[name].to_numpy()[row] for name in ("start", "duration"))
    duration = np.maximum(duration, 0)
    time = np.concatenate([start, start + duration])
    is_start = np.repeat([True, False], row.size)
    rows = np.concatenate([row, row])
    # at one time ends come first, shorter ones before longer, then starts, longer ones
    # before shorter; of equal ones the first to start is the last to end
    length = np.tile(duration, 2)
    sign = np.where(is_start, 1, -1)
    order = np.lexsort((sign * rows, -sign * length, is_start, time, np.tile(group[row], 2)))
    rows, is_start, groups = rows[order], is_start[order], np.tile(group[row], 2)[order]
    closes, parent_at = _match_brackets(is_start)
    row_of_start = np.where(is_start, rows, -1)
    matched = np.where(is_start, rows, row_of_start[closes])
    parent = np.full(events.height, -1, dtype=np.int64)
    starts = np.flatnonzero(is_start)
    above = parent_at[starts]
    parent[rows[starts]] = np.where(above >= 0, rows[np.maximum(above, 0)], -1)
    return _Walk(matched, is_start, groups, parent)


def _match_brackets(is_open: Bools) -> tuple[Ints, Ints]:
    """Match opening and closing brackets in a balanced sequence.

    Returns
    -------
    int64 and int64, shape (brackets,)
        For each closing bracket the one that it closes, and for each opening one the
        innermost open one before it, or -1. O(brackets log brackets).
    """
    size = is_open.size
    depth = np.cumsum(np.where(is_open, 1, -1)) + ~is_open  # of the pair, from 1
    order = np.argsort(depth, kind="stable")  # at one depth they open and close in turn
    closes = np.full(size, -1, dtype=np.int64)
    closes[order[1::2]] = order[::2]
    opened = order[::2]
    key = depth[opened] * (size + 1) + opened
    at = np.searchsorted(key, (depth[opened] - 1) * (size + 1) + opened) - 1
    around = np.full(size, -1, dtype=np.int64)
    around[opened] = np.where(depth[opened] > 1, opened[np.maximum(at, 0)], -1)
    return closes, around


def _grouped(events: pl.DataFrame) -> Ints:
    """C1, C6: return the thread number of each event, in order of (pid, tid), or -1."""
    process, thread = events["process"].to_numpy(), events["thread"].to_numpy().copy()
    forward, backward = (_only_thread(events, text) for text in ("forward", "autograd"))
    if 0 not in (forward, backward) and None not in (forward, backward) and forward != backward:
        thread[thread == backward] = forward
    _, first = np.unique(process, return_inverse=True)
    threads, second = np.unique(thread, return_inverse=True)
    group = first * threads.size + second
    of_device = np.unique(group[events["stream"].to_numpy() >= 0])
    group[np.isin(group, of_device)] = -1
    return group


def _only_thread(events: pl.DataFrame, text: str) -> int | None:
    """Return the only thread with an operation whose name contains a text, else None."""
    fits = pl.col("category").is_in(["operator", "annotation"])
    threads = events.filter(fits & pl.col("name").str.contains(text, literal=True))["thread"]
    unique = threads.unique()
    return int(unique[0]) if unique.len() == 1 else None
