"""The boundaries of threads as vertices of a graph, each with the time before it."""

from __future__ import annotations

import numpy as np

from nadi.kernels.jit import kernel

__all__ = ["chain_threads"]


@kernel
def chain_threads(
    nested: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    number: np.ndarray,
    kind_of: np.ndarray,
    kind_of_none: int,
    start: np.ndarray,
    end: np.ndarray,
    first_op: int,
    chain: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    at: np.ndarray,
    parent: np.ndarray,
) -> None:
    """Give the boundaries of the threads of a rank as vertices, thread by thread.

    Parameters
    ----------
    nested
        thread_ptr, boundary, owner and parent as of ``operator_nesting.Nesting``: int64,
        shapes (threads + 1,), (2 * n,), (2 * n,) and (n,), n being operations of threads.
    number
        int64, shape (n,): the number of each in the job.
    kind_of
        uint8, shape (n,): the kind of edge that time of its own is; ``kind_of_none`` where none
        is open.
    start, end
        int64 ns, shape (ops of the rank,), of the operations from ``first_op`` on.
    chain
        Filled, shape (2 * n,): vertex; time since the boundary before it on its thread, 0 for
        the first (int64, ns); operation that this time belongs to, or -1; kind of edge (uint8).
    at
        int64, shape (2 * ops of the rank,), filled for the vertices on threads: where in the
        chain each is.
    parent
        int64, shape (ops of the rank,), filled for operations of threads: the operation around
        each, or -1. O(ops).
    """
    thread_ptr, boundary, owner, around = nested
    vertex, gap, owner_op, kind = chain
    for t in range(thread_ptr.size - 1):
        before = np.int64(0)
        for b in range(2 * thread_ptr[t], 2 * thread_ptr[t + 1]):
            op = number[boundary[b] // 2]
            is_end = boundary[b] % 2
            v = 2 * op + is_end
            time = end[op - first_op] if is_end == 1 else start[op - first_op]
            vertex[b] = v
            at[v - 2 * first_op] = b
            gap[b] = time - before if b > 2 * thread_ptr[t] else 0
            before = time
            inner = owner[b]
            owner_op[b] = number[inner] if inner >= 0 else -1
            kind[b] = kind_of[inner] if inner >= 0 else kind_of_none
    for n in range(number.size):
        parent[number[n] - first_op] = number[around[n]] if around[n] >= 0 else -1
