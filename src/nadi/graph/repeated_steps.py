"""Steps of a recording without ``ProfilerStep``: found where marks repeat with the same work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.trace.arrays import Bools, Ints, text_codes
from nadi.trace.schema import DEVICE_WORK

__all__ = ["FoundStep", "repeated_steps"]

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


class _Mark(NamedTuple):
    """A name that repeats: its kind, a position in ``_KINDS``, and the name without numbers."""

    kind: int
    name: str


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

    Parameters
    ----------
    moment
        int64 ns, shape (ops,): when each operation was issued.

    Returns
    -------
    list of FoundStep
        In order of time, at least two, or none: on average at least 80 % of the operations of a
        step are those of a typical one, and steps contain at least half of all operations.
        O(marks * ops + ops log ops).
    """
    ranks = [_rank(graph, number, moment) for number in range(len(graph.job.traces))]
    if not ranks:
        return []
    common = set.intersection(*(set(rank.marks) for rank in ranks))
    sizes = {mark: {rank.marks[mark].size for rank in ranks} for mark in common}
    usable = [mark for mark in common if len(sizes[mark]) == 1 and max(sizes[mark]) <= _MOST_MARKS]
    first = ranks[0].marks
    usable.sort(key=lambda mark: (mark.kind, first[mark].size, graph.time[2 * first[mark][0]]))
    for mark in usable:
        if any(_inside_one_call(graph, rank.marks[mark]) for rank in ranks):
            continue
        if steps := _steps(graph, ranks, mark):
            return steps
    return []


def _rank(graph: EventGraph, number: int, moment: Ints) -> _Rank:
    ops = np.flatnonzero(graph.op_trace == number)
    ops = ops[np.argsort(moment[ops], kind="stable")]
    codes = text_codes(graph.job.traces[number].nodes["name"])[graph.op_row[ops]]
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
        mark, mine = _Mark(int(code), str(name)), part["op"].to_numpy()
        apart = graph.time[2 * mine[1:]] >= graph.time[2 * mine[:-1] + 1]
        if apart.all() and mine.size > largest.get(mark, mine[:0]).size:
            largest[mark] = mine
    yield from largest.items()


def _steps(graph: EventGraph, ranks: list[_Rank], mark: _Mark) -> list[FoundStep]:
    """Return the steps between the marks, or none if they do not resemble each other."""
    side = int(_KINDS[mark.kind] == "optimizer")  # a step ends with the optimizer's call
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
            steps.append(FoundStep(first, last, mark.name, sure))
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

    Parameters
    ----------
    code
        int64, shape (ops,): the name of each operation.
    bounds
        int64, shape (intervals + 1,): operations ``bounds[k]:bounds[k + 1]`` are in interval k.
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
