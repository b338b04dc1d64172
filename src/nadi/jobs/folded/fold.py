"""Fold a job: find alike ranks and repeats, and the times that stand for all.

Ranks that do nearly the same as one program, and between what times of one rank the job lies.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from nadi.recordings.folded.folded_job import FoldedJob, fold_classes, times_of_classes, unfold_job
from nadi.recordings.folded.folded_trace import NodeTimes, own_times, with_own_times
from nadi.recordings.folded.repeats import RankClasses, classes_of_ranks, plain_trace
from nadi.recordings.jobs import given_job
from nadi.recordings.rank_spread import communicating, counts_of_names, nearly_alike, parts_between
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.simulation import Simulation
from nadi.simulation.work.recorded_work import nodes_of_job
from nadi.systems.system import Collectives, Dimension, Network, System
from nadi.trace.arrays import Floats, Ints
from nadi.trace.groups import RankGroups
from nadi.trace.issues import IssueLog, summed_issues
from nadi.trace.schema import COMM_TYPES, ISSUES, MATCHES
from nadi.trace.trace import Job, Trace

_MESSAGES = ["COMM_SEND", "COMM_RECV"]


class _Parts(NamedTuple):
    """What a rank takes between two meetings, on the host and on devices."""

    part: Ints  # int64, shape (nodes,): even for the host, odd for devices; -1 for meetings
    sums: Floats  # float64 ns, shape (2 * parts,)


_MOST_OFF = 0.02  # of the step, if ranks that do nearly the same are folded as one
_FASTEST = 1e9  # bytes per ns: communication takes no time
_LIKELY = 0.5, 0.3
"""Parts of the way from typical times to the least and to the largest ones, between which the job
is in nearly all of the jobs that were drawn (``verification/folded.py drawn``)."""
_ALL_OF_IT = 1.0, 1.0
"""The same if ranks do only nearly the same: they differ in more than their times."""


def fold(
    job: Job | Sequence[Trace] | Path | str,
    system: System | None = None,
    progress: Callable[[str], None] = lambda _: None,
    alike: Literal["nearly", "exactly", "in time"] = "nearly",
) -> FoldedJob:
    """Fold a job: one trace for alike ranks, with layers, micro-batches and steps once.

    Ranks are alike if their operations, sizes, dependencies, tensors and roles in process groups
    are equal; recorded ones also if at most 5 % of their operations differ and the step does not by
    more than 2 %. Repeats are found in the sequence of operations: rows of which all columns but
    times are equal or grow evenly. A recording is folded as what ``nadi simulate`` makes of it.

    Times of alike ranks may differ. The typical time of an operation is then how much later the
    last of them ends it than it ends what it waits for, if communication takes no time, so that
    ranks that wait for the slowest are not counted as fast; of turns of a repeat it is the mean.
    :func:`nadi.simulate` gives ``bound``: the interval in which the answer of the whole job most
    likely is. It reaches to the times of an average rank, and of the latest one in each part.

    Parameters
    ----------
    job
        A trace per rank, a job, or the path of one as :func:`nadi.simulate` takes it.
    system
        On which typical times of ranks that differ are found; None for free communication.
    progress
        Called with a line of text before each longer stage.
    alike
        Which ranks become one: also recorded ones that do ``nearly`` the same, only those that do
        ``exactly`` the same, or only those that do it in the same time.

    Returns
    -------
    FoldedJob
        The same object if the job is folded.

    Raises
    ------
    InputError, UsageError
        If the job cannot be read, or ranks of different times cannot be simulated.

    Examples
    --------
    >>> small = nadi.fold(nadi.llm_job("gpt3-175b", tp=8, pp=16, dp=256))
    >>> nadi.simulate(small, nadi.load_system("dgx-h100", 32768))
    """
    job = given_job(job, progress)
    if isinstance(job, FoldedJob):
        return job
    traces, groups, issues = _simulated(job)
    machine = system or _free_communication(len(traces))
    progress("finding alike ranks")
    if alike == "nearly" and groups is None and (near := with_one_program(traces)) is not None:
        folded = _folded(near, None, issues, machine, progress, likely=_ALL_OF_IT)
        whole = simulate_job(Job(traces, MATCHES.empty(), ISSUES.empty()), machine).makespan
        off = simulate_job(folded, machine).makespan / max(whole, 1) - 1
        if abs(off) <= _MOST_OFF:
            return replace(folded, issues=summed_issues([issues, _nearly_alike(off)]))
    return _folded(traces, groups, issues, machine, progress, in_time=alike == "in time")


def _folded(
    traces: tuple[Trace, ...], groups: RankGroups | None, issues: pl.DataFrame, machine: System,
    progress: Callable[[str], None], *, in_time: bool = False,
    likely: tuple[float, float] = _LIKELY,
) -> FoldedJob:  # fmt: skip
    """Fold ranks that do exactly the same, and the repeats of each."""
    numbered = all(trace.rank in (-1, rank) for rank, trace in enumerate(traces))
    classes = classes_of_ranks(traces, groups, numbered=numbered)
    classes = _of_same_times(classes) if in_time else classes
    times = dict(enumerate(times_of_classes(classes)))
    varying = {number: one for number, one in times.items() if one is not None}
    if varying:
        progress("comparing times of ranks")
        varying = within_bounds(classes, _until_the_last(classes, varying, machine), likely)
    progress("finding repeats")
    return fold_classes(classes, varying, issues)


def _nearly_alike(off: float) -> pl.DataFrame:
    log = IssueLog()
    log.add(
        "fold.nearly-alike", "info", 1,
        "ranks of which at most 5 % of the operations differ have those of the lowest one, and "
        f"their own times between communications: the step is {100 * off:+.1f} % off",
        "fold with --exact to keep the operations of each",
    )  # fmt: skip
    return log.table()


def _of_same_times(classes: RankClasses) -> RankClasses:
    """Return classes of which all ranks took the same times."""
    of_trace = {trace: own_times(trace.nodes).tobytes() for trace in set(classes.traces)}
    number: dict[tuple[int, bytes], int] = {}
    of = [
        number.setdefault((known, of_trace[trace]), len(number))
        for known, trace in zip(classes.of.tolist(), classes.traces, strict=True)
    ]
    return replace(classes, of=np.array(of, dtype=np.int64))


def unfold(job: FoldedJob | Path | str) -> Job:
    """Return a folded job as the whole job it was, of the same operations.

    Times are the typical ones, which are those of the job if they did not vary.

    Raises
    ------
    InputError
        If the path is not that of a folded job.
    """
    if isinstance(job, FoldedJob):
        return unfold_job(job)
    from nadi.recordings.folded.files import read_folded

    return unfold_job(read_folded(job))


def _simulated(
    job: Job | Sequence[Trace],
) -> tuple[tuple[Trace, ...], RankGroups | None, pl.DataFrame]:
    """Return what a simulation takes, the roles that it names, and the issues of the job."""
    if isinstance(job, Job) and job.rank_groups is not None:
        return job.traces, job.rank_groups, job.issues
    played = frozenset(COMM_TYPES) - {"none", "send", "recv"}
    traces, recorded = nodes_of_job(job, played, at_once=True)
    issues = job.issues if isinstance(job, Job) else ISSUES.empty()
    if not recorded:
        done = {id(trace): plain_trace(trace) for trace in traces}
        return tuple(done[id(trace)] for trace in traces), None, issues
    log = IssueLog()
    log.add(
        "fold.recording", "info", len(traces),
        "recorded ranks are folded as nodes for a simulation, without tensors and start times",
        "analyse the recording itself for its memory and timeline",
    )  # fmt: skip
    return traces, None, summed_issues([issues, log.table()])


def _until_the_last(
    classes: RankClasses, times: dict[int, NodeTimes], system: System
) -> dict[int, NodeTimes]:
    """Let typical times be those of the last of alike ranks, from what all of them wait for."""
    job = Job(classes.traces, MATCHES.empty(), ISSUES.empty(), rank_groups=classes.groups)
    done = simulate_job(job, system)
    return {number: _last_of(classes, number, one, done) for number, one in times.items()}


def _free_communication(size: int) -> System:
    """Return a system on which communication takes no time."""
    collectives = Collectives(endpoint_delay=0, group_endpoint_delay=0)
    dimension = Dimension("switch", size, _FASTEST)
    return System(Network((dimension,)), collectives=collectives)


def _last_of(classes: RankClasses, number: int, times: NodeTimes, done: Simulation) -> NodeTimes:
    program, size = done.program, times.low.size
    start, end = np.zeros((2, size), dtype=np.int64)
    for rank in np.unique(done.like[classes.of == number]).tolist():
        first, last = program.first[rank : rank + 2]
        row = program.row[first:last]
        start[row] = np.maximum(start[row], done.start[first:last])
        end[row] = np.maximum(end[row], done.end[first:last])
    typical = np.where(times.low != times.high, end - start, times.low)
    return replace(times, typical=np.clip(typical, times.low, times.high))


def with_one_program(traces: Sequence[Trace]) -> tuple[Trace, ...] | None:
    """Return traces in which ranks that do nearly the same have the operations of the lowest one.

    They take part in the same collectives in one order, and send no messages. Between two meetings
    the operations take together what those of the rank took, on the host and on devices.

    - Returns None if there are no such ranks. O(nodes).
    """
    found = list(traces)
    alike = nearly_alike(
        counts_of_names(traces), [int(communicating(trace.nodes).sum()) for trace in traces]
    )
    meetings = [_meetings(trace) for trace in traces]
    for rank, lowest in enumerate(alike.tolist()):
        listed = meetings[lowest]
        if rank != lowest and listed is not None and listed.equals(meetings[rank]):
            found[rank] = _as_program(traces[rank], traces[lowest])
    is_other = any(one is not other for one, other in zip(found, traces, strict=True))
    return tuple(found) if is_other else None


def _meetings(trace: Trace) -> pl.DataFrame | None:
    """Return the collectives of a rank in their order; None if it sends messages or has none."""
    nodes = trace.nodes.select("kind", "comm_type", "group").filter(
        pl.Series(communicating(trace.nodes))
    )
    return None if nodes["kind"].is_in(_MESSAGES).any() or not nodes.height else nodes


def _as_program(trace: Trace, lowest: Trace) -> Trace:
    """Return a rank with the operations of another one that take as long as its own."""
    if trace is lowest or trace.groups.height != lowest.groups.height:
        return trace
    own, other = _parts(trace), _parts(lowest)
    factor = np.divide(own.sums, other.sums, out=np.ones_like(own.sums), where=other.sums > 0)
    taken = own_times(lowest.nodes).copy()
    moves = (other.part >= 0) & (taken > 0)
    taken[moves] = np.rint(taken[moves] * factor[other.part[moves]])
    taken[communicating(lowest.nodes)] = own_times(trace.nodes)[communicating(trace.nodes)]
    return replace(
        lowest, nodes=with_own_times(lowest.nodes, taken), groups=trace.groups, rank=trace.rank,
        process=trace.process, issues=trace.issues,
    )  # fmt: skip


def _parts(trace: Trace) -> _Parts:
    meets = communicating(trace.nodes)
    part = 2 * parts_between(meets, meets.size) + ~trace.nodes["is_cpu"].to_numpy()
    taken = np.where(meets, 0, np.maximum(own_times(trace.nodes), 0)).astype(np.float64)
    sums: Floats = np.zeros(2 * (int(meets.sum()) + 1))
    np.add.at(sums, part, taken)
    return _Parts(np.where(meets, -1, part), sums)


def within_bounds(
    classes: RankClasses, times: Mapping[int, NodeTimes], likely: tuple[float, float]
) -> dict[int, NodeTimes]:
    """Let least and largest times be those between which a job of all ranks is likely to be.

    They lie a part of the way from typical times to bounds. At least, all ranks are as the slowest
    one of a single class, or else as the mean of each. With a fixed order of operations the step is
    a longest path: no shorter than that of one rank, and, as a maximum of sums, no shorter than
    that of mean times. At most, all ranks take between two meetings what the latest does there.

    - ``times``: Of classes whose ranks took different times. O(ranks * nodes).
    - ``likely``: Which parts of the way, to the least and to the largest times.
    """
    return {number: _bounded(classes, number, one, likely) for number, one in times.items()}


def _bounded(
    classes: RankClasses, number: int, times: NodeTimes, likely: tuple[float, float]
) -> NodeTimes:
    ranks = np.flatnonzero(classes.of == number).tolist()
    first = classes.traces[ranks[0]]
    meets = communicating(first.nodes)
    part = parts_between(meets, meets.size)
    mean = np.zeros(meets.size)
    most = np.zeros(int(part[-1]) + 1)
    slowest, longest = times.typical, -1
    for rank in ranks:
        own = np.maximum(own_times(classes.traces[rank].nodes), 0)
        mean += own / len(ranks)
        np.maximum(most, np.bincount(part, np.where(meets, 0, own), most.size), out=most)
        if own[~meets].sum() > longest:
            slowest, longest = own, int(own[~meets].sum())
    usual = np.bincount(part, np.where(meets, 0.0, mean), most.size)
    factor = np.divide(most, usual, out=np.ones_like(usual), where=usual > 0)
    varies = (times.low != times.high) & (times.low >= 0)
    low = slowest if classes.first.size == 1 else mean
    high = np.where(meets, times.high, mean * factor[part])
    away = [np.where(varies, end - times.typical, 0) for end in (low, high)]
    # away from 0, so that what differs a little is not taken for the same
    least, largest = (
        times.typical + (np.sign(one) * np.ceil(part * np.abs(one))).astype(np.int64)
        for part, one in zip(likely, away, strict=True)
    )
    return NodeTimes(times.typical, least, largest)
