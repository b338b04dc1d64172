"""The steps of a recording, and windows: the time ranges of analyses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError, checked
from nadi.forks import refuse_in_fork
from nadi.graph.earlier_work import end_of_earlier_work
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.repeated_steps import repeated_steps
from nadi.recordings.serving_steps import ServingStep, serving_step
from nadi.recordings.time_range import time_range
from nadi.trace.ancestors import nearest
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import DEVICE_WORK
from nadi.units import format_ns

__all__ = ["MARK", "WHOLE", "Window", "choose_window", "find_steps", "operations_of_step",
           "step_times",]  # fmt: skip

MARK = "ProfilerStep"
"""The annotation with which ``torch.profiler`` marks steps."""
SERVING = "serving step"
"""What marks a step that is an annotation of a serving engine."""
WHOLE = "whole trace"
"""The name of the window of a trace without marked steps."""

_STEP = re.compile(r"^ProfilerStep#(\d{1,18})$")


@dataclass(frozen=True, eq=False)
class Window:
    """A time range of the job, defined by vertices so that it can be measured in any replay.

    It lasts from the earliest of ``first`` to the latest of ``last``.

    Attributes
    ----------
    name
        Such as ``step 5`` or ``whole trace``.
    number
        The number of the step, or -1.
    first, last
        int64: vertices, never empty.
    mark
        What repeats with each step, if it is one: ``ProfilerStep``, ``serving step``, or the name
        of an annotation, a call or a module.
    alike
        How sure it is that this is a step: 1 if the profiler marked it, else the share of
        operations that the steps have in common.
    steps
        The steps in it, if it was made of several.
    serving
        What a serving engine does in it, if it is a step of one.
    after_earlier_work
        Whether what comes before it is left out, as devices were still busy with work that began
        before the recording.
    """

    name: str
    number: int
    first: Ints
    last: Ints
    mark: str = MARK
    alike: float = 1.0
    steps: tuple[Window, ...] = ()
    after_earlier_work: bool = False
    serving: ServingStep | None = None

    @property
    def is_marked(self) -> bool:
        """Whether the profiler or a serving engine marked it, if it is a step."""
        return self.mark in (MARK, SERVING)

    def start(self, time: Ints) -> int:
        """Return the start in ns, in a replay with these vertex times."""
        return int(time[self.first].min())

    def end(self, time: Ints) -> int:
        """Return the end in ns, in a replay with these vertex times."""
        return int(time[self.last].max())

    def length(self, time: Ints) -> int:
        """Return the length in ns, in a replay with these vertex times."""
        return self.end(time) - self.start(time)


@checked
def find_steps(graph: EventGraph) -> list[Window]:
    """Find the steps that the profiler marked (``ProfilerStep#N``), in order of N.

    A step begins when the first rank begins it. It contains all work that the host of a rank
    starts between its two markers, and the device work launched there. It ends with the last of
    this work on any rank. Steps may therefore overlap on devices.

    Without such marks, steps are those that a serving engine annotates, numbered from 0; their
    ``serving`` says what they do. Else steps are what repeats with the same operations
    (:func:`nadi.graph.repeated_steps.repeated_steps`), numbered from 0; their ``mark`` is what was
    found to repeat.
    """
    refuse_in_fork()
    marks = [
        (int(found[1]), op)
        for op, name in _candidates(graph)
        if (found := _STEP.match(name)) is not None
    ]
    mark, served = MARK, _serving(graph) if not marks else []
    if served:
        mark, marks = SERVING, [(number, op) for number, op, _ in served]
    what = {number: step for number, _, step in served}
    if not marks:
        return _repeated(graph)
    anchors = _Anchors(graph)
    ends = _may_end(graph)
    steps = []
    for number in sorted({number for number, _ in marks}):
        ops = np.array([op for n, op in marks if n == number], dtype=np.int64)
        inside = np.concatenate([anchors.between(op) for op in ops.tolist()])
        last = 2 * _distinct(np.concatenate([ops, inside[ends[inside]]])) + 1
        name, kind = f"step {number}", what.get(number)
        steps.append(Window(name, number, 2 * ops, last, mark, serving=kind))
    return steps


def _serving(graph: EventGraph) -> list[tuple[int, int, ServingStep]]:
    """Return the annotations of serving steps, the outermost ones, with their numbers.

    The k-th of each rank is step k, as ranks of an engine run the same steps.
    """
    names = graph.op_names
    told = {name: step for name in names.unique().to_list() if (step := serving_step(name))}
    if not told:
        return []
    is_mark = names.is_in(pl.Series(list(told), dtype=pl.String).implode()).to_numpy()
    is_mark &= (graph.gather("category") == "annotation").to_numpy()
    ops = np.flatnonzero(is_mark)
    around = graph.op_parent[ops]
    ops = ops[nearest(around, graph.op_parent, is_mark) < 0]
    ops = ops[np.lexsort((graph.time[2 * ops], graph.op_trace[ops]))]
    rank = graph.op_trace[ops]
    number = np.arange(ops.size) - np.searchsorted(rank, rank)
    texts = names.gather(ops).to_list()
    return [(n, op, told[text]) for n, op, text in zip(number.tolist(), ops.tolist(), texts,
                                                      strict=True)]  # fmt: skip


def step_times(graph: EventGraph, steps: Sequence[Window], time: Ints, rank: int = -1) -> Ints:
    """Return how long each step takes: from its mark to the next one.

    The last step takes until its work ends. The times of all steps add up to the window of all
    steps; the windows of steps overlap where a device runs later than its host.

    Parameters
    ----------
    time
        The times of vertices in a replay, ns.
    rank
        Position of the rank whose marks and work count; of all ranks if it is -1: then the first
        rank to begin a step begins it.

    Returns
    -------
    int64 ns, shape (steps,)
        Of a rank without marks, shape (0,). O(vertices in ``first`` and ``last`` of the steps).
    """
    borders = []
    for step in steps:
        begins = step.first if rank < 0 else step.first[graph.op_trace[step.first // 2] == rank]
        if not begins.size:
            return np.empty(0, dtype=np.int64)
        borders.append(int(time[begins].min()))
    ends = np.concatenate([step.last for step in steps]) if steps else np.empty(0, dtype=np.int64)
    if rank >= 0:
        ends = ends[graph.op_trace[ends // 2] == rank]
    return np.diff([*borders, int(time[ends].max())]) if borders else ends


@checked
def choose_window(
    graph: EventGraph, steps: list[Window], step: str = "all", window: str = ""
) -> Window:
    """Return the window of one step, of all steps, or of a time range.

    Parameters
    ----------
    step
        The number of a step, or ``all``: from the start of the first step to the end of the last,
        or the whole trace if it has no ``ProfilerStep`` annotations. If devices were busy for long
        with work that began before the recording, what follows that.
    window
        Instead of a step, two times since the first event of the job, such as ``120ms:180ms``:
        from the first start or end of an operation between them to the last.

    Raises
    ------
    UsageError
        If the step does not exist, the time range cannot be read or is empty, or both are given.
    """
    if window:
        if step != "all":
            raise UsageError(
                [Parameter("step"), " and ", Parameter("window")], "both choose what is analysed",
                "give one of them",
            )  # fmt: skip
        return _time_window(graph, window)
    if step == "all":
        return _after_earlier_work(graph, _all(graph, steps))
    for one in steps:
        if str(one.number) == step:
            return one
    there = ", ".join(str(one.number) for one in steps)
    raise UsageError(
        Parameter("step", step),
        "the trace has no such step",
        f"give all or one of: {there}"
        if there
        else "the trace has no ProfilerStep annotations, and nothing repeats in it: give all",
    )


def _all(graph: EventGraph, steps: list[Window]) -> Window:
    """Return the window of all marked steps, or of the whole trace if none are marked."""
    if steps and steps[0].is_marked:
        if len(steps) == 1:
            return steps[0]
        name = f"steps {steps[0].number} to {steps[-1].number}"
        last = _distinct(np.concatenate([window.last for window in steps]))
        return Window(name, -1, steps[0].first, last, steps=tuple(steps))
    ends = np.flatnonzero(_may_end(graph))
    return Window(WHOLE, -1, 2 * np.arange(graph.num_ops), 2 * ends + 1, steps=tuple(steps))


def _after_earlier_work(graph: EventGraph, window: Window) -> Window:
    """Return the part of a window that follows device work begun before the recording."""
    time = graph.time
    vertex = end_of_earlier_work(graph, window.start(time), window.end(time))
    if vertex < 0:
        return window
    moment = int(time[vertex])
    last = window.last[time[window.last] > moment]
    if not last.size:
        return window
    steps = tuple(step for step in window.steps if step.start(time) >= moment)
    name = f"what follows {format_ns(moment)}"
    return Window(name, -1, np.array([vertex]), last, steps=steps, after_earlier_work=True)


def operations_of_step(graph: EventGraph, steps: list[Window], step: Window) -> Bools:
    """Return the operations that the hosts issue in a step; bool, shape (ops,).

    Its marks belong to it, and the device work that is launched in it. What contains several
    steps does not.

    Parameters
    ----------
    steps
        All steps, from :func:`find_steps`.
    step
        One of them.
    """
    chosen = np.zeros(graph.num_ops, dtype=np.bool_)
    marks = step.first // 2
    if step.is_marked:
        anchors = _Anchors(graph)
        chosen[np.concatenate([marks, *(anchors.between(op) for op in marks.tolist())])] = True
        return chosen
    moment, later = _anchors(graph), steps[steps.index(step) + 1 :]
    for mark in marks.tolist():
        mine = graph.op_trace == graph.op_trace[mark]
        until = [moment[op] for op in later[0].first // 2 if mine[op]] if later else []
        last = step.last[mine[step.last // 2]]
        on_host = last[graph.gather("is_cpu", last // 2).to_numpy()]
        until += graph.time[on_host].tolist() if not until else []
        chosen |= mine & (moment >= moment[mark]) & (moment < max(until, default=2**62))
    return chosen


def _time_window(graph: EventGraph, window: str) -> Window:
    """Return the window from the first start or end of an operation in a time range to the last."""
    low, high = time_range(window)
    begin, _, end = window.partition(":")
    time = graph.time[: 2 * graph.num_ops]
    inside = np.flatnonzero((time >= low) & (time <= high))
    if inside.size == 0 or low >= high:
        what = "no operation starts or ends there"
        raise UsageError(
            Parameter("window", window), "the second time is not later" if low >= high else what,
            f"the recording lasts from 0 to {format_ns(int(time.max()))}",
        )  # fmt: skip
    return Window(f"{begin.strip()} to {end.strip()}", -1, inside, inside)


def _repeated(graph: EventGraph) -> list[Window]:
    ends = _may_end(graph)
    found = [(step, step.last[ends[step.last]]) for step in repeated_steps(graph, _anchors(graph))]
    return [
        Window(f"step {number}", number, 2 * step.first, 2 * _distinct(last) + 1, step.mark,
               step.alike)
        for number, (step, last) in enumerate(found)
        if last.size
    ]  # fmt: skip


def _may_end(graph: EventGraph) -> Bools:
    """Return which operations may end a window; bool, shape (ops,).

    Python frames may on the thread with the most operators and calls only. Those of other threads
    last until the recording ends, whatever the thread does.
    """
    category = graph.gather("category")
    framed = (category == "python").to_numpy()
    ends = ~framed
    if not framed.any():
        return ends
    works = category.is_in(["operator", "runtime", "driver"]).to_numpy()
    thread = graph.numbers("thread")
    for number in range(len(graph.job.traces)):
        mine = graph.op_trace == number
        threads, counts = np.unique(thread[mine & works], return_counts=True)
        main = thread == threads[np.argmax(counts)] if threads.size else mine
        ends |= mine & framed & main
    return ends


def _candidates(graph: EventGraph) -> list[tuple[int, str]]:
    names = graph.op_names
    at = names.str.starts_with("ProfilerStep#").arg_true()
    return list(zip(at.to_list(), names.gather(at).to_list(), strict=True))


def _distinct(values: Ints) -> Ints:
    """Sort values and drop duplicates; np.unique takes many times as long."""
    values = np.sort(values)
    found: Ints = values[np.append(True, values[1:] != values[:-1])[: values.size]]
    return found


class _Anchors:
    """Operations in order of the times that determine the step of each."""

    def __init__(self, graph: EventGraph) -> None:
        self._graph = graph
        self._moment = _anchors(graph)
        self._of_trace: dict[int, tuple[Ints, Ints]] = {}

    def between(self, mark: int) -> Ints:
        """Return the operations of a marker's rank that were issued during the marker."""
        graph, trace = self._graph, int(self._graph.op_trace[mark])
        if trace not in self._of_trace:
            ops = np.flatnonzero(graph.op_trace == trace)
            # nearly sorted already: a stable sort takes little more than one pass
            ops = ops[np.argsort(self._moment[ops], kind="stable")]
            self._of_trace[trace] = ops, self._moment[ops]
        ops, moments = self._of_trace[trace]
        begin, end = np.searchsorted(moments, graph.time[2 * mark : 2 * mark + 2])
        return ops[begin:end]


def _anchors(graph: EventGraph) -> Ints:
    """Return the time that determines the step of each operation: when it was issued."""
    anchor = graph.time[0 : 2 * graph.num_ops : 2].copy()
    is_launch = np.flatnonzero(graph.edge_kind == EdgeKind.LAUNCH)
    on_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    work = (np.searchsorted(graph.in_ptr, is_launch, side="right") - 1) // 2
    call = graph.in_src[is_launch] // 2
    chosen = on_device[work]
    anchor[work[chosen]] = graph.time[2 * call[chosen]]
    return anchor
