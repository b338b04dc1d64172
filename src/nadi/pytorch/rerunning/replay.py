"""A recorded job, run again operator by operator.

A replay beside its original: steps, and operators by name.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError, checked
from nadi.pytorch.rerunning.operator_trials import Skipped
from nadi.pytorch.rerunning.rank_replays import RankReplay, replay_ranks
from nadi.pytorch.rerunning.recorded_calls import RecordedCalls
from nadi.pytorch.rerunning.replay_run import ALL_OPERATORS, OperatorChoice, ReplayOptions
from nadi.recordings.job_of_files import load_job
from nadi.recordings.matching.name_alignment_kernels import align
from nadi.trace.arrays import Ints
from nadi.trace.trace import Trace

_MOST_EDITS = 2048  # calls of which one of both recordings has no other, in a row


class ReplayComparison(NamedTuple):
    """The original of one rank beside its replay, both with a recorder.

    Attributes
    ----------
    original_steps, replayed_steps
        Times of steps in ns; empty without marks of steps.
    operators
        ``name``, ``count``, ``original`` and ``replayed`` (sums in ns), the longest first.
    num_different
        How many replayed calls are not in the new recording, with name and shapes and in their
        order; 0 if the replay has the same sequence of operators.
    """

    original_steps: tuple[int, ...]
    replayed_steps: tuple[int, ...]
    operators: pl.DataFrame
    num_different: int


@checked
def compare_replay(original: Trace, replayed: Trace, replay: RankReplay) -> ReplayComparison:
    """Compare the replay of a rank with what it replays. O(nodes).

    Parameters
    ----------
    original, replayed
        Host traces linked with their device traces, which have the times.
    replay
        What was replayed.
    """
    before, after = RecordedCalls(original), RecordedCalls(replayed)
    pairs = _pairs(before, after, replay)
    different = len(replay.calls) - len(pairs)
    first = np.array([a for a, _ in pairs], dtype=np.int64)
    second = np.array([b for _, b in pairs], dtype=np.int64)
    names = original.nodes["name"].cast(pl.String).gather(first)
    operators = (
        pl.DataFrame({
            "name": names,
            "original": _durations(original, first),
            "replayed": _durations(replayed, second),
        })
        .group_by("name")
        .agg(pl.len().alias("count"), pl.col("original").sum(), pl.col("replayed").sum())
        .select("name", "count", "original", "replayed")
        .sort("original", "name", descending=[True, False])
    )  # fmt: skip
    return ReplayComparison(_steps(original), _steps(replayed), operators, different)


def _pairs(
    before: RecordedCalls, after: RecordedCalls, replay: RankReplay
) -> list[tuple[int, int]]:
    """Return the rows of calls in both recordings that have the same name and shapes.

    Each thread of the replay is one thread of its recording, whose numbers are others: the one
    that has most of its calls.
    """
    calls: dict[int, list[int]] = {}
    for row in replay.calls:
        calls.setdefault(before.thread(row), []).append(row)
    rows: dict[int, list[int]] = {}
    for row in after.outermost():
        rows.setdefault(after.thread(row), []).append(row)
    found = []
    for mine in sorted(calls.values(), key=len, reverse=True):
        pairs = {thread: _pairs_of_thread(before, after, mine, rows[thread]) for thread in rows}
        best = max(pairs, key=lambda thread: len(pairs[thread]), default=-1)
        found += pairs.get(best, [])
        rows.pop(best, None)
    return found


def _pairs_of_thread(
    before: RecordedCalls, after: RecordedCalls, calls: list[int], rows: list[int]
) -> list[tuple[int, int]]:
    """Return the rows of the same calls of a thread: as many as can be, in their order.

    The replay has views between its calls, and what torch.distributed calls beside a collective is
    called once more.
    """
    numbers: dict[tuple[str, str], int] = {}

    def keys(recorded: RecordedCalls, of: list[int]) -> Ints:
        named = [(recorded.names[row], recorded.input_shapes(row)) for row in of]
        return np.array([numbers.setdefault(key, len(numbers)) for key in named], dtype=np.int64)

    partner = np.full(len(calls), -1, dtype=np.int64)
    align(keys(before, calls), keys(after, rows), _MOST_EDITS, partner)
    pairs = zip(calls, partner.tolist(), strict=True)
    return [(row, rows[place]) for row, place in pairs if place >= 0]


def _durations(trace: Trace, rows: Ints) -> Ints:
    durations: Ints = trace.nodes["duration"].to_numpy()[rows]
    return np.maximum(durations, 0)


def _steps(trace: Trace) -> tuple[int, ...]:
    marks = trace.nodes.filter(pl.col("name").cast(pl.String).str.starts_with("ProfilerStep#"))
    return tuple(marks.sort("start")["duration"].to_list())


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
