"""The process of a rank: ``python -m nadi.pytorch.fake.fake_worker`` runs a user's program.

Run a program as one rank on fake tensors, and record its steps.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import msgspec

from nadi.errors import NadiError
from nadi.files.trace_files import write
from nadi.pytorch.fake.fake_devices import pretended_devices
from nadi.pytorch.fake.fake_distributed import pretended_ranks
from nadi.pytorch.fake.fake_groups import GroupLog
from nadi.pytorch.fake.fake_mode import Recorder, new_mode
from nadi.pytorch.fake.fake_rank import check_torch, fake_recording
from nadi.pytorch.fake.fake_trace import RankSummary, signature_of, summary_of
from nadi.pytorch.fake.operation_log import OperationLog
from nadi.pytorch.fake.script_lines import is_of_library

__all__ = ["Enough", "Order", "Outcome", "main", "recorded_program"]


class Order(msgspec.Struct):
    """What is to be recorded.

    Attributes
    ----------
    rank, world_size, steps, warmup, device
        As for ``fake_recording``.
    command
        A script or ``-m`` and a module, and their arguments.
    output
        The trace; the outcome is written beside it, with the suffix ``.json``.
    """

    rank: int
    world_size: int
    steps: int
    warmup: int
    device: str
    command: list[str]
    output: str


_MOST_AT_ONCE = 4
_IMPORTED = ("nadi.pytorch.fake.fake_worker", "torch.distributed.tensor.parallel",
             "torch.distributed.fsdp")  # fmt: skip


class Outcome(msgspec.Struct):
    """What came of it: an error, or a summary and the process groups of the job."""

    error: str = ""
    where: str = ""
    remedy: str = ""
    signature: str = ""
    steps: int = 0
    summary: RankSummary | None = None
    issues: list[tuple[str, str, int, str, str]] = []
    families: dict[str, list[tuple[int, ...]]] = {}


_REMEDIES = {
    "DynamicOutputShapeException":
        "the size of a result depends on values, which fake tensors do not have: use operators "
        "whose results have fixed sizes, or a capacity",
    "DataDependentOutputException":
        "the program needs a value, which fake tensors do not have",
    "UnsupportedOperatorException":
        "the operator has no implementation for tensors without data: register one with "
        "torch.library.register_fake",
}  # fmt: skip


def main() -> None:
    """Record the ranks of each list of orders that standard input has; answer each with a line.

    What is imported is there for all of them: each is recorded in a fork of this process.
    """
    try:
        check_torch()
        for name in _IMPORTED:
            importlib.import_module(name)
        ready = b""
    except NadiError as error:
        ready = str(error).encode()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    answers.write(ready + b"\n")
    at_once = min(_MOST_AT_ONCE, os.cpu_count() or 1)
    for line in sys.stdin.buffer:
        running: set[int] = set()
        for order in msgspec.json.decode(line, type=list[Order]):
            if len(running) == at_once:
                running.discard(os.wait()[0])
            running.add(_started(order))
        while running:
            running.discard(os.wait()[0])
        answers.write(b"\n")


def _started(order: Order) -> int:
    """Record in a fork of this process, what it prints beside the trace; return its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        printed = os.open(str(Path(order.output).with_suffix(".log")), os.O_CREAT | os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(printed, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        outcome = _outcome(order)
        Path(order.output).with_suffix(".json").write_bytes(msgspec.json.encode(outcome))
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def _outcome(order: Order) -> Outcome:
    try:
        with fake_recording(
            order.world_size, order.rank, steps=order.steps, warmup=order.warmup,
            device=order.device,
        ) as recording:  # fmt: skip
            _run(order.command)
    except NadiError as error:
        return Outcome(error.what, error.where, error.remedy)
    except SystemExit as error:
        return Outcome(f"the program ended with exit code {error.code}", "",
                       "see what it printed")  # fmt: skip
    except Exception as error:
        traceback.print_exc()
        return _failed(error)
    trace = recording.trace
    write(trace, order.output, to="nadi")
    return Outcome(
        signature=signature_of(trace),
        steps=recording.num_steps,
        summary=summary_of(trace),
        issues=trace.issues.rows(),
        families={name: one.groups for name, one in recording.families.items()},
    )


def _run(command: list[str]) -> None:
    """Run a script or a module as the main program."""
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(command)
            sys.path.insert(0, str(Path(command[0]).resolve().parent))
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise


def _failed(error: Exception) -> Outcome:
    """Tell an error of the program in one line, with the line of the program."""
    lines = [
        f"{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not is_of_library(frame.filename)
    ]
    name = type(error).__name__
    text = " ".join(str(error).split())[:300]
    told: Any = _REMEDIES.get(name, "")
    return Outcome(f"{name}: {text}", lines[-1] if lines else "", told)


if __name__ == "__main__":
    main()


torch: Any = importlib.import_module("torch")
_modules: Any = importlib.import_module("torch.nn.modules.module")
_optimizers: Any = importlib.import_module("torch.optim.optimizer")


class Enough(BaseException):
    """Ends the program after the last step that is to be recorded."""


class _Steps:
    """Counts the steps of a program, and keeps the rows of those to be recorded.

    A step ends when the first optimizer that the program used has stepped.

    Attributes
    ----------
    warmup, wanted
        Number of steps before the recorded ones, and of these.
    num_ended
        How many steps have ended.
    """

    def __init__(self, recorder: Recorder, warmup: int, wanted: int) -> None:
        self.recorder, self.warmup, self.wanted = recorder, warmup, wanted
        self.num_ended = 0
        self.has_begun = False
        self._optimizer: Any = None
        self._before: OperationLog | None = None
        self._root: Any = None
        self._names: dict[int, str] = {}

    def begin(self) -> None:
        """Forget what was before the first step: the model being made."""
        if not self.has_begun:
            self.has_begun = self.recorder.is_active = True
            self.recorder.forget()

    def end(self) -> None:
        """End a step; raises Enough after the last that is wanted."""
        self.begin()
        self.num_ended += 1
        if self.num_ended == self.warmup + self.wanted:
            raise Enough
        if self.num_ended <= self.warmup:
            self._before = copy(self.recorder.log)  # for a program that has no further step
            self.recorder.forget()

    def recorded(self) -> tuple[OperationLog, int]:
        """Return the rows of the recorded steps, and the number of these."""
        if self._before is not None and self.num_ended <= self.warmup:
            return self._before, 1
        return self.recorder.log, max(self.num_ended - self.warmup, 1)

    def after_optimizer(self, optimizer: Any, *_: Any) -> None:
        """End a step after the optimizer that steps first."""
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is self._optimizer:
            self._ends = True

    _ends = False

    def before_module(self, module: Any, *_: Any) -> None:
        """Begin the range of a call of a module."""
        self.begin()
        recorder = self.recorder
        if id(module) not in self._names:
            self._root = module
            self._names |= {id(one): name for name, one in module.named_modules()}
        row = recorder.log.annotate(
            f"nn.Module: {type(module).__name__}", "python", recorder.parent()
        )
        recorder.log.attributes[row] = {"module": ("string", self._names[id(module)])}
        recorder.parents.append(row)
        self._open.append((module, row))

    def after_module(self, module: Any, *_: Any) -> None:
        """End it, and ranges in it that an exception left open."""
        while self._open:
            one, row = self._open.pop()
            while row in self.recorder.parents:
                self.recorder.parents.pop()
            if one is module:
                return

    @property
    def _open(self) -> list[tuple[Any, int]]:
        found: list[tuple[Any, int]] = self.__dict__.setdefault("_open_calls", [])
        return found


@contextlib.contextmanager
def recorded_program(
    rank: int, world_size: int, warmup: int, steps: int, device: str
) -> Iterator[tuple[Recorder, _Steps]]:
    """Record what runs in the block; it ends early, without an error, when the steps are done."""
    log = OperationLog()
    recorder = Recorder(log, GroupLog(rank, world_size))
    counted = _Steps(recorder, warmup, steps)
    mode = new_mode(recorder)
    removed = [
        _modules.register_module_forward_pre_hook(counted.before_module),
        _modules.register_module_forward_hook(counted.after_module, always_call=True),
        _optimizers.register_optimizer_step_post_hook(counted.after_optimizer),
    ]
    try:
        with (
            pretended_devices(recorder, device), pretended_ranks(recorder, rank, world_size), mode,
            _ended_steps(counted),
        ):  # fmt: skip
            yield recorder, counted
    finally:
        for one in removed:
            one.remove()


@contextlib.contextmanager
def _ended_steps(steps: _Steps) -> Iterator[None]:
    """End a step when the optimizer's own range has ended, and the program on Enough."""
    profile = torch.autograd.profiler.record_function
    leave = profile.__exit__

    def new_leave(self: Any, *error: Any) -> Any:
        result = leave(self, *error)
        if steps._ends:
            steps._ends = False
            steps.end()
        return result

    profile.__exit__ = new_leave
    try:
        yield
    except Enough:
        pass
    finally:
        profile.__exit__ = leave
