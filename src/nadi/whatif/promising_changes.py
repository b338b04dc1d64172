"""The changes that gain most, among those that a critical path suggests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from nadi.analyze.rank_excess import Excess
from nadi.errors import UsageError, checked
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window
from nadi.model.kernel_classes import KERNEL_CLASSES, OTHER_KERNELS, kernel_class
from nadi.whatif.balance_change import Balance
from nadi.whatif.balanced_ranks_change import BalancedRanks, ranks_wait
from nadi.whatif.changes import Change
from nadi.whatif.launch_changes import Graphed
from nadi.whatif.prediction_intervals import Interval
from nadi.whatif.scale_and_overhead_changes import NoGaps, NoOverhead, Scale
from nadi.whatif.selection import Selection
from nadi.whatif.what_if_results import WhatIf, what_if

__all__ = ["TriedChange", "best_changes"]

_HALF = 0.5
_MOST_NAMES = 4
_LEAST_GAIN = 0.005  # of the window
_WORTH_CAPTURING = 0.1  # the host's share of the path
_LONG_NAME = 40
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
    step_ns, gain_ns
        The length of the window after the change, and how much shorter that is.
    interval
        How sure both are.
    """

    change: Change
    about: str
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
    most: int = 3,
) -> list[TriedChange]:
    """Try the changes that the critical path suggests, and return those that gain most.

    They are: the operations with the largest shares of the path, and the class of kernels with the
    largest, in half of their time; communication in half of its time; no launch overhead; no gaps
    between operations; a step in one CUDA graph; balanced ranks; and a late rank without its
    excess over the others.

    Parameters
    ----------
    late
        What the latest rank does more than the others; None if no rank is late.
    mark
        The name of what repeats with each step; empty if nothing does.
    most
        The most changes to return. Those that gain less than 0.5 % are left out. If a rank is late,
        the best way to spread its work is among them.

    Returns
    -------
    list of TriedChange
        The largest gain first. O(vertices + edges) for each change tried.
    """
    tried = []
    for change, about in _candidates(graph, path, late, mark):
        try:
            answer = what_if(graph, change, window=window)
        except UsageError:  # does not apply: nothing was launched, or a range waits for its device
            continue
        if answer.gain_ns >= max(_LEAST_GAIN * answer.measured_ns, 1):
            tried.append((answer, about))
            tried = _leading(tried, most)
    return [
        TriedChange(answer.changes[0], about, answer.step_ns, answer.gain_ns, answer.interval)
        for answer, about in tried
    ]


def _leading(tried: list[tuple[WhatIf, str]], most: int) -> list[tuple[WhatIf, str]]:
    """Return those that gain most; of changes for a late rank the best is always among them."""
    by_gain = sorted(tried, key=lambda one: -one[0].gain_ns)
    kept, rest = by_gain[:most], by_gain[most:]
    balances = [one for one in by_gain if isinstance(one[0].changes[0], Balance)]
    if balances and balances[0] in rest:
        kept[-1] = balances[0]
    return kept


def _candidates(
    graph: EventGraph, path: CriticalPath, late: Excess | None, mark: str
) -> Iterator[tuple[Change, str]]:
    if ranks_wait(graph):
        yield BalancedRanks(), ""
    if late is not None:
        yield from _balanced(late)
    times = path.by_kind()
    if times["communication"]:
        yield Scale(Selection(kinds=("communication",)), _HALF), ""
    yield NoOverhead(Selection(kinds=("device",))), ""
    if times["host gap"]:
        yield NoGaps(), ""
    if mark and times["host op"] + times["host gap"] >= _WORTH_CAPTURING * path.length:
        yield Graphed(Selection(name=_expression(mark, ()))), mark
    by_operation = path.by_operation()
    work = by_operation.filter(pl.col("kind").is_in(["host op", "kernel"]) & (pl.col("name") != ""))
    calls = graph.gather("category").is_in(["runtime", "driver"])
    called = graph.op_names.filter(calls).unique()  # their time is overhead
    work = work.filter(~pl.col("name").is_in(called.implode()))
    names = work["name"].head(_MOST_NAMES).to_list()
    others = graph.op_names.unique().to_list() if names else []
    for name in names:
        yield Scale(Selection(name=_expression(name, others)), _HALF), name
    yield from _leading_class(work.filter(pl.col("kind") == "kernel"))


def _balanced(excess: Excess) -> Iterator[tuple[Change, str]]:
    """Yield work spread over the ranks: what one rank does more of has to be done by others."""
    yield Balance(Selection()), ""
    if excess.kind in ("host op", "kernel") and excess.operation.name:
        name = excess.operation.name
        yield Balance(Selection(name=_expression(name, ()))), name


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
    if len(name) > _LONG_NAME and others:
        for word in _WORD.findall(name):
            if sum(word in other for other in others) == 1:
                return str(word)
    return f"^{re.escape(name)}$"
