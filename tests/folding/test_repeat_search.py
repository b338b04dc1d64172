"""Repeats that are found repeat in every turn, and plain ones are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from nadi.recordings.folded.row_values import Loop, SignedRows, find_repeats
from tests.reference.naive_folding import is_repeat, rows_in_order


def signed(rows: list[tuple[int, tuple[int, ...]]]) -> SignedRows:
    """Make rows of signs and values; rows of a sign have equally many."""
    sizes = [len(values) for _, values in rows]
    return SignedRows(
        np.array([sign for sign, _ in rows], dtype=np.int64),
        np.cumsum([0, *sizes]),
        np.array([value for _, values in rows for value in values], dtype=np.int64),
    )


@st.composite
def sequences(draw: st.DrawFn) -> SignedRows:
    """Draw bodies that repeat, inside others, with values that grow or do not."""

    def piece(depth: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for _ in range(draw(st.integers(1, 4))):
            if depth and draw(st.booleans()):
                body, turns = piece(depth - 1), draw(st.integers(2, 5))
                step = draw(st.integers(0, 3))
                found += [(sign, v + step * turn) for turn in range(turns) for sign, v in body]
            else:
                found.append((draw(st.integers(0, 3)), draw(st.integers(0, 2))))
        return found

    return signed([(sign, (v,) * (sign % 3)) for sign, v in piece(3)])


def all_loops(loops: tuple[Loop, ...]) -> list[Loop]:
    return [one for loop in loops for one in (loop, *all_loops(loop.inner))]


@given(sequences())
def test_every_repeat_repeats_and_none_overlaps(rows: SignedRows) -> None:
    loops = find_repeats(rows)
    at = 0
    for loop in loops:
        assert at <= loop.first
        assert loop.end <= rows.size
        at = loop.end
    assert all(is_repeat(rows, loop) for loop in all_loops(loops))
    assert len(list(rows_in_order(loops, 0, rows.size))) == rows.size


@pytest.mark.parametrize("body", [1, 2, 7, 100])
@pytest.mark.parametrize("turns", [5, 30])
def test_a_plain_repeat_is_found(body: int, turns: int) -> None:
    rows = [(k, (turn,)) for turn in range(turns) for k in range(body)]
    before: list[Any] = [(1000, (0,)), (1001, (0,))]
    found = find_repeats(signed([*before, *rows, (1002, (0,))]))
    assert found == (Loop(2, body, turns),)


def test_repeats_inside_others_are_found() -> None:
    turn = [(0, ()), *[(1, ()), (2, ())] * 10, (3, ())]
    (outer,) = find_repeats(signed(turn * 20))
    assert (outer.size, outer.turns) == (22, 20)
    (inner,) = outer.inner
    assert (inner.size, inner.turns) == (2, 10)


def test_values_that_do_not_grow_evenly_end_a_repeat() -> None:
    growing = [(0, (turn if turn < 30 else turn * turn,)) for turn in range(60)]
    (loop,) = find_repeats(signed(growing))[:1]
    assert loop == Loop(0, 1, 30)
