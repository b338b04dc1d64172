"""What parts take on ranks that were not recorded: who is slow, chance, and the latest of many."""

from __future__ import annotations

import numpy as np
import pytest

from nadi.recordings.rank_spread import nearly_alike, parts_between, spread_of_ranks


def test_parts_end_with_meetings() -> None:
    meets = np.array([0, 0, 1, 0, 1, 1, 0], dtype=np.bool_)
    assert parts_between(meets, 9).tolist() == [0, 0, 0, 1, 1, 2, 3]
    assert parts_between(meets, 2).tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert parts_between(meets[:0], 2).size == 0


def test_ranks_are_nearly_alike_if_few_operations_differ() -> None:
    usual, near, far = np.array([50, 50]), np.array([52, 49]), np.array([60, 40])
    assert nearly_alike([far, usual, near, usual], [3, 3, 3, 4]).tolist() == [0, 1, 1, 3]


def test_the_latest_is_as_drawn() -> None:
    """The expected latest of a rank and others is the mean of that of many draws."""
    random = np.random.default_rng(0)
    taken = 1000 * random.lognormal(0, 0.3, size=(4, 12)) * np.array([[1], [1], [1.2], [0.9]])
    spread = spread_of_ranks(taken)
    for more in (1, 3, 40):
        drawn = spread.drawn(np.full(2000 * more, 2), random).reshape(2000, more, -1)
        latest = np.maximum(drawn.max(axis=1), taken[2])
        expected, likely = spread.latest(taken[2], 2, more)
        np.testing.assert_allclose(latest.mean(axis=0), expected, rtol=0.03)
        assert ((latest > likely + 1e-6).mean(axis=0) <= 0.07).all()
    assert (spread.latest(taken[2], 2, 0)[0] == taken[2]).all()


def test_who_is_slow_stays_slow() -> None:
    random = np.random.default_rng(1)
    slow = np.array([1.0, 1.5, 0.8])
    taken = 1000 * slow[:, None] * random.lognormal(0, 0.1, size=(3, 200))
    drawn = spread_of_ranks(taken).drawn(np.array([1, 2, 0, 1]), random).sum(axis=1)
    np.testing.assert_allclose(drawn / drawn[2], [1.5, 0.8, 1.0, 1.5], rtol=0.05)


@pytest.mark.parametrize("taken", [np.full((4, 3), 7.0), np.array([[3.0, 0.0, 5.0]])])
def test_equal_ranks_and_one_rank_have_no_chance(taken: np.ndarray) -> None:
    spread = spread_of_ranks(taken)
    np.testing.assert_allclose(spread.latest(taken[0], 0, 1000), [taken[0], taken[0]])
