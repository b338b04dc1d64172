"""The steps of a recording, and windows: the time ranges of analyses."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.forks import refuse_in_fork
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.model.arrays import Ints
from nadi.model.schema import DEVICE_WORK

__all__ = ["Window", "choose_window", "find_steps"]

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
    """

    name: str
    number: int
    first: Ints
    last: Ints

    def start(self, time: Ints) -> int:
        """Return the start in ns, in a replay with these vertex times."""
        return int(time[self.first].min())

    def end(self, time: Ints) -> int:
        """Return the end in ns, in a replay with these vertex times."""
        return int(time[self.last].max())

    def length(self, time: Ints) -> int:
        """Return the length in ns, in a replay with these vertex times."""
        return self.end(time) - self.start(time)


def find_steps(graph: EventGraph) -> list[Window]:
    """Find the steps that the profiler marked (``ProfilerStep#N``), in order of N.

    A step begins when the first rank begins it. It contains all work that the host of a rank
    starts between its two markers, and the device work launched there. It ends with the last of
    this work on any rank. Steps may therefore overlap on devices.
    """
    refuse_in_fork()
    marks = [
        (int(found[1]), op)
        for op, name in _candidates(graph)
        if (found := _STEP.match(name)) is not None
    ]
    anchors = _Anchors(graph) if marks else None
    steps = []
    for number in sorted({number for number, _ in marks}):
        ops = np.array([op for n, op in marks if n == number], dtype=np.int64)
        members = [anchors.between(op) for op in ops.tolist()] if anchors else []
        last = 2 * _distinct(np.concatenate([ops, *members])) + 1
        steps.append(Window(f"step {number}", number, 2 * ops, last))
    return steps


def choose_window(graph: EventGraph, steps: list[Window], step: str = "all") -> Window:
    """Return the window of one step, or of all steps.

    Parameters
    ----------
    step
        The number of a step, or ``all``: from the start of the first step to the end of the last,
        or the whole trace if it has no ``ProfilerStep`` annotations.

    Raises
    ------
    UsageError
        If the step does not exist.
    """
    if step == "all":
        if steps:
            name = f"steps {steps[0].number} to {steps[-1].number}"
            last = _distinct(np.concatenate([window.last for window in steps]))
            return steps[0] if len(steps) == 1 else Window(name, -1, steps[0].first, last)
        every = np.arange(graph.num_ops)
        return Window("whole trace", -1, 2 * every, 2 * every + 1)
    for window in steps:
        if str(window.number) == step:
            return window
    there = ", ".join(str(window.number) for window in steps)
    raise UsageError(
        Parameter("step", step),
        "the trace has no such step",
        f"give all or one of: {there}"
        if there
        else "the trace has no ProfilerStep annotations: give all",
    )


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
