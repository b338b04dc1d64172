"""The operations of each thread as one sequence of starts and ends, with who owns the time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nadi.kernels.nesting import walk_threads
from nadi.schema import THREAD_WORK
from nadi.trace import Trace

__all__ = ["Nesting", "nest"]

_Ints = npt.NDArray[np.int64]
_POLLS = r"^(cuda|hip)EventQuery$"


@dataclass(frozen=True)
class Nesting:
    """How operations lie inside each other on the threads of one rank.

    Attributes
    ----------
    rows
        int64, shape (ops,): the nodes that are work of a thread, ascending; an
        operation below is a position in it. Threads that only ask whether events have
        happened, as NCCL's watchdog does, do no work.
    thread_ptr
        int64, shape (threads + 1,): thread t has the boundaries
        ``2 * thread_ptr[t] : 2 * thread_ptr[t + 1]``.
    boundary
        int64, shape (2 * ops,): ``2 * op`` is the start of op, ``2 * op + 1`` its end.
    owner
        int64, shape (2 * ops,): the innermost operation open before each boundary, or -1.
    parent
        int64, shape (ops,): the innermost operation open when op starts, or -1.
    exclusive
        int64 ns, shape (ops,): time in which op is the innermost.
    num_overlaps
        Operations that outlive the one they started in.
    """

    rows: _Ints
    thread_ptr: _Ints
    boundary: _Ints
    owner: _Ints
    parent: _Ints
    exclusive: _Ints
    num_overlaps: int

    @property
    def parent_row(self) -> _Ints:
        """The node that encloses each operation, or -1; int64, shape (ops,)."""
        return np.where(self.parent >= 0, self.rows[self.parent], -1)


def nest(trace: Trace) -> Nesting:
    """Nest the operations of each thread by their times. O(ops log ops).

    Of operations with the same interval the annotation encloses the operator and the
    operator the runtime call; else the one recorded first encloses the other.
    """
    rows = np.flatnonzero(
        trace.category_mask(*THREAD_WORK) & (trace.column("start") >= 0) & ~_only_polls(trace)
    )
    start = trace.column("start")[rows]
    duration = trace.column("duration")[rows]
    end = start + duration
    threads, thread = np.unique(trace.column("thread")[rows], return_inverse=True)
    position = np.arange(rows.size)  # rows are already in order: start, longest first, category
    by_start = np.lexsort((position, thread))
    # what takes no time ends last of all that ends then, so that it may first begin
    by_end = np.lexsort((-position, -start, duration == 0, end, thread))
    thread_ptr = np.searchsorted(thread[by_start], np.arange(threads.size + 1))
    boundary, owner = np.empty((2, 2 * rows.size), dtype=np.int64)
    parent = np.empty(rows.size, dtype=np.int64)
    exclusive = np.zeros(rows.size, dtype=np.int64)
    num_overlaps = walk_threads(
        thread_ptr, by_start, by_end, start, end, boundary, owner, parent, exclusive
    )
    return Nesting(rows, thread_ptr, boundary, owner, parent, exclusive, num_overlaps)


def _only_polls(trace: Trace) -> npt.NDArray[np.bool_]:
    """Tell which nodes belong to threads that only ask for events; bool, shape (nodes,)."""
    thread = trace.column("thread")
    polls = trace.name_mask(_POLLS)
    polling = np.unique(thread[polls])
    of_these = np.isin(thread, polling)
    only = np.setdiff1d(polling, thread[of_these & ~polls])
    return of_these & np.isin(thread, only)
