"""How far a job answers as its original: step time and critical path on described systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nadi.model.trace import Job
from nadi.pricing.priced_traces import price_job
from nadi.simulator.engine_driver import simulate_job
from nadi.simulator.machine.system import System
from nadi.simulator.results.simulation_as_recording import simulated_path

__all__ = ["Answer", "Fidelity", "answers", "worst", "within"]


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
    found = {}
    for name, system in systems.items():
        priced, _ = price_job(job, system)
        done = simulate_job(priced, system)
        found[name] = Answer(done.makespan, simulated_path(done).by_kind())
    return found


def within(before: Mapping[str, Answer], after: Mapping[str, Answer]) -> list[Fidelity]:
    """Compare the answers of a job and of its obfuscation, system by system."""
    found = []
    for name, (step, path) in before.items():
        kinds = {*path, *after[name].path}
        apart = max(
            (abs(path.get(kind, 0) - after[name].path.get(kind, 0)) for kind in kinds), default=0
        )
        found.append(Fidelity(name, step, after[name].step, apart / max(step, 1)))
    return found


def worst(fidelities: Sequence[Fidelity]) -> float:
    """Return the largest difference on any system; 0 without systems."""
    return max((one.largest for one in fidelities), default=0.0)
