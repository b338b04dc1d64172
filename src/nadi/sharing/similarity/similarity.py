"""Compare two jobs: how alike they are, by what matters to a simulator.

A job that has all amounts of another, and nothing of what belongs together: the naive guess.

Each column of the operations is shuffled on its own. What is as far from a job as this has learned
nothing of it but histograms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import NadiError, UsageError
from nadi.recordings.jobs import given_job
from nadi.sharing.similarity.job_measures import (
    JobMeasures,
    distances_of,
    measures_of,
    relative_difference,
)
from nadi.sharing.synthesis.column_traces import job_of_columns
from nadi.sharing.synthesis.job_columns import JobColumns, RankColumns, columns_of_job
from nadi.sharing.synthesis.storage_lives import StorageLives
from nadi.simulation.accounts.simulation_as_recording import simulated_graph
from nadi.simulation.runs.simulate import simulate
from nadi.simulation.simulation import Simulation
from nadi.systems.library import load_system, shipped_systems
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import COMM_TYPES, NODE_KINDS
from nadi.trace.trace import Job, Trace
from nadi.units import as_list
from nadi.whatif.change_syntax import parse_change
from nadi.whatif.what_if_results import what_if

_COMP, _SEND, _RECV, _COLL = (
    NODE_KINDS.index(name) for name in ("COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
)
_TYPE_SEND, _TYPE_RECV = COMM_TYPES.index("send"), COMM_TYPES.index("recv")
_APART = ("label", "duration", "flops", "bytes", "op_class", "dtype", "shape", "layer")


class _Event(NamedTuple):
    """One communication: its group or its two ranks, its type and size."""

    group: int
    ranks: tuple[int, ...]
    comm_type: int
    size: int
    tag: int = 0


def independent_sample(columns: JobColumns, seed: int = 0) -> JobColumns:
    """Return a job in which each property of an operation is drawn independently of the others.

    Names, durations, FLOPs, bytes, threads and streams of the computations of a rank are those of
    the job, each shuffled; types and sizes of communication, too. Ranks take part in as much
    communication as before, in a random order that is the same on all ranks, so that the job can
    be simulated. As many operations wait as before, for random earlier ones.

    Parameters
    ----------
    seed
        Equal seeds give equal jobs.
    """
    random = np.random.default_rng(seed)
    events = _shuffled(_events(columns), random)
    ranks = [
        _rank(rank, number, events, random) for number, rank in enumerate(columns.ranks)
    ]  # fmt: skip
    return columns._replace(ranks=tuple(ranks))


def _events(columns: JobColumns) -> list[_Event]:
    """Return the communication of a job, each once: of its lowest rank, or its sender."""
    found = []
    everybody = tuple(range(len(columns.ranks)))
    for number, rank in enumerate(columns.ranks):
        for row in np.flatnonzero((rank.kind == _COLL) | (rank.kind == _SEND)).tolist():
            group = int(rank.group[row])
            members = columns.groups[group] if group >= 0 else everybody
            what = int(rank.comm_type[row]), int(rank.comm_bytes[row])
            if rank.kind[row] == _SEND:
                found.append(_Event(-1, (number, int(rank.peer[row])), *what))
            elif members[0] == number:
                found.append(_Event(group, members, *what))
    return found


def _shuffled(events: list[_Event], random: np.random.Generator) -> list[_Event]:
    """Return the events in random order, with types and sizes of others."""
    mixed: list[_Event] = list(events)
    for is_message in (False, True):
        own = [at for at, one in enumerate(events) if (one.comm_type == _TYPE_SEND) == is_message]
        types = [events[at].comm_type for at in random.permutation(own).astype(int).tolist()]
        sizes = [events[at].size for at in random.permutation(own).astype(int).tolist()]
        for at, comm_type, size in zip(own, types, sizes, strict=True):
            mixed[at] = events[at]._replace(comm_type=comm_type, size=size)
    order = random.permutation(len(mixed)).tolist()
    return [mixed[at]._replace(tag=tag) for tag, at in enumerate(order)]


def _rank(
    rank: RankColumns, number: int, events: list[_Event], random: np.random.Generator
) -> RankColumns:
    computes = np.flatnonzero(rank.kind == _COMP)
    talks = np.flatnonzero(rank.kind != _COMP)
    own = [one for one in events if number in one.ranks]
    size = computes.size + len(own)
    is_event = np.zeros(size, dtype=np.bool_)
    is_event[random.choice(size, len(own), replace=False)] = True
    drawn: dict[str, Any] = {}
    for name in _APART:
        drawn[name] = _filled(rank, name, computes, talks, is_event, random)
    lane = random.permutation(computes)
    at = random.permutation(talks)[: len(own)] if len(own) <= talks.size else talks
    at = np.resize(at, len(own))
    for name in ("thread", "stream", "is_cpu"):
        column = getattr(rank, name)
        mixed = np.empty(size, dtype=column.dtype)
        mixed[~is_event], mixed[is_event] = column[lane], column[at]
        drawn[name] = mixed
    minus = np.full(size, -1, dtype=np.int64)
    kind, comm_type = np.full(size, _COMP), np.zeros(size, dtype=np.int64)
    comm_bytes, group, peer, tag = minus.copy(), minus.copy(), minus.copy(), minus.copy()
    for row, one in zip(np.flatnonzero(is_event).tolist(), own, strict=True):
        is_message = one.comm_type == _TYPE_SEND
        sends = is_message and one.ranks[0] == number
        kind[row] = _COLL if not is_message else _SEND if sends else _RECV
        comm_type[row] = _TYPE_RECV if is_message and not sends else one.comm_type
        comm_bytes[row], group[row] = one.size, one.group
        if is_message:
            peer[row], tag[row] = one.ranks[1] if sends else one.ranks[0], one.tag
    src, dst = _random_waits(rank, size, random)
    return rank._replace(
        kind=kind, comm_type=comm_type, comm_bytes=comm_bytes, group=group, peer=peer, tag=tag,
        step=np.full(size, -1), src=src, dst=dst,
        lives=_random_lives(rank, size, random), **drawn,
    )  # fmt: skip


def _filled(
    rank: RankColumns, name: str, computes: Ints, talks: Ints, is_event: Bools,
    random: np.random.Generator,
) -> Ints:  # fmt: skip
    column = getattr(rank, name)
    mixed: Ints = np.full((is_event.size, *column.shape[1:]), -1, dtype=np.int64)
    mixed[~is_event] = column[random.permutation(computes)]
    if talks.size:
        mixed[is_event] = column[random.choice(talks, int(is_event.sum()))]
    return mixed


def _random_waits(rank: RankColumns, size: int, random: np.random.Generator) -> tuple[Ints, Ints]:
    degree = random.permutation(np.bincount(rank.dst, minlength=rank.size))
    degree = np.resize(degree, size)
    dst = np.repeat(np.arange(size), degree)
    dst = dst[dst > 0]
    src = (random.random(dst.size) * dst).astype(np.int64)
    pairs = np.unique(dst * size + src)
    return pairs % size, pairs // size


def _random_lives(rank: RankColumns, size: int, random: np.random.Generator) -> StorageLives:
    """Return lives as long and storages as large as before, at random."""
    lives = rank.lives
    lasts = lives.begin < 0
    length = random.permutation((lives.end - lives.begin)[~lasts])
    begin = (random.random(length.size) * size).astype(np.int64)
    return StorageLives(
        np.concatenate([lives.bytes[lasts], random.permutation(lives.bytes[~lasts])]),
        np.concatenate([lives.begin[lasts], begin]),
        np.minimum(np.concatenate([lives.end[lasts], begin + length]), size - 1),
        np.concatenate([np.zeros(int(lasts.sum()), dtype=np.int64), begin]),
    )


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
