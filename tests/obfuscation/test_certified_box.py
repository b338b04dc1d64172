"""What is certified over a box of systems holds on systems that are drawn from it."""

from __future__ import annotations

from random import Random

import pytest

import nadi
from nadi.sharing.obfuscation.fidelity import BOX, IN_BOX, largest_difference, network_of

DRAWN = 24


def _job(size: int, *, compute: str = "900 us") -> nadi.Job:
    with nadi.JobBuilder(4) as made:
        for rank in made.ranks:
            for layer in range(6):
                done = rank.compute("a", duration=compute)
                rank.stream(1).collective("all_reduce", f"{size + layer} KiB", after=done)
                rank.collective("all_gather", "128 KiB")
    return made.job


def _drawn(random: Random) -> nadi.systems.System:
    bandwidth = BOX.slowest * (BOX.fastest / BOX.slowest) ** random.random()
    latency = BOX.shortest * (BOX.longest / BOX.shortest) ** random.random()
    return network_of(4, bandwidth, latency)


@pytest.mark.parametrize("size", [4096, 4130])
def test_a_bound_holds_on_drawn_systems(size: int) -> None:
    before, after = _job(4096), _job(size)
    bound = largest_difference(before, after, IN_BOX)
    assert bound is not None
    assert bound <= IN_BOX
    random = Random(20261124)
    for _ in range(DRAWN):
        system = _drawn(random)
        times = [nadi.simulate(one, system).makespan for one in (before, after)]
        assert abs(times[1] / times[0] - 1) <= bound + 5e-4


def test_what_differs_only_on_a_slow_network_is_not_certified() -> None:
    """On a fast network computations hide the difference of the sizes."""
    before, after = _job(4096, compute="90 ms"), _job(6144, compute="90 ms")
    fast = network_of(4, BOX.fastest, BOX.shortest)
    times = [nadi.simulate(one, fast).makespan for one in (before, after)]
    assert abs(times[1] / times[0] - 1) < IN_BOX
    assert largest_difference(before, after, IN_BOX) is None


def test_other_times_are_not_certified() -> None:
    assert largest_difference(_job(4096), _job(4096, compute="950 us"), IN_BOX) is None
