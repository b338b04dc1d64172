"""What two sequences have in common, against the textbook's table."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st

from nadi.recordings.ranks.collective_matching_kernels import MOST_DIFFERENCES, common_subsequence

sequences = st.lists(st.integers(0, 3), max_size=20)


def pairs_of(a: list[int], b: list[int], limit: int = MOST_DIFFERENCES) -> list[tuple[int, int]]:
    furthest = np.empty((limit + 1, 2 * limit + 3), dtype=np.int64)
    partner = np.empty(len(a), dtype=np.int64)
    common_subsequence(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64), furthest, partner)
    return [(i, j) for i, j in enumerate(partner.tolist()) if j >= 0]


def longest(a: list[int], b: list[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


def check(a: list[int], b: list[int], pairs: list[tuple[int, int]]) -> None:
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(j < k for (_, j), (_, k) in pairwise(pairs))


@given(sequences, sequences)
def test_pairs_are_as_many_as_can_be(a: list[int], b: list[int]) -> None:
    pairs = pairs_of(a, b)
    check(a, b, pairs)
    assert len(pairs) == longest(a, b)


@given(sequences, sequences, st.integers(1, 4))
def test_few_differences_at_a_time_still_give_pairs(a: list[int], b: list[int], limit: int) -> None:
    pairs = pairs_of(a, b, limit)
    check(a, b, pairs)
    assert not pairs or len(pairs) <= longest(a, b)


def test_long_sequences_with_many_differences() -> None:
    chance = np.random.default_rng(1)
    whole = chance.integers(0, 5, 20_000)
    shorter = whole[chance.random(whole.size) > 0.1]
    pairs = pairs_of(whole.tolist(), shorter.tolist())
    check(whole.tolist(), shorter.tolist(), pairs)
    assert len(pairs) > 0.99 * shorter.size


def pairs_in_parts(a: list[int], b: list[int], limit: int) -> int:
    """Count the pairs of shortest ways, each with so many differences and as far as it gets."""
    edits = [[i + j for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            skipped = 1 + min(edits[i][j + 1], edits[i + 1][j])
            edits[i + 1][j + 1] = min(skipped, edits[i][j]) if x == y else skipped
    if edits[-1][-1] <= limit:
        return (len(a) + len(b) - edits[-1][-1]) // 2
    reached = [
        (i + j, j - i) for i, row in enumerate(edits) for j, count in enumerate(row)
        if count <= limit and (i + j - limit) % 2 == 0
    ]  # fmt: skip
    far, diagonal = max(reached)
    i, j = (far - diagonal) // 2, (far + diagonal) // 2
    return (far - limit) // 2 + pairs_in_parts(a[i:], b[j:], limit)


@given(sequences, sequences, st.integers(1, 6))
def test_few_differences_at_a_time_are_shortest_ways(
    a: list[int], b: list[int], limit: int
) -> None:
    assert len(pairs_of(a, b, limit)) == pairs_in_parts(a, b, limit)


def test_so_many_differences_are_looked_for_as_is_said() -> None:
    assert f"After {MOST_DIFFERENCES} differences" in (common_subsequence.__doc__ or "")
