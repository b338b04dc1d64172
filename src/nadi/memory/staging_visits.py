"""Visits of tensors to the first tier: when they are loaded, how long they stay, what is stored.

A tensor that lives in a lower tier comes to the first one for the operations that use it. Uses that
follow each other within some operations are one visit: its bytes are loaded once, and stored once
after the last of them, if it was written and is needed again.
"""

from typing import NamedTuple

import numpy as np

from nadi.memory.operation_accesses import Accesses
from nadi.trace.arrays import Bools, Ints


class Visits(NamedTuple):
    """Visits, in order of life and time; those of ``access`` and ``load`` are by access."""

    access: Ints  # int64, shape (accesses,): the accesses in order of life, then of time
    of_access: Ints  # int64, shape (accesses,): the visit of each of them
    load: Ints  # int64, shape (accesses,): bytes that have to be loaded before each of them
    life: Ints  # int64, shape (visits,)
    # first, last: int64, shape (visits,): positions in ``access`` of the access that begins first,
    # and of that which ends last
    first: Ints
    last: Ints
    bytes: Ints  # int64, shape (visits,): that it takes in the first tier
    stored: Ints  # int64, shape (visits,): bytes that are stored after it

    @property
    def loaded(self) -> Ints:
        """Bytes that are loaded for each visit."""
        if not self.life.size:
            return self.life
        return np.add.reduceat(self.load, self.first)


def visits_of(
    accesses: Accesses, life: Ints, turn: tuple[Ints, Ints], is_before: Bools, size: Ints, *,
    distance: int, alone: Bools | None = None,
) -> Visits:  # fmt: skip
    """Find the visits of tensors that live in a lower tier. O(accesses log accesses).

    - ``accesses``: Of tensors in lower tiers.
    - ``life``: int64, shape (accesses,): the life that each is of.
    - ``turn``: int64, shape (accesses,) each: when each begins and ends, counted in operations.
    - ``is_before``, ``size``: Of each life: whether it is there before and stays; its bytes.
    - ``distance``: Uses that are at most so many operations apart are one visit.
    - ``alone``: bool, shape (accesses,): accesses that are visits of their own, as their operation
      works on one part after the other.
    """
    begin, end = turn
    order = np.lexsort((end, begin, life))
    of, begin, end = life[order], begin[order], end[order]
    if not order.size:
        empty = np.zeros(0, dtype=np.int64)
        return Visits(*[empty] * 8)
    is_alone = np.zeros(order.size, dtype=np.bool_) if alone is None else alone[order]
    changes = np.append(True, of[1:] != of[:-1])
    far = np.append(True, begin[1:] - _latest(of, end)[:-1] > distance)
    same_turn = np.append(False, (begin[1:] == begin[:-1]) & (of[1:] == of[:-1]))
    cut = is_alone | np.append(False, is_alone[:-1])
    starts = changes | far | (cut & ~same_turn)
    visit = np.cumsum(starts) - 1
    first = np.flatnonzero(starts)
    by_end = np.lexsort((np.arange(order.size), end, visit))
    last = by_end[np.append(first[1:], order.size) - 1]
    of_visit = of[first]
    low, high = accesses.begin[order], accesses.end[order]
    is_new = _first_of_each(visit, low, high)
    added = _clipped(np.where(is_new, high - low, 0), first, visit, size[of_visit])
    reads, writes = accesses.reads[order], accesses.writes[order]
    is_making = changes[first] & ~is_before[of_visit]
    load = np.where(reads & ~is_making[visit], added, 0)
    written = _first_of_each(visit, low, high, writes)
    dirty = _clipped(np.where(written, high - low, 0), first, visit, size[of_visit])
    is_last = np.append(changes[first][1:], True)
    stored = np.where(is_last & ~is_before[of_visit], 0, np.add.reduceat(dirty, first))
    return Visits(
        order, visit, load, of_visit, first, last, np.add.reduceat(added, first), stored
    )  # fmt: skip


def _latest(group: Ints, value: Ints) -> Ints:
    """Return the largest value so far in each group; groups are contiguous."""
    room = int(value.max(initial=0)) + 1
    number = np.cumsum(np.append(True, group[1:] != group[:-1]))
    found: Ints = np.maximum.accumulate(number * room + value) - number * room
    return found


def _first_of_each(visit: Ints, begin: Ints, end: Ints, chosen: Bools | None = None) -> Bools:
    """Return which accesses are the first of their range of bytes in their visit."""
    rows = np.arange(visit.size) if chosen is None else np.flatnonzero(chosen)
    order = rows[np.lexsort((rows, end[rows], begin[rows], visit[rows]))]
    found = np.zeros(visit.size, dtype=np.bool_)
    if order.size:
        differs = np.zeros(order.size, dtype=np.bool_)
        differs[0] = True
        for column in (visit, begin, end):
            differs[1:] |= column[order[1:]] != column[order[:-1]]
        found[order[differs]] = True
    return found


def _clipped(amount: Ints, first: Ints, visit: Ints, size: Ints) -> Ints:
    """Return what each amount adds to its visit, which has no more than its size."""
    total = np.cumsum(amount)
    before = total[first] - amount[first]
    within = np.minimum(total - before[visit], size[visit])
    previous = np.append(0, within[:-1])
    previous[first] = 0
    found: Ints = within - previous
    return found
