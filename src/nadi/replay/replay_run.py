"""A replay of one rank: timed without a recorder, then recorded."""

from __future__ import annotations

import importlib
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nadi.collect.communication_calls import CALLS
from nadi.collect.recorder import record
from nadi.model.trace import Trace
from nadi.replay.operator_trials import Replayable, find_replayable, load_source
from nadi.replay.recorded_calls import COMMUNICATION, RecordedCalls
from nadi.replay.replay_plan import plan_replay
from nadi.replay.replay_source import ReplaySource, replay_source
from nadi.replay.replayed_communication import Communicator

__all__ = ["PreparedReplay", "ReplayOptions", "ReplayTimes", "prepare_replay", "run_replay"]

_WARMUP = 2


class ReplayOptions(NamedTuple):
    """How ranks are replayed.

    Attributes
    ----------
    device
        ``cpu`` or ``cuda``.
    backend
        Of ``torch.distributed``: ``gloo`` or ``nccl``; empty for no communication.
    repeats
        How often each is replayed and timed.
    output
        Folder of the new recording; None for none.
    overwrite
        Whether an earlier recording there is replaced.
    operator
        The only operator that is replayed; empty for all.
    """

    device: str = "cpu"
    backend: str = ""
    repeats: int = 5
    output: Path | None = None
    overwrite: bool = False
    operator: str = ""


class PreparedReplay(NamedTuple):
    """What one rank replays.

    Attributes
    ----------
    replayable
        Calls and their tensors, and what is left out.
    source
        The same as source.
    groups
        For the number of each communication call the ranks of its process group.
    num_operators
        How many operators were wanted.
    """

    replayable: Replayable
    source: ReplaySource
    groups: Mapping[int, tuple[int, ...]]
    num_operators: int
    device: str

    @property
    def script(self) -> str:
        """The same as a program of one process, without communication."""
        plan = self.replayable.plan
        calls = [one.call for one in plan.calls if not one.call.name.startswith(COMMUNICATION)]
        return replay_source(plan_replay(calls), device=self.device).text


class ReplayTimes(NamedTuple):
    """Times of a replay without a recorder, in ns: for each repetition those of all steps."""

    steps: tuple[tuple[int, ...], ...]


def prepare_replay(
    trace: Trace, *, device: str, communicates: bool, operator: str = ""
) -> PreparedReplay:
    """Find what can be replayed of a trace, and write its source.

    Parameters
    ----------
    trace
        Of one rank: a host trace, alone or linked with its device trace.
    device
        ``cpu`` or ``cuda``.
    communicates
        Whether collectives and messages are replayed too.
    operator
        The only operator that is replayed; empty for all.
    """
    recorded = RecordedCalls(trace)
    steps = _steps(recorded)
    rows = recorded.named(operator) if operator else recorded.outermost()
    found = find_replayable(recorded, rows, device=device, communicates=communicates)
    step_of = [steps.of(planned.call.row) for planned in found.plan.calls]
    ends = [
        next((k for k, step in enumerate(step_of) if step > number), len(step_of))
        for number in range(steps.number - 1)
    ]
    source = replay_source(found.plan, ends, device=device)
    calls = [planned.call for planned in found.plan.calls]
    groups = _groups(trace, recorded, {
        number: call.row for number, call in enumerate(calls)
        if call.name.startswith(COMMUNICATION)
    })  # fmt: skip
    return PreparedReplay(found, source, groups, len(rows), device)


class _Steps(NamedTuple):
    """Where steps begin: the places of their marks, in their order."""

    recorded: RecordedCalls
    marks: list[int]

    @property
    def number(self) -> int:
        return max(len(self.marks), 1)

    def of(self, row: int) -> int:
        """Return the step of a node; what comes before the first mark belongs to the first."""
        return max(bisect_right(self.marks, self.recorded.place(row)) - 1, 0)


def _steps(recorded: RecordedCalls) -> _Steps:
    marks = [row for row, name in enumerate(recorded.names) if name.startswith("ProfilerStep#")]
    return _Steps(recorded, sorted(recorded.place(row) for row in marks))


def _groups(
    trace: Trace, recorded: RecordedCalls, rows: Mapping[int, int]
) -> dict[int, tuple[int, ...]]:
    """Return the ranks of the process group of each communication call.

    A call has the group of the communication below it. That of gloo stands on a thread of its own:
    it is the first one of the same type that begins after the call.
    """
    nodes = trace.nodes
    types, group = nodes["comm_type"].to_list(), nodes["group"].to_list()
    start = nodes["start"].to_list()
    waiting = sorted(
        (row for row, kind in enumerate(types) if kind != "none"), key=start.__getitem__
    )
    members = [tuple(ranks) for ranks in trace.groups["ranks"].to_list()]
    found = {}
    for number, row in rows.items():
        inside = _first(row, waiting, recorded, start, types)
        if inside >= 0:
            waiting.remove(inside)
        named = group[inside] if inside >= 0 else -1
        found[number] = members[named] if named >= 0 else ()
    return found


def _first(
    row: int, waiting: list[int], recorded: RecordedCalls, start: list[int], types: list[str]
) -> int:
    """Return the communication that a call of c10d began; -1 if none is recorded."""
    below = recorded.all_below(row)
    for one in waiting:
        if one == row or one in below:
            return one
    call = CALLS.get(recorded.names[row])
    kind = call.comm_type if call else ""
    later = (one for one in waiting if start[one] >= start[row] and types[one] == kind)
    return next(later, -1)


def run_replay(
    prepared: PreparedReplay, options: ReplayOptions, *, rank: int,
    communicator: Communicator | None = None,
) -> ReplayTimes:  # fmt: skip
    """Replay a rank: a few times without a recorder, then once with it.

    Parameters
    ----------
    prepared
        What is replayed.
    options
        How it is replayed.
    rank
        Rank that the files of its recording are named after.
    communicator
        Makes collectives and messages; None if there are none.
    """
    torch: Any = importlib.import_module("torch")
    names: dict[str, Any] = {}
    if communicator is not None:
        names = {"communicate": communicator.communicate, "wait": communicator.wait}
    made = load_source(prepared.source.text, **names)
    steps = [[made[name] for name in functions] for functions in prepared.source.steps]

    def ended() -> None:
        if communicator is not None:
            communicator.wait_for_all()
        if options.device != "cpu":
            torch.cuda.synchronize()

    with torch.no_grad():
        tensors = made["externals"]()
        for _ in range(_WARMUP):
            _repeat(steps, tensors, ended)
        times = []
        for _ in range(options.repeats):
            if communicator is not None:
                communicator.meet()  # ranks begin together
            times.append(_repeat(steps, tensors, ended))
        if options.output is not None:
            with record(
                options.output, steps=len(steps), warmup=1, overwrite=options.overwrite, rank=rank
            ) as recording:
                if communicator is not None:
                    communicator.meet()
                recording.step()
                _repeat(steps, tensors, ended, recording.step)
    return ReplayTimes(tuple(times))


def _repeat(
    steps: list[list[Callable[[list[Any]], None]]], tensors: list[Any], ended: Callable[[], None],
    mark: Callable[[], None] = lambda: None,
) -> tuple[int, ...]:  # fmt: skip
    """Replay all steps once, and return the time of each in ns."""
    times = []
    for functions in steps:
        start = time.perf_counter_ns()
        for function in functions:
            function(tensors)
        ended()
        times.append(time.perf_counter_ns() - start)
        mark()
    return tuple(times)
