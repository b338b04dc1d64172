"""Record the host trace and the device trace of one rank, while a program runs."""

import contextlib
import importlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nadi.errors import InputError, Parameter, UsageError, checked
from nadi.pytorch.collecting.hook.recorded_steps import StepRecorder, StepTimer


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
        self._name_files(folder, rank)
        self.num_steps = 0
        self._finds_rank = self._overwrite = False
        self._warmup = 0
        self._num_wanted = 0  # steps after which all is recorded
        self._recorder: Any = None
        self._unrecorded = StepTimer()  # steps without a recorder

    def __repr__(self) -> str:
        return f"<Recording rank={self.rank} steps={self.num_steps}>"

    def _name_files(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self.host = folder / f"host_{rank}.json"
        self.device = folder / f"device_{rank}.json.gz"

    def step(self) -> None:
        """Mark the end of a training step, or of a request."""
        if self.num_steps == 0 and self._finds_rank:
            # trainers initialize torch.distributed after the block has begun
            self._name_files(self.device.parent, _rank(_torch()))
            _check_new(self.host, self.device, overwrite=self._overwrite)
        self.num_steps += 1
        if self.num_steps >= self._warmup and not self._recorder.has_ended:
            self._recorder.step()
        self._unrecorded.end()
        self._start_in_time()

    def _write(self) -> None:
        """Write what is recorded; warns of what is not."""
        files = [str(self.host), str(self.device)]
        self.host.unlink(missing_ok=True)
        try:
            written = self._recorder.write(*files, self._unrecorded)
        except OSError as error:
            what = f"cannot be written: {error.strerror or error}"
            raise InputError(str(self.device), what, "choose another path") from None
        if not written:
            warnings.warn(
                f"nothing was recorded: step() was called {self.num_steps} times, and the first "
                f"{self._warmup} steps are warm-up; call step() of the recording at the end of "
                f"each step, {self._num_wanted} times or more",
                stacklevel=4,
            )
        elif not self.host.exists():
            warnings.warn(
                f"no host trace was recorded (shapes, tensors, process groups): step() was called "
                f"{self.num_steps} times, and the execution trace observer runs after the first "
                f"{self._warmup + len(self._recorder.timed.lengths)} steps; call it "
                f"{self._num_wanted} times or more",
                stacklevel=4,
            )

    def _start_in_time(self) -> None:
        """Start the recorder with the last step of the warm-up."""
        if self.num_steps == self._warmup - 1:
            self._recorder.start()
        elif self.num_steps < self._warmup or self._recorder.has_ended:
            self._unrecorded.begin()


@contextlib.contextmanager
def record(
    folder: Path | str, *, steps: int = 3, warmup: int = 2, shapes: bool = False,
    stacks: bool = False, memory: bool = False, overwrite: bool = False, rank: int = -1,
) -> Iterator[Recording]:  # fmt: skip
    """Record the Kineto trace of some steps, and the execution trace of as many after these.

    Each rank writes ``device_RANK.json.gz`` and ``host_RANK.json``; :func:`nadi.run` takes the
    folder. The rank is that of ``torch.distributed`` at the end of the first step, or else of the
    variable ``RANK``, or 0.
    The files appear when the block ends. If it ends with an exception, none is written.

    Times are of steps without the execution trace observer, which makes operators take several
    times as long. If the block ends before it has run, there is no host trace, and a warning.

    Parameters
    ----------
    folder
        Where the files go; it is made if it does not exist.
    steps, warmup
        Steps to record with times, and steps before them, at least 1: the profiler starts with
        the last of these. After ``warmup + 2 * steps`` steps all is recorded.
    shapes, stacks, memory
        Whether the device trace has shapes of operands, stacks, allocations; each costs time.
    overwrite
        Whether files of an earlier recording are replaced.
    rank
        That of the files; -1 for the rule above.

    Yields
    ------
    Recording
        Its ``step()`` ends a step.

    Raises
    ------
    UsageError
        If torch is missing or too old, a number is too small, or a file exists.
    InputError
        If the folder cannot be written to.
    """
    for name, value in (("steps", steps), ("warmup", warmup)):
        if value < 1:
            raise UsageError(Parameter(name, value), "is too small", "give 1 or more")
    torch = _torch()
    recording = Recording(Path(folder), rank if rank >= 0 else _rank(torch))
    _check_new(recording.host, recording.device, overwrite=overwrite)
    options = {"steps": steps, "sync": True, "shapes": shapes, "stacks": stacks, "memory": memory}
    recorder = StepRecorder(torch, str(unfinished := _unfinished(Path(folder))), options)
    recording._warmup, recording._num_wanted = warmup, warmup + 2 * steps
    recording._recorder = recorder
    recording._finds_rank, recording._overwrite = rank < 0, overwrite
    recording._start_in_time()
    try:
        yield recording
        recorder.stop()
        recording._write()
    finally:
        recorder.stop()
        shutil.rmtree(unfinished, ignore_errors=True)


@checked
def trace_handler(
    folder: Path | str, *, overwrite: bool = False, rank: int = -1
) -> Callable[[Any], None]:
    """Return what ``torch.profiler.profile`` takes as ``on_trace_ready``.

    The first cycle of the profiler is written as :func:`record` names files, so that
    :func:`nadi.run` takes the folder: ``device_RANK.json.gz``, and ``host_RANK.json`` if the
    profiler has an ``execution_trace_observer``, which ends with this cycle. Whatever goes wrong
    then is a warning, and the program goes on.

    Parameters
    ----------
    folder
        Where the files go; it is made if it does not exist.
    overwrite
        Whether files of an earlier recording are replaced.
    rank
        That of the files; -1 for the rule of :func:`record`.

    Raises
    ------
    UsageError
        If torch is missing, or the device trace exists.
    """
    torch, begun = _torch(), time.time()
    written: list[Path] = []

    def files() -> Recording:
        found = Recording(Path(folder), rank if rank >= 0 else _rank(torch))
        _check_new(found.device, overwrite=overwrite)
        return found

    def handle(profiler: Any) -> None:
        if written:
            warnings.warn(f"{written[0]} has the first cycle: this is not written", stacklevel=2)
            return
        try:
            recording = files()
            if recording.host.exists() and overwrite and recording.host.stat().st_mtime < begun:
                recording.host.unlink()  # of an earlier recording, to which it does not belong
            _write_cycle(profiler, recording)
            written.append(recording.device)
        except Exception as error:
            warnings.warn(f"nothing was recorded: {error}", stacklevel=2)

    files()
    return handle


def _write_cycle(profiler: Any, recording: Recording) -> None:
    """Write what a profiler has recorded, and its observer; both are whole, or neither appears."""
    unfinished = _unfinished(recording.device.parent)
    try:
        profiler.export_chrome_trace(str(device := unfinished / recording.device.name))
        observer = getattr(profiler, "execution_trace_observer", None)
        if observer is not None and (observed := observer.get_output_file_path()):
            observer.unregister_callback()  # ends its file
            name = f"{recording.host.name}{'.gz' if observed.endswith('.gz') else ''}"
            host = recording.host.with_name(name)
            if not (host.exists() and host.samefile(observed)):
                shutil.copyfile(observed, unfinished / name)
                os.replace(unfinished / name, host)
        os.replace(device, recording.device)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_new(*files: Path, overwrite: bool) -> None:
    for file in files:
        if file.exists() and not overwrite:
            raise UsageError(str(file), "exists", ["pass ", Parameter("overwrite", True)])


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
