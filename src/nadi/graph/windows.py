"""The steps of a recording, and windows: the time ranges of analyses.

Device work that began before the recording: it is not in it, and holds up what is.

Steps of a recording without ``ProfilerStep``: found where marks repeat with the same work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import Parameter, UsageError, checked
from nadi.forks import refuse_in_fork
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.kernels.sequences import union_length
from nadi.recordings.serving_steps import ServingStep, serving_step
from nadi.recordings.step_marks import time_range
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest, number_rows
from nadi.trace.schema import DEVICE_WORK
from nadi.units import format_ns

_OPTIMIZER = r"^Optimizer\.step#"
_GRAPH_LAUNCH = r"^(cuda|hip|cu)GraphLaunch"
_MODULE = r"^nn\.Module: "
_NO_STEP = re.compile(r"^(nccl:|gloo:|c10d::|Optimizer\.)")
_KINDS = ("annotation", "optimizer", "graph launch", "module")  # the first that fits is taken
_ALIKE = 0.8
"""Steps have at least this share of their operations in common."""
_COVERED = 0.5
"""Steps contain at least this share of all operations."""
_MOST_MARKS = 2000
_Shares = npt.NDArray[np.float64]


class FoundStep(NamedTuple):
    """A step that was found: operations that begin it, and operations that it ends with.

    ``mark`` is the name that repeats; ``alike`` the share of operations that steps have in
    common, from 0 to 1.
    """

    first: Ints
    last: Ints
    mark: str
    alike: float


_Mark = tuple[int, str]  # what repeats: a position in ``_KINDS``, and a name without numbers


@dataclass(frozen=True)
class _Rank:
    """The operations of a rank in order of issue: numbers, moments (ns) and codes of names."""

    ops: Ints
    moment: Ints
    code: Ints
    marks: dict[_Mark, Ints]


def repeated_steps(graph: EventGraph, moment: Ints) -> list[FoundStep]:
    """Find the steps of a recording from what repeats in it.

    Marks are annotations, calls of an optimizer, launches of CUDA or HIP graphs, and calls of a
    module, in this order of preference; of several, the one with the longest steps. Marks within
    one call of an operator or a module are layers, and not steps. A step lasts from one mark to
    the next, and with an optimizer to the end of its call. What precedes the first mark or follows
    the last is a step if it resembles the others.

    - ``moment``: int64 ns, shape (ops,): when each operation was issued.
    - Returns list of FoundStep: In order of time, at least two, or none: on average at least 80 %
      of the operations of a step are those of a typical one, and steps contain at least half of all
      operations. O(marks * ops + ops log ops).
    """
    ranks = [_rank(graph, number, moment) for number in range(len(graph.job.traces))]
    if not ranks:
        return []
    common = set.intersection(*(set(rank.marks) for rank in ranks))
    sizes = {mark: {rank.marks[mark].size for rank in ranks} for mark in common}
    usable = [mark for mark in common if len(sizes[mark]) == 1 and max(sizes[mark]) <= _MOST_MARKS]
    first = ranks[0].marks
    usable.sort(key=lambda mark: (mark[0], first[mark].size, graph.time[2 * first[mark][0]]))
    for mark in usable:
        if any(_inside_one_call(graph, rank.marks[mark]) for rank in ranks):
            continue
        if steps := _steps(graph, ranks, mark):
            return steps
    return []


def _rank(graph: EventGraph, number: int, moment: Ints) -> _Rank:
    mine = graph.ops_of_trace(number)
    ops = mine.start + np.argsort(moment[mine], kind="stable")
    codes = graph.job.traces[number].name_codes[0][graph.op_row[ops]].astype(np.int64)
    return _Rank(ops, moment[ops], codes, dict(_marks(graph, number, ops)))


def _marks(graph: EventGraph, number: int, ops: Ints) -> Iterator[tuple[_Mark, Ints]]:
    """Yield the marks of a rank that occur at least twice, one after the other on one thread."""
    trace = graph.job.traces[number]
    kind_of = np.full(trace.nodes.height, -1, dtype=np.int64)
    annotations = trace.category_mask("annotation")
    kind_of[annotations] = 0
    kind_of[annotations & trace.name_mask(_OPTIMIZER)] = 1
    kind_of[trace.category_mask("runtime", "driver") & trace.name_mask(_GRAPH_LAUNCH)] = 2
    kind_of[trace.category_mask("python") & trace.name_mask(_MODULE)] = 3
    kind = kind_of[graph.op_row[ops]]
    ops, kind = ops[kind >= 0], kind[kind >= 0]
    found = pl.DataFrame({
        "op": ops, "kind": kind, "name": graph.names(ops), "thread": graph.numbers("thread", ops),
    }).with_columns(  # numbers in annotations count steps, those of modules distinguish them
        pl.when(pl.col("kind") == 0)
        .then(pl.col("name").str.replace_all(r"\d+", "#"))
        .otherwise("name")
    )  # fmt: skip
    largest: dict[_Mark, Ints] = {}
    for (code, name, _), part in found.group_by("kind", "name", "thread", maintain_order=True):
        if part.height < 2 or (code == 0 and _NO_STEP.match(str(name))):
            continue
        mark, mine = (int(code), str(name)), part["op"].to_numpy()
        apart = graph.time[2 * mine[1:]] >= graph.time[2 * mine[:-1] + 1]
        if apart.all() and mine.size > largest.get(mark, mine[:0]).size:
            largest[mark] = mine
    yield from largest.items()


def _steps(graph: EventGraph, ranks: list[_Rank], mark: _Mark) -> list[FoundStep]:
    """Return the steps between the marks, or none if they do not resemble each other."""
    side = int(_KINDS[mark[0]] == "optimizer")  # a step ends with the optimizer's call
    cuts = [
        np.concatenate([
            rank.moment[:1], graph.time[2 * rank.marks[mark] + side],
            [np.iinfo(np.int64).max],
        ])
        for rank in ranks
    ]  # fmt: skip
    bounds = [np.searchsorted(r.moment, cut) for r, cut in zip(ranks, cuts, strict=True)]
    alike = np.min([_alike(r.code, bound) for r, bound in zip(ranks, bounds, strict=True)], axis=0)
    taken = alike >= _ALIKE
    taken[1:-1] = True  # between two marks; what precedes or follows is taken if it fits
    chosen = np.flatnonzero(taken)
    inside = sum(int(np.diff(bound)[chosen].sum()) for bound in bounds)
    if (
        chosen.size < 2
        or np.mean(alike[chosen]) < _ALIKE
        or inside < _COVERED * sum(rank.ops.size for rank in ranks)
    ):
        return []
    on_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    sure = float(np.mean(alike[chosen]))
    steps = []
    for number in chosen.tolist():
        parts = [
            _members(graph, rank.ops[bound[number] : bound[number + 1]], cut[number + 1], on_device)
            for rank, bound, cut in zip(ranks, bounds, cuts, strict=True)
        ]
        first = np.concatenate([part[0] for part in parts])
        last = np.concatenate([part[1] for part in parts])
        if last.size:
            steps.append(FoundStep(first, last, mark[1], sure))
    return steps if len(steps) > 1 else []


def _inside_one_call(graph: EventGraph, marks: Ints) -> bool:
    """Return whether one operator or module contains all marks: layers repeat too."""
    around = int(graph.op_parent[marks[0]])
    until = graph.time[2 * marks[-1] + 1]
    nodes = graph.job.traces[int(graph.op_trace[marks[0]])].nodes
    names, category = nodes["name"], nodes["category"]
    while around >= 0:
        row = int(graph.op_row[around])
        if graph.time[2 * around + 1] >= until and (
            category[row] == "operator" or re.match(_MODULE, str(names[row]))
        ):
            return True
        around = int(graph.op_parent[around])
    return False


def _alike(code: Ints, bounds: Ints) -> _Shares:
    """Return the share of operations that each interval has in common with a typical one.

    - ``code``: int64, shape (ops,): the name of each operation.
    - ``bounds``: int64, shape (intervals + 1,): operations ``bounds[k]:bounds[k + 1]`` are in
      interval k.
    """
    used, code = np.unique(code, return_inverse=True)
    counts = np.stack([
        np.bincount(code[low:high], minlength=used.size)
        for low, high in pairwise(bounds.tolist())
    ])  # fmt: skip
    typical = np.median(counts[1:-1], axis=0)
    shared = np.minimum(counts, typical).sum(axis=1)
    found: _Shares = shared / np.maximum(np.maximum(counts, typical).sum(axis=1), 1)
    return found


def _members(graph: EventGraph, ops: Ints, until: int, on_device: Bools) -> tuple[Ints, Ints]:
    """Return the first of a step's operations, and those that end in it or on a device."""
    if ops.size == 0:
        return ops, ops
    host = ops[~on_device[ops]]
    begun = host if host.size else ops
    first = begun[[np.argmin(graph.time[2 * begun])]]
    return first, ops[on_device[ops] | (graph.time[2 * ops + 1] <= until)]


_LEAST = 0.1  # of the time that is analysed: less does not change what bounds it
_SHORTEST_NS = 200_000  # an idle device may take nearly that long to start


def end_of_earlier_work(graph: EventGraph, begin: int, end: int) -> int:
    """Find the moment when devices had ended what they did before the recording began.

    A stream is busy with such work until its first recorded work starts, if that could have
    started long before: a tenth of the time that is analysed, and 200 us; and if its device seems
    to do nothing meanwhile.

    - ``begin``, ``end``: The time that is analysed, ns since the job's origin.
    - Returns: The vertex where the last such stream starts its first recorded work; -1 without one.
      O(ops).
    """
    work = np.flatnonzero(graph.gather("category").is_in(DEVICE_WORK).to_numpy())
    start, device = graph.time[2 * work], graph.numbers("device", work)
    order = np.lexsort((start, graph.op_stream[work], device, graph.op_trace[work]))
    work, device = work[order], device[order]
    places = np.stack([graph.op_trace[work], device, graph.op_stream[work]])
    first = np.append(True, (np.diff(places) != 0).any(axis=0))[: work.size]
    vertex = 2 * work[first]
    since, until = graph.time[vertex] - graph.delay[vertex], graph.time[vertex]
    late = until - since >= max(_LEAST * (end - begin), _SHORTEST_NS)
    late &= (since >= begin) & (until < end)
    late &= np.diff(graph.in_ptr)[vertex] > 0
    found = -1
    for v in vertex[late][np.argsort(until[late])].tolist():
        same = (graph.op_trace[work] == graph.op_trace[v // 2]) & (device == device[work == v // 2])
        times = (graph.time[2 * work[same] + side] for side in (0, 1))
        low, high = graph.time[v] - graph.delay[v], graph.time[v]
        if union_length(*(np.clip(t, low, high) for t in times)) <= _LEAST * graph.delay[v]:
            found = v
    return found


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

    @property
    def num_steps(self) -> int:
        """Number of marked steps that it consists of; 0 if it is none, or holds other time too."""
        if self.number >= 0:
            return 1
        whole = bool(self.steps) and self.steps[0].is_marked and not self.after_earlier_work
        return len(self.steps) if whole else 0

    def per_step(self, length_ns: int) -> int:
        """Return a length of this window as the mean of its steps; as it is without whole steps."""
        return round(length_ns / max(self.num_steps, 1))

    def start(self, time: Ints) -> int:
        """Return the start in ns, in a replay with these vertex times."""
        return int(time[self.first].min())

    def end(self, time: Ints) -> int:
        """Return the end in ns, in a replay with these vertex times."""
        return int(time[self.last].max())

    def length(self, time: Ints) -> int:
        """Return the length in ns, in a replay with these vertex times."""
        return self.end(time) - self.start(time)


_STEPS: WeakKeyDictionary[EventGraph, list[Window]] = WeakKeyDictionary()


@checked
def find_steps(graph: EventGraph) -> list[Window]:
    """Find the steps that the profiler marked (``ProfilerStep#N``), in order of N.

    A step begins when the first rank begins it. It contains all work that the host of a rank
    starts between its two markers, and the device work launched there. It ends with the last of
    this work on any rank. Steps may therefore overlap on devices.

    Without such marks, steps are those that a serving engine annotates, or whose graphs say what
    they were captured for, numbered from 0; their ``serving`` says what they do. Else steps are
    what repeats with the same operations
    (:func:`nadi.graph.windows.repeated_steps`), numbered from 0; their ``mark`` is what was
    found to repeat. They are kept with the graph.
    """
    refuse_in_fork()
    if graph not in _STEPS:
        _STEPS[graph] = _found_steps(graph)
    return list(_STEPS[graph])


def _found_steps(graph: EventGraph) -> list[Window]:
    marks = [
        (int(found[1]), op)
        for op, name in _candidates(graph)
        if (found := _STEP.match(name)) is not None
    ]
    mark, served = MARK, _serving(graph) if not marks else []
    if served:
        mark, marks = SERVING, [(number, op) for number, op, _ in served]
    what = {number: step for number, _, step in reversed(served)}  # of the first rank and part
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

    The k-th of each rank is step k, as ranks of an engine run the same steps. Later parts of a
    model that is replayed in several graphs belong to the step of the first.
    """
    which, names = graph.name_codes()
    told = {name: step for name in names if (step := serving_step(name))}
    if not told:
        return []
    is_mark = np.array([name in told for name in names])[which]
    is_mark &= (graph.gather("category") == "annotation").to_numpy()
    ops = np.flatnonzero(is_mark)
    around = graph.op_parent[ops]
    ops = ops[nearest(around, graph.op_parent, is_mark) < 0]
    ops = ops[np.lexsort((graph.time[2 * ops], graph.op_trace[ops]))]
    rank, texts = graph.op_trace[ops], [names[code] for code in which[ops].tolist()]
    is_later = np.array([told[text].part > 1 for text in texts])
    number = np.cumsum(~is_later)
    number -= number[np.searchsorted(rank, rank)]
    return [(n, op, told[text]) for n, op, text in zip(number.tolist(), ops.tolist(), texts,
                                                      strict=True)]  # fmt: skip


def step_times(graph: EventGraph, steps: Sequence[Window], time: Ints, rank: int = -1) -> Ints:
    """Return how long each step takes: from its mark to the next one.

    The last step takes until its work ends. The times of all steps add up to the window of all
    steps; the windows of steps overlap where a device runs later than its host.

    - ``time``: The times of vertices in a replay, ns.
    - ``rank``: Position of the rank whose marks and work count; of all ranks if it is -1: then the
      first rank to begin a step begins it.
    - Returns int64 ns, shape (steps,): Of a rank without marks, shape (0,). O(vertices in ``first``
      and ``last`` of the steps).
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


def steps_of_operations(graph: EventGraph, steps: Sequence[Window]) -> Ints:
    """Return the step in which the hosts issue each operation.

    Its marks belong to a step, and the device work that is launched in it. What contains several
    steps does not.

    - ``steps``: All steps, from :func:`find_steps`.
    - Returns int64, shape (ops,): Positions in ``steps``, -1 where there is none.
    """
    found = np.full(graph.num_ops, -1, dtype=np.int64)
    anchors, moment = _Anchors(graph), _anchors(graph)
    for number, step in enumerate(steps):
        for mark in (step.first // 2).tolist():
            if step.is_marked:
                found[anchors.between(mark)] = number
            else:
                found[_issued(graph, steps, number, mark, moment)] = number
            found[mark] = number
    return found


def _issued(
    graph: EventGraph, steps: Sequence[Window], number: int, mark: int, moment: Ints
) -> Bools:
    """Return what the rank of a mark issues until its next step that was found."""
    mine, step = graph.op_trace == graph.op_trace[mark], steps[number]
    later = steps[number + 1].first // 2 if number + 1 < len(steps) else step.first[:0]
    last = step.last[mine[step.last // 2]]
    on_host = last[graph.gather("is_cpu", last // 2).to_numpy()]
    until = moment[later[mine[later]]]
    latest = max(until.tolist() or graph.time[on_host].tolist(), default=2**62)
    issued: Bools = mine & (moment >= moment[mark]) & (moment < latest)
    return issued


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
    ends = ~framed & ~_on_its_own(graph)
    if not framed.any():
        return ends
    works = category.is_in(["operator", "runtime", "driver"]).to_numpy()
    thread = graph.numbers("thread")
    for number in range(len(graph.job.traces)):
        mine = graph.ops_of_trace(number)
        threads, counts = np.unique(thread[mine][works[mine]], return_counts=True)
        main = thread[mine] == threads[np.argmax(counts)] if threads.size else True
        ends[mine] |= framed[mine] & main
    return ends


def _on_its_own(graph: EventGraph) -> Bools:
    """Return which device work runs whatever the program does; bool, shape (ops,).

    Nothing launches any work of its stream, or waits for it, though calls launch that of other
    streams of its rank: a device that reports its state every 100 ms would end each window then.
    """
    on_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    by_call = graph.edge_kind == EdgeKind.LAUNCH
    by_none = np.append(on_device, False)
    by_none[np.minimum(graph.destinations[by_call] // 2, graph.num_ops)] = False
    if not by_none.any():  # as in most recordings: the rest takes as long as a sort
        return by_none[:-1]
    work = np.flatnonzero(on_device)
    place = np.full(graph.num_ops + 1, -1, dtype=np.int32)  # its stream; the last: no operation
    place[work], _ = number_rows(
        [graph.op_trace[work], graph.numbers("device", work), graph.op_stream[work]]
    )
    into = place[np.minimum(graph.destinations // 2, graph.num_ops)]
    source = place[np.minimum(graph.in_src // 2, graph.num_ops)]
    leaves = source != into
    tied = np.zeros(graph.num_ops + 1, dtype=np.bool_)
    tied[source[leaves]] = tied[into[leaves]] = True
    launches = np.zeros(len(graph.job.traces), dtype=np.bool_)
    launches[graph.op_trace[on_device & ~by_none[:-1]]] = True
    found: Bools = on_device & ~tied[place[:-1]] & launches[graph.op_trace]
    return found


def _candidates(graph: EventGraph) -> list[tuple[int, str]]:
    at = np.flatnonzero(graph.named("^ProfilerStep#"))
    return list(zip(at.tolist(), graph.names(at).to_list(), strict=True))


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
            mine = graph.ops_of_trace(trace)
            # nearly sorted already: a stable sort takes little more than one pass
            ops = mine.start + np.argsort(self._moment[mine], kind="stable")
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
