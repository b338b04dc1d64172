"""The boundaries of threads as vertices of a graph, each with the time before it."""

from typing import NamedTuple

import numpy as np

from nadi.kernels.jit import borrowed, kernel
from nadi.recordings.dependencies.operator_nesting_kernels import Nested


class ThreadOps(NamedTuple):
    """The operations of a rank, those of threads by their place among these."""

    # int64, shape (n + 1,), n being operations of threads: the number of each in the job; last, -1
    # for none
    number: np.ndarray
    # uint8, shape (n + 1,): the kind of edge that time of its own is; last, that of time in which
    # none is open
    kind: np.ndarray
    # start, end: int64 ns, shape (ops of the rank,), of all operations from ``first_op`` on
    start: np.ndarray
    end: np.ndarray


class Chain(NamedTuple):
    """The boundaries of all threads of a rank, thread by thread; arrays of shape (boundaries,)."""

    vertex: np.ndarray  # int64: the vertex of the boundary
    # int64 ns: time since the boundary before it on its thread; 0 for the first of a thread
    gap: np.ndarray
    owner: np.ndarray  # int64: the operation that the time before the boundary belongs to, or -1
    kind: np.ndarray  # uint8: the ``EdgeKind`` of this time
    # int64, shape (threads + 1,): thread t has the boundaries ``2 * thread_ptr[t] : 2 *
    # thread_ptr[t + 1]``
    thread_ptr: np.ndarray
    # int64, shape (2 * ops of the rank,): position of each vertex of the rank, or -1
    at: np.ndarray


@kernel
def chain_threads(
    nested: Nested, ops: ThreadOps, first_op: int, chain: Chain, parent: np.ndarray
) -> None:
    """Give the boundaries of the threads of a rank as vertices, thread by thread.

    - ``nested``: How the operations of threads are nested.
    - ``ops``: The operations.
    - ``first_op``: Number of the rank's first operation in the job.
    - ``chain``: Filled but for ``thread_ptr``; ``at`` is -1 at entry.
    - ``parent``: int64, shape (ops of the rank,), filled for operations of threads: the operation
      around each, or -1. O(ops).
    """
    nested, ops, chain = borrowed(nested), borrowed(ops), borrowed(chain)
    for t in range(chain.thread_ptr.size - 1):
        first = 2 * chain.thread_ptr[t]
        before = np.int64(0)
        for b in range(first, 2 * chain.thread_ptr[t + 1]):
            boundary, inner = nested.boundary[b], nested.owner[b]
            v = 2 * ops.number[boundary // 2] + boundary % 2
            of_rank = v - 2 * first_op
            time = ops.end[of_rank // 2] if boundary % 2 == 1 else ops.start[of_rank // 2]
            chain.vertex[b] = v
            chain.at[of_rank] = b
            chain.gap[b] = time - before if b > first else 0
            before = time
            chain.owner[b] = ops.number[inner]
            chain.kind[b] = ops.kind[inner]
    for n in range(nested.parent.size):
        parent[ops.number[n] - first_op] = ops.number[nested.parent[n]]
