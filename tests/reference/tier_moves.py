"""What has to move between tiers, tensor by tensor and byte by byte: slow, and easy to read."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple


class Access(NamedTuple):
    """An access of one tensor: ``turn`` counts operations; bytes ``begin`` to ``end``."""

    turn: int
    until: int
    begin: int
    end: int
    reads: bool
    writes: bool


def moves_of_tensor(
    accesses: list[Access], *, is_before: bool, distance: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the bytes that are loaded before each turn, and stored after each.

    Accesses are in order of turn. Those of one turn happen at once.
    """
    loads: dict[int, int] = defaultdict(int)
    stores: dict[int, int] = defaultdict(int)
    visits: list[list[Access]] = []
    latest = 0
    for one in accesses:
        if not visits or one.turn - latest > distance:
            visits.append([])
        visits[-1].append(one)
        latest = max(latest, one.until)
    for number, visit in enumerate(visits):
        there: set[int] = set()
        dirty: set[int] = set()
        for one in visit:
            some = set(range(one.begin, one.end))
            if one.reads and (is_before or number):
                loads[one.turn] += len(some - there)
            there |= some
            if one.writes:
                dirty |= some
        if is_before or number < len(visits) - 1:
            stores[visit[-1].until] += len(dirty)
    return dict(loads), dict(stores)
