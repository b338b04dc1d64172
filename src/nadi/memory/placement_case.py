"""What a solver has to know of a rank's tensors: how long they live, and what moves when.

The step is cut into windows of half as many operations as a load may begin before its use. What is
loaded for operations moves a window earlier, and what is stored after them a window later. It
overlaps with the work there, so a window takes the longest of its work and of what each tier reads
and writes in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.memory.placed_tensors import DISTANCE, TraceTensors
from nadi.memory.placement_choice import TierRoom, moves_ever
from nadi.memory.staging_visits import visits_of
from nadi.trace.arrays import Floats, Ints

__all__ = [
    "PlacementCase", "all_lives", "case_of_tensors", "cost_of_placement", "excess_bytes", "live_at",
    "most_bytes", "move_ns",
]  # fmt: skip


class PlacementCase(NamedTuple):
    """The tensors of a rank that can live in a lower tier, and the others.

    Attributes
    ----------
    life
        int64, shape (tensors,): row of ``TraceTensors.table``; those that would ever move.
    size, begin, end
        int64, shape (tensors,): bytes, and when they live, in ns.
    stays
        int64, shape (3, others): size, begin and end of those that never move.
    mover, window, is_store, moved
        int64, int64, bool and int64, shape (moves,): the tensor, by position here, the window and
        the bytes of each load and store if it lives in a lower tier.
    work
        int64 ns, shape (windows,): length of each window where nothing moves.
    """

    life: Ints
    size: Ints
    begin: Ints
    end: Ints
    stays: Ints
    mover: Ints
    window: Ints
    is_store: Ints
    moved: Ints
    work: Ints


def case_of_tensors(
    tensors: TraceTensors, distance: int = DISTANCE, buffers: float = math.inf
) -> PlacementCase:
    """Read what a solver needs of a rank. O(accesses log accesses).

    Parameters
    ----------
    distance
        Operations before a use that its load may begin.
    buffers
        Bytes of buffers in the first tier: what takes more than half of them moves while its
        operation works on one part after the other, and a window of its own.
    """
    moving = moves_ever(tensors)
    life = np.flatnonzero(moving)
    position = np.cumsum(moving) - 1
    low = np.flatnonzero(moving[tensors.life])
    accesses, of, turn = tensors.accesses.at(low), tensors.life[low], tensors.turn[low]
    size, begin, end = (tensors.column(name) for name in ("bytes", "begin", "end"))
    visits = visits_of(
        accesses, of, (turn[:, 0], turn[:, 1]), tensors.table["is_before"].to_numpy(), size,
        distance=distance,
    )  # fmt: skip
    loads, stores = np.flatnonzero(visits.load), np.flatnonzero(visits.stored)
    load_turn = turn[visits.access[loads], 0]
    store_turn = turn[visits.access[visits.last[stores]], 1]
    moved = np.concatenate([visits.load[loads], visits.stored[stores]])
    windows = _Windows.of(tensors, max(distance // 2, 1))
    own_turn = np.concatenate([load_turn, store_turn])
    is_large = moved > buffers / 2
    windows = windows.cut(own_turn[is_large])
    is_store = np.repeat([0, 1], [loads.size, stores.size])
    window = np.where(is_store, windows.after(own_turn), windows.before(own_turn))
    return PlacementCase(
        life, size[life], begin[life], end[life], np.stack([size, begin, end])[:, ~moving],
        np.concatenate([
            position[visits.life[visits.of_access[loads]]], position[visits.life[stores]],
        ]),
        np.where(is_large, windows.number[own_turn], window), is_store, moved, windows.work,
    )  # fmt: skip


class _Windows(NamedTuple):
    """Operations in windows; the first and the last one have none, and no length.

    Attributes
    ----------
    number
        int64, shape (operations,): the window of each, from 1.
    start
        int64 ns, shape (operations,): when each begins, or a later one before it.
    end
        Of the step, in ns.
    length
        Operations of a window that is not cut.
    """

    number: Ints
    start: Ints
    end: int
    length: int

    @classmethod
    def of(cls, tensors: TraceTensors, length: int) -> _Windows:
        """Cut the step of a rank into windows of equal numbers of operations."""
        end = int(tensors.end.max(initial=0))
        start = np.full(int(tensors.turn.max(initial=0)) + 1, end)
        np.minimum.at(start, tensors.turn[:, 0], tensors.start[tensors.accesses.first])
        start = np.minimum.accumulate(start[::-1])[::-1]
        return cls(np.arange(start.size) // length + 1, start, end, length)

    def cut(self, turns: Ints) -> _Windows:
        """Give some operations windows of their own."""
        begins = np.diff(self.number, prepend=0) > 0
        begins[turns] = True
        begins[np.minimum(turns + 1, begins.size - 1)] = True
        return self._replace(number=np.cumsum(begins))

    def before(self, turn: Ints) -> Ints:
        """Return the window in which a load moves: half of its distance before the operation."""
        earlier = turn - self.length
        return np.where(earlier < 0, 0, self.number[np.maximum(earlier, 0)])

    def after(self, turn: Ints) -> Ints:
        """Return the window in which a store moves: the next one."""
        found: Ints = self.number[turn] + 1
        return found

    @property
    def work(self) -> Ints:
        """The length of each window in ns: to the first operation of the next one."""
        first = np.searchsorted(self.number, np.arange(1, int(self.number[-1]) + 1))
        begins = np.append(self.start[first], self.end)
        begins[0] = 0
        return np.concatenate([[0], np.diff(begins), [0]])


def live_at(moments: Ints, size: Ints, begin: Ints, end: Ints) -> Ints:
    """Return the bytes that live at moments, in ascending order; int64, shape (moments,)."""
    change = np.zeros(moments.size + 1, dtype=np.int64)
    enter, leave = (np.searchsorted(moments, when) for when in (begin, end))
    np.add.at(change, enter, size)
    np.subtract.at(change, leave, size)
    found: Ints = np.cumsum(change)[:-1]
    return found


def all_lives(case: PlacementCase) -> tuple[Ints, Ints, Ints]:
    """Return size, begin and end of all tensors, those that never move last."""
    size, begin, end = (
        np.concatenate(pair)
        for pair in zip((case.size, case.begin, case.end), case.stays, strict=True)
    )
    return size, begin, end


def most_bytes(case: PlacementCase) -> int:
    """Return the most bytes that live at any moment."""
    lives = all_lives(case)
    return int(live_at(np.unique(lives[1]), *lives).max(initial=0))


def excess_bytes(case: PlacementCase, rooms: Sequence[TierRoom], tier: Ints) -> Floats:
    """Return the bytes by which a placement exceeds each tier; float64, shape (tiers,)."""
    others = np.zeros(case.stays.shape[1], dtype=np.int64)
    where, lives = np.concatenate([tier, others]), all_lives(case)
    found = np.zeros(len(rooms))
    for number, room in enumerate(rooms):
        size, begin, end = (column[where == number] for column in lives)
        most = live_at(np.unique(begin), size, begin, end).max(initial=0)
        found[number] = max(most - room.capacity, 0.0)
    return found


def cost_of_placement(
    case: PlacementCase, rooms: Sequence[TierRoom], tier: Ints
) -> tuple[float, float]:
    """Predict the length of a step with a placement, and how long all moves take; ns.

    Parameters
    ----------
    tier
        int64, shape (tensors,): of each tensor of the case.
    """
    lanes: Floats = np.zeros((2 * len(rooms), case.work.size))
    for number, room in enumerate(rooms[1:], 1):
        some = np.flatnonzero(tier[case.mover] == number)
        lane = 2 * number + case.is_store[some]
        np.add.at(lanes, (lane, case.window[some]), move_ns(case, room, some))
    longest = np.maximum(lanes.max(axis=0), case.work)
    return float(longest.sum()), float(lanes.sum())


def move_ns(case: PlacementCase, room: TierRoom, moves: Ints) -> Floats:
    """Return how long some moves take from and to a tier; float64, shape (moves,)."""
    rate = np.where(case.is_store[moves] > 0, room.write_rate, room.read_rate)
    found: Floats = case.moved[moves] / rate + room.latency
    return found
