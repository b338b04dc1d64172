"""How far a job answers as its original: makespan and critical path on described systems.

What each level preserves, what it removes, against whom it protects, and what it is not.

An obfuscated job, and the report that is shared with it.

A bound on how far two jobs answer apart, for every system of a box of networks.

While operations keep their order, the makespan of a job is the longest of its paths: of each,
computing time, plus bytes times the time of a byte, plus messages times the latency. So it is a
convex function of the time of a byte and the latency. Between four networks it is at most what lies
between their makespans, and at least what the slopes at any of them continue to. The larger of one
job over the smaller of the other bounds the difference in all of the cell, and cells are halved
until that is small enough. That a system computes faster or slower is the same as a slower or
faster network.

Source: Rockafellar, Convex Analysis, sections 4 and 25.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import PairError
from nadi.simulation.accounts.simulation_as_recording import simulated_path
from nadi.simulation.engine_driver import simulate_job, simulator_of
from nadi.simulation.simulation import Simulation
from nadi.systems.prices.priced_traces import price_job
from nadi.systems.system import Dimension, Network, System
from nadi.trace.arrays import Floats
from nadi.trace.trace import Job
from nadi.units import format_ns


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


class Answer(NamedTuple):
    """What a simulation of a job on one system says."""

    makespan: int  # ns
    path: Mapping[str, int]  # ns of the critical path, by kind


class Fidelity(NamedTuple):
    """How an obfuscated job differs from its original on one system, as shares of the makespan.

    Attributes
    ----------
    system
        Its name.
    makespan_ns, obfuscated_ns
        The simulated times of the whole jobs.
    path
        The largest difference of the critical path's time in any kind.
    """

    system: str
    makespan_ns: int
    obfuscated_ns: int
    path: float

    @property
    def makespan(self) -> float:
        """The difference of the makespans."""
        return abs(self.obfuscated_ns - self.makespan_ns) / max(self.makespan_ns, 1)

    @property
    def largest(self) -> float:
        """The larger of both differences."""
        return max(self.makespan, self.path)

    @property
    def step_ns(self) -> int:
        """The former name of ``makespan_ns``, for one release."""
        _warn("step_ns is makespan_ns")
        return self.makespan_ns

    @property
    def step(self) -> float:
        """The former name of ``makespan``, for one release."""
        _warn("step is makespan")
        return self.makespan


def _warn(about: str) -> None:
    text = f"{about} now: it is the time of the whole job, not of one step"
    warnings.warn(text, DeprecationWarning, stacklevel=3)


def answers(job: Job, systems: Mapping[str, System]) -> dict[str, Answer]:
    """Simulate a job on systems; computations without a time are priced by their devices.

    - Raises NadiError if it cannot be simulated.
    """
    return {name: _answer(job, system) for name, system in systems.items()}


def _answer(job: Job, system: System) -> Answer:
    done = _simulated(job, system)
    return Answer(done.makespan, simulated_path(done).by_kind())


def _simulated(job: Job, system: System) -> Simulation:
    priced, _ = price_job(job, system)
    return simulate_job(priced, system)


class Yardstick:
    """Compares changed jobs with the answers of their original, and stops at the first that fails.

    Parameters
    ----------
    before
        The answers of the original.
    systems
        On which they were simulated.
    tolerance
        The largest difference that may be.
    """

    def __init__(
        self, before: Mapping[str, Answer], systems: Mapping[str, System], tolerance: float
    ) -> None:
        self.before, self.systems, self.tolerance = before, systems, tolerance
        self._order = list(systems)  # those that failed last come first

    def measure(self, job: Job) -> list[Fidelity] | None:
        """Return how a job differs on each system; None if it differs by more than allowed."""
        found = {}
        for name in list(self._order):
            one = self._one(job, name)
            if one is None:
                self._order.remove(name)
                self._order.insert(0, name)
                return None
            found[name] = one
        return [found[name] for name in self.systems]

    def _one(self, job: Job, name: str) -> Fidelity | None:
        before = self.before[name]
        try:
            done = _simulated(job, self.systems[name])
        except PairError:  # it would deadlock
            return None
        if abs(done.makespan - before.makespan) > self.tolerance * before.makespan:
            return None  # a path takes longer than a simulation
        after = Answer(done.makespan, simulated_path(done).by_kind())
        found = compared(name, before, after)
        return found if found.largest <= self.tolerance else None


def compared(name: str, before: Answer, after: Answer) -> Fidelity:
    """Compare the answers of a job and of its obfuscation on one system."""
    kinds = {*before.path, *after.path}
    apart = max((abs(before.path.get(k, 0) - after.path.get(k, 0)) for k in kinds), default=0)
    return Fidelity(name, before.makespan, after.makespan, apart / max(before.makespan, 1))


LEVELS = ("names", "shapes", "structure", "private")
"""The levels of obfuscation; each removes what those before it do."""


IN_BOX = 0.02
"""By which share the makespan may differ at level shapes on any system of the box."""


class Guarantee(NamedTuple):
    """What a level promises, each in a few sentences.

    Attributes
    ----------
    preserved, removed
        What stays, and what goes.
    against
        Who learns nothing about what, and who still can.
    tolerance
        By how much makespan and critical path may differ on a system, as a share of the makespan;
        negative if nothing is promised.
    """

    preserved: str
    removed: str
    against: str
    tolerance: float


GUARANTEES = {
    "names": Guarantee(
        "operations in their order, kinds, classes, durations, sizes, FLOPs, dependencies, process "
        "groups, layers and micro-batches",
        "names, modules, paths, hosts, users, process and thread numbers, operands, free text, and "
        "the time of day",
        "someone without the key who wants names; not against someone who knows which models "
        "exist, because shapes and counts say which one it is",
        0.01,
    ),
    "shapes": Guarantee(
        "operations in their order, kinds, classes, durations and dependencies; sizes and FLOPs "
        "up to the factor that the tolerance allows",
        "what names removes, and exact sizes and shapes",
        "someone who looks a size up, or solves equations of FLOPs and bytes; not against someone "
        "who has the curves of the device, which turn durations into sizes, counts layers or "
        "knows the volume of communication",
        0.01,
    ),
    "structure": Guarantee(
        "computing time between communications, types, groups and volume of communication, and "
        "what overlaps",
        "what shapes removes; single operations, their classes and their number, layers, "
        "micro-batches and phases",
        "someone who compares operations, shapes, sequences and timing ratios with those of known "
        "models; not against someone who knows the parallel layout and device, and computes the "
        "ratio of computation to communication",
        0.03,
    ),
    "private": Guarantee(
        "for how long each rank computes, with noise, and along which axes ranks communicate",
        "what structure removes; order, types, number, sizes and overlap of communications, groups "
        "within an axis, and the exact time of everything",
        "someone who knows all of the job but whether one short computation is in it, up to "
        "epsilon, and who knows nothing of its communication; not about the parallel layout, which "
        "is published as it is",
        -1.0,
    ),
}
"""What each level promises, by its name."""

NOT_GUARANTEED = (
    "It is no encryption: what simulations need can be read by everyone.",
    "Parallel layout is not hidden; below private, types of collectives and their order neither.",
    "The time of the whole job, and so about how large it is, is not hidden.",
    "Releases of several recordings of one job can be recognized as of one job, at every level.",
    "Reports of releases at private add up: their epsilons are summed for one job.",
)
"""What no level promises, in sentences."""


@dataclass(frozen=True)
class PrivacyLoss:
    """What a release at level ``private`` spends.

    Attributes
    ----------
    epsilon
        Of the whole release.
    spent
        Its parts: what was released, and the epsilon of that.
    unit_ns
        Neighboring jobs differ by one computation that lasts at most so long.
    computations
        The number of computations, with noise.
    """

    epsilon: float
    spent: dict[str, float]
    unit_ns: int
    computations: int

    @property
    def relation(self) -> str:
        """Which jobs are neighbors."""
        return (
            "two jobs whose ranks communicate along the same axes, and of which the same ranks "
            "share a trace, are neighbors if one trace of one of them has one more computation, "
            f"of at most {format_ns(self.unit_ns)}; what they communicate along these axes may "
            "differ in any way"
        )


@dataclass(frozen=True, eq=False)
class ObfuscatedJob:
    """A job that can be shared, and what its owner knows about it.

    Attributes
    ----------
    job
        The job to share.
    level
        One of ``names``, ``shapes``, ``structure`` and ``private``.
    salt, key_check
        Hexadecimal: what pseudonyms depend on besides the key, and by what the key is recognized.
    recorded
        Whether it is still a recording, which is written as ``.nadi``, or nodes for a simulator.
    fidelity
        Of each system on which both jobs were simulated. It is for the owner: at ``private`` it
        is computed from the original and would spend more than epsilon.
    original_nodes
        Number of nodes of the original.
    in_box
        By which share of the makespan it differs at most on any system of the box, at ``shapes``
        of a job whose computations have times; for the owner, too.
    privacy
        At level ``private``.
    """

    job: Job
    level: str
    salt: str
    key_check: str
    recorded: bool
    original_nodes: int
    fidelity: tuple[Fidelity, ...] = ()
    in_box: float | None = None
    privacy: PrivacyLoss | None = None

    @property
    def report(self) -> dict[str, Any]:
        """What is shared with the job: what is preserved, how far, what is not, against whom."""
        promised = GUARANTEES[self.level]
        found: dict[str, Any] = {
            "level": self.level,
            "preserved": promised.preserved,
            "removed": promised.removed,
            "against": promised.against,
            "not_guaranteed": list(NOT_GUARANTEED),
            "salt": self.salt,
            "key_check": self.key_check,
        }
        if self.fidelity and promised.tolerance > 0:
            found["how_far"] = {
                "measure": "difference of the simulated time of the whole job, and of the time of "
                "any kind of the critical path, as shares of the time of the whole job",
                "at_most": promised.tolerance,
                "systems": [one.system for one in self.fidelity],
            }
        if self.in_box is not None:
            found["how_far"]["box"] = {
                "measure": "difference of the simulated time of the whole job", "at_most": IN_BOX,
                "network": "a switch between all ranks", "bandwidth_gb_per_s": [
                    BOX.slowest, BOX.fastest,
                ],
                "latency_us": [BOX.shortest / 1000, BOX.longest / 1000],
                "speed_of_computations": [BOX.slower, BOX.faster],
            }  # fmt: skip
        if self.privacy is not None:
            found["privacy"] = {
                "epsilon": self.privacy.epsilon,
                "spent": self.privacy.spent,
                "neighboring_relation": self.privacy.relation,
                "mechanism": "discrete Laplace noise",
                "computations": self.privacy.computations,
            }
        return found


def network_of(num_ranks: int, bandwidth: float, latency: float) -> System:
    """Return a switch between all ranks; bytes per ns, and ns."""
    return System(Network((Dimension("switch", num_ranks, bandwidth, latency),)))


def largest_difference(before: Job, after: Job, tolerance: float) -> float | None:
    """Bound the difference of two jobs' makespans on every system of :data:`BOX`.

    - ``before``, ``after``: For a simulator, with the times of computations.
    - ``tolerance``: A share of the makespan.
    - Returns: A bound, as a share of the shorter makespan, that is at most the tolerance; None if
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
    """Return a function that simulates a job, and the slopes of its makespan, once a network."""
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
    """Halve a cell along the coordinate that the makespan depends on more."""
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
