"""A replay of one rank: timed without a recorder, then recorded."""

import contextlib
import importlib
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nadi.pytorch.collecting.recorder import record
from nadi.pytorch.fake.operation_log import CALLS
from nadi.pytorch.rerunning.operand_rules import refused_operands
from nadi.pytorch.rerunning.operator_trials import (
    Communicator,
    Replayable,
    external_tensors,
    find_replayable,
    load_source,
)
from nadi.pytorch.rerunning.order import order_streams, order_threads, recorded_streams
from nadi.pytorch.rerunning.recorded_calls import COMMUNICATION, RecordedCalls
from nadi.pytorch.rerunning.replay_plan import ReplayPlan, plan_replay
from nadi.pytorch.rerunning.replay_source import ReplaySource, replay_source
from nadi.pytorch.rerunning.thread_team import ThreadTeam
from nadi.trace.trace import Trace

_WARMUP = 2


class OperatorChoice(NamedTuple):
    """Which operators are replayed.

    Attributes
    ----------
    only
        The only operator, such as ``aten::mm``; empty for all.
    allowed
        Names of operators that are called beside those that are known to be safe, such as
        ``my_library::attention``.
    """

    only: str = ""
    allowed: tuple[str, ...] = ()


ALL_OPERATORS = OperatorChoice()
"""All that are known to be safe."""


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
    operators
        Which operators are replayed.
    """

    device: str = "cpu"
    backend: str = ""
    repeats: int = 5
    output: Path | None = None
    overwrite: bool = False
    operators: OperatorChoice = ALL_OPERATORS


class PreparedReplay(NamedTuple):
    """What one rank replays."""

    recorded: RecordedCalls  # all calls of the trace
    streams: Mapping[int, int]  # the stream of the device work of each of its nodes, by row
    replayable: Replayable  # calls and their tensors, and what is left out
    source: ReplaySource  # the same as source
    # for the number of each communication call the ranks of its process group
    groups: Mapping[int, tuple[int, ...]]
    num_operators: int  # how many operators were wanted
    device: str

    @property
    def script(self) -> str:
        """The same as a program of one process, without communication."""
        calls = [planned.call for planned in self.replayable.plan.calls]
        alone = [call for call in calls if not call.name.startswith(COMMUNICATION)]
        plan = plan_replay(alone)
        while refused := refused_operands(plan):
            alone = [call for call in alone if call.row not in refused]
            plan = plan_replay(alone)
        return _source(self.recorded, plan, self.device, self.streams).text


class ReplayTimes(NamedTuple):
    """Times of a replay without a recorder, in ns: for each repetition those of all steps."""

    steps: tuple[tuple[int, ...], ...]


def prepare_replay(
    trace: Trace, *, device: str, communicates: bool,
    operators: OperatorChoice = ALL_OPERATORS,
) -> PreparedReplay:  # fmt: skip
    """Find what can be replayed of a trace, and write its source.

    - ``trace``: Of one rank: a host trace, alone or linked with its device trace.
    - ``device``: ``cpu`` or ``cuda``.
    - ``communicates``: Whether collectives and messages are replayed too.
    - ``operators``: Which operators are replayed.
    """
    recorded = RecordedCalls(trace)
    rows = recorded.named(operators.only) if operators.only else recorded.outermost()
    found = find_replayable(
        recorded, rows, device=device, communicates=communicates, allowed=operators.allowed
    )
    streams = recorded_streams(trace)
    source = _source(recorded, found.plan, device, streams)
    calls = [planned.call for planned in found.plan.calls]
    groups = _groups(trace, recorded, {
        number: call.row for number, call in enumerate(calls)
        if call.name.startswith(COMMUNICATION)
    })  # fmt: skip
    return PreparedReplay(recorded, streams, found, source, groups, len(rows), device)


def _source(
    recorded: RecordedCalls, plan: ReplayPlan, device: str, of_row: Mapping[int, int]
) -> ReplaySource:
    """Write a plan with the steps, threads and streams of its recording."""
    steps = _steps(recorded)
    step_of = [steps.of(planned.call.row) for planned in plan.calls]
    ends = [bisect_right(step_of, number) for number in range(steps.number - 1)]
    order = order_threads(recorded, plan, ends, first=steps.thread)
    streams = order_streams(plan.calls, of_row) if of_row and device == "cuda" else []
    return replay_source(order.plan, ends, device=device, order=order, streams=streams)


class _Steps(NamedTuple):
    """Where steps begin: the places of their marks, in their order; and the thread of these."""

    recorded: RecordedCalls
    marks: list[int]
    thread: int

    @property
    def number(self) -> int:
        return max(len(self.marks), 1)

    def of(self, row: int) -> int:
        """Return the step of a node; what comes before the first mark belongs to the first."""
        return max(bisect_right(self.marks, self.recorded.place(row)) - 1, 0)


def _steps(recorded: RecordedCalls) -> _Steps:
    marks = [row for row, name in enumerate(recorded.names) if name.startswith("ProfilerStep#")]
    thread = recorded.thread(marks[0]) if marks else -1
    return _Steps(recorded, sorted(recorded.place(row) for row in marks), thread)


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
    """Replay a rank: a few times without a recorder, then with it.

    - ``prepared``: What is replayed.
    - ``options``: How it is replayed.
    - ``rank``: Rank that the files of its recording are named after.
    - ``communicator``: Makes collectives and messages; None if there are none.
    """
    torch: Any = importlib.import_module("torch")
    names: dict[str, Any] = {}
    if communicator is not None:
        names = {"communicate": communicator.communicate, "wait": communicator.wait}
    made = load_source(prepared.source.text, **names)
    steps = [
        [[made[name] for name in names] for names in of_threads]
        for of_threads in prepared.source.steps
    ]
    team = ThreadTeam(prepared.source.num_threads, made.get("LOCKS", ()), torch.no_grad)

    def ended() -> None:
        if communicator is not None:
            communicator.wait_for_all()
        if options.device != "cpu":
            torch.cuda.synchronize()

    with torch.no_grad(), contextlib.closing(team):
        tensors = external_tensors(made)
        for _ in range(_WARMUP):
            _repeat(team, steps, tensors, ended)
        times = []
        for _ in range(options.repeats):
            if communicator is not None:
                communicator.meet()  # ranks begin together
            times.append(_repeat(team, steps, tensors, ended))
        if options.output is not None:
            with record(
                options.output, steps=len(steps), warmup=1, overwrite=options.overwrite, rank=rank
            ) as recording:
                if communicator is not None:
                    communicator.meet()
                recording.step()
                for _ in range(2):  # for times, and for structure
                    _repeat(team, steps, tensors, ended, recording.step)
    return ReplayTimes(tuple(times))


def _repeat(
    team: ThreadTeam, steps: list[list[list[Callable[[list[Any]], None]]]], tensors: list[Any],
    ended: Callable[[], None], mark: Callable[[], None] = lambda: None,
) -> tuple[int, ...]:  # fmt: skip
    """Replay all steps once, and return the time of each in ns."""
    times = []
    for functions in steps:
        start = time.perf_counter_ns()
        team.run(functions, tensors)
        ended()
        times.append(time.perf_counter_ns() - start)
        mark()
    return tuple(times)
