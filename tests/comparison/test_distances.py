"""Distances: their laws, and Wasserstein's against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from nadi.sharing.similarity.similarity import (
    jensen_shannon,
    overlap_distance,
    relative_difference,
    total_variation,
    wasserstein,
    wasserstein_by_key,
)
from nadi.sharing.similarity.verbatim import _most_alike
from nadi.trace.arrays import Hashes

COUNTS = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 50), max_size=5)
VALUES = st.lists(st.integers(0, 100), min_size=1, max_size=12)


def by_definition(one: list[int], other: list[int]) -> float:
    """Move sorted values onto each other, each as often as the other sample has values."""
    a, b = sorted(one * len(other)), sorted(other * len(one))
    moved = sum(abs(x - y) for x, y in zip(a, b, strict=True)) / len(a)
    both = sum(one) / len(one) + sum(other) / len(other)
    return moved / both if both else 0.0


@given(VALUES, VALUES)
def test_wasserstein_is_what_it_is_defined_as(one: list[int], other: list[int]) -> None:
    found = wasserstein(np.array(one), np.array(other))
    assert found == pytest.approx(by_definition(one, other))


@given(COUNTS, COUNTS)
def test_distances_are_symmetric_and_between_0_and_1(
    one: dict[object, float], other: dict[object, float]
) -> None:
    for distance in (total_variation, jensen_shannon, overlap_distance):
        found = distance(one, other)
        assert 0 <= found <= 1
        assert found == pytest.approx(distance(other, one))
        assert distance(one, one) == pytest.approx(0)


def test_nothing_in_common_is_1() -> None:
    for distance in (total_variation, jensen_shannon, overlap_distance):
        assert distance({"a": 1}, {"b": 2}) == pytest.approx(1)
        assert distance({"a": 1}, {}) == pytest.approx(1)
    assert relative_difference(0, 5) == 1
    assert relative_difference(0, 0) == 0


def test_values_are_compared_key_by_key() -> None:
    values = np.array([10, 20])
    assert wasserstein_by_key(["a", "b"], values, ["b", "a"], np.array([20, 10])) == 0
    assert wasserstein_by_key(["a", "b"], values, ["a", "b"], np.array([20, 10])) > 0
    assert wasserstein_by_key(["a"], np.array([3]), ["b"], np.array([3])) == 1


SETS = st.lists(st.frozensets(st.integers(0, 9), max_size=8), max_size=6)


def in_common_by_pairs(one: frozenset[int], known: list[frozenset[int]]) -> float:
    """Compare a set with each known one."""
    return max((len(one & each) / max(len(one | each), 1) for each in known), default=0.0)


@given(SETS, SETS)
def test_the_set_that_is_most_alike_is_that_of_all_pairs(
    known: list[frozenset[int]], other: list[frozenset[int]]
) -> None:
    mine, theirs = ([as_hashes(one) for one in side] for side in (known, other))
    expected = [in_common_by_pairs(one, known) for one in other]
    assert _most_alike(mine, theirs).tolist() == pytest.approx(expected)


def as_hashes(one: frozenset[int]) -> Hashes:
    return np.array(sorted(one), dtype=np.uint64)
