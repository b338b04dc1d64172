"""Run a program as one rank on fake tensors, and record its steps."""

import contextlib
import importlib
from collections.abc import Iterator
from copy import copy
from typing import Any

from nadi.pytorch.fake.fake_devices import pretended_devices
from nadi.pytorch.fake.fake_distributed import pretended_ranks
from nadi.pytorch.fake.fake_mode import Recorder, new_mode
from nadi.pytorch.fake.operation_log import GroupLog, OperationLog

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
