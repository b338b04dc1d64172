"""Which operation encloses which on a thread, and who owns each moment of it."""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, kernel


class ThreadOrders(NamedTuple):
    """The operations of threads, in two orders."""

    # int64, shape (threads + 1,): thread t has the entries ``thread_ptr[t]:thread_ptr[t + 1]`` of
    # the following two
    thread_ptr: np.ndarray
    # by_start, by_end: int64, shape (ops,): the operations of each thread in the order in which
    # they start (outer first) and end (inner first)
    by_start: np.ndarray
    by_end: np.ndarray
    # start, end: int64 ns, shape (ops,), by operation; ``end >= start``
    start: np.ndarray
    end: np.ndarray


class Nested(NamedTuple):
    """What encloses what."""

    # boundary, owner: int64, shape (2 * ops,): the boundaries thread by thread, and for each the
    # operation that owned the time before it (-1: none was open)
    boundary: np.ndarray
    owner: np.ndarray
    parent: np.ndarray  # int64, shape (ops,): the innermost operation open at the start, or -1
    exclusive: np.ndarray  # int64 ns, shape (ops,): time owned


@kernel
def walk_threads(threads: ThreadOrders, nested: Nested) -> int:
    """Walk every thread once, boundary by boundary, in time order.

    A boundary is the start (``2 * op``) or the end (``2 * op + 1``) of an
    operation. Between two boundaries the thread belongs to the innermost open
    operation, the one that started last. An operation that outlives the one it
    started in stays open after it.

    - ``threads``: What is walked.
    - ``nested``: Filled; ``exclusive`` is zero at entry.
    - Returns: Number of operations that outlive their parent. O(ops).
    """
    threads, nested = borrowed(threads), borrowed(nested)
    by_start, by_end, start, end = threads.by_start, threads.by_end, threads.start, threads.end
    num_overlaps = 0
    closed = np.zeros(start.size, dtype=np.bool_)
    opened = np.zeros(start.size, dtype=np.bool_)
    stack = np.empty(start.size, dtype=np.int64)
    for t in range(threads.thread_ptr.size - 1):
        low, high = threads.thread_ptr[t], threads.thread_ptr[t + 1]
        s, e, depth = low, low, 0
        now = np.int64(0)
        for b in range(2 * low, 2 * high):
            # an end comes before a start of the same time, if it can: its operation must be open
            is_end = s == high or (opened[by_end[e]] and end[by_end[e]] <= start[by_start[s]])
            op = by_end[e] if is_end else by_start[s]
            time = end[op] if is_end else start[op]
            inner = stack[depth - 1] if depth > 0 else -1
            nested.owner[b] = inner
            nested.boundary[b] = 2 * op + is_end
            if inner >= 0:
                nested.exclusive[inner] += time - now
            now = time
            if is_end:
                closed[op] = True
                while depth > 0 and closed[stack[depth - 1]]:
                    depth -= 1
                e += 1
            else:
                opened[op] = True
                nested.parent[op] = inner
                num_overlaps += inner >= 0 and end[op] > end[inner]
                stack[depth] = op
                depth += 1
                s += 1
    return num_overlaps


@kernel
def turn_ties(by_end: np.ndarray, thread: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
    """Turn around what ends at the same time: what started last ends first.

    But what takes no time ends last of all that ends then, so that it may first begin.

    - ``by_end``: int64, shape (ops,): operations in order of thread, of these in order of end, and
      of these in order of number; changed.
    - ``thread``: int64, shape (ops,).
    - ``start``, ``end``: int64 ns, shape (ops,); of one thread ascending by start. O(ops).
    """
    first = 0
    for after in range(1, by_end.size + 1):
        a = by_end[first]
        if after < by_end.size:
            b = by_end[after]
            # what takes no time started last: it follows the others, and stays behind them
            if (
                thread[a] == thread[b]
                and end[a] == end[b]
                and (start[b] < end[b]) == (start[a] < end[a])
            ):
                continue
        low, high = first, after - 1
        while low < high:
            by_end[low], by_end[high] = by_end[high], by_end[low]
            low += 1
            high -= 1
        first = after
