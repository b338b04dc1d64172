"""Two recordings of a program side by side: what changed, and what lengthens the step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.analyze.module_times import time_by_module
from nadi.analyze.recorded.call_stacks import flame_graph
from nadi.analyze.recorded.rank_events import events_of
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.event_graph import EventGraph
from nadi.graph.module_tree import PHASES
from nadi.graph.windows import MARK, Window, step_times
from nadi.model.schema import DEVICE_WORK

__all__ = ["ComparedRuns", "RunSide", "compare_runs", "compare_sums"]

_SAME = 0.02  # of a mean duration or a count: below, nothing changed
_STEP = re.compile(rf"^{MARK}#\d+$")
_LINE = r"\.py\(\d+\): "
_ADDRESS = r" at 0x[0-9a-f]+"
_RUNTIME = r"^(?:cuda|hip|cu)[A-Z]"
_SEPARATOR = " > "


class RunSide(NamedTuple):
    """One of the two: its graph, the window that is compared, the path through it, its steps.

    ``num_steps`` is the number of steps in the window; 1 if it is not divided into steps.
    """

    graph: EventGraph
    window: Window
    path: CriticalPath
    num_steps: int


@dataclass(frozen=True, eq=False)
class ComparedRuns:
    """What differs between two runs. All times are ns per step, or of recordings without steps.

    Attributes
    ----------
    of
        What all times are of: a ``step``, or the ``recording`` where no steps are marked.
    before_ns, after_ns
        Its length.
    path
        A row per operation and kind on either critical path, the largest change first: ``name``,
        ``kind``, ``before_ns``, ``after_ns``, ``change_ns``, ``cause``. The changes add up to that
        of the step.
    kernels
        A row per name of device work: ``name``, ``count_before``, ``count_after``, ``before_ns``,
        ``after_ns``, ``change_ns``, ``state``: added, removed, slower, faster or same.
    calls
        The same per path of calls on the host (``path``): ``count_before``, ``count_after``,
        ``before_ns`` and ``after_ns`` (host), ``device_before_ns`` and ``device_after_ns`` (work
        launched), without nested calls; ``change_ns`` (both), ``state``.
    modules
        The same per module (its path, ``module``), without the modules in it: host time of its
        forward, backward and optimizer, and the device work that these launch. Without modules
        annotations count as such; empty if there are none.
    steps
        A row per rank and step, the first step of one beside the first of the other: ``rank``,
        ``step``, ``before``, ``after`` (their numbers), ``before_ns``, ``after_ns``,
        ``change_ns``; empty if no steps are marked.
    """

    of: str
    before_ns: float
    after_ns: float
    path: pl.DataFrame
    kernels: pl.DataFrame
    calls: pl.DataFrame
    modules: pl.DataFrame
    steps: pl.DataFrame

    def __repr__(self) -> str:
        return f"<ComparedRuns {self.before_ns:.0f} -> {self.after_ns:.0f} ns>"


def compare_runs(before: RunSide, after: RunSide) -> ComparedRuns:
    """Compare two runs by name, structure, module, rank and step, and on the critical path.

    O(operations * depth) of both.
    """
    sides = (before, after)
    lengths = [side.window.length(side.graph.time) / side.num_steps for side in sides]
    return ComparedRuns(
        of="step" if all(map(_marked_steps, sides)) else "recording",
        before_ns=lengths[0],
        after_ns=lengths[1],
        path=_compared_paths(before, after),
        kernels=compare_sums([_device_work(side) for side in sides], ["name"], ["ns"]),
        calls=compare_sums([_calls(side) for side in sides], ["path"], ["ns", "device"]),
        modules=compare_sums([_modules(side) for side in sides], ["module"], ["ns", "device"]),
        steps=_compared_steps(before, after),
    )


def _operations(side: RunSide) -> pl.DataFrame:
    """Return the operations that begin in the window: name, duration, whether of a device."""
    graph = side.graph
    begin, end = side.window.start(graph.time), side.window.end(graph.time)
    start = graph.time[0 : 2 * graph.num_ops : 2]
    inside = np.flatnonzero((start >= begin) & (start <= end))
    return pl.DataFrame({
        "name": _aligned(graph.names(inside)),
        "ns": graph.time[2 * inside + 1] - start[inside],
        "on_device": graph.gather("category", inside).is_in(DEVICE_WORK),
    })  # fmt: skip


def _device_work(side: RunSide) -> pl.DataFrame:
    found = _operations(side).filter("on_device").group_by("name")
    return found.agg(count=pl.len() / side.num_steps, ns=pl.sum("ns") / side.num_steps)


def _calls(side: RunSide) -> pl.DataFrame:
    """Sum host calls by path over all ranks: count, time without nested calls, device time.

    Calls of the runtime, which have another name on each vendor's devices, count for the operator
    around them; the lines of Python functions, which any edit moves, are left out.
    """
    begin, end = side.window.start(side.graph.time), side.window.end(side.graph.time)
    origin = side.graph.job.origin
    parts = []
    for trace in side.graph.job.traces:
        frames = flame_graph(events_of(trace), between=(begin + origin, end + origin))
        parent = frames["parent"].to_numpy()
        device = frames["device_ns"].to_numpy().copy()
        nested = np.flatnonzero(parent >= 0)
        np.subtract.at(device, parent[nested], frames["device_ns"].to_numpy()[nested])
        names = _aligned(frames["name"])
        is_runtime = names.str.contains(_RUNTIME)
        paths: list[str] = []
        for name, above, merged in zip(names, parent.tolist(), is_runtime, strict=True):
            around = paths[above] if above >= 0 else ""
            kept = name if not merged or above < 0 else ""
            paths.append(_SEPARATOR.join(filter(None, (around, kept))))
        count = pl.when(is_runtime & pl.Series(parent >= 0)).then(0).otherwise("count")
        parts.append(frames.select(
            "self_ns", count=count, device=pl.Series(device), path=pl.Series(paths, dtype=pl.String)
        ))  # fmt: skip
    return (
        pl.concat(parts)
        .group_by("path")
        .agg(
            count=pl.sum("count") / side.num_steps, ns=pl.sum("self_ns") / side.num_steps,
            device=pl.sum("device") / side.num_steps,
        )
    )  # fmt: skip


def _modules(side: RunSide) -> pl.DataFrame:
    """Sum host and device time by module, without the modules in each; none without modules."""
    found = time_by_module(side.graph, side.window, side.path).table
    parent = found["parent"].to_numpy()
    nested = np.flatnonzero(parent >= 0)
    columns = {"count": found["calls"].to_numpy() / side.num_steps}
    for name, place in (("ns", "host"), ("device", "device")):
        own = found.select(pl.sum_horizontal(f"{phase}_{place}" for phase in PHASES))
        whole = own.to_series().to_numpy()
        without = whole.copy()
        np.subtract.at(without, parent[nested], whole[nested])
        columns[name] = without / side.num_steps
    table = pl.DataFrame({"module": found["module"], **columns})
    return table if table.height > 1 else table.clear()


def _aligned(names: pl.Series) -> pl.Series:
    """Return names without what differs from run to run: numbers of steps, lines, addresses."""
    return (
        names.str.replace(_STEP.pattern, MARK).str.replace(_LINE, ".py: ").str.replace(_ADDRESS, "")
    )


def compare_sums(sides: list[pl.DataFrame], keys: list[str], times: list[str]) -> pl.DataFrame:
    """Put sums side by side, the largest change first, with what became of each.

    Parameters
    ----------
    sides
        Tables of before and after, with the keys, ``count``, and each of ``times``.
    keys, times
        Names of columns.

    Returns
    -------
    polars.DataFrame
        A row per key of either: the keys, ``count_before``, ``count_after``, ``before_ns`` and
        ``after_ns`` (with the name of the time before it, but of ``ns``), ``change_ns``,
        ``state``: added, removed, slower, faster or same.
    """
    before, after = sides
    both = before.join(after, on=keys, how="full", suffix="_after", coalesce=True).fill_null(0)
    prefix = {name: "" if name == "ns" else f"{name}_" for name in times}
    was, became = pl.col("count"), pl.col("count_after")
    change = pl.sum_horizontal(pl.col(f"{name}_after") - pl.col(name) for name in times)
    total = pl.sum_horizontal(times)
    state = (
        pl.when(was == 0).then(pl.lit("added"))
        .when(became == 0).then(pl.lit("removed"))
        .when(change > _SAME * total).then(pl.lit("slower"))
        .when(change < -_SAME * total).then(pl.lit("faster"))
        .otherwise(pl.lit("same"))
    )  # fmt: skip
    return (
        both.select(
            *keys, was.alias("count_before"), became.alias("count_after"),
            *(column for name in times for column in (
                pl.col(name).alias(f"{prefix[name]}before_ns"),
                pl.col(f"{name}_after").alias(f"{prefix[name]}after_ns"))),
            change.alias("change_ns"), state.alias("state"),
        )
        .sort(pl.col("change_ns").abs(), *keys, descending=[True, *(False for _ in keys)])
    )  # fmt: skip


def _compared_paths(before: RunSide, after: RunSide) -> pl.DataFrame:
    sums = [
        side.path.segments.with_columns(_aligned(side.path.segments["name"].cast(pl.String)))
        .group_by("name", "kind")
        .agg(ns=(pl.col("end") - pl.col("start")).sum() / side.num_steps)
        for side in (before, after)
    ]  # fmt: skip
    each = [
        _operations(side).group_by("name").agg(count=pl.len() / side.num_steps, mean=pl.mean("ns"))
        for side in (before, after)
    ]
    both = sums[0].join(sums[1], on=["name", "kind"], how="full", suffix="_after", coalesce=True)
    for side, suffix in zip(each, ("_was", "_is"), strict=True):
        renamed = side.rename({"count": f"count{suffix}", "mean": f"mean{suffix}"})
        both = both.join(renamed, on="name", how="left")
    known = both.with_columns(pl.col("ns", "ns_after", "count_was", "count_is").fill_null(0.0))
    was, became = pl.col("count_was"), pl.col("count_is")
    ratio = pl.col("mean_is") / pl.col("mean_was")
    cause = (
        pl.when(pl.col("ns") == pl.col("ns_after")).then(pl.lit("same"))
        .when((was == 0) & (became == 0)).then(pl.lit("waiting"))
        .when(was == 0).then(pl.lit("added"))
        .when(became == 0).then(pl.lit("removed"))
        .when(ratio > 1 + _SAME).then(pl.lit("slower"))
        .when(ratio < 1 - _SAME).then(pl.lit("faster"))
        .when(became > was * (1 + _SAME)).then(pl.lit("called more"))
        .when(became < was * (1 - _SAME)).then(pl.lit("called less"))
        .when(pl.col("ns_after") > pl.col("ns")).then(pl.lit("moved onto the path"))
        .otherwise(pl.lit("moved off the path"))
    )  # fmt: skip
    return (
        known.select(
            "name", pl.col("kind").cast(pl.String), pl.col("ns").alias("before_ns"),
            pl.col("ns_after").alias("after_ns"), change_ns=pl.col("ns_after") - pl.col("ns"),
            cause=cause,
        )
        .sort(pl.col("change_ns").abs(), "name", "kind", descending=[True, False, False])
    )  # fmt: skip


def _compared_steps(before: RunSide, after: RunSide) -> pl.DataFrame:
    was, became = map(_steps_of_ranks, (before, after))
    both = was.join(became, on=["rank", "step"], suffix="_after")
    return both.select(
        "rank", "step", before="number", after="number_after", before_ns="ns",
        after_ns="ns_after", change_ns=pl.col("ns_after") - pl.col("ns"),
    ).sort("rank", "step")  # fmt: skip


def _marked_steps(side: RunSide) -> list[Window]:
    steps = side.window.steps or ((side.window,) if side.window.number >= 0 else ())
    return [step for step in steps if step.mark == MARK]


def _steps_of_ranks(side: RunSide) -> pl.DataFrame:
    """List the marked steps of the window on each rank: their positions, numbers and times."""
    graph, marked = side.graph, _marked_steps(side)
    rows = [
        (rank, position, marked[position].number, took)
        for place, rank in enumerate(graph.job.ranks)
        for position, took in enumerate(step_times(graph, marked, graph.time, place).tolist())
    ]
    schema = dict.fromkeys(("rank", "step", "number", "ns"), pl.Int64)
    return pl.DataFrame(rows, schema=schema, orient="row")
