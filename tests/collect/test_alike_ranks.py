"""Ranks that do the same, found from few of them, against looking at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, strategies as st

from nadi.pytorch.fake.fake_job import find_classes, ranges_of


def families(*sizes: int) -> dict[str, list[list[int]]]:
    """Give the groups of a mesh: of each axis, the last one fastest."""
    world = 1
    for size in sizes:
        world *= size
    found, stride = {}, world
    for axis, size in enumerate(sizes):
        stride //= size
        groups: dict[int, list[int]] = {}
        for rank in range(world):
            groups.setdefault(rank - rank // stride % size * stride, []).append(rank)
        found[f"axis {axis}"] = list(groups.values())
    return found


class Job:
    """Ranks that do what a function of theirs says; counts how many were looked at."""

    def __init__(self, does: Callable[[int], object]) -> None:
        self.does = does
        self.seen: set[int] = set()

    def sign(self, ranks: Sequence[int]) -> Mapping[int, str]:
        self.seen.update(ranks)
        return {rank: str(self.does(rank)) for rank in ranks}


def test_of_equal_ranks_three_are_looked_at() -> None:
    job = Job(lambda _: "same")
    (one,) = find_classes(4096, families(512, 8), job.sign)
    assert one == (0, tuple(range(4096)))
    assert len(job.seen) == 3


def test_stages_of_a_pipeline() -> None:
    job = Job(lambda rank: (rank >= 4, rank >= 28))  # 8 stages of 4 ranks: first, middle, last
    found = find_classes(32, families(8, 4), job.sign)
    assert [ranges_of(one.ranks) for one in found] == [[(0, 4)], [(4, 28)], [(28, 32)]]
    assert len(job.seen) <= 12


def test_stages_without_groups() -> None:
    found = find_classes(16, {}, Job(lambda rank: (rank > 0) + (rank == 15)).sign)
    assert [one.ranks for one in found] == [(0,), tuple(range(1, 15)), (15,)]
    assert [one.recorded for one in found] == [0, 1, 15]
    assert find_classes(1, {}, Job(str).sign)[0].ranks == (0,)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_what_depends_on_the_axes_is_found(sizes: list[int], data: st.DataObject) -> None:
    """Along each axis ranks differ from a place on, or up to one: parts of an axis."""
    world, places = 1, []
    for size in sizes:
        world *= size
        places.append(data.draw(st.sampled_from([0, 1, size - 1, size])))

    def does(rank: int) -> object:
        found, rest = [], rank
        for size, place in zip(reversed(sizes), reversed(places), strict=True):
            found.append(rest % size >= place)
            rest //= size
        return found

    wanted: dict[str, list[int]] = {}
    for rank in range(world):
        wanted.setdefault(str(does(rank)), []).append(rank)
    found = find_classes(world, families(*sizes), Job(does).sign)
    assert sorted(one.ranks for one in found) == sorted(map(tuple, wanted.values()))
    assert all(one.recorded in one.ranks for one in found)


def test_a_rank_that_differs_along_no_axis_is_told() -> None:
    with pytest.raises(ValueError, match="rank 15"):
        find_classes(16, families(4, 4), Job(lambda rank: (rank == 15, rank > 11)).sign)


def test_ranges() -> None:
    assert ranges_of([0, 1, 2, 5, 7, 8]) == [(0, 3), (5, 6), (7, 9)]
    assert ranges_of([]) == []
