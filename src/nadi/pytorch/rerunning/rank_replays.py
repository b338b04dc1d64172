"""Replays of all ranks of a job, each in a process of its own if they communicate."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from nadi.errors import Parameter, UsageError, checked
from nadi.progress import listening
from nadi.pytorch.rerunning.free_memory import bounded_memory
from nadi.pytorch.rerunning.operator_trials import Skipped
from nadi.pytorch.rerunning.replay_run import (
    PreparedReplay,
    ReplayOptions,
    ReplayTimes,
    prepare_replay,
    run_replay,
)
from nadi.pytorch.rerunning.replayed_communication import Communicator
from nadi.trace.trace import Trace
from nadi.units import format_bytes, format_ns

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
        ProcessPoolExecutor(len(traces), mp_context=context) as processes,
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
