"""Compare two jobs: how alike they are, by what matters to a simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nadi.errors import NadiError, UsageError
from nadi.recordings.jobs import given_job
from nadi.sharing.similarity.job_measures import (
    JobMeasures,
    distances_of,
    measures_of,
    relative_difference,
)
from nadi.sharing.similarity.shuffled_columns import independent_sample
from nadi.sharing.synthesis.column_traces import job_of_columns
from nadi.sharing.synthesis.job_columns import columns_of_job
from nadi.simulation.accounts.simulation_as_recording import simulated_graph
from nadi.simulation.runs.simulate import simulate
from nadi.simulation.simulation import Simulation
from nadi.systems.library import load_system, shipped_systems
from nadi.systems.system import System
from nadi.trace.trace import Job, Trace
from nadi.units import as_list
from nadi.whatif.change_syntax import parse_change
from nadi.whatif.what_if_results import what_if

__all__ = ["Likeness", "Similarity", "compare"]

_AnyJob = Job | Sequence[Trace] | Path | str
_EQUAL = 0.01
_CHANGES = ("scale kind=kernel 0.5", "scale kind=communication 0.5")


@dataclass(frozen=True)
class Likeness:
    """How far two jobs are apart by one measure.

    Attributes
    ----------
    measure
        What is compared, such as ``operation mix``, or ``step time, dgx-h100``.
    distance
        From 0 for equal to 1 for nothing in common.
    floor
        That of another recording of the same program; None if none was given.
    ceiling
        That of a job whose operations are drawn column by column (``independent_sample``).
    """

    measure: str
    distance: float
    floor: float | None
    ceiling: float

    @property
    def is_near(self) -> bool:
        """Whether it is at least half of the way from the ceiling to the floor, 0 without one.

        So is what is no further than the floor, or than 0.01, wherever the ceiling is.
        """
        floor = self.floor or 0.0
        return self.distance <= max((floor + self.ceiling) / 2, floor, _EQUAL)


@dataclass(frozen=True)
class Similarity:
    """How alike two jobs are.

    Attributes
    ----------
    measures
        Each measure once; those that neither job states are left out.
    step_ns
        The time of each job on each system, by system and change (empty for none), in ns.
    reference
        The system whose simulation gave gaps, memory and critical path.
    """

    measures: tuple[Likeness, ...]
    step_ns: dict[tuple[str, str], tuple[int, int]]
    reference: str

    def __getitem__(self, measure: str) -> Likeness:
        for one in self.measures:
            if one.measure == measure:
                return one
        raise KeyError(measure)


class _Measured:
    """A job, what it is like, and its times on systems."""

    def __init__(self, job: _AnyJob, systems: Sequence[str]) -> None:
        found = given_job(job)
        self.columns = columns_of_job(found)
        self.job = found
        self.times: dict[tuple[str, str], int] = {}
        self.measures: JobMeasures | None = None
        for name in systems:
            run = simulate(found, _machine(name, len(self.columns.ranks)))
            if self.measures is None:
                self.measures = measures_of(self.columns, run)
            self.times |= _times(name, run)


def compare(
    a: _AnyJob,
    b: _AnyJob,
    *,
    systems: str | Sequence[str] = (),
    same: _AnyJob | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Similarity:
    """Compare two jobs by their operations, their graph, and what simulations say of them.

    Parameters
    ----------
    a, b
        Jobs, or their paths, as :func:`nadi.simulate` takes them.
    systems
        Names or files of systems that fit both; by default those shipped with Nadi.
    same
        Another recording of the program of ``a``: the distance between these two is the least
        that can be expected.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError, UsageError, NadiError
        If a job cannot be read or simulated, or no system fits both.
    """
    progress("reading")
    read = [given_job(one) for one in (a, b)]
    names = _fitting(as_list(systems), [len(_traces(one)) for one in read])
    progress("simulating the first job")
    one = _Measured(read[0], names)
    progress("simulating the second job")
    other = _Measured(read[1], names)
    progress("simulating the reference points")
    naive = _Measured(job_of_columns(independent_sample(one.columns)), names)
    again = None if same is None else _Measured(same, names)
    apart, ceilings = _distances(one, other), _distances(one, naive)
    floors = _distances(one, again) if again else {}
    found = [
        Likeness(measure, distance, floors.get(measure), ceilings.get(measure) or 0.0)
        for measure, distance in apart.items() if distance is not None
    ]  # fmt: skip
    times = {key: (one.times[key], other.times[key]) for key in one.times if key in other.times}
    return Similarity(tuple(found), times, names[0])


def _traces(job: Job | Sequence[Trace]) -> Sequence[Trace]:
    return job.traces if isinstance(job, Job) else job


def _fitting(systems: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """Return the systems that have the ranks of all jobs; those that are named must."""
    if systems:
        for name in systems:
            for size in sizes:
                _machine(name, size)
        return list(systems)
    found = []
    for name in shipped_systems():
        try:
            for size in sizes:
                _machine(name, size)
        except UsageError:
            continue
        found.append(name)
    if not found:
        ranks = ", ".join(map(str, sizes))
        raise UsageError(
            "systems", f"no system that ships with Nadi fits the ranks of all jobs: {ranks}",
            "describe one, and name its file",
        )  # fmt: skip
    return found


def _machine(name: str, num_ranks: int) -> System:
    return load_system(name, num_ranks)


def _times(name: str, run: Simulation) -> dict[tuple[str, str], int]:
    """Return the time of a run, and those after changes that apply to it."""
    found = {(name, ""): run.makespan}
    graph = simulated_graph(run)
    for text in _CHANGES:
        try:
            found[name, text] = what_if(graph, parse_change(text)).step_ns
        except NadiError:  # a job without such operations has no such time
            continue
    return found


def _distances(one: _Measured, other: _Measured) -> dict[str, float | None]:
    assert one.measures is not None
    assert other.measures is not None
    found = distances_of(one.measures, other.measures)
    for (name, change), time in one.times.items():
        label = f"step time, {name}" + (f", {change}" if change else "")
        if (name, change) in other.times:
            found[label] = relative_difference(time, other.times[name, change])
    return found
