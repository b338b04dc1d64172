"""The operations of each thread as a sequence of starts and ends, and how they are nested.

Waits for locks, as ``nadi record --locks`` records them: ranges with names.

Detect recordings that contain only a sample of the operations.
"""

import re
from dataclasses import dataclass

import numpy as np

from nadi.kernels.sequences import group_rows
from nadi.recordings.dependencies.operator_nesting_kernels import (
    Nested,
    ThreadOrders,
    turn_ties,
    walk_threads,
)
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import pattern
from nadi.trace.issues import IssueLog
from nadi.trace.schema import THREAD_WORK
from nadi.trace.trace import Trace


@dataclass(frozen=True)
class Nesting:
    """How operations are nested on the threads of one rank."""

    # int64, shape (ops,): the nodes that run on threads, ascending; operations below are positions
    # in it. Threads that only poll events, such as NCCL's watchdog, are left out.
    rows: Ints
    # int64, shape (threads + 1,): thread t has the boundaries ``2 * thread_ptr[t] : 2 *
    # thread_ptr[t + 1]``
    thread_ptr: Ints
    # int64, shape (2 * ops,): ``2 * op`` is the start of op, ``2 * op + 1`` its end
    boundary: Ints
    # int64, shape (2 * ops,): the innermost operation open before each boundary, or -1
    owner: Ints
    parent: Ints  # int64, shape (ops,): the innermost operation open when op starts, or -1
    exclusive: Ints  # int64 ns, shape (ops,): time in which op is the innermost
    num_overlaps: int  # operations that end after the operation that they started in

    @property
    def parent_row(self) -> Ints:
        """The node that encloses each operation, or -1; int64, shape (ops,)."""
        return np.where(self.parent >= 0, self.rows[self.parent], -1)


def nest(trace: Trace, left_out: Bools | None = None) -> Nesting:
    """Nest the operations of each thread by their times. O(ops log ops).

    Nodes of ``left_out`` (bool, shape (nodes,)) are left out with the threads that only poll. Among
    operations with the same interval, an annotation encloses an operator and an operator
    encloses a runtime call; otherwise the one recorded first encloses the other.
    """
    numbers, num_threads = _number_threads(trace.column("thread"))
    is_work = trace.category_mask(*THREAD_WORK) & (trace.column("start") >= 0)
    is_work &= ~_only_polls(trace, numbers)
    if left_out is not None:
        is_work &= ~left_out
    rows = np.flatnonzero(is_work)
    start = trace.column("start")[rows]
    end = start + trace.column("duration")[rows]
    thread = numbers[rows]
    del numbers, is_work
    # rows are already in order: start, longest first, category
    thread_ptr, by_start, by_end = _in_order(thread, num_threads, end)
    turn_ties(by_end, thread, start, end)
    del thread
    boundary, owner = np.empty((2, 2 * rows.size), dtype=np.int64)
    parent = np.empty(rows.size, dtype=np.int64)
    nested = Nested(boundary, owner, parent, exclusive=np.zeros(rows.size, dtype=np.int64))
    num_overlaps = walk_threads(ThreadOrders(thread_ptr, by_start, by_end, start, end), nested)
    return Nesting(rows, thread_ptr, *nested, num_overlaps)


def _number_threads(thread: Ints) -> tuple[Ints, int]:
    """Return the number of each node's thread, from 0 in ascending order, and their count."""
    # most nodes have the thread of the node before, so only the changes are sorted
    starts = np.append(True, thread[1:] != thread[:-1])[: thread.size]
    threads = np.unique(thread[starts])
    return np.searchsorted(threads, thread), threads.size


def _in_order(thread: Ints, num_threads: int, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Sort operations by thread, stably, and also by thread and end."""
    thread_ptr, by_start = np.empty(num_threads + 1, dtype=np.int64), np.empty_like(thread)
    group_rows(thread, thread_ptr, by_start)
    by_end = np.argsort(end, kind="stable")
    of_thread = np.empty_like(thread)
    group_rows(thread[by_end], thread_ptr, of_thread)
    return np.unique(thread_ptr), by_start, by_end[of_thread]  # no thread without operations


def _only_polls(trace: Trace, thread: Ints) -> Bools:
    """Return which nodes belong to threads that only poll events; bool, shape (nodes,)."""
    polls = trace.name_mask(pattern("event query", "capture mode"))
    asked = np.bincount(thread[polls], minlength=1)
    only = (asked > 0) & (asked == np.bincount(thread, minlength=asked.size)[: asked.size])
    found: Bools = np.append(only, False)[np.minimum(thread, only.size)]
    return found


LOCK_WAIT = "nadi::wait "
"""Begin of the name of a range in which a thread waits for a lock; the lock's name follows."""
WOKEN_BY = "nadi::woken by "
"""Begin of the name of a range after it; the id of the thread that freed the lock follows."""


def threads_sharing_locks(trace: Trace, thread: int) -> Ints:
    """Return the threads that a thread waited for at a lock, or that waited for it; int64."""
    told = np.flatnonzero(
        trace.name_mask(f"^{re.escape(WOKEN_BY)}\\d{{1,18}}$") & trace.category_mask(*THREAD_WORK)
    )  # fmt: skip
    if not told.size:  # most recordings
        return np.empty(0, dtype=np.int64)
    names = trace.nodes["name"].gather(told).cast(str)
    by = np.array([int(name[len(WOKEN_BY) :]) for name in names], dtype=np.int64)
    waiter = trace.column("thread")[told]
    return np.unique(np.concatenate([by[waiter == thread], waiter[by == thread]]))


_FEWEST = 100
_USUAL_STEP = 1  # difference between the ids of consecutive operations


def report_sampling(device: Trace, log: IssueLog) -> None:
    """Report a device trace from which most operations have been removed.

    The profiler numbers operations consecutively in External id. If at least every second number
    is missing, the file was sampled, and dependencies between operations are lost.
    """
    of_host = device.category_mask("operator", "annotation")
    ids = np.sort(device.column("external_id")[of_host & (device.column("external_id") > 0)])
    ids = ids[np.diff(ids, prepend=0) > 0]  # sorting nearly sorted ids costs less than numpy.unique
    sampled = ids.size >= _FEWEST and float(np.median(np.diff(ids))) > _USUAL_STEP
    missing = int(ids[-1] - ids[0] + 1 - ids.size) if sampled else 0
    log.add(
        "link.sampled", "warning", missing,
        "operations are missing from the device trace: it was sampled or filtered after recording",
        "results lack the time and dependencies of these operations; use the complete recording",
    )  # fmt: skip
