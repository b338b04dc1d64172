"""When in a step a rank is slow: parts have their sums, and long durations find their parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings, strategies as st

import nadi
from nadi.sharing import columns_of_job
from nadi.sharing.synthesis.step_course import (
    StepParts,
    course_of_steps,
    num_parts,
    on_course,
    step_parts_of,
)
from tests.amounts import examples
from tests.reference.slow_course import slow_on_course

OPERATIONS = st.lists(
    st.tuples(st.integers(-1, 50), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=40
)
# powers of two, so that factors are the same in any order of sums
USUAL = st.sampled_from([0.0, 8.0])


@settings(max_examples=examples(200))
@given(OPERATIONS, st.lists(st.integers(0, 60), min_size=6, max_size=6), st.data())
def test_as_the_slow_way(
    operations: list[tuple[int, int, int]], wanted: list[int], data: st.DataObject
) -> None:
    duration, token, part = (list(one) for one in zip(*operations, strict=True))
    of_token = [data.draw(USUAL) for _ in range(4)]
    usual = [of_token[one] for one in token]
    sums = [float(one) for one in wanted]
    slow = slow_on_course(duration, token, usual, part, sums)
    steps = StepParts(np.array(part), np.array(sums))
    fast = on_course(np.array(duration), np.array(token), np.array(usual), steps)
    assert fast.tolist() == slow


@settings(max_examples=examples(100))
@given(
    st.lists(st.lists(st.integers(1, 1000), min_size=8, max_size=30), min_size=2, max_size=4),
    st.integers(1, 4),
)
def test_what_was_learned_comes_back(steps: list[list[int]], parts: int) -> None:
    """The sums of a job that takes what it took are those of its parts."""
    usual = np.concatenate([np.full(len(one), 10.0) for one in steps])
    places = [np.arange(len(one)) * parts // len(one) for one in steps]
    sums = np.array([
        [np.bincount(place, one)] for place, one in zip(places, steps, strict=True)
    ])  # fmt: skip
    expected = np.array([[np.bincount(place, np.full(place.size, 10.0))] for place in places])
    role = np.zeros(len(steps), dtype=np.int64)  # with unlike programs
    load = sums.sum(axis=2) / expected.sum(axis=2).mean()
    course = course_of_steps(sums, expected, role)
    found = step_parts_of(places, load, course, usual, role)
    np.testing.assert_allclose(found.wanted, sums.reshape(-1))


def test_parts_end_where_ranks_meet_and_are_fewer_of_many_ranks() -> None:
    long, short = np.ones(100_000, dtype=np.bool_), np.arange(40) == 20
    assert num_parts([[long]]) == 1  # it waits for nobody
    assert num_parts([[short], [short]]) == 2
    assert num_parts([[long]] * 2) > num_parts([[long]] * 1000) > 1


def test_ranks_wait_no_longer_than_learned(demo_folder: Path) -> None:
    """Ranks of which each is slow at its own moments would wait for each other too often."""
    demo = nadi.load_job(demo_folder)
    model = nadi.sharing.learn(demo_folder)
    system = nadi.load_system("dgx-h100", 4)
    true = nadi.simulate(demo, system).makespan
    made = [nadi.sharing.synthesize(model, seed=seed) for seed in range(4)]
    off = [nadi.simulate(one, system).makespan / true - 1 for one in made]
    assert max(map(abs, off)) < 0.05
    sums = [
        [int(np.maximum(rank.duration[rank.comm_bytes < 0], 0).sum()) for rank in
         columns_of_job(one).ranks] for one in (demo, made[0])
    ]  # fmt: skip
    np.testing.assert_allclose(sums[0], sums[1], rtol=0.01)
