"""Repeats written out row by row, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from nadi.recordings.folded.row_values import Loop, SignedRows

__all__ = ["is_repeat", "rows_in_order"]


def rows_of(rows: SignedRows, row: int) -> tuple[int, tuple[int, ...]]:
    """Give the sign and the values of a row."""
    first, end = int(rows.first[row]), int(rows.first[row + 1])
    return int(rows.sign[row]), tuple(rows.value[first:end].tolist())


def is_repeat(rows: SignedRows, loop: Loop) -> bool:
    """Check every turn of a repeat: the same signs, and values that grow by the same steps."""
    turns = [
        [rows_of(rows, loop.first + turn * loop.size + k) for k in range(loop.size)]
        for turn in range(loop.turns)
    ]
    for k in range(loop.size):
        if len({turn[k][0] for turn in turns}) != 1:
            return False
        for values in zip(*(turn[k][1] for turn in turns), strict=True):
            if len({b - a for a, b in pairwise(values)}) > 1:
                return False
    return True


def rows_in_order(loops: Sequence[Loop], first: int, end: int, depth: int = 0) -> Iterator[
    tuple[int, tuple[int, ...]]
]:  # fmt: skip
    """Give, for each row of a whole sequence, the kept row that it is a copy of, and its turns."""
    at = first
    for loop in loops:
        yield from ((row, (0,) * depth) for row in range(at, loop.first))
        for turn in range(loop.turns):
            inside = rows_in_order(loop.inner, loop.first, loop.first + loop.size, depth + 1)
            for row, turns in inside:
                yield row, (*turns[:depth], turn, *turns[depth + 1 :])
        at = loop.end
    yield from ((row, (0,) * depth) for row in range(at, end))
