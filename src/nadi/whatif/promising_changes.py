"""The changes that gain most, among those that a critical path suggests."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.errors import UsageError, checked
from nadi.files.files import free_memory
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.module_tree import CALL
from nadi.graph.rank_excess import Excess
from nadi.graph.unexplained import ThreadWaits, thread_waits
from nadi.graph.windows import Window
from nadi.kernels.sequences import union_lengths
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import KERNEL_CLASSES, OTHER_KERNELS, kernel_class
from nadi.units import format_percent
from nadi.whatif.balance_change import Balance, ranks_wait
from nadi.whatif.changes import Change, NoGaps, NoOverhead, Remove, Scale, ScaleWait
from nadi.whatif.prediction_intervals import Interval
from nadi.whatif.selection import Selection, covered, module_expression, select_with_calls
from nadi.whatif.stream_changes import Graphed
from nadi.whatif.what_if_results import WhatIf, what_if, what_ifs

LEAST_GAIN = 0.005
"""The share of a window that a change has to gain to be named."""
_HALF = 0.5
_MOST_NAMES = 4
_WORTH_CAPTURING = 0.1  # the host's share of the path
_NEARLY_ALL = 0.9  # of the path: what holds so much says no more than the whole
_LONG_NAME = 40
_MOST_WAITS = 2
_SAMPLED = "wait in "  # as recordings name waits
_GARBAGE = "garbage collection"  # as recordings name those of Python, which a program can put off
_LOADER = "DataLoader"  # a part of the names of its ranges
_OWN_LOADER = "_SingleProcessDataLoaderIter"  # of one that works in the process of the steps
_NO_PLACE = r"ProfilerStep#|Optimizer\."  # ranges of a step, not of what waits
_WORD = re.compile(r"[A-Za-z_]\w{5,}")


@dataclass(frozen=True)
class TriedChange:
    """A change that was tried.

    Attributes
    ----------
    change
        The change.
    about
        The operation or the class of kernels that it changes, in full; empty if it is not about
        one.
    window_ns, step_ns, gain_ns
        The length of the window after the change, that of a step of it, and how much shorter the
        window is.
    interval
        How sure the length and the gain of the window are.
    """

    change: Change
    about: str
    window_ns: int
    step_ns: int
    gain_ns: int
    interval: Interval


@checked
def best_changes(
    graph: EventGraph,
    window: Window,
    path: CriticalPath,
    *,
    late: Excess | None = None,
    mark: str = "",
    leads: str = "",
    most: int = 3,
) -> list[TriedChange]:
    """Try the changes that the critical path suggests, and return those that gain most.

    They are: the operations with the largest shares of the path, the class of kernels with the
    largest, the module or function that leads, and ranges and functions with a tenth of it between
    operations but not all of it, in half of their time; communication in half of its time; no
    launch overhead; no waits of threads, in each of the two ranges with most of them (a data
    loader, say), and before each of the two operations that most of the others precede; a data
    loader that works in the process of the steps moved to others; no garbage collection by Python;
    no gaps between operations, unless waits or these functions are most of them; what another
    thread does in half of its time; a step in one CUDA graph; balanced ranks; and, where a rank is
    late, what it does more than the others spread evenly over all ranks.

    Parameters
    ----------
    late
        What the latest rank does more than the others; None if no rank is late.
    mark
        The name of what repeats with each step; empty if nothing does.
    leads
        The name of the range with most of the path, as ``Leading.range_name``; empty without one.
        It is tried if it is a module or a function of Python.
    most
        The most changes to return. Those that gain less than 0.5 % are left out. If a rank is late,
        the best way to spread its work is among them.

    Returns
    -------
    list of TriedChange
        The largest gain first. O(vertices + edges) for each change tried.
    """
    free_memory()  # a changed graph may take as much memory as the graph
    gains = []
    for change, about in _candidates(graph, path, late, mark, leads):
        try:
            answer = what_if(graph, change, window=window)
        except UsageError:  # does not apply: nothing was launched, or a range waits for its device
            continue
        if answer.gain_ns >= max(LEAST_GAIN * answer.measured_ns, 1):
            gains.append((answer.gain_ns, change, about))
        del answer
    gains = _apart(gains, graph, window.length(graph.time))
    leading = _leading(gains, most, keeps_balance=late is not None)
    answers = what_ifs(graph, [change for _, change, _ in leading], window)
    return [_with_interval(next(answers), about) for _, _, about in leading]


def _with_interval(answer: WhatIf, about: str) -> TriedChange:
    change = answer.changes[0]
    return TriedChange(
        change, about, answer.window_ns, answer.step_ns, answer.gain_ns, answer.interval
    )


def _apart(
    gains: list[tuple[int, Change, str]], graph: EventGraph, length: int
) -> list[tuple[int, Change, str]]:
    """Sort by gain, and leave out what is faster with all of another change, if it gains the same.

    The same is what is printed alike. Of two such changes that of fewer operations stays.
    """
    kept: list[tuple[int, Change, str]] = []
    for one in sorted(gains, key=lambda one: -one[0]):
        gain = format_percent(one[0], length)
        for place, other in enumerate(kept):
            if format_percent(other[0], length) == gain and _is_within(graph, one[1], other[1]):
                kept[place] = one
                break
            if format_percent(other[0], length) == gain and _is_within(graph, other[1], one[1]):
                break
        else:
            kept.append(one)
    return sorted(kept, key=lambda one: -one[0])


def _is_within(graph: EventGraph, inner: Change, outer: Change) -> bool:
    """Whether both make operations faster, and those of the first are among those of the second."""
    if not (isinstance(inner, Scale) and isinstance(outer, Scale)):
        return False
    both = [covered(graph, select_with_calls(graph, one.selection)) for one in (inner, outer)]
    return not bool((both[0] & ~both[1]).any())


def _leading(
    gains: list[tuple[int, Change, str]], most: int, *, keeps_balance: bool
) -> list[tuple[int, Change, str]]:
    """Return those that gain most, the best way to spread work over ranks among them if asked."""
    kept, rest = gains[:most], gains[most:]
    balances = [one for one in gains if isinstance(one[1], Balance)]
    if keeps_balance and balances and balances[0] in rest:
        kept[-1] = balances[0]
    return kept


def _candidates(
    graph: EventGraph, path: CriticalPath, late: Excess | None, mark: str, leads: str
) -> Iterator[tuple[Change, str]]:
    if ranks_wait(graph):
        yield Balance(), ""
    if late is not None and late.kind in ("host op", "kernel") and late.operation.name:
        # what one rank does more of has to be done by others
        name = late.operation.name
        yield Balance(Selection(name=_expression(name, ()))), name
    times = path.by_kind()
    if times["communication"]:
        yield Scale(Selection(kinds=("communication",)), _HALF), ""
    yield NoOverhead(Selection(kinds=("device",))), ""
    waits = thread_waits(graph)
    waits = waits.chosen(np.isin(waits.vertex, path.vertices))
    yield from _without_waits(graph, waits)
    yield from _faster_threads(graph, path)
    if mark and times["host op"] + times["host gap"] >= _WORTH_CAPTURING * path.length:
        yield Graphed(Selection(name=_expression(mark, ()))), mark
    by_operation = path.by_operation()
    work = by_operation.filter(pl.col("kind").is_in(["host op", "kernel"]) & (pl.col("name") != ""))
    calls = graph.gather("category").is_in(["runtime", "driver"]).to_numpy()
    which, texts = graph.name_codes()
    called = [texts[code] for code in np.unique(which[calls]).tolist()]  # their time is overhead
    work = work.filter(~pl.col("name").is_in(called))
    names = work["name"].head(_MOST_NAMES).to_list()
    between = by_operation.filter(
        (pl.col("kind") == "host gap") & (pl.col("time") >= _WORTH_CAPTURING * path.length)
        & ~pl.col("name").str.contains(f"^$|{_NO_PLACE}|^{_SAMPLED}") & (pl.col("name") != mark)
    )  # fmt: skip
    between = between.filter([not _is_whole(graph, path, name) for name in between["name"]])
    is_gap = (waits.edge >= 0) & (graph.edge_kind[waits.edge] == EdgeKind.HOST_GAP)
    named = max(int(waits.time_ns[is_gap].sum()), int(between["time"].sum()))
    if times["host gap"] > 2 * named:  # else most of it are waits, or is the time of functions
        yield NoGaps(), ""
    ranges = [*between["name"], *([leads] if _is_of_program(graph, leads) else [])]
    for name in dict.fromkeys(names + ranges):
        if _LOADER not in name and name != _GARBAGE:
            inside = module_expression(graph, name) if name in ranges else ""
            chosen = Selection(name="" if inside else _expression(name, texts), inside=inside)
            yield Scale(chosen, _HALF), name
    for code, name in enumerate(texts):
        if _OWN_LOADER not in name and name != _GARBAGE:
            continue
        if _longest(graph, path, np.flatnonzero(which == code)) >= LEAST_GAIN * path.length:
            about = f"no {name}" if name == _GARBAGE else "data loader in other processes"
            yield Remove(Selection(name=_expression(name, texts))), about
    yield from _leading_class(work.filter(pl.col("kind") == "kernel"))


def _is_of_program(graph: EventGraph, name: str) -> bool:
    """Whether a name is of a module or a function of Python, and not of a range of PyTorch."""
    if name.startswith(CALL):
        return True
    python = (graph.gather("category") == "python").to_numpy()
    return bool((_is_named(graph, name) & python).any())


def _is_whole(graph: EventGraph, path: CriticalPath, name: str) -> bool:
    """Whether ranges of a name hold operations, and nearly all of a path on a rank."""
    ops = np.flatnonzero(_is_named(graph, name))
    covers = _longest(graph, path, ops) >= _NEARLY_ALL * path.length
    return covers and bool(np.isin(graph.op_parent, ops).any())


def _is_named(graph: EventGraph, name: str) -> Bools:
    """Return which operations have a name; bool, shape (ops,)."""
    which, texts = graph.name_codes()
    if name not in texts:
        return np.zeros(graph.num_ops, dtype=np.bool_)
    found: Bools = which == texts.index(name)
    return found


def _longest(graph: EventGraph, path: CriticalPath, ops: Ints) -> int:
    """Return how much of the time of a path operations cover on the rank where that is most."""
    begin = int(path.segments["start"][0])
    time = np.clip(graph.time[: 2 * graph.num_ops], begin, begin + path.length)
    ranks = len(graph.job.ranks)
    lengths = union_lengths(time[2 * ops], time[2 * ops + 1], graph.op_trace[ops], ranks)
    return int(lengths.max())


def _without_waits(graph: EventGraph, waits: ThreadWaits) -> Iterator[tuple[Change, str]]:
    """Yield no waits of threads, by what they wait in, or else by what they do next."""
    around = graph.names(np.maximum(waits.around, 0), waits.around < 0).to_list()
    following = graph.names(np.maximum(waits.next_op, 0), waits.next_op < 0).to_list()
    inside: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for name, later, time in zip(around, following, waits.time_ns.tolist(), strict=True):
        if _OWN_LOADER in name:  # it works in this thread
            continue
        if name and not re.match(_NO_PLACE, name):
            inside[name] += time
        elif later:
            before[later] += time
    for name, _ in inside.most_common(_MOST_WAITS):
        is_loader = _LOADER in name
        within = _LOADER if is_loader else _expression(name, ())
        about = (
            "wait for the data loader" if is_loader else f"wait in {name.removeprefix(_SAMPLED)}"
        )
        yield ScaleWait(Selection(inside=within), 0.0), about
    for name, _ in before.most_common(_MOST_WAITS):
        yield ScaleWait(Selection(name=_expression(name, ())), 0.0), f"wait before {name}"


def _faster_threads(graph: EventGraph, path: CriticalPath) -> Iterator[tuple[Change, str]]:
    """Yield half of the time for threads that others wait for: not the leading one of a rank."""
    on_host = path.segments.filter(pl.col("kind") == "host op")
    times = on_host.group_by("rank", "thread").agg(time=(pl.col("end") - pl.col("start")).sum())
    several = len(graph.job.ranks) > 1
    times = times.sort("rank", "time", "thread", descending=[False, True, False])
    second = times.group_by("rank", maintain_order=True).agg(pl.all().slice(1, 1)).explode(
        "thread", "time", empty_as_null=False
    )  # fmt: skip
    for rank, thread, time in second.rows():
        if time >= _WORTH_CAPTURING * path.length:
            ranks = (rank,) if several else ()
            of_rank = f" of rank {rank}" if several else ""
            selection = Selection(ranks=ranks, threads=(thread,), kinds=("host",))
            yield Scale(selection, _HALF), f"thread {thread}{of_rank}"


def _leading_class(kernels: pl.DataFrame) -> Iterator[tuple[Change, str]]:
    """Yield half of the time for the class of kernels with the largest share, if it has several."""
    classes = pl.Series([kernel_class(name) for name in kernels["name"]], dtype=pl.String)
    sums = kernels.with_columns(of=classes).filter(pl.col("of") != OTHER_KERNELS)
    sums = sums.group_by("of").agg(pl.sum("time"), pl.len()).sort("time", "of", descending=True)
    if sums.height and sums["len"][0] > 1:
        leads = sums["of"][0]
        yield (
            Scale(Selection(name=KERNEL_CLASSES[leads], kinds=("kernel",)), _HALF),
            f"{leads} kernels",
        )


def _expression(name: str, others: Iterable[str]) -> str:
    """Return an expression for one name alone: short, if a word of a long name occurs nowhere else.

    Steps of the profiler are one name.
    """
    if name.startswith("ProfilerStep"):
        return "^ProfilerStep"
    if name.startswith(CALL):  # a leading range has no number
        return rf"^{re.escape(name)}(_\d+)?$"
    if len(name) > _LONG_NAME and others:
        for word in _WORD.findall(name):
            if sum(word in other for other in others) == 1:
                return str(word)
    return f"^{re.escape(name)}$"
