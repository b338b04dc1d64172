"""Match operations of a host and a device trace by the order of their names alone."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from nadi.recordings.matching.name_alignment_kernels import align
from nadi.trace.arrays import Ints
from nadi.trace.trace import Trace

__all__ = ["align_names", "common_counts"]

_MOST_EDITS = 1_000
_THREAD = r"^\[pytorch\|profiler\|execution_(trace|graph)\|thread\]$"


def align_names(
    host: Trace, device: Trace, host_rows: Ints, device_rows: Ints, names: tuple[Ints, Ints]
) -> tuple[Ints, int]:
    """Pair operations of the same name, thread by thread, in the order of their starts.

    A host trace numbers its operations in this order. Threads are matched by their names too: the
    two threads with the most names in common are paired first, then the next two. Of several that
    have as many, those that begin first are.

    Parameters
    ----------
    host_rows, device_rows
        int64, shape (host operations,) and (device operations,): the nodes to pair.
    names
        int64, shape (host nodes,) and (device nodes,): equal numbers for equal names.

    Returns
    -------
    host_row
        int64, shape (device nodes,): the host node, or -1.
    num_spanned
        Operations from the first pair to the last on each thread, in the file that has more of
        them there. Scattered accidental pairs are a small share of this number. Near-linear where
        the two are nearly equal.
    """
    ours = _host_sequences(host, host_rows)
    theirs = _device_sequences(device, device_rows)
    left = [np.ascontiguousarray(names[1][rows]) for rows in theirs]
    right = [np.ascontiguousarray(names[0][rows]) for rows in ours]
    host_row = np.full(device.nodes.height, -1, dtype=np.int64)
    num_spanned = 0
    for i, j, partner in _assign(left, right):
        paired = np.flatnonzero(partner >= 0)
        host_row[theirs[i][paired]] = ours[j][partner[paired]]
        if paired.size:
            num_spanned += max(int(np.ptp(paired)), int(np.ptp(partner[paired]))) + 1
    return host_row, num_spanned


def _assign(left: Sequence[Ints], right: Sequence[Ints]) -> list[tuple[int, int, Ints]]:
    """Choose pairs of sequences, those with the most in common first; each at most once.

    The number of common items in any order bounds the number of common items in order, so that few
    pairs have to be aligned.

    Returns
    -------
    list of (number in left, number in right, partners as :func:`align` fills them)
    """
    bounds = common_counts(left, right)
    queue = [(-int(bounds[i, j]), i, j, False) for i, j in np.argwhere(bounds > 0).tolist()]
    heapq.heapify(queue)
    partners: dict[tuple[int, int], Ints] = {}
    chosen: list[tuple[int, int, Ints]] = []
    while queue:
        _, i, j, is_aligned = heapq.heappop(queue)
        if any(i == taken or j == used for taken, used, _ in chosen):
            continue
        if is_aligned:
            chosen.append((i, j, partners[i, j]))
            continue
        partner = np.full(left[i].size, -1, dtype=np.int64)
        num_pairs = align(left[i], right[j], _MOST_EDITS, partner)
        partners[i, j] = partner
        heapq.heappush(queue, (-num_pairs, i, j, True))
    return chosen


def common_counts(left: Sequence[Ints], right: Sequence[Ints]) -> Ints:
    """Count the common items of each two sequences, in any order; shape (left, right)."""
    every = np.concatenate([*left, *right, np.zeros(0, dtype=np.int64)])
    _, codes = np.unique(every, return_inverse=True)
    ends = np.cumsum([part.size for part in (*left, *right)])[:-1]
    size = int(codes.max(initial=-1)) + 1
    counts = [np.bincount(part, minlength=size) for part in np.split(codes, ends)]
    common = np.zeros((len(left), len(right)), dtype=np.int64)
    for i in range(len(left)):
        for j in range(len(right)):
            common[i, j] = np.minimum(counts[i], counts[len(left) + j]).sum()
    return common


def _host_sequences(host: Trace, rows: Ints) -> list[Ints]:
    """Return the operations below each thread of the host trace, in the order of their ids."""
    is_thread = host.nodes["name"].cast(str).str.contains(_THREAD).to_numpy()
    # threads are nodes in the file: find the thread node above each node
    above = np.where(is_thread, np.arange(host.nodes.height), host.column("parent"))
    while ((higher := np.where(above >= 0, above[above], -1)) != above).any():
        above = higher
    return _by_thread(above[rows], host.column("id")[rows], rows)


def _device_sequences(device: Trace, rows: Ints) -> list[Ints]:
    """Return the operations of each thread in order of start; ties in the order of their ids."""
    rf_id, external_id = device.column("rf_id")[rows], device.column("external_id")[rows]
    by_id = rows[np.argsort(np.where(rf_id > 0, rf_id, external_id), kind="stable")]
    start, thread = device.column("start")[by_id], device.column("thread")[by_id]
    return _by_thread(thread, start, by_id)


def _by_thread(thread: Ints, key: Ints, rows: Ints) -> list[Ints]:
    """Split rows by thread, each in order of key; threads in order of their first."""
    order = np.lexsort((key, thread))
    ends = np.flatnonzero(np.diff(thread[order])) + 1
    parts = [part for part in np.split(order, ends) if part.size]
    return [rows[part] for part in sorted(parts, key=lambda part: int(key[part[0]]))]
