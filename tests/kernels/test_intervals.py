from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nadi.kernels.sequences import union_length as kernel, union_lengths
from tests.amounts import examples
from tests.reference.intervals import union_length as oracle

SETTINGS = settings(max_examples=examples(200))

intervals = st.lists(
    st.tuples(st.integers(-12, 12), st.integers(0, 6)).map(lambda i: (i[0], i[0] + i[1])),
    max_size=10,
)


def union_length(pairs: list[tuple[int, int]]) -> int:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return kernel(array[:, 0], array[:, 1])


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], 0),
        ([(5, 5)], 0),
        ([(0, 10)], 10),
        ([(0, 10), (10, 20)], 20),
        ([(0, 10), (12, 20)], 18),
        ([(12, 20), (0, 10)], 18),
        ([(0, 10), (2, 3), (4, 5)], 10),
        ([(0, 10), (2, 3), (9, 11)], 11),
        ([(0, 4), (0, 4), (0, 4)], 4),
        ([(-3, -1), (-2, 2)], 5),
        ([(1_700_000_000_000_000_001, 1_700_000_000_000_000_003)], 2),
    ],
)
def test_known_unions(pairs, expected):
    assert union_length(pairs) == expected


@SETTINGS
@given(intervals)
def test_equals_marking_every_unit(pairs):
    assert union_length(pairs) == oracle(pairs)


@SETTINGS
@given(intervals, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_input_stays(pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    array = np.array(shuffled, dtype=np.int64).reshape(-1, 2)
    before = array.copy()
    assert kernel(array[:, 0], array[:, 1]) == union_length(pairs)
    assert np.array_equal(array, before)


@SETTINGS
@given(st.lists(intervals, max_size=4), st.sampled_from([0, 1_700_000_000_000_000_000]))
def test_lanes_have_unions_of_their_own(lanes, since):
    rows = [(b + since, e + since, lane) for lane, pairs in enumerate(lanes) for b, e in pairs]
    start, end, lane = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    found = union_lengths(start, end, lane, len(lanes))
    assert found.tolist() == [oracle(pairs) for pairs in lanes]
