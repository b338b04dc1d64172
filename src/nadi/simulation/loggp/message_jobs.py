"""Jobs as programs of messages: written for other simulators, and timed in a LogGP model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from nadi.files.goal import MessageProgram, is_goal, read_goal
from nadi.recordings.jobs import read_job
from nadi.simulation.loggp.job_messages import messages_of_job
from nadi.simulation.loggp.loggp import LogGP, LogGPTimes, loggp_times
from nadi.systems.library import read_system_file
from nadi.trace.issues import IssueLog


def read_messages(
    path: Path | str,
    groups: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    *,
    system: str = "",
    log: IssueLog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> MessageProgram:
    """Read a GOAL file, or a job, whose collectives are taken apart into messages.

    Parameters
    ----------
    path
        A GOAL file, or what :func:`nadi.recordings.read_job` accepts.
    groups
        Ranks of process groups by name, for traces that do not state them.
    system
        A system whose device prices computations without a time: a name or a file.
    log
        Takes what is left out.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError, UsageError
        If it cannot be read, or its traces contradict each other.
    """
    if is_goal(path):
        return read_goal(path)
    job = read_job(path, progress)
    if system:
        from nadi.systems.prices.priced_traces import price_job  # not needed by most

        num_ranks = len(job) if isinstance(job, list) else len(job.traces)
        job = price_job(job, read_system_file(system).fit(num_ranks))[0]  # type: ignore[assignment]
    progress("taking collectives apart")
    return messages_of_job(job, groups, log)


def simulate_messages(
    path: Path | str,
    machine: LogGP,
    groups: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    *,
    system: str = "",
    log: IssueLog | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> LogGPTimes:
    """Predict when each rank of a program of messages finishes in a LogGP model.

    Parameters and errors as of :func:`read_messages`; ``machine`` has the model's parameters.

    Raises
    ------
    PairError
        If an operation never ends; the message names it.
    """
    program = read_messages(path, groups, system=system, log=log, progress=progress)
    progress("simulating")
    return loggp_times(program, machine)
