"""A recorded job, run again operator by operator."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nadi.errors import Parameter, UsageError
from nadi.pytorch.rerunning.operator_trials import Skipped
from nadi.pytorch.rerunning.rank_replays import RankReplay, replay_ranks
from nadi.pytorch.rerunning.replay_comparison import ReplayComparison, compare_replay
from nadi.pytorch.rerunning.replay_run import ALL_OPERATORS, OperatorChoice, ReplayOptions
from nadi.recordings.job_of_files import load_job
from nadi.trace.trace import Trace

__all__ = ["BACKENDS", "DEVICES", "ReplayedJob", "replay"]

DEVICES = ("cpu", "cuda")
BACKENDS = ("none", "gloo", "nccl")


@dataclass(frozen=True, eq=False)
class ReplayedJob:
    """A job that was run again.

    Attributes
    ----------
    traces
        The original, one per rank.
    ranks
        The replay of each rank.
    comparisons
        Original and replay of each rank; empty without a recording of the replay.
    """

    traces: tuple[Trace, ...]
    ranks: tuple[RankReplay, ...]
    comparisons: tuple[ReplayComparison, ...]

    @property
    def step_ns(self) -> float:
        """Median time of a step of the slowest rank, without a recorder."""
        return max(
            statistics.median(time for steps in rank.times.steps for time in steps)
            for rank in self.ranks
        )

    @property
    def skipped(self) -> Counter[Skipped]:
        """How often each operator was not replayed, with the reason; of all ranks."""
        return Counter(one for rank in self.ranks for one in rank.skipped)

    @property
    def replaced(self) -> Counter[Skipped]:
        """How often an operator was replayed by those that it had called; of all ranks."""
        return Counter(one for rank in self.ranks for one in rank.replaced)


def replay(
    *paths: Path | str, device: str = "cpu", comm: str = "none",
    operators: OperatorChoice = ALL_OPERATORS, output: Path | str | None = None,
    repeats: int = 5, overwrite: bool = False, progress: Callable[[str], None] = lambda _: None,
) -> ReplayedJob:  # fmt: skip
    """Run the operators of a recording again, on random data of the same shapes.

    Operators of PyTorch are called in their recorded order, with tensors of the recorded shapes,
    strides, types, views and shared memory. Needs torch.

    Parameters
    ----------
    paths
        A recording, as :func:`nadi.run` takes it; it needs host traces.
    device
        Where the tensors are: ``cpu`` or ``cuda``.
    comm
        ``none``, or what collectives and messages go over: ``gloo`` or ``nccl``. Then each rank
        runs in a process of its own on this machine.
    operators
        The only operator whose calls are replayed, if one is named; and operators that are called
        beside those that are known to be safe, whoever wrote the recording.
    output
        Folder of a new recording, of the replay; None for none.
    repeats
        How often each rank is replayed and timed.
    overwrite
        Whether an earlier recording in the folder is replaced.
    progress
        Called with what is done next.

    Raises
    ------
    InputError
        If files are missing or wrong.
    UsageError
        If torch or the device is missing, or no operator can be replayed.
    """
    _check(device, comm, repeats)
    progress("reading")
    job = load_job(*paths)
    folder = None if output is None else Path(output)
    backend = "" if comm == "none" else comm
    options = ReplayOptions(device, backend, repeats, folder, overwrite, operators)
    ranks = replay_ranks(job.traces, options, progress)
    if not any(rank.calls for rank in ranks):
        raise UsageError(
            str(paths[0]), f"it has no {operators.only or 'operator'} that can be replayed",
            "nadi info counts its operators" if operators.only
            else "record it with PyTorch's ExecutionTraceObserver (nadi.record)",
        )  # fmt: skip
    if folder is not None:
        progress("comparing")
    comparisons = () if folder is None else _compared(job.traces, ranks, folder)
    return ReplayedJob(tuple(job.traces), ranks, comparisons)


def _check(device: str, comm: str, repeats: int) -> None:
    for name, value, known in (("device", device, DEVICES), ("comm", comm, BACKENDS)):
        if value not in known:
            raise UsageError(Parameter(name, value), "is not known", f"use {', '.join(known)}")
    if repeats < 1:
        raise UsageError(Parameter("repeats", repeats), "is too small", "give 1 or more")


def _compared(
    traces: Sequence[Trace], ranks: Sequence[RankReplay], folder: Path
) -> tuple[ReplayComparison, ...]:
    """Read the new recording, and compare each rank: without --comm they ran one after another."""
    found = []
    for number, (trace, rank) in enumerate(zip(traces, ranks, strict=True)):
        again = load_job(folder / f"host_{number}.json", folder / f"device_{number}.json.gz")
        found.append(compare_replay(trace, again.traces[0], rank))
    return tuple(found)
