"""Record the host trace and the device trace of one rank, while a program runs."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from nadi.errors import InputError, Parameter, UsageError

__all__ = ["Recording", "record"]

_ALL_THREADS_SINCE = (2, 9)
"""PyTorch that profiles threads which the program started before, without a crash at the end."""


class Recording:
    """A recording that is under way.

    Attributes
    ----------
    rank
        Global rank of this process.
    host, device
        The files that are written when the recording ends.
    num_steps
        How many steps have ended.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self.host = folder / f"host_{rank}.json"
        self.device = folder / f"device_{rank}.json.gz"
        self.num_steps = 0
        self._profiler: Any = None

    def __repr__(self) -> str:
        return f"<Recording rank={self.rank} steps={self.num_steps}>"

    def step(self) -> None:
        """Mark the end of a training step, or of a request."""
        self.num_steps += 1
        self._profiler.step()


class _Wanted(NamedTuple):
    """What is to be recorded."""

    steps: int
    warmup: int
    shapes: bool
    stacks: bool
    memory: bool

    def checked(self) -> _Wanted:
        """Give it; raises UsageError if a number is too small."""
        for name, value in (("steps", self.steps), ("warmup", self.warmup)):
            if value < 1:
                raise UsageError(Parameter(name, value), "is too small", "give 1 or more")
        return self


@contextlib.contextmanager
def record(
    folder: Path | str, *, steps: int = 3, warmup: int = 2, shapes: bool = False,
    stacks: bool = False, memory: bool = False, overwrite: bool = False, rank: int = -1,
) -> Iterator[Recording]:  # fmt: skip
    """Record the execution trace of the host and the Kineto trace of the device.

    Each rank writes ``host_RANK.json`` and ``device_RANK.json.gz``; :func:`nadi.run` takes the
    folder. The rank is that of ``torch.distributed``, or else of the variable ``RANK``, or 0.
    The files appear when the block ends. If it ends with an exception, none is written.

    Parameters
    ----------
    folder
        Where the files go; it is made if it does not exist.
    steps, warmup
        Number of steps to record, and of steps before them, at least 1: the profiler starts with
        the last of these. Call :meth:`Recording.step` at the end of each step.
    shapes, stacks, memory
        Whether the device trace has shapes of operands, stacks, allocations; each costs time.
    overwrite
        Whether files of an earlier recording are replaced.
    rank
        That of the files; -1 for the rule above.

    Yields
    ------
    Recording
        Call its ``step()`` at the end of each step.

    Raises
    ------
    UsageError
        If torch is missing or too old, a number is too small, or a file exists.
    InputError
        If the folder cannot be written to.
    """
    wanted = _Wanted(steps, warmup, shapes, stacks, memory).checked()
    torch = _torch()
    recording = Recording(Path(folder), rank if rank >= 0 else _rank(torch))
    for file in (recording.host, recording.device):
        if file.exists() and not overwrite:
            raise UsageError(str(file), "exists", ["pass ", Parameter("overwrite", True)])
    unfinished = _unfinished(Path(folder))
    try:
        host, device = unfinished / recording.host.name, unfinished / recording.device.name
        recording._profiler = _profiler(torch, host, device, wanted)
        with recording._profiler:
            yield recording
        if device.exists():
            os.replace(host, recording.host)
            os.replace(device, recording.device)
        else:
            warnings.warn(
                f"nothing was recorded: step() was called {recording.num_steps} times, and the "
                f"first {warmup} steps are warm-up",
                stacklevel=3,
            )
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _torch() -> Any:
    try:
        torch: Any = importlib.import_module("torch")
        importlib.import_module("torch.profiler")
    except ImportError:
        remedy = "install PyTorch 2.2 or newer, with which the program runs that is recorded"
        raise UsageError("", "recording needs the package torch", remedy) from None
    return torch


def _rank(torch: Any) -> int:
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    given = os.environ.get("RANK", "0")  # as torchrun sets it
    return int(given) if given.isdecimal() else 0


def _unfinished(folder: Path) -> Path:
    """Make a folder for files that are not whole yet, where they can be renamed from."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".nadi-recording-", dir=folder))
    except OSError as error:
        remedy = "choose a folder in which files can be made"
        raise InputError(str(folder), error.strerror or str(error), remedy) from None


def _profiler(torch: Any, host: Path, device: Path, wanted: _Wanted) -> Any:
    """Make a profiler that writes both files; it does not start yet."""
    of_torch = torch.profiler
    options: dict[str, Any] = {}
    wanted_events = {"enable_cuda_sync_events": True}
    if _version_of(torch) >= _ALL_THREADS_SINCE:
        wanted_events["profile_all_threads"] = True
    with contextlib.suppress(AttributeError, TypeError):  # older versions have no such events
        options["experimental_config"] = of_torch._ExperimentalConfig(**wanted_events)
    return of_torch.profile(
        activities=of_torch.supported_activities(),
        schedule=of_torch.schedule(
            wait=wanted.warmup - 1, warmup=1, active=wanted.steps, repeat=1
        ),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(device)),
        execution_trace_observer=of_torch.ExecutionTraceObserver().register_callback(str(host)),
        record_shapes=wanted.shapes, with_stack=wanted.stacks, profile_memory=wanted.memory,
        **options,
    )  # fmt: skip


def _version_of(torch: Any) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    return tuple(map(int, found.groups())) if found else (0, 0)
