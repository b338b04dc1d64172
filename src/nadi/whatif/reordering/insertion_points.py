"""Insertion points: positions that a unit can move to, alone or with the units it needs."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np

from nadi.trace.arrays import Bools, Ints
from nadi.whatif.reordering.movable_units import Units
from nadi.whatif.reordering.moves import Block

__all__ = ["blocks_of", "same_on_ranks"]

_MOST_IN_BLOCK = 64
_MOST_PLACES = 8


def blocks_of(units: Units, unit: int, wait: int) -> Iterator[Block]:
    """Return positions that a unit can move to, nearest first, with the units to move along.

    Walks back from the unit. Where it meets something that the unit needs there are two ways:
    the unit stays after that, which is a place; or that comes along, and what it needs too, as
    far as no fence is in the way. Only places are given for which more is passed than for the
    one before, eight at most, with up to 64 units in a block.

    Parameters
    ----------
    wait
        A unit right after which the thread waits, or -1; that is a place too.
    """
    members = [unit]
    fence = int(units.after_fence[unit])
    ahead: list[int] = []  # of units that members need, the negative number
    seen: set[int] = set()
    _need(units, unit, ahead, seen)
    passed, num_places = 0, 0
    while fence < unit and num_places < _MOST_PLACES:
        nearest = max(-ahead[0] if ahead else -1, fence)
        if nearest < wait < members[-1] - 1:
            yield Block(wait, tuple(reversed(members)))
        if unit - nearest - len(members) > passed:
            passed = unit - nearest - len(members)
            num_places += 1
            yield Block(nearest, tuple(reversed(members)))
        if nearest == fence or not units.can_move[nearest] or len(members) == _MOST_IN_BLOCK:
            return
        heappop(ahead)
        members.append(nearest)
        fence = max(fence, int(units.after_fence[nearest]))
        if fence >= nearest:
            return
        _need(units, nearest, ahead, seen)


def _need(units: Units, unit: int, ahead: list[int], seen: set[int]) -> None:
    """Add the units that a unit must stay after to the units ahead."""
    for before in units.needs[units.needs_ptr[unit] : units.needs_ptr[unit + 1]].tolist():
        if before not in seen:
            seen.add(before)
            heappush(ahead, -before)


def same_on_ranks(units: Units, chosen: Bools) -> list[list[int]]:
    """Group chosen units that are the same on several ranks.

    Communication that is matched is the same; so is the k-th operation of a name where all
    ranks have as many. O(units log units).
    """
    graph = units.layout.graph
    rank = graph.op_trace[units.op]
    name = graph.op_names.rank("dense").to_numpy().astype(np.int64)[units.op]
    num_names = int(name.max(initial=0)) + 1
    count = np.bincount(rank * num_names + name, minlength=num_names * len(graph.job.traces))
    as_many = (np.ptp(count.reshape(-1, num_names), axis=0) == 0)[name]
    collective = _collectives(units)
    key = np.select(
        [collective >= 0, as_many],
        # names are numbered from 1
        [collective, collective.max(initial=-1) + _ordinals(rank, name) * num_names + name],
        -1 - np.arange(units.op.size),
    )
    found: dict[int, dict[int, int]] = {}
    for unit in np.flatnonzero(chosen).tolist():
        found.setdefault(int(key[unit]), {}).setdefault(int(rank[unit]), unit)
    return [[of_rank[one] for one in sorted(of_rank)] for of_rank in found.values()]


def _ordinals(rank: Ints, name: Ints) -> Ints:
    """Return the ordinal of each unit among those of its name and rank; int64, shape (units,)."""
    order = np.lexsort((np.arange(name.size), name, rank))
    new = np.append(True, (np.diff(name[order]) != 0) | (np.diff(rank[order]) != 0))[: order.size]
    first = np.maximum.accumulate(np.where(new, np.arange(order.size), 0))
    found = np.empty(order.size, dtype=np.int64)
    found[order] = np.arange(order.size) - first
    return found


def _collectives(units: Units) -> Ints:
    """Return the collective of each unit, or -1; int64, shape (units,)."""
    layout, graph = units.layout, units.layout.graph
    of_op = np.full(graph.num_ops, -1, dtype=np.int64)
    ranks = list(graph.job.ranks)
    matches = graph.job.matches
    for number, rank in enumerate(ranks):
        mine = matches.filter(matches["rank"] == rank)
        low, high = np.searchsorted(graph.op_trace, [number, number + 1])
        at = low + np.searchsorted(graph.op_row[low:high], mine["node"].to_numpy())
        of_op[at] = mine["collective"].to_numpy()
    found = np.full(units.op.size, -1, dtype=np.int64)
    works = layout.works
    for op, unit in ((works.op, units.of_op[works.call]), (np.arange(graph.num_ops), units.of_op)):
        part = (of_op[op] >= 0) & (unit >= 0)
        found[unit[part]] = of_op[op[part]]
    return found
