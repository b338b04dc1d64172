"""Record one rank of any job in this process, on tensors without memory."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from nadi.errors import Parameter, UsageError
from nadi.pytorch.fake.fake_trace import RankSummary, summary_of, trace_of_log
from nadi.pytorch.fake.operation_log import GroupFamily
from nadi.trace.trace import Trace

_OLDEST = (2, 6)
_LARGEST_WORLD = 2**24


class FakeRecording:
    """A recording on fake tensors.

    Attributes
    ----------
    rank, world_size
        Of the rank that the program is.
    num_steps
        Number of recorded steps; 0 until the recording ends.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.num_steps = 0
        self._trace: Trace | None = None
        self._families: Mapping[str, GroupFamily] = {}
        self._steps: Any = None

    def __repr__(self) -> str:
        return f"<FakeRecording rank={self.rank} of {self.world_size} steps={self.num_steps}>"

    def step(self) -> None:
        """Mark the end of a step, in a program without an optimizer."""
        self._steps.end()

    @property
    def trace(self) -> Trace:
        """What the rank did; after the end of the ``with`` block.

        Raises
        ------
        UsageError
            Before that.
        """
        if self._trace is None:
            raise UsageError("", "the recording has not ended", "read it after the with block")
        return self._trace

    @property
    def summary(self) -> RankSummary:
        """Operations, floating point operations, communication and memory, in numbers."""
        return summary_of(self.trace)

    @property
    def families(self) -> Mapping[str, GroupFamily]:
        """The process groups of the whole job, by what they are for."""
        return self._families


@contextlib.contextmanager
def fake_recording(
    world_size: int, rank: int = 0, *, steps: int = 1, warmup: int = 1, device: str = "H100"
) -> Iterator[FakeRecording]:
    """Record what one rank of a job does, without its device and without the other ranks.

    In the block, ``init_process_group`` makes the rank one of ``world_size``, ``torch.cuda`` shows
    a GPU, and tensors have shapes but no memory. The block ends by itself when the steps are
    recorded: a step ends when the first optimizer has stepped, or with
    :meth:`FakeRecording.step`. Modules, meshes and optimizers have to be made in the block.

    Parameters
    ----------
    world_size
        Number of ranks of the job.
    rank
        The rank that the program is.
    steps, warmup
        Number of steps to record, and of steps before them, of which 1 makes the state of
        optimizers. The last of a program that has no more is recorded.
    device
        What ``torch.cuda.get_device_name`` returns.

    Yields
    ------
    FakeRecording
        Its ``trace`` is there after the block.

    Raises
    ------
    UsageError
        If torch is missing or too old, a number is wrong, or nothing was recorded.
    """
    check_numbers(world_size, rank, steps, warmup)
    check_torch()
    program: Any = importlib.import_module("nadi.pytorch.fake.fake_program")
    recording = FakeRecording(rank, world_size)
    with program.recorded_program(rank, world_size, warmup, steps, device) as (recorder, counted):
        recording._steps = counted
        yield recording
    log, recording.num_steps = counted.recorded()
    if not len(log):
        raise UsageError(
            "", "nothing was recorded: no module was called",
            "call the model in the program that is recorded",
        )  # fmt: skip
    recording._families = recorder.groups.families
    recording._trace = trace_of_log(log, recorder.groups, recording.num_steps, recorder.stubs)


def check_torch() -> None:
    """Raise UsageError if torch is missing or too old."""
    remedy = f"install PyTorch {_OLDEST[0]}.{_OLDEST[1]} or newer; its CPU build suffices"
    if importlib.util.find_spec("torch") is None:
        raise UsageError("", f"the package torch is missing in {sys.prefix}", remedy)
    torch: Any = importlib.import_module("torch")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _OLDEST:
        raise UsageError("", f"torch {torch.__version__} is too old", remedy)


def check_numbers(world_size: int, rank: int, steps: int, warmup: int) -> None:
    """Raise UsageError if a number is out of its range."""
    least = {"world_size": (world_size, 1), "steps": (steps, 1), "warmup": (warmup, 0)}
    for name, (value, smallest) in least.items():
        if not smallest <= value <= _LARGEST_WORLD:
            what = f"must be from {smallest} to {_LARGEST_WORLD:,}"
            raise UsageError(Parameter(name, value), what, "correct the number")
    if not 0 <= rank < world_size:
        what = f"there is no such rank among {world_size:,}, counted from 0"
        raise UsageError(Parameter("rank", rank), what, "choose another rank")
