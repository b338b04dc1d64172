"""Noise has the probabilities that it states, and a release spends what it says."""

from __future__ import annotations

from fractions import Fraction
from math import exp, isclose
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.obfuscation import discrete_laplace, discrete_laplace_probability

SCALES = st.fractions(Fraction(1, 5), Fraction(40), max_denominator=20)


@given(SCALES)
def test_probabilities_sum_up_and_neighbours_differ_by_epsilon(scale: Fraction) -> None:
    chance = [discrete_laplace_probability(k, scale) for k in range(-900, 901)]
    assert isclose(sum(chance), 1, rel_tol=1e-6)
    for shift in (1, 3):
        for k in range(-20, 21):
            one = discrete_laplace_probability(k, scale)
            other = discrete_laplace_probability(k + shift, scale)
            assert one <= other * exp(shift / scale) * (1 + 1e-9)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(4), Fraction(30, 7)])
def test_samples_have_their_probabilities(scale: Fraction) -> None:
    random, size = Random(1), 6000
    drawn = [discrete_laplace(scale, random) for _ in range(size)]
    for k in range(-2, 3):
        wanted = discrete_laplace_probability(k, scale)
        assert abs(drawn.count(k) / size - wanted) < 5 * (wanted / size) ** 0.5


@pytest.fixture
def job() -> nadi.Job:
    with nadi.JobBuilder(2) as made:
        for rank in made.ranks:
            for _ in range(8):
                done = rank.compute("a", duration="5 ms")
                rank.collective("all_reduce", "64 MiB", after=done)
    return made.job


def test_epsilon_is_the_sum_of_its_parts_and_noise_never_comes_again(
    job: nadi.Job, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("7f3a91c04d5e2b68f1a07c93d2e845b6")
    for epsilon in (0.25, 3.0):
        first, second = (nadi.obfuscate(job, key, "private", epsilon=epsilon) for _ in range(2))
        assert first.privacy is not None
        assert isclose(sum(first.privacy.spent.values()), epsilon)
        assert first.report["privacy"]["epsilon"] == epsilon
        assert first.salt != second.salt
        times = [sum(one.job.traces[0].column("duration").tolist()) for one in (first, second)]
        assert times[0] != times[1]
        assert "how_far" not in first.report  # it would be computed from the original
