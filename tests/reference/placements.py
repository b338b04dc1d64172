"""The best placement of a few tensors, by trying all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from nadi.memory.placement_choice import TierRoom
from nadi.memory.placement_solver import PlacementCase


def best_cost(case: PlacementCase, rooms: Sequence[TierRoom], moves: float) -> float | None:
    """Give the least cost of a placement that fits; None if none does."""
    return min(
        (
            _cost(case, rooms, tier, moves)
            for tier in _all(case, rooms)
            if lacking(case, rooms, tier) == 0
        ),
        default=None,
    )


def least_lacking(case: PlacementCase, rooms: Sequence[TierRoom]) -> float:
    """Give what the first tier lacks at least, with lower tiers that are large enough."""
    return min(lacking(case, rooms, tier) for tier in _all(case, rooms))


def _all(case: PlacementCase, rooms: Sequence[TierRoom]) -> Iterator[tuple[int, ...]]:
    return itertools.product(range(len(rooms)), repeat=case.size.size)


def _live(case: PlacementCase, tier: tuple[int, ...], number: int, moment: int) -> int:
    lives = zip(tier, case.size.tolist(), case.begin.tolist(), case.end.tolist(), strict=True)
    total = sum(size for t, size, begin, end in lives if t == number and begin <= moment < end)
    if number == 0:
        total += sum(size for size, begin, end in case.stays.T.tolist() if begin <= moment < end)
    return total


def lacking(case: PlacementCase, rooms: Sequence[TierRoom], tier: tuple[int, ...]) -> float:
    """Give the bytes beyond the first tier; infinite if a lower one is too small."""
    moments = {*case.begin.tolist(), *case.stays[1].tolist()}
    found = 0.0
    for number, room in enumerate(rooms):
        over = max(
            (_live(case, tier, number, moment) - room.capacity for moment in moments), default=0
        )
        if over > 0:
            found = max(found, over) if number == 0 else float("inf")
    return found


def _cost(
    case: PlacementCase, rooms: Sequence[TierRoom], tier: tuple[int, ...], moves: float
) -> float:
    total = 0.0
    for window, work in enumerate(case.work.tolist()):
        lanes: dict[tuple[int, bool], float] = {}
        each = zip(
            case.mover.tolist(), case.window.tolist(), case.is_store.tolist(), case.moved.tolist(),
            strict=True,
        )  # fmt: skip
        for mover, when, is_store, size in each:
            room = rooms[tier[mover]]
            if when == window and tier[mover]:
                rate = room.write_rate if is_store else room.read_rate
                key = (tier[mover], bool(is_store))
                lanes[key] = lanes.get(key, 0.0) + size / rate + room.latency
        total += max([work, *lanes.values()]) + moves * sum(lanes.values())
    return total
