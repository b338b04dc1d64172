"""Sequences drawn from counts: what was seen once comes back, and hashes are those of contexts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st

from nadi.sharing.synthesis.back_off import ORDERS, BackOff, History, count_contexts

END = 99
SEQUENCES = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(SEQUENCES)
def test_one_sequence_comes_back(symbols: list[int]) -> None:
    draws = BackOff(count_contexts([((50, *symbols, END), 1)]))
    random = np.random.default_rng(0)
    history, found = History(50), []
    while len(found) <= len(symbols):
        drawn = draws.next(history, random)[0]
        if drawn == END:
            break
        found.append(drawn)
        history.append(drawn)
    assert found == symbols


@given(SEQUENCES, st.integers(0, len(ORDERS) - 1), st.sampled_from((7, 8)))
def test_a_context_is_that_of_its_symbols_and_if_long_of_the_start(
    symbols: list[int], level: int, start: int
) -> None:
    order = ORDERS[level]
    if len(symbols) < order:
        return
    whole, short = History(7), History(start)
    for one in symbols:
        whole.append(one)
    for one in symbols[len(symbols) - order :]:
        short.append(one)
    is_shared = start == 7 or order < 8
    assert (whole.context(level) == short.context(level)) == is_shared


def test_what_is_drawn_late_knows_the_start() -> None:
    """Two roles do the same for long, and then one sends and the other receives."""
    alike = [1, 2] * 20
    sequences = [((50, *alike, 3, END), 1), ((51, *alike, 4, END), 9)]
    draws = BackOff(count_contexts(sequences))
    for start, last in ((50, 3), (51, 4)):
        history = History(start)
        for one in alike:
            history.append(one)
        assert draws.next(history, np.random.default_rng(0))[0] == last


@given(SEQUENCES, st.integers(0, 5))
def test_only_what_followed_is_drawn(symbols: list[int], seed: int) -> None:
    sequence = (50, *symbols, END)
    pairs = set(pairwise(sequence))
    draws = BackOff(count_contexts([(sequence, 1)]))
    random = np.random.default_rng(seed)
    history, before = History(50), 50
    for _ in range(60):
        drawn = draws.next(history, random)[0]
        assert (before, drawn) in pairs
        if drawn == END:
            break
        history.append(drawn)
        before = drawn
