"""Where units can move to, and what forbids it, against a slow reading of the rules."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from nadi.whatif.reordering.movable_units import BLOCKERS
from nadi.whatif.reordering.move_search import blocks_of
from nadi.whatif.reordering.moves import Block, held_by, why_not
from tests.amounts import ALL, examples

Needs = list[list[int]]


def units_of(fence: list[int], needs: Needs, can_move: list[bool]) -> Any:
    """Give what is asked of units: the first each can follow, what it needs, if it can move."""
    reasons = [1 + (u + n) % 4 for u, of_unit in enumerate(needs) for n in of_unit]
    return SimpleNamespace(
        after_fence=np.array(fence), can_move=np.array(can_move),
        fence_reason=np.array([5 + u % 8 for u in range(len(fence))]),
        needs_ptr=np.cumsum([0, *map(len, needs)]), needs_reason=np.array(reasons, dtype=np.int64),
        needs=np.array([n for of_unit in needs for n in of_unit], dtype=np.int64),
    )  # fmt: skip


def slow_blocks(
    fence: list[int], needs: Needs, can_move: list[bool], unit: int, wait: int
) -> Iterator[Block]:
    """Go back from need to need, each time with all that moves along."""
    members, stop, passed, num_places = [unit], fence[unit], 0, 0
    while stop < unit and num_places < 8:
        wanted = {need for member in members for need in needs[member]} - set(members)
        place = max([stop, *wanted])
        block = tuple(sorted(members))
        if place < wait < block[0] - 1:
            yield Block(wait, block)
        num_passed = unit - place - len(members)
        if num_passed > passed:
            passed, num_places = num_passed, num_places + 1
            yield Block(place, block)
        if place == stop or not can_move[place] or len(members) == 64:
            return
        members.append(place)
        stop = max(stop, fence[place])
        if stop >= place:
            return


def draw(rng: Random) -> tuple[list[int], Needs, list[bool]]:
    size = rng.randint(2, 14)
    fence = [max(0, u - rng.choice((0, 1, 2, 4, 9, 14))) for u in range(size)]
    needs: Needs = [rng.sample(range(u), min(u, rng.choice((0, 0, 1, 1, 2)))) for u in range(size)]
    return fence, needs, [rng.random() < 0.9 for _ in range(size)]


def test_places_of_random_units() -> None:
    num_blocks = 0
    for seed in range(examples(1500)):
        rng = Random(seed)
        fence, needs, can_move = draw(rng)
        unit, wait = rng.randrange(len(fence)), rng.randrange(-1, len(fence))
        found = list(blocks_of(units_of(fence, needs, can_move), unit, wait))
        assert found == list(slow_blocks(fence, needs, can_move, unit, wait)), seed
        num_blocks += len(found)
    assert not ALL or num_blocks > 500


def test_up_to_64_units_move_along_and_8_places_are_given() -> None:
    # unit 100 needs those down to 37 one after the other, that needs 30, and 30 needs 20
    needs: Needs = [[u - 1] if 37 < u <= 100 else [] for u in range(101)]
    needs[37], needs[30] = [30], [20]
    found = list(blocks_of(units_of([0] * 101, needs, [True] * 101), 100, -1))
    assert found == [Block(30, tuple(range(37, 101)))]
    every_second: Needs = [[u - 2] if u >= 2 else [] for u in range(41)]
    found = list(blocks_of(units_of([0] * 41, every_second, [True] * 41), 40, -1))
    assert [block.after for block in found] == [38 - 2 * k for k in range(8)]
    assert found[-1].units == tuple(range(26, 41, 2))


def test_what_forbids_random_moves() -> None:
    kinds = set()
    for seed in range(examples(1500)):
        rng = Random(seed)
        fence, needs, can_move = draw(rng)
        units = units_of(fence, needs, can_move)
        size = len(fence)
        after = rng.randrange(size - 1)
        moved = sorted(rng.sample(range(after + 1, size), rng.randint(1, size - after - 1)))
        forbidden: list[tuple[int, int, str]] = []
        held = []
        for unit in moved:
            reasons = {n: BLOCKERS[1 + (unit + n) % 4] for n in needs[unit]}
            own = BLOCKERS[5 + unit % 8]
            if not can_move[unit]:
                forbidden.append((unit, -1, "it cannot move on its own"))
            if fence[unit] > after:
                forbidden.append((unit, fence[unit], own))
            forbidden += [
                (unit, n, reasons[n]) for n in needs[unit] if n > after and n not in moved
            ]
            held += [(0, own)] * (fence[unit] == after) + [
                (1, reasons[n]) for n in needs[unit] if n == after
            ]
        block = Block(after, tuple(moved))
        assert why_not(units, block) == (forbidden[0] if forbidden else None), seed
        held.sort(key=lambda one: one[0])
        assert held_by(units, block) == (held[0][1] if held else "nothing"), seed
        kinds.add((bool(forbidden), bool(held)))
    assert len(kinds) == 4
