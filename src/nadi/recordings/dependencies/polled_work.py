"""Find where a thread waits for device work without a call: it polls memory that the work writes.

So do libraries whose kernels tell the host how much follows (DeepEP's dispatch). The recording has
only a stretch of the thread in which nothing runs. It is taken as a wait if its repeats confirm it.
"""

from __future__ import annotations

import numpy as np

from nadi.recordings.dependencies.device_calls import DeviceCalls
from nadi.trace.arrays import Bools, Ints, text_codes

__all__ = ["polled_work"]

_EARLY_NS, _LATE_NS = 100_000, 50_000  # work may tell the host before it ends
_FEWEST_REPEATS = 3
_MOST = 0.9  # of the stretches at a place follow the work


def polled_work(here: DeviceCalls, before: Ints, after: Ints) -> tuple[Ints, Bools]:
    """Find the device work that threads wait for in stretches in which they run nothing.

    A stretch may wait for the work that its thread launched last, if this still runs when the
    stretch begins, and ends within some tens of us of the end of the stretch. It does if at its
    place of the program at least three stretches, and nine tenths of those that begin while such
    work runs, follow it this closely while their lengths vary twice as much.

    Parameters
    ----------
    before, after
        int64, shape (stretches,): the boundaries around each, ``2 * row + is_end``.

    Returns
    -------
    int64, bool, shape (stretches,)
        The node row of the work, or -1, and whether the stretch waits for it.
        O((stretches + work) log work).
    """
    begin, end = _time(here, before), _time(here, after)
    work = _last_launched(here, before // 2, begin)
    running = (work >= 0) & (here.end[work] > begin)
    after_end = end - here.end[work]
    near = running & (after_end >= -_EARLY_NS) & (after_end <= _LATE_NS)
    near &= here.start[work] < end
    names = text_codes(here.trace.nodes["name"])
    places = np.stack([names[before // 2], names[after // 2], np.where(work >= 0, names[work], -1)])
    _, place = np.unique(places, axis=1, return_inverse=True)
    waits = np.zeros(work.size, dtype=np.bool_)
    for number in np.unique(place[near]):
        mine = running & (place == number)
        chosen = mine & near
        if chosen.sum() < max(_FEWEST_REPEATS, _MOST * mine.sum()):
            continue
        waits[chosen] = 2 * np.std(after_end[chosen]) < np.std((end - begin)[chosen])
    return work, waits


def _time(here: DeviceCalls, boundary: Ints) -> Ints:
    row = boundary // 2
    return np.where(boundary % 2 == 1, here.end[row], here.start[row])


def _last_launched(here: DeviceCalls, row: Ints, moment: Ints) -> Ints:
    """Return the work that the thread of each node launched last before a moment, or -1."""
    thread = here.trace.column("thread")
    work = here.launched_work
    call = here.launcher[work]
    order = np.lexsort((here.end[work], here.start[call]))
    work, call = work[order], call[order]
    found = np.full(row.size, -1, dtype=np.int64)
    for number in np.unique(thread[row]):
        mine, theirs = thread[row] == number, np.flatnonzero(thread[call] == number)
        at = np.searchsorted(here.start[call[theirs]], moment[mine]) - 1
        found[mine] = np.where(at >= 0, work[theirs[np.maximum(at, 0)]], -1) if theirs.size else -1
    return found
