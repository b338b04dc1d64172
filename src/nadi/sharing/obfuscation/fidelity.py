"""How far a job answers as its original: step time and critical path on described systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nadi.errors import PairError
from nadi.simulation.accounts.simulation_as_recording import simulated_path
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.simulation import Simulation
from nadi.systems.prices.priced_traces import price_job
from nadi.systems.system import System
from nadi.trace.trace import Job

__all__ = ["Answer", "Fidelity", "Yardstick", "answers", "compared"]


class Answer(NamedTuple):
    """What a simulation of a job on one system says.

    Attributes
    ----------
    step
        ns.
    path
        ns of the critical path, by kind.
    """

    step: int
    path: Mapping[str, int]


class Fidelity(NamedTuple):
    """How an obfuscated job differs from its original on one system, as shares of the step time.

    Attributes
    ----------
    system
        Its name.
    step_ns, obfuscated_ns
        The step times.
    path
        The largest difference of the critical path's time in any kind.
    """

    system: str
    step_ns: int
    obfuscated_ns: int
    path: float

    @property
    def step(self) -> float:
        """The difference of the step times."""
        return abs(self.obfuscated_ns - self.step_ns) / max(self.step_ns, 1)

    @property
    def largest(self) -> float:
        """The larger of both differences."""
        return max(self.step, self.path)


def answers(job: Job, systems: Mapping[str, System]) -> dict[str, Answer]:
    """Simulate a job on systems; computations without a time are priced by their devices.

    Raises
    ------
    NadiError
        If it cannot be simulated.
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
        if abs(done.makespan - before.step) > self.tolerance * before.step:
            return None  # a path takes longer than a simulation
        after = Answer(done.makespan, simulated_path(done).by_kind())
        found = compared(name, before, after)
        return found if found.largest <= self.tolerance else None


def compared(name: str, before: Answer, after: Answer) -> Fidelity:
    """Compare the answers of a job and of its obfuscation on one system."""
    kinds = {*before.path, *after.path}
    apart = max((abs(before.path.get(k, 0) - after.path.get(k, 0)) for k in kinds), default=0)
    return Fidelity(name, before.step, after.step, apart / max(before.step, 1))
