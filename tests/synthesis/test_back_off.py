"""Sequences drawn from counts: what was seen once comes back, and hashes are those of contexts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st

from nadi.synthesis.back_off import ORDERS, BackOff, History, count_contexts

END = 99
SEQUENCES = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@given(SEQUENCES)
def test_one_sequence_comes_back(symbols: list[int]) -> None:
    draws = BackOff(count_contexts([((50, *symbols, END), 1)]), temperature=0)
    random = np.random.default_rng(0)
    history, found = History(50), []
    while len(found) <= len(symbols):
        drawn = draws.next(history, random)[0]
        if drawn == END:
            break
        found.append(drawn)
        history.append(drawn)
    assert found == symbols


@given(SEQUENCES, st.integers(0, len(ORDERS) - 1))
def test_a_context_is_that_of_its_symbols_alone(symbols: list[int], level: int) -> None:
    order = ORDERS[level]
    if len(symbols) < order:
        return
    whole, short = History(7), History(symbols[-order])
    for one in symbols:
        whole.append(one)
    for one in symbols[len(symbols) - order + 1 :]:
        short.append(one)
    assert whole.context(level) == short.context(level)


@given(SEQUENCES, st.integers(0, 5))
def test_only_what_followed_is_drawn(symbols: list[int], seed: int) -> None:
    sequence = (50, *symbols, END)
    pairs = set(pairwise(sequence))
    draws = BackOff(count_contexts([(sequence, 1)]), temperature=300)
    random = np.random.default_rng(seed)
    history, before = History(50), 50
    for _ in range(60):
        drawn = draws.next(history, random)[0]
        assert (before, drawn) in pairs
        if drawn == END:
            break
        history.append(drawn)
        before = drawn
