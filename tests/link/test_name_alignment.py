from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import example, given, settings, strategies as st

from nadi.recordings.matching.name_alignment_kernels import align
from tests.amounts import examples
from tests.reference.alignment import common_length

sequences = st.lists(st.integers(0, 3), max_size=14)


def pairs_of(left: list[int], right: list[int], most_edits: int) -> list[tuple[int, int]]:
    partner = np.full(len(left), -1, dtype=np.int64)
    arrays = (np.array(side, dtype=np.int64) for side in (left, right))
    num_pairs = align(*arrays, most_edits, partner)
    pairs = [(i, j) for i, j in enumerate(partner.tolist()) if j >= 0]
    assert len(pairs) == num_pairs
    return pairs


@settings(max_examples=examples(500))
@given(sequences, sequences, st.integers(1, 30))
@example([0, 1], [1, 0], 1)
@example([0, 0, 0], [1], 1)
@example([], [1], 1)
def test_pairs_are_equal_elements_in_order(left: list[int], right: list[int], most: int) -> None:
    pairs = pairs_of(left, right, most)
    assert all(left[i] == right[j] for i, j in pairs)
    assert all(j < next_j for (_, j), (_, next_j) in pairwise(pairs))


@settings(max_examples=examples(500))
@given(sequences, sequences)
def test_there_are_as_many_pairs_as_can_be(left: list[int], right: list[int]) -> None:
    assert len(pairs_of(left, right, len(left) + len(right))) == common_length(left, right)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.data())
def test_what_was_left_out_is_found(whole: list[int], data: st.DataObject) -> None:
    left_out = data.draw(st.sets(st.integers(0, len(whole) - 1), max_size=6))
    part = [element for at, element in enumerate(whole) if at not in left_out]
    assert len(pairs_of(whole, part, 6)) == len(part)


def test_where_there_are_too_many_differences_the_first_of_the_furthest_points_is_taken() -> None:
    assert pairs_of([2, 0], [1, 1, 2], 1) == [(0, 2)]
    assert pairs_of([2, 0], [1, 1, 2], 2) == [(0, 2)]


def test_long_sequences_with_few_differences() -> None:
    random = np.random.default_rng(0)
    whole = random.integers(0, 40, 200_000)
    part = np.delete(whole, random.integers(0, whole.size, 300))
    partner = np.full(whole.size, -1, dtype=np.int64)
    assert align(whole, part, 1_000, partner) == part.size
    assert (whole[partner >= 0] == part).all()


def test_long_sequences_with_nothing_in_common_in_order() -> None:
    random = np.random.default_rng(0)
    left, right = random.integers(0, 40, (2, 20_000))
    partner = np.full(left.size, -1, dtype=np.int64)
    num_pairs = align(left, right, 100, partner)
    paired = np.flatnonzero(partner >= 0)
    assert paired.size == num_pairs > 0
    assert (left[paired] == right[partner[paired]]).all()
    assert (np.diff(partner[paired]) > 0).all()
