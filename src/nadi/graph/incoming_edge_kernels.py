"""Edges put where they enter: sorted by destination, part after part, without a copy in between."""

import numpy as np

from nadi.kernels.jit import kernel


@kernel
def count_incoming(dst: np.ndarray, first: np.ndarray) -> None:
    """Count edges by destination, two places further: room for :func:`place_incoming`.

    - ``dst``: int64, shape (edges,): each from 0 to ``len(first) - 3``.
    - ``first``: int32, shape (vertices + 2,): at vertex + 2 the number of its edges is added.
      O(edges).
    """
    for e in range(dst.size):
        first[dst[e] + 2] += 1


@kernel
def place_incoming(
    dst: np.ndarray,
    src: np.ndarray,
    weight: np.ndarray,
    kind: np.ndarray,
    op: np.ndarray,
    first: np.ndarray,
    placed: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Put edges behind those that enter the same vertex already.

    - ``dst``, ``src``, ``weight``, ``kind``, ``op``: int64, ``kind`` uint8, shape (edges,).
    - ``first``: int32, shape (vertices + 2,): at vertex + 1 where its next edge goes; moved on, so
      that after all edges the edges ``first[v]:first[v + 1]`` enter v.
    - ``placed``: src, weight, kind and op of all edges, filled there; src and op int32. O(edges).
    """
    all_src, all_weight, all_kind, all_op = placed
    for e in range(dst.size):
        at = first[dst[e] + 1]
        first[dst[e] + 1] = at + 1
        all_src[at] = src[e]
        all_weight[at] = weight[e]
        all_kind[at] = kind[e]
        all_op[at] = op[e]
