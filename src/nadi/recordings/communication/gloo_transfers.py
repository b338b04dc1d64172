"""Sends and receives of gloo run beside the thread that asked for them, not on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from nadi.recordings.dependencies.launch_correlation import host_work
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

__all__ = ["transfers_beside_threads"]

_TRANSFERS = ("gloo:send", "gloo:recv")


def transfers_beside_threads(trace: Trace, launcher: Ints, log: IssueLog) -> Trace:
    """Move sends and receives of gloo off the thread that issued them, if it works meanwhile.

    PyTorch records them on the calling thread, from the call to the end of the wait, although the
    thread may go on in between: what it does there would count as nested in the transfer. Each is
    moved to the first of further threads on which no other transfer runs meanwhile. If the thread
    only waits, the transfer stays.

    Parameters
    ----------
    launcher
        int64, shape (nodes,): the call that issued each operation, or -1.
    log
        Records how many are moved.

    Returns
    -------
    Trace
        With other threads for these nodes. O(nodes + transfers * threads).
    """
    start, thread = trace.column("start"), trace.column("thread")
    end = start + trace.column("duration")
    is_transfer = np.logical_or(*(host_work(trace, name) for name in _TRANSFERS))
    issued = is_transfer & (launcher >= 0) & (thread == thread[launcher])
    rows = np.flatnonzero(issued)
    rows = rows[_works_in(trace, thread[rows], end[launcher[rows]], end[rows])]
    if rows.size == 0:
        return trace
    first_free = int(thread.max()) + 1
    until: list[int] = []  # when each further thread is free again
    moved = thread.copy()
    for row in rows[np.argsort(start[rows], kind="stable")].tolist():
        lane = next((i for i, time in enumerate(until) if time <= start[row]), len(until))
        until[lane : lane + 1] = [int(end[row])]
        moved[row] = first_free + lane
    log.add(
        "link.gloo-transfers", "info", rows.size,
        "sends and receives of gloo last while their threads go on",
        f"they are shown on threads of their own, {first_free} and above",
    )  # fmt: skip
    return replace(trace, nodes=trace.nodes.with_columns(thread=pl.Series(moved)))


def _works_in(trace: Trace, thread: Ints, begin: Ints, end: Ints) -> Bools:
    """Return in which intervals of threads an operator begins; shape (intervals,)."""
    operators = np.flatnonzero(trace.category_mask("operator"))
    start, of_thread = trace.column("start")[operators], trace.column("thread")[operators]
    found = np.zeros(thread.size, dtype=np.bool_)
    for one in np.unique(thread):
        mine = thread == one
        starts = np.sort(start[of_thread == one])
        low, high = (np.searchsorted(starts, side[mine]) for side in (begin, end))
        found[mine] = high > low
    return found
