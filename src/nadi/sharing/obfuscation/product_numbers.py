"""What FLOPs and bytes of a product say of its sides, for who moves sides and for who attacks that.

A side of a product moves at level ``shapes`` by up to a fifth, to a multiple of 8 if it is large.
Whoever knows the code can ask which true sides would explain a released number, so that a number
must follow from moved sides alone.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nadi.trace.arrays import Floats, Ints

LEAST_MOVED = 8
"""Sides below it stay: a batch of 1, or a few heads."""
_LARGE, _TILE = 64, 8  # moved sides that are large are multiples of a tile
MOST_MOVED = 0.2
"""By which share of itself a side moves at most, before it is rounded."""
Forms = Callable[[Sequence[Any]], list[Any]]
"""Of the four sides of a product: all numbers that operations state of such a product."""
_PER_MULTIPLICATION = (1, 2, 4, 5, 10)  # FLOPs: half masked, whole, two products, and backward
_ITEMS = (1, 2, 4, 8)  # bytes
_STATISTIC = 4  # bytes that attention keeps of each row
_POWERS = (0.0, 2 / 3, 1.0)  # of the moved product in a number that was scaled with it
_LIKELY = 128  # hidden sizes are multiples of it
_HEAD = 64  # elements of a head of attention, or a power of two times as many


def _tile_of(side: int) -> int:
    return _TILE if side >= _LARGE else 1


def moved_side(side: int, factor: float) -> int:
    """Return a side times a factor, rounded to a multiple of a tile if the side is large."""
    tile = _tile_of(side)
    return side if side < LEAST_MOVED else max(round(side * factor / tile) * tile, tile)


def flops_forms(shape: Sequence[Any]) -> list[Any]:
    """Return the FLOPs of a product, of attention, and of its backward, causal or not."""
    return [math.prod(shape) * halves for halves in _PER_MULTIPLICATION]


def bytes_forms(shape: Sequence[Any]) -> list[Any]:
    """Return the bytes of a product, and of attention, for items of every size."""
    batch, rows, columns, inner = shape
    given, made = rows * inner + inner * columns, rows * columns
    found = [batch * (of * given + to * made) for of in _ITEMS for to in _ITEMS]
    for item in _ITEMS:
        moved = batch * item * 2 * (rows + columns) * inner
        found += [
            moved * passes + _STATISTIC * batch * rows * stated
            for passes in (1, 2)
            for stated in (0, 1)
        ]
    return found


def rank_of_side(
    side: int, moved: int, products: Sequence[tuple[Sequence[int], int, int]]
) -> float:
    """Return how high a solver ranks the true size behind a moved side, among all it could be.

    A candidate is better the more released numbers it explains, together with any candidate of
    one other side, or with a number of heads that stayed; of equal ones, the nearer to the moved
    side.

    - ``side``, ``moved``: The true side, and the released one.
    - ``products``: Of each different product: its released sides, FLOPs and bytes.
    - Returns: 1 for the first, 0 for the last or one that the solver does not think of. Who knows
      nothing has 0.5 in the mean. O(products * candidates^2).
    """
    candidates = _candidates(moved, _LIKELY)
    explained = np.zeros(candidates.size)
    for shape, *numbers in products:
        others = {one for one in shape if one >= LEAST_MOVED and one != moved}
        if moved in shape and len(others) <= 1:
            for forms, number in zip((flops_forms, bytes_forms), numbers, strict=True):
                explained += _explains(forms, shape, number, moved, candidates)
    for heads in {shape[0] for shape, *_ in products if 1 < shape[0] < LEAST_MOVED}:
        explained += np.log2(candidates / (heads * _HEAD)) % 1 == 0
    return _rank(side, candidates, -explained, np.abs(np.log(candidates / moved)))


def rank_of_estimate(side: int, moved: int, estimate: float) -> float:
    """Return how high an estimate of a true side ranks it, as :func:`rank_of_side` does."""
    candidates = _candidates(moved, _LIKELY)
    return _rank(side, candidates, np.abs(np.log(candidates / estimate)))


def _rank(side: int, candidates: Ints, *worse: Floats | Ints) -> float:
    order = np.lexsort(worse[::-1])
    place = np.flatnonzero(candidates[order] == side)
    return 1 - float(place[0]) / max(candidates.size - 1, 1) if place.size else 0.0


def _candidates(moved: int, multiple: int) -> Ints:
    tile = _tile_of(moved)
    low = math.floor((moved - tile / 2) / (1 + MOST_MOVED) / multiple)
    high = math.ceil((moved + tile / 2) / (1 - MOST_MOVED) / multiple)
    return np.arange(max(low, 1), high + 1, dtype=np.int64) * multiple


def _explains(
    forms: Forms, shape: Sequence[int], number: int, moved: int, candidates: Ints
) -> Ints:
    """Say of each candidate whether some true sides with it give the released number."""
    if number <= 0:
        return np.zeros(candidates.size, dtype=np.int64)
    other = next((one for one in shape if one >= LEAST_MOVED and one != moved), 0)
    seconds = (
        _candidates(other, _TILE if other >= _LARGE else 1)[None, :]
        if other
        else np.ones((1, 1), dtype=np.int64)
    )
    sides = [
        candidates[:, None] if one == moved else seconds if one == other else np.int64(one)
        for one in shape
    ]
    ratio = math.prod(float(one) for one in shape) / math.prod(side.astype(float) for side in sides)
    fits = np.zeros(np.broadcast_shapes(candidates[:, None].shape, seconds.shape), dtype=np.bool_)
    for form in forms(sides):
        for power in _POWERS:
            fits |= np.abs(form * ratio**power - number) <= 1
    return np.asarray(fits.any(axis=1), dtype=np.int64)
