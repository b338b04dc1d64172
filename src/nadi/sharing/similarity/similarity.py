"""Compare two jobs: how alike they are, by what matters to a simulator.

A job that has all amounts of another, and nothing of what belongs together: the naive guess.

Each column of the operations is shuffled on its own. What is as far from a job as this has learned
nothing of it but histograms.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.errors import NadiError, UsageError
from nadi.graph.event_graph import EventGraph
from nadi.recordings.jobs import given_job
from nadi.sharing.similarity.verbatim import Verbatim, verbatim_shares
from nadi.sharing.synthesis.column_traces import job_of_columns
from nadi.sharing.synthesis.job_columns import (
    JobColumns,
    RankColumns,
    columns_of_job,
    lane_numbers,
)
from nadi.sharing.synthesis.storage_lives import StorageLives
from nadi.simulation.accounts.memory_accounts import live_memory
from nadi.simulation.accounts.simulation_as_recording import simulated_graph, simulated_path
from nadi.simulation.runs.simulate import simulate, traces_of
from nadi.simulation.simulation import Simulation
from nadi.systems.library import load_system, shipped_systems
from nadi.systems.system import System
from nadi.trace.arrays import Bools, Floats, Ints
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
_ASKED = 4
"""Operations, and ranks, of which responses to a change are compared."""


@dataclass(frozen=True)
class Likeness:
    """How far two jobs are apart by one measure.

    Attributes
    ----------
    measure
        What is compared, such as ``operation mix``, or ``makespan, dgx-h100``.
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
    makespan_ns
        The time of each job on each system, by system and change (empty for none), in ns.
    reference
        The system whose simulation gave gaps, memory, critical path and responses.
    verbatim
        How much of the second job stands in the first.
    """

    measures: tuple[Likeness, ...]
    makespan_ns: dict[tuple[str, str], tuple[int, int]]
    reference: str
    verbatim: tuple[Verbatim, ...] = ()

    @property
    def step_ns(self) -> dict[tuple[str, str], tuple[int, int]]:
        """The former name of ``makespan_ns``, for one release."""
        text = "step_ns is makespan_ns now: it is the time of the whole job, not of one step"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.makespan_ns

    def __getitem__(self, measure: str) -> Likeness:
        for one in self.measures:
            if one.measure == measure:
                return one
        raise KeyError(measure)


class _Measured:
    """A job, what it is like, and its times on systems."""

    def __init__(
        self, job: _AnyJob, systems: Sequence[str], asked: dict[str, list[str]] | None = None
    ) -> None:
        found = given_job(job)
        self.columns = columns_of_job(found)
        self.job = found
        self.times: dict[tuple[str, str], int] = {}
        self.measures: JobMeasures | None = None
        self.asked: dict[str, list[str]] = {}
        self.responses: dict[str, list[float | None]] = {}
        for name in systems:
            run = simulate(found, _machine(name, len(self.columns.ranks)))
            if self.measures is None:
                self.measures = measures_of(self.columns, run)
                graph = simulated_graph(run)
                self.asked = asked or _asked_changes(graph, len(self.columns.ranks))
                self.responses = {
                    about: [_response(graph, one) for one in texts]
                    for about, texts in self.asked.items()
                }
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
    names = _fitting(as_list(systems), [len(traces_of(one)) for one in read])
    progress("simulating the first job")
    one = _Measured(read[0], names)
    progress("simulating the second job")
    other = _Measured(read[1], names, one.asked)
    progress("simulating the reference points")
    naive = _Measured(job_of_columns(independent_sample(one.columns)), names, one.asked)
    again = None if same is None else _Measured(same, names, one.asked)
    apart, ceilings = _distances(one, other), _distances(one, naive)
    floors = _distances(one, again) if again else {}
    found = [
        Likeness(measure, distance, floors.get(measure), ceilings.get(measure) or 0.0)
        for measure, distance in apart.items() if distance is not None
    ]  # fmt: skip
    times = {key: (one.times[key], other.times[key]) for key in one.times if key in other.times}
    shares, guessed = (verbatim_shares(one.columns, each.columns) for each in (other, naive))
    least = verbatim_shares(one.columns, again.columns) if again else {}
    verbatim = [
        Verbatim(measure, share, least.get(measure), guessed[measure])
        for measure, share in shares.items()
    ]
    return Similarity(tuple(found), times, names[0], tuple(verbatim))


def _asked_changes(graph: EventGraph, num_ranks: int) -> dict[str, list[str]]:
    """Return changes of the operations that take the most time, and of ranks."""
    names = graph.op_names.cast(pl.String).alias("name")
    time = np.diff(graph.time[: 2 * names.len()].reshape(-1, 2)).ravel()  # starts and ends
    frame = names.str.replace_all(r"\d+", "#").to_frame().with_columns(time=pl.Series(time))
    total = frame.group_by("name").agg(pl.col("time").sum())
    longest = total.sort("time", "name", descending=[True, False])["name"].head(_ASKED)
    patterns = [r"[\d#]+".join(map(re.escape, name.split("#"))) for name in longest]
    ranks = np.unique(np.linspace(0, num_ranks - 1, _ASKED).astype(np.int64)).tolist()
    return {
        "response, operations": [
            f'scale "^{one.replace(chr(34), chr(34) * 2)}$" 0.5' for one in patterns
        ],
        "response, ranks": [f"scale . rank={rank} 1.3" for rank in ranks],
    }


def _response(graph: EventGraph, text: str) -> float | None:
    """Return the step after a change over that before; None without such operations."""
    try:
        found = what_if(graph, parse_change(text))
    except NadiError:
        return None
    return found.window_ns / max(found.measured_ns, 1)


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
            found[name, text] = what_if(graph, parse_change(text)).window_ns
        except NadiError:  # a job without such operations has no such time
            continue
    return found


def _distances(one: _Measured, other: _Measured) -> dict[str, float | None]:
    assert one.measures is not None
    assert other.measures is not None
    found = distances_of(one.measures, other.measures)
    for about, mine in one.responses.items():
        pairs = zip(mine, other.responses[about], strict=True)
        apart = [abs(a - b) for a, b in pairs if a is not None and b is not None]
        found[about] = float(np.mean(apart)) if apart else None  # names may be others
    for (name, change), time in one.times.items():
        label = f"makespan, {name}" + (f", {change}" if change else "")
        if (name, change) in other.times:
            found[label] = relative_difference(time, other.times[name, change])
    return found


_Counts = Mapping[object, float]


def total_variation(one: _Counts, other: _Counts) -> float:
    """Return the total variation of two distributions: half the sum of differences of shares.

    - ``one``, ``other``: How often each thing occurs, or how much of it there is.
    - Returns: 0 if all shares are equal or both are empty, 1 if nothing is in both.
    """
    p, q = _shares(one, other)
    if p.sum() == 0 or q.sum() == 0:
        return float(p.sum() != q.sum())
    return float(np.clip(np.abs(p - q).sum() / 2, 0, 1))


def jensen_shannon(one: _Counts, other: _Counts) -> float:
    """Return the Jensen-Shannon divergence of two distributions in bits, between 0 and 1."""
    p, q = _shares(one, other)
    if p.sum() == 0 or q.sum() == 0:
        return float(p.sum() != q.sum())
    middle = (p + q) / 2
    return float(np.clip((_divergence(p, middle) + _divergence(q, middle)) / 2, 0, 1))


def overlap_distance(one: _Counts, other: _Counts) -> float:
    """Return how much of two amounts of several kinds differs: 0 if all are equal.

    The sum of differences over the sum of both, so that more of everything is a difference, too.
    """
    p, q = _amounts(one, other)
    both = float(p.sum() + q.sum())
    return float(np.abs(p - q).sum() / both) if both else 0.0


def relative_difference(one: float, other: float) -> float:
    """Return the difference of two amounts over the larger; 0 if both are 0."""
    most = max(abs(one), abs(other))
    return abs(one - other) / most if most else 0.0


def wasserstein(one: Ints | Floats, other: Ints | Floats) -> float:
    """Return the Wasserstein distance of two samples over the sum of their means.

    The area between their distribution functions. Values are 0 or more, so the result is between 0
    and 1. O(n log n).
    """
    if not one.size or not other.size:
        return float(one.size != other.size)
    both = float(one.mean() + other.mean())
    if both == 0:
        return 0.0
    a, b = np.sort(one), np.sort(other)
    edges = np.sort(np.concatenate([a, b]))
    share_a = np.searchsorted(a, edges[:-1], side="right") / a.size
    share_b = np.searchsorted(b, edges[:-1], side="right") / b.size
    return float((np.abs(share_a - share_b) * np.diff(edges)).sum() / both)


def wasserstein_by_key(
    one: Sequence[object], values: Ints, other: Sequence[object], others: Ints
) -> float:
    """Return the mean distance of the values of each key, by the share of the key's sum.

    A key that only one sample has counts as far away: 1. Where all values are 0, 0.
    """
    mine, theirs = _by_key(one, values), _by_key(other, others)
    weight, distance = [], []
    for key in dict.fromkeys([*mine, *theirs]):
        a, b = mine.get(key, _NONE), theirs.get(key, _NONE)
        weight.append(a.sum() / max(values.sum(), 1) + b.sum() / max(others.sum(), 1))
        distance.append(wasserstein(a, b))
    total = sum(weight)
    return float(np.dot(weight, distance) / total) if total else 0.0


_NONE = np.zeros(0, dtype=np.int64)


def _by_key(keys: Sequence[object], values: Ints) -> dict[object, Ints]:
    number: dict[object, int] = {}
    codes = np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(1, len(number)))
    return dict(zip(number, np.split(values[order], cuts), strict=False))


def _amounts(one: _Counts, other: _Counts) -> tuple[Floats, Floats]:
    keys = dict.fromkeys([*one, *other])
    return (
        np.array([one.get(key, 0) for key in keys], dtype=np.float64),
        np.array([other.get(key, 0) for key in keys], dtype=np.float64),
    )


def _shares(one: _Counts, other: _Counts) -> tuple[Floats, Floats]:
    p, q = _amounts(one, other)
    if not p.sum() or not q.sum():  # an empty one has nothing in common with the other
        return (p > 0).astype(np.float64), (q > 0).astype(np.float64)
    return p / p.sum(), q / q.sum()


def _divergence(p: Floats, middle: Floats) -> float:
    known = p > 0
    return float((p[known] * np.log2(p[known] / middle[known])).sum())


_GRAM = 3


class JobMeasures(NamedTuple):
    """What a job is like.

    Attributes
    ----------
    mix, grams
        How often each operation, and each three in a row on a thread or stream, occur.
    names, durations, sizes
        Of each computation its operation; ns; FLOPs and bytes, for those that state any.
    sized
        The operation of each size.
    gaps
        Idle ns between operations of a thread or stream in the simulated run.
    degrees
        How many operations wait for so many, and so many wait for them.
    depth, width
        Operations on the longest chain of a rank, and most at the same depth, of all ranks.
    volume
        Bytes of communication by type, size of the group, and size of the message.
    memory
        Largest live memory of a rank in bytes; -1 if no tensors are stated.
    path
        Time of the simulated critical path by kind, in ns.
    """

    mix: Mapping[object, float]
    grams: Mapping[object, float]
    names: list[str]
    durations: Ints
    sized: list[str]
    sizes: Ints
    gaps: Ints
    degrees: Mapping[object, float]
    depth: int
    width: int
    volume: Mapping[object, float]
    memory: int
    path: Mapping[object, float]


def measures_of(columns: JobColumns, run: Simulation) -> JobMeasures:
    """Measure a job and its simulated run. O(nodes log nodes)."""
    mix: Counter[object] = Counter()
    grams: Counter[object] = Counter()
    degrees: Counter[object] = Counter()
    volume: Counter[object] = Counter()
    names: list[str] = []
    sized: list[str] = []
    durations, sizes = [], []
    depth = width = 0
    for rank in columns.ranks:
        own = [columns.labels[label] for label in rank.label.tolist()]
        mix.update(own)
        grams.update(_grams(rank, own))
        degrees.update(_degrees(rank))
        volume.update(_volume(rank, columns))
        deep, wide = _extent(rank)
        depth, width = max(depth, deep), max(width, wide)
        timed = np.flatnonzero((rank.duration >= 0) & (rank.kind == _COMP))
        names += [own[row] for row in timed.tolist()]
        durations.append(rank.duration[timed])
        for column in (rank.flops, rank.bytes, rank.comm_bytes):
            stated = np.flatnonzero(column >= 0)
            sized += [own[row] for row in stated.tolist()]
            sizes.append(column[stated])
    live = live_memory(run)
    path: dict[object, float] = {
        str(kind): float(time) for kind, time in simulated_path(run).by_kind().items() if time
    }
    return JobMeasures(
        mix, grams, names, np.concatenate(durations), sized, np.concatenate(sizes), _gaps(run),
        degrees, depth, width, volume, -1 if live is None else int(live["peak"].to_numpy().max()),
        path,
    )  # fmt: skip


def distances_of(one: JobMeasures, other: JobMeasures) -> dict[str, float | None]:
    """Return how far two jobs are apart by each measure, 0 to 1; None where neither states it."""
    has_memory = one.memory >= 0 or other.memory >= 0
    return {
        "operation mix": total_variation(one.mix, other.mix),
        "operation sequences": jensen_shannon(one.grams, other.grams),
        "durations": wasserstein_by_key(one.names, one.durations, other.names, other.durations)
        if one.durations.size or other.durations.size else None,
        "sizes": wasserstein_by_key(one.sized, one.sizes, other.sized, other.sizes)
        if one.sizes.size or other.sizes.size else None,
        "gaps": wasserstein(one.gaps, other.gaps),
        "degrees": total_variation(one.degrees, other.degrees),
        "depth": relative_difference(one.depth, other.depth),
        "width": relative_difference(one.width, other.width),
        "communication": overlap_distance(one.volume, other.volume)
        if one.volume or other.volume else None,
        "live memory": relative_difference(max(one.memory, 0), max(other.memory, 0))
        if has_memory else None,
        "critical path": total_variation(one.path, other.path),
    }  # fmt: skip


def _grams(rank: RankColumns, own: list[str]) -> Counter[object]:
    lane = lane_numbers(rank)
    order = np.argsort(lane, kind="stable")
    in_order = [own[row] for row in order.tolist()]
    at = lane[order]
    whole = np.flatnonzero(at[_GRAM - 1 :] == at[: at.size - _GRAM + 1]).tolist()
    return Counter(tuple(in_order[row : row + _GRAM]) for row in whole)


def _degrees(rank: RankColumns) -> Counter[object]:
    waits = np.bincount(rank.dst, minlength=rank.size)
    awaited = np.bincount(rank.src, minlength=rank.size)
    found: Counter[object] = Counter()
    for side, counts in (("in", waits), ("out", awaited)):
        number, times = np.unique(counts, return_counts=True)
        for degree, many in zip(number.tolist(), times.tolist(), strict=True):
            found[side, degree] = many
    return found


def _extent(rank: RankColumns) -> tuple[int, int]:
    """Return operations on the longest chain, and the most operations at one depth."""
    depth = [1] * rank.size
    for src, dst in zip(rank.src.tolist(), rank.dst.tolist(), strict=True):  # sorted by dst
        if depth[src] >= depth[dst]:
            depth[dst] = depth[src] + 1
    return max(depth, default=0), int(np.bincount(depth or [0]).max())


def _volume(rank: RankColumns, columns: JobColumns) -> Counter[object]:
    found: Counter[object] = Counter()
    sizes = [*(len(ranks) for ranks in columns.groups), len(columns.ranks)]
    for row in np.flatnonzero(rank.kind != _COMP).tolist():
        if rank.comm_type[row]:
            members = 2 if rank.peer[row] >= 0 else sizes[rank.group[row]]
            amount = max(int(rank.comm_bytes[row]), 0)
            found[COMM_TYPES[rank.comm_type[row]], members, amount] += amount
    return found


def _gaps(run: Simulation) -> Ints:
    """Return the idle ns between neighbors in the lanes of the program, 0 for none."""
    program = run.program
    if program.lane is None:
        return np.zeros(0, dtype=np.int64)
    inside = np.flatnonzero(program.lane >= 0)
    order = inside[np.lexsort((run.start[inside], program.lane[inside]))]
    same = program.lane[order[1:]] == program.lane[order[:-1]]
    idle: Ints = run.start[order[1:]] - run.end[order[:-1]]
    return np.asarray(np.maximum(idle, 0)[same], dtype=np.int64)
