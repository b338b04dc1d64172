"""Fold a job: find alike ranks and repeats, and the times that stand for all."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from nadi.jobs.folded.alike_ranks import with_one_program, within_bounds
from nadi.recordings.folded.folded_job import FoldedJob, fold_classes, times_of_classes, unfold_job
from nadi.recordings.folded.folded_trace import NodeTimes, own_times
from nadi.recordings.folded.repeats import RankClasses, classes_of_ranks, plain_trace
from nadi.recordings.jobs import given_job
from nadi.simulation.engine_driver import simulate_job
from nadi.simulation.simulation import Simulation
from nadi.simulation.work.recorded_work import nodes_of_job
from nadi.systems.system import Collectives, Dimension, Network, System
from nadi.trace.groups import RankGroups
from nadi.trace.issues import IssueLog, summed_issues
from nadi.trace.schema import COMM_TYPES, ISSUES, MATCHES
from nadi.trace.trace import Job, Trace

_MOST_OFF = 0.02  # of the step, if ranks that do nearly the same are folded as one
_FASTEST = 1e9  # bytes per ns: communication takes no time


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
    :func:`nadi.simulate` gives ``bound``: the answers for the times of an average or of the slowest
    rank, and for the times of the latest rank in each part between two meetings.

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
        folded = _folded(near, None, issues, machine, progress)
        whole = simulate_job(Job(traces, MATCHES.empty(), ISSUES.empty()), machine).makespan
        off = simulate_job(folded, machine).makespan / max(whole, 1) - 1
        if abs(off) <= _MOST_OFF:
            return replace(folded, issues=summed_issues([issues, _nearly_alike(off)]))
    return _folded(traces, groups, issues, machine, progress, in_time=alike == "in time")


def _folded(
    traces: tuple[Trace, ...], groups: RankGroups | None, issues: pl.DataFrame, machine: System,
    progress: Callable[[str], None], *, in_time: bool = False,
) -> FoldedJob:  # fmt: skip
    """Fold ranks that do exactly the same, and the repeats of each."""
    numbered = all(trace.rank in (-1, rank) for rank, trace in enumerate(traces))
    classes = classes_of_ranks(traces, groups, numbered=numbered)
    classes = _of_same_times(classes) if in_time else classes
    times = dict(enumerate(times_of_classes(classes)))
    varying = {number: one for number, one in times.items() if one is not None}
    if varying:
        progress("comparing times of ranks")
        varying = within_bounds(classes, _until_the_last(classes, varying, machine))
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
