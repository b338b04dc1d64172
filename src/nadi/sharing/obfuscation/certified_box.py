"""A bound on how far two jobs answer apart, for every system of a box of networks.

While operations keep their order, the step time of a job is the longest of its paths: of each,
computing time, plus bytes times the time of a byte, plus messages times the latency. So it is a
convex function of the time of a byte and the latency. Between four networks it is at most what lies
between their step times, and at least what the slopes at any of them continue to. The larger of one
job over the smaller of the other bounds the difference in all of the cell, and cells are halved
until that is small enough. That a system computes faster or slower is the same as a slower or
faster network.

Source: Rockafellar, Convex Analysis, sections 4 and 25.
"""

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from nadi.simulation.engine_driver import simulator_of
from nadi.systems.prices.priced_traces import price_job
from nadi.systems.system import Dimension, Network, System
from nadi.trace.arrays import Floats
from nadi.trace.trace import Job


class Box(NamedTuple):
    """Systems for which a bound holds: a switch between all ranks."""

    # slowest, fastest: bandwidth of a link in bytes per ns
    slowest: float
    fastest: float
    # shortest, longest: latency of a link in ns
    shortest: float
    longest: float
    # slower, faster: how fast computations run, as a multiple of the recorded speed
    slower: float
    faster: float


BOX = Box(1.25, 900.0, 300.0, 30_000.0, 0.5, 5.0)
"""From 10 Gb/s Ethernet to NVLink; computations half as fast to five times as fast."""
_CELLS = 6, 3  # along the time of a byte and the latency, before any is halved
_MOST_POINTS = 300
_SMALL = 1e-3  # of a coordinate: over so much a slope is taken
_MESH = 9
_Time = Callable[[float, float], float]
_Point = tuple[float, float]
_Cell = tuple[float, float, float, float]


class _Tangent(NamedTuple):
    time: float
    per_byte_time: float
    per_latency: float


def network_of(num_ranks: int, bandwidth: float, latency: float) -> System:
    """Return a switch between all ranks; bytes per ns, and ns."""
    return System(Network((Dimension("switch", num_ranks, bandwidth, latency),)))


def largest_difference(before: Job, after: Job, tolerance: float) -> float | None:
    """Bound the difference of two jobs' step times on every system of :data:`BOX`.

    - ``before``, ``after``: For a simulator, with the times of computations.
    - ``tolerance``: A share of the step time.
    - Returns: A bound, as a share of the shorter step time, that is at most the tolerance; None if
      the jobs differ by more, or it cannot be shown with at most 300 networks. O(networks *
      simulation).
    """
    first, second = _tangents(before), _tangents(after)
    worst, seen = 0.0, set[_Point]()
    cells = _first_cells()
    while cells:
        cell = cells.pop()
        corners = list(product(cell[:2], cell[2:]))
        seen.update(corners)
        one = {at: first(*at) for at in corners}
        other = {at: second(*at) for at in corners}
        if max(abs(other[at].time / one[at].time - 1) for at in corners) > tolerance:
            return None
        bound = max(_bound(cell, one, other), _bound(cell, other, one))
        if bound <= tolerance:
            worst = max(worst, bound)
        elif len(seen) > _MOST_POINTS:
            return None
        else:
            cells += _halves(cell, one)
    return worst


def _tangents(job: Job) -> Callable[[float, float], _Tangent]:
    """Return a function that simulates a job, and the slopes of its step time, once a network."""
    any_network = network_of(len(job.traces), 1.0, 0.0)
    simulated = simulator_of(price_job(job, any_network)[0], any_network)

    @cache
    def time(of_byte: float, latency: float) -> float:
        done = simulated(network_of(len(job.traces), 1 / of_byte, latency))
        return float(max(done.makespan, 1))

    return cache(partial(_tangent, time))


def _tangent(time: _Time, of_byte: float, latency: float) -> _Tangent:
    here = time(of_byte, latency)
    return _Tangent(
        here,
        (time(of_byte * (1 + _SMALL), latency) - here) / (_SMALL * of_byte),
        (time(of_byte, latency * (1 + _SMALL)) - here) / (_SMALL * latency),
    )


def _first_cells() -> list[_Cell]:
    # a system that computes twice as fast is one with a network of half the speed, in half the time
    of_byte = 1 / np.geomspace(BOX.fastest / BOX.slower, BOX.slowest / BOX.faster, _CELLS[0] + 1)
    latency = np.geomspace(BOX.shortest * BOX.slower, BOX.longest * BOX.faster, _CELLS[1] + 1)
    return [(*one, *other) for one, other in product(pairwise(of_byte.tolist()),
                                                     pairwise(latency.tolist()))]  # fmt: skip


def _halves(cell: _Cell, corners: dict[_Point, _Tangent]) -> list[_Cell]:
    """Halve a cell along the coordinate that the step time depends on more."""
    low, high, short, long = cell
    if corners[high, short].time >= corners[low, long].time:
        middle = (low * high) ** 0.5
        return [(low, middle, short, long), (middle, high, short, long)]
    middle = (short * long) ** 0.5
    return [(low, high, short, middle), (low, high, middle, long)]


def _bound(cell: _Cell, lower: dict[_Point, _Tangent], upper: dict[_Point, _Tangent]) -> float:
    """Return how much longer one job may take than the other within a cell, as a share."""
    low, high, short, long = cell
    share = np.linspace(0, 1, _MESH)
    right, up = np.meshgrid(share, share, indexing="ij")
    of_byte, latency = low + right * (high - low), short + up * (long - short)
    most: Floats = np.zeros_like(right)
    least: Floats = np.zeros_like(right)
    for at in lower:
        weight = (right if at[0] == high else 1 - right) * (up if at[1] == long else 1 - up)
        most = most + weight * upper[at].time
        here = lower[at]
        along = here.per_byte_time * (of_byte - at[0]) + here.per_latency * (latency - at[1])
        least = np.maximum(least, here.time + along)
    return float((most / least).max()) - 1
