"""A recorded job, run again operator by operator.

A replay beside its original: steps, and operators by name.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError, checked
from nadi.progress import listening
from nadi.pytorch.rerunning.operator_trials import Communicator, Skipped, bounded_memory
from nadi.pytorch.rerunning.recorded_calls import RecordedCalls
from nadi.pytorch.rerunning.replay_run import (
    ALL_OPERATORS,
    OperatorChoice,
    PreparedReplay,
    ReplayOptions,
    ReplayTimes,
    prepare_replay,
    run_replay,
)
from nadi.recordings.job_of_files import load_job
from nadi.recordings.matching.name_alignment_kernels import align
from nadi.results.terminal.workers import end_with_parent
from nadi.trace.arrays import Ints
from nadi.trace.trace import Trace
from nadi.units import format_bytes, format_ns

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


# else torch logs each start and stop of its recorders; kineto has levels up to 5
_QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR", "KINETO_LOG_LEVEL": "6"}


class RankReplay(NamedTuple):
    """The replay of one rank.

    Attributes
    ----------
    num_operators
        How many operators the trace has that are in no other one.
    calls
        Rows of those that were replayed in the trace, in their order.
    skipped, replaced
        As in :class:`nadi.pytorch.rerunning.operator_trials.Replayable`.
    times
        Without a recorder.
    script
        The replay as a program, without communication.
    """

    num_operators: int
    calls: tuple[int, ...]
    skipped: tuple[Skipped, ...]
    replaced: tuple[Skipped, ...]
    times: ReplayTimes
    script: str


class _Place(NamedTuple):
    """Where a process stands: its rank, of how many, and the file in which they find each other."""

    rank: int
    size: int
    store: Path


@checked
def replay_ranks(
    traces: Sequence[Trace], options: ReplayOptions,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[RankReplay, ...]:  # fmt: skip
    """Replay all ranks of a job.

    Parameters
    ----------
    traces
        One per rank.
    options
        How they are replayed.
    progress
        Called with what is done next, and how long it takes.

    Raises
    ------
    UsageError
        If torch is missing, has no such device, or a process ends early.
    """
    _check_device(options.device)
    if not options.backend:
        return tuple(_replay(trace, rank, options, progress) for rank, trace in enumerate(traces))
    progress(f"replaying in {len(traces)} processes")
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(
            len(traces), mp_context=context, initializer=end_with_parent
        ) as processes,
    ):
        store = Path(folder) / "store"
        # every process makes all groups of the job, in the same order
        groups = sorted({tuple(one) for t in traces for one in t.groups["ranks"].to_list()})
        waiting = [
            processes.submit(_replay_in_group, trace, _Place(rank, len(traces), store), groups,
                             options)
            for rank, trace in enumerate(traces)
        ]  # fmt: skip
        try:
            return tuple(one.result() for one in waiting)
        except BrokenProcessPool:
            raise UsageError(
                "", "a process that replays a rank ended early", "look at the messages above"
            ) from None


def _check_device(device: str) -> None:
    for name, level in _QUIET.items():  # torch reads them when it is imported
        os.environ.setdefault(name, level)
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise UsageError(
            "", "a replay needs the package torch", "install PyTorch 2.2 or newer"
        ) from None
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            Parameter("device", "cuda"), "torch finds no GPU", ["use ", Parameter("device", "cpu")]
        )


def _replay_in_group(
    trace: Trace, place: _Place, groups: Sequence[tuple[int, ...]], options: ReplayOptions
) -> RankReplay:
    """Replay one rank among others; runs in its own process."""
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    if "OMP_NUM_THREADS" not in os.environ:  # as torchrun does: processes share the cores
        torch.set_num_threads(max((os.cpu_count() or 1) // place.size, 1))
    if options.device == "cuda":
        torch.cuda.set_device(place.rank % torch.cuda.device_count())
    distributed.init_process_group(
        options.backend, init_method=f"file://{place.store}", rank=place.rank,
        world_size=place.size,
    )  # fmt: skip
    try:
        return _replay(trace, place.rank, options, lambda _: None, groups)
    finally:
        distributed.destroy_process_group()


def _replay(
    trace: Trace, rank: int, options: ReplayOptions, progress: Callable[[str], None],
    groups: Sequence[tuple[int, ...]] = (),
) -> RankReplay:  # fmt: skip
    with bounded_memory() if options.device == "cpu" else contextlib.nullcontext():
        return _replay_in_memory(trace, rank, options, progress, groups)


def _replay_in_memory(
    trace: Trace, rank: int, options: ReplayOptions, progress: Callable[[str], None],
    groups: Sequence[tuple[int, ...]],
) -> RankReplay:  # fmt: skip
    communicates = bool(options.backend)
    with listening(_trials(rank, progress)):
        prepared = prepare_replay(
            trace, device=options.device, communicates=communicates, operators=options.operators,
        )  # fmt: skip
    communicator = None
    if communicates:
        communicator = Communicator(prepared.groups)
        communicator.make_groups(groups)
    progress(_outlook(prepared, rank, options.repeats))
    times = run_replay(
        prepared, options, rank=rank, communicator=communicator
    )  # fmt: skip
    found = prepared.replayable
    calls = tuple(one.call.row for one in found.plan.calls)
    return RankReplay(
        prepared.num_operators, calls, found.skipped, found.replaced, times, prepared.script
    )


def _trials(rank: int, progress: Callable[[str], None]) -> Callable[[int, int], None]:
    """Return what says each second how many operators were tried, in each round anew."""
    told = -1.0

    def say(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= 1:
            told = time.monotonic()
            progress(f"rank {rank}: trying operators, {done:,} of {total:,}")

    return say


def _outlook(prepared: PreparedReplay, rank: int, repeats: int) -> str:
    """Say how long a replay will take."""
    plan, took = prepared.replayable.plan, prepared.replayable.trial_ns
    return (
        f"rank {rank}: {len(plan.calls):,} operators on {format_bytes(plan.external_bytes)} of "
        f"tensors took {format_ns(took)}; they run {repeats + 1} times or more"
    )
