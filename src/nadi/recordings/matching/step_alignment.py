"""Match operations of a device trace with a host trace of later steps of the same process."""

from __future__ import annotations

import numpy as np

from nadi.recordings.matching.name_alignment import align_names, common_counts
from nadi.recordings.step_marks import STEP_MARK
from nadi.trace.arrays import Ints
from nadi.trace.trace import Trace

__all__ = ["align_later_steps"]


def align_later_steps(
    host: Trace, device: Trace, host_rows: Ints, device_rows: Ints, names: tuple[Ints, Ints]
) -> Ints:
    """Pair operations of the same name, step by step, thread by thread, in order.

    The two steps with the most names in common are paired first; of several that have as many, the
    earliest. Each step of either trace has one partner at most. Threads of the two steps, and the
    operations of the two threads, are paired as :func:`align_names` does it. Any of gloo's threads
    may run a collective, so these are paired by their order in the step, as is what is left of a
    name of which either step has as many.

    Parameters
    ----------
    host_rows, device_rows
        int64, shape (host operations,) and (device operations,): the nodes to pair.
    names
        int64, shape (host nodes,) and (device nodes,): equal numbers for equal names.

    Returns
    -------
    int64, shape (device nodes,)
        The host node, or -1.
    """
    theirs = _by_step(device_rows, device.column("start"), device.name_mask(STEP_MARK))
    ours = _by_step(host_rows, host.column("id"), host.name_mask(STEP_MARK))  # in order of start
    common = common_counts([names[1][rows] for rows in theirs], [names[0][rows] for rows in ours])
    of_gloo = [one.name_mask("^gloo:") for one in (host, device)]
    host_row = np.full(device.nodes.height, -1, dtype=np.int64)
    while common.size and common.max() > 0:
        i, j = np.unravel_index(np.argmax(common), common.shape)
        common[i, :] = common[:, j] = 0
        mine, other = ours[j][~of_gloo[0][ours[j]]], theirs[i][~of_gloo[1][theirs[i]]]
        found, _ = align_names(host, device, mine, other, names)
        host_row = np.maximum(host_row, found)
        left = ours[j][~np.isin(ours[j], found)], theirs[i][found[theirs[i]] < 0]
        _pair_rest(*left, host.column("id"), device.column("start"), names, host_row)
    return host_row


def _pair_rest(
    ours: Ints, theirs: Ints, ids: Ints, start: Ints, names: tuple[Ints, Ints], host_row: Ints
) -> None:
    """Pair nodes of any thread in order, of each name of which there are as many on either side."""
    ours, theirs = ours[np.argsort(ids[ours])], theirs[np.argsort(start[theirs], kind="stable")]
    for name in np.intersect1d(names[0][ours], names[1][theirs]).tolist():
        mine, other = ours[names[0][ours] == name], theirs[names[1][theirs] == name]
        if mine.size == other.size:
            host_row[other] = mine


def _by_step(rows: Ints, order: Ints, is_mark: np.ndarray) -> list[Ints]:
    """Split nodes at the marks of steps; what comes before the first is a part of its own."""
    step = np.searchsorted(np.sort(order[is_mark]), order[rows], side="right")
    by_step = np.argsort(step, kind="stable")
    ends = np.flatnonzero(np.diff(step[by_step])) + 1
    return np.split(rows[by_step], ends)
