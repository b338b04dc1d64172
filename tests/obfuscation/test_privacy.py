"""Noise has the probabilities that it states, and a release spends what it says."""

from __future__ import annotations

from fractions import Fraction
from math import exp, isclose
from pathlib import Path
from random import Random

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.sharing import discrete_laplace, discrete_laplace_probability
from nadi.sharing.obfuscation import private_job
from tests.amounts import examples

SCALES = st.fractions(Fraction(1, 5), Fraction(40), max_denominator=20)


@given(SCALES)
def test_probabilities_sum_up_and_neighbors_differ_by_epsilon(scale: Fraction) -> None:
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


def _with_one_more(after: int, duration: str) -> nadi.Job:
    """Return a job whose first rank has one more computation after that of a number."""
    with nadi.JobBuilder(2) as made:
        for rank, time in zip(made.ranks, ("5 ms", "6 ms"), strict=True):  # of two traces
            for number in range(8):
                rank.stream(7).compute("b", duration="1 ms")
                if number == after and rank is made.ranks[0]:
                    rank.stream(7).compute("x", duration=duration)
                rank.stream(7).compute("b", duration="1 ms")
                done = rank.compute("a", duration=time)
                rank.collective("all_reduce", "64 MiB", after=done)
    return made.job


@given(st.integers(0, 7), st.integers(1, 100))
@settings(max_examples=examples(24))
def test_neighbors_differ_in_one_time_that_is_published(after: int, length: int) -> None:
    """Without noise: all else, who waits for whom and how many there are, has to be equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_job, "discrete_laplace", lambda scale, random: 0)
        one, other = (
            private_job.noisy_job(_with_one_more(at, f"{length} us"), 1.0, Random(7))
            for at in (-1, after)
        )  # fmt: skip
    assert other[1].computations == one[1].computations + 1
    for before, now in zip(one[0].traces, other[0].traces, strict=True):
        assert before.deps.equals(now.deps)
        same = [name for name in before.nodes.columns if name != "duration"]
        assert before.nodes.select(same).equals(now.nodes.select(same))
        times = [int(one.column("duration").clip(0).sum()) for one in (before, now)]
        assert abs(times[0] - times[1]) <= 100_000


def _exact(job: nadi.Job) -> nadi.Job:
    """Release a job without noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_job, "discrete_laplace", lambda scale, random: 0)
        return private_job.noisy_job(job, 1.0)[0]


def _training(layers: int, expert_bytes: str, *, sharded: bool) -> nadi.Job:
    """Four ranks: two pairs reduce gradients, at once or in two steps, and all share experts."""
    with nadi.JobBuilder(4) as made:
        pairs = [made.group("a", (0, 1)), made.group("b", (2, 3))]
        half = made.group("c", (0, 2))
        for number, rank in enumerate(made.ranks):
            own = pairs[number // 2]
            for _ in range(layers):
                rank.compute("a", duration=f"{840 // layers} us")
                if sharded:
                    rank.collective("reduce_scatter", f"{8192 // layers} KiB", group=own)
                    rank.collective("all_gather", f"{4096 // layers} KiB", group=own)
                else:
                    rank.collective("all_reduce", f"{8192 // layers} KiB", group=own)
            rank.collective("all_to_all", expert_bytes)
            if number in (0, 2):
                rank.collective("all_reduce", "1 MiB", group=half)
    return made.job


def test_types_numbers_sizes_and_partial_groups_are_not_published() -> None:
    """What leaves of jobs is the same, but for the times."""
    jobs = [_exact(_training(*how, sharded=sharded)) for *how, sharded in
            ((8, "4 MiB", False), (4, "4 MiB", False), (8, "4 GiB", True))]  # fmt: skip
    for one in jobs[1:]:
        for before, now in zip(jobs[0].traces, one.traces, strict=True):
            assert before.nodes.drop("duration").equals(now.nodes.drop("duration"))
            assert before.deps.equals(now.deps)
    groups = jobs[0].rank_groups
    assert groups is not None
    assert [ranks.tolist() for ranks in groups.members.values()] == [[[0, 1, 2, 3]]]


def test_time_stays() -> None:
    done = _exact(_training(8, "4 MiB", sharded=False))
    nodes = done.traces[0].nodes
    assert nodes["duration"].clip(0).sum() == 840_000
    assert nadi.simulate(done, nadi.load_system("dgx-h100", 4)).makespan > 840_000


def test_messages_and_groups_within_a_pipeline_are_one_axis() -> None:
    with nadi.JobBuilder(4) as made:
        ends = made.group("tied", (0, 3))
        for number, rank in enumerate(made.ranks):
            done = rank.compute("a", duration="1 ms")
            if number < 3:
                rank.send(number + 1, "2 MiB", after=done)
            if number:
                rank.recv(number - 1, "2 MiB")
            if number in (0, 3):
                rank.collective("all_reduce", "6 MiB", group=ends)
    groups = _exact(made.job).rank_groups
    assert groups is not None
    assert [ranks.tolist() for ranks in groups.members.values()] == [[[0, 1, 2, 3]]]


def test_a_rank_that_begins_with_a_message_is_published(tmp_path: Path) -> None:
    with nadi.JobBuilder(2) as made:
        for number in range(4):
            sent = made.ranks[0].compute("a", duration="3 ms")
            made.ranks[0].stream(9).send(1, "8 MiB", after=sent, tag=number)
            got = made.ranks[1].stream(9).recv(0, "8 MiB", tag=number)
            made.ranks[1].compute("a", duration="3 ms", after=got)
    key = tmp_path / "key"
    key.write_text("7f3a91c04d5e2b68f1a07c93d2e845b6")
    done = nadi.obfuscate(made.job, key, "private")
    assert nadi.simulate(done.job, nadi.load_system("dgx-h100", 2)).makespan > 0
    kinds = done.job.traces[1].nodes.filter(pl.col("name").cast(str) == "block")["kind"]
    assert set(kinds.to_list()) == {"COMP"}
