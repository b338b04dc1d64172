"""Ranks that are alike have no straggler; a rank that is late again and again is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.bottlenecks.steps.verdict import RepeatedLateness, lateness_over_repeats
from tests.amounts import examples
from tests.analyze.test_stragglers import job_of, stragglers


def lateness_of(graph: nadi.EventGraph, rank: int) -> RepeatedLateness:
    window = nadi.graph.choose_window(graph, nadi.graph.find_steps(graph))
    return lateness_over_repeats(graph, window, stragglers(graph), rank)


def test_one_that_is_late_each_time_by_about_as_much(tmp_path: Path) -> None:
    found = lateness_of(job_of(tmp_path, [[10.0] * 5, [50.0, 60, 55, 48, 52], [10.0] * 5]), 1)
    assert (found.repeats, found.times, found.of_steps) == (5, 5, False)
    assert found.chance < 0.001


def test_one_that_is_late_once_by_much(tmp_path: Path) -> None:
    found = lateness_of(job_of(tmp_path, [[10.0, 30, 20, 31, 12], [500.0, 20, 25, 11, 20]]), 1)
    assert found.is_tested
    assert found.chance > 0.3


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_repeats_say_nothing(tmp_path: Path, count: int) -> None:
    found = lateness_of(job_of(tmp_path, [[10.0] * count, [50.0] * count]), 1)
    assert not found.is_tested
    assert found.chance == 1


def test_the_same_lateness_each_time_is_no_chance(tmp_path: Path) -> None:
    assert lateness_of(job_of(tmp_path, [[10.0] * 3, [50.0] * 3]), 1).chance == 0


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_ranks_that_are_alike_are_rarely_blamed(tmp_path: Path, num_ranks: int) -> None:
    """Of random jobs, at most one in ten: the worst of the ranks is asked about."""
    random = np.random.default_rng(7)
    cases, blamed = examples(60), 0
    for case in range(cases):
        (tmp_path / str(case)).mkdir()
        graph = job_of(tmp_path / str(case), random.gamma(9, 5, (num_ranks, 6)).round(1).tolist())
        worst = stragglers(graph).ranks["rank"][0]
        blamed += lateness_of(graph, worst).chance < 0.05
    assert blamed <= max(cases // 10, 1)
