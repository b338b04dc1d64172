"""Two recordings of a program side by side: what changed, and what lengthens the step.

Two recordings compared, from files.

By which factor all that did not change takes longer in a second recording: the machine.

How a program runs: compiled, in graphs, on devices of which vendor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import polars as pl

from nadi.analyses.recorded.call_stacks import flame_graph
from nadi.analyses.recorded.events import events_of
from nadi.bottlenecks.steps.run import Run
from nadi.graph.critical_paths import CriticalPath, walk_critical_path
from nadi.graph.event_graph import EventGraph
from nadi.graph.load_graph import load_graph
from nadi.graph.module_times import time_by_module
from nadi.graph.module_tree import PHASES
from nadi.graph.operand_shapes import shapes_in, with_other_shapes
from nadi.graph.rank_excess import group_operations
from nadi.graph.replay import replay_graph
from nadi.graph.windows import MARK, Window, choose_window, find_steps, step_times
from nadi.kernels.sequences import union_length
from nadi.trace.arrays import Bools
from nadi.trace.categories import kernel_class
from nadi.trace.schema import DEVICE_WORK

if TYPE_CHECKING:
    from nadi.recordings.job_of_files import Reading


FORMS_OF_PROGRAMS = {
    "compilation": r"\(dynamo_timed\)$|^_?compile(?:_inner|_fx)\b",
    "compiled regions": r"^Torch-Compiled Region",
    "launches of graphs": r"^(?:cuda|hip|cu)GraphLaunch",
    "captures of graphs": r"^(?:cuda|hip|cu)StreamBeginCapture",
}
"""Of each way in which a program can run, an expression for the operations that show it."""

_VENDORS = {"NVIDIA": r"^(?:cuda|cu)[A-Z]", "AMD": r"^hip[A-Z]"}
_LAUNCHES = r"^(?:cuda|cu|hip)(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel\w*$"
_PREFIX = r"^(?:cuda|cu|hip)([A-Z])"


def program_forms(graph: EventGraph, inside: Bools, num_steps: int) -> pl.DataFrame:
    """Count what shows how a program runs, by ``FORMS_OF_PROGRAMS``.

    - ``inside``: bool, shape (ops,): what is compared.
    - Returns: ``form``, ``count`` and ``ns`` (of threads in it) per step; a row of each.
      O(operations).
    """
    rows = []
    for form, expression in FORMS_OF_PROGRAMS.items():
        ops = np.flatnonzero(inside & graph.named(expression))
        total = 0
        for trace in range(len(graph.job.traces)):
            own = ops[graph.op_trace[ops] == trace]
            total += union_length(graph.time[2 * own], graph.time[2 * own + 1])
        rows.append((form, ops.size / num_steps, total / num_steps))
    schema = {"form": pl.String, "count": pl.Float64, "ns": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def vendors_of(graph: EventGraph) -> set[str]:
    """Return the vendors of whose runtimes a recording has calls."""
    return {vendor for vendor, calls in _VENDORS.items() if graph.named(calls).any()}


def common_names(graph: EventGraph) -> pl.Series:
    """Return names under which the work of devices of different vendors can be compared.

    A kernel is its class and the outermost operator that launched it; calls that launch are one
    name, and other calls lose the vendor's prefix. Text, shape (ops,). O(ops * depth).
    """
    groups = group_operations(graph)
    on_device = graph.gather("category").is_in(DEVICE_WORK).to_numpy()
    work = np.flatnonzero(on_device)
    names = graph.op_names.to_numpy().copy()
    for op, own in zip(work.tolist(), names[work].tolist(), strict=True):
        operator = groups.names[groups.operator[op]]
        names[op] = f"{operator}: {kernel_class(own)}" if operator != own else kernel_class(own)
    return (
        pl.Series("name", names, dtype=pl.String)
        .str.replace(_LAUNCHES, "launch of a kernel")
        .str.replace(_PREFIX, "$1")
    )


_FEWEST = 8  # operations of different names
_NEAR = 0.15  # of the factor
_MOST_OF_IT = 0.6


@dataclass(frozen=True)
class Speed:
    """How many times as long unchanged operations take, by place; 1 where no factor is common.

    Attributes
    ----------
    host
        Of operators and Python on threads.
    device
        Of kernels, copies and memory sets.
    """

    host: float
    device: float

    @property
    def is_same(self) -> bool:
        """Whether both are as fast as before."""
        return self.host == self.device == 1


def speed_of(sides: list[pl.DataFrame], keys: list[str], changed: set[str]) -> float:
    """Return the factor by which most of the unchanged time got longer; 1 if there is none.

    Unchanged is what runs as often on both sides, with operands of the same shapes. The factor is
    the median of its ratios, weighted by time. It counts if there are at least eight names, if
    these are half of all time, and if six tenths of their time lie within 15 % of the factor.

    - ``sides``: Tables of before and after, with the keys, ``count`` and ``ns``.
    - ``changed``: Names with other shapes; of a path the last name counts.
    """
    # in marks are waits, and in frames of Python that wait for the backward on another thread
    last = pl.col(keys[0]).str.split(" > ").list.last()
    works = (pl.col(keys[0]) != MARK) & ~last.str.contains(_FRAME)
    own = [side.filter(works) for side in sides]
    before, after = own
    both = before.join(after, on=keys, suffix="_after").filter(
        (pl.col("ns") > 0) & (pl.col("ns_after") > 0) & (pl.col("count") > 0)
        & ((pl.col("count_after") / pl.col("count") - 1).abs() <= _SAME)
        & ~last.is_in(sorted(changed))
    )  # fmt: skip
    ratio, weight = (both["ns_after"] / both["ns"]).to_numpy(), both["ns"].to_numpy()
    if both.height < _FEWEST or 2 * weight.sum() < before["ns"].sum():
        return 1.0
    order = np.argsort(ratio, kind="stable")
    reached = np.cumsum(weight[order])
    factor = float(ratio[order][np.searchsorted(reached, reached[-1] / 2)])
    near = weight[np.abs(ratio / factor - 1) <= _NEAR].sum()
    is_common = near >= _MOST_OF_IT * weight.sum() and abs(factor - 1) > _SAME
    return factor if is_common else 1.0


_SAME = 0.02  # of a mean duration or a count: below, nothing changed
_STEP = re.compile(rf"^{MARK}#\d+$")
_LINE = r"\.py\(\d+\): "
_FRAME = r"\.py: |^<built-in |^nn\.Module: "  # of Python
_ADDRESS = r" at 0x[0-9a-f]+"
_COMPILED = r"(CompiledFxGraph) \w+"
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
    speed
        How many times as long everything takes that did not change: the machine.
    forms
        What shows how the program runs, if it differs: ``form`` (as compiled regions),
        ``count_before``, ``count_after``, ``before_ns``, ``after_ns``, ``change_ns``, ``state``.
    vendors
        Of each side, the vendors of the devices, by the calls of their runtimes. If they differ,
        ``path`` and ``kernels`` have names that both share: operator and class of a kernel.
    path
        A row per operation and kind on either critical path, the largest change first: ``name``,
        ``kind``, ``before_ns``, ``after_ns``, ``change_ns``, ``machine_ns``, ``cause``. The changes
        add up to that of the step. ``machine_ns`` is what the machine explains of each.
    kernels
        A row per name of device work: ``name``, ``count_before``, ``count_after``, ``before_ns``,
        ``after_ns``, ``change_ns``, ``machine_ns``, ``state``: added, removed, called more, called
        less, slower, faster or same; of more calls that take less time in all, and of fewer that
        take more, both.
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
    speed: Speed
    forms: pl.DataFrame
    vendors: tuple[tuple[str, ...], tuple[str, ...]]
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
    vendors = [vendors_of(side.graph) for side in sides]
    other_vendor = bool(vendors[0] and vendors[1] and not vendors[0] & vendors[1])
    operations = [_operations(side, other_vendor=other_vendor) for side in sides]
    kernels = [_device_work(table, side) for table, side in zip(operations, sides, strict=True)]
    calls = [_calls(side) for side in sides]
    changed = with_other_shapes(*(shapes_in(side.graph, side.window) for side in sides))
    speed = Speed(
        speed_of(calls, ["path"], changed),
        1.0 if other_vendor else speed_of(kernels, ["name"], set()),
    )
    return ComparedRuns(
        of="step" if all(map(marked_steps, sides)) else "recording",
        before_ns=lengths[0],
        after_ns=lengths[1],
        speed=speed,
        forms=_forms(sides),
        vendors=(tuple(sorted(vendors[0])), tuple(sorted(vendors[1]))),
        path=_compared_paths(sides, operations, speed),
        kernels=compare_sums(kernels, ["name"], {"ns": speed.device}),
        calls=compare_sums(calls, ["path"], {"ns": speed.host, "device": speed.device}),
        modules=compare_sums(
            _of_modules(sides), ["module"], {"ns": speed.host, "device": speed.device}
        ),
        steps=_compared_steps(before, after),
    )  # fmt: skip


def _inside(side: RunSide) -> Bools:
    """Return the operations that begin in the window; bool, shape (ops,)."""
    start = side.graph.time[0 : 2 * side.graph.num_ops : 2]
    begin, end = side.window.start(side.graph.time), side.window.end(side.graph.time)
    inside: Bools = (start >= begin) & (start <= end)
    return inside


def _issued(side: RunSide) -> Bools:
    """Return the operations of the window, and earlier ones that launch its work; bool, (ops,).

    Where what precedes a window is left out, since devices were busy, its calls are there.
    """
    inside = _inside(side)
    if side.window.after_earlier_work:
        ops = np.unique(side.graph.recorded_launchers[inside])
        while (ops := ops[ops >= 0]).size:
            inside[ops] = True
            ops = np.unique(side.graph.op_parent[ops])
    return inside


def _operations(side: RunSide, *, other_vendor: bool) -> pl.DataFrame:
    """Return all operations: name, duration, rank, row, whether of a device and in the window."""
    graph = side.graph
    names = common_names(graph) if other_vendor else graph.op_names
    return pl.DataFrame({
        "name": _aligned(names),
        "ns": graph.time[1 : 2 * graph.num_ops : 2] - graph.time[0 : 2 * graph.num_ops : 2],
        "on_device": graph.gather("category").is_in(DEVICE_WORK),
        "rank": pl.Series(graph.job.ranks, dtype=pl.Int64).gather(graph.op_trace),
        "node": graph.op_row,
        "inside": _inside(side),
    })  # fmt: skip


def _device_work(operations: pl.DataFrame, side: RunSide) -> pl.DataFrame:
    found = operations.filter(pl.col("on_device") & pl.col("inside")).group_by("name")
    return found.agg(count=pl.len() / side.num_steps, ns=pl.sum("ns") / side.num_steps)


def _forms(sides: tuple[RunSide, RunSide]) -> pl.DataFrame:
    """Return the forms of the programs that one has and the other has not, or not as often."""
    each = [program_forms(side.graph, _issued(side), side.num_steps) for side in sides]
    return compare_sums(each, ["form"], {"ns": 1.0}).filter(
        pl.col("count_before") != pl.col("count_after")
    )


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


def _of_modules(sides: tuple[RunSide, RunSide]) -> list[pl.DataFrame]:
    """Sum time by module on both sides; nothing where neither has modules."""
    found = [_modules(side) for side in sides]
    return found if any(one.height > 1 for one in found) else [one.clear() for one in found]


def _modules(side: RunSide) -> pl.DataFrame:
    """Sum host and device time by module, without the modules in each, and outside of modules."""
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
    return pl.DataFrame({"module": found["module"], **columns})


def _aligned(names: pl.Series) -> pl.Series:
    """Return names without what differs from run to run: steps, lines, addresses, keys."""
    return (
        names.str.replace(_STEP.pattern, MARK)
        .str.replace(_LINE, ".py: ")
        .str.replace(_ADDRESS, "")
        .str.replace(_COMPILED, "$1")
    )


def compare_sums(
    sides: list[pl.DataFrame], keys: list[str], times: dict[str, float]
) -> pl.DataFrame:
    """Put sums side by side, the largest change first, with what became of each.

    - ``sides``: Tables of before and after, with the keys, ``count``, and each of ``times``.
    - ``keys``: Names of columns.
    - ``times``: Names of columns, and how many times as long each takes without a change of the
      program.
    - Returns: A row per key of either: the keys, ``count_before``, ``count_after``, ``before_ns``
      and ``after_ns`` (with the name of the time before it, but of ``ns``), ``change_ns``,
      ``machine_ns`` (what the factors explain of it), ``state``: what became of it, as
      :func:`_state` says.
    """
    before, after = sides
    both = before.join(after, on=keys, how="full", suffix="_after", coalesce=True).fill_null(0)
    prefix = {name: "" if name == "ns" else f"{name}_" for name in times}
    total, became = pl.sum_horizontal(list(times)), pl.sum_horizontal(f"{n}_after" for n in times)
    expected = pl.sum_horizontal(pl.col(name) * factor for name, factor in times.items())
    machine = pl.when((total > 0) & (became > 0)).then(expected - total).otherwise(0.0)
    state = _state(pl.col("count"), pl.col("count_after"), expected, became)
    return (
        both.select(
            *keys, pl.col("count").alias("count_before"), "count_after",
            *(column for name in times for column in (
                pl.col(name).alias(f"{prefix[name]}before_ns"),
                pl.col(f"{name}_after").alias(f"{prefix[name]}after_ns"))),
            change_ns=became - total, machine_ns=machine, state=state,
        )
        .sort((pl.col("change_ns") - pl.col("machine_ns")).abs(), *keys,
              descending=[True, *(False for _ in keys)])
    )  # fmt: skip


def _state(was: pl.Expr, became: pl.Expr, expected: pl.Expr, took: pl.Expr) -> pl.Expr:
    """Say what became of calls: how often they run, and else how long each takes.

    Their number leads if it changed by a factor that is at least the square root of the factor by
    which the time of each changed. If their whole time changed the other way, both are said.
    """
    often = (became / was).log()
    each = (took / became) / (expected / was)
    counts = (was > 0) & (became > 0)
    leads = counts & (often.abs() > np.log1p(_SAME))
    leads &= 2 * often.abs() >= each.log().abs().fill_nan(0)
    ratio = pl.when(counts).then(each).otherwise(took / expected).fill_nan(1.0)
    more, less = leads & (became > was), leads & (became < was)
    return (
        pl.when((was == 0) & (expected == 0) & (took + became > 0)).then(pl.lit("added"))
        .when((became == 0) & (took == 0) & (expected + was > 0)).then(pl.lit("removed"))
        .when(more & (took <= expected)).then(pl.lit("called more, each faster"))
        .when(less & (took >= expected)).then(pl.lit("called less, each slower"))
        .when(more).then(pl.lit("called more"))
        .when(less).then(pl.lit("called less"))
        .when(ratio > 1 + _SAME).then(pl.lit("slower"))
        .when(ratio < 1 - _SAME).then(pl.lit("faster"))
        .otherwise(pl.lit("same"))
    )  # fmt: skip


_LENGTHENS = ("called more", "called less, each slower", "slower")
_SHORTENS = ("called less", "called more, each faster", "faster")
_OWN_TIME = ("host op", "kernel", "communication", "memory")  # kinds that are operations


def path_cause(state: pl.Expr, was: pl.Expr, became: pl.Expr) -> pl.Expr:
    """Say why an operation takes another time of the critical path.

    What became of its calls, if that changes their time the same way; else that it moved, or that
    other work hides more or less of it. Of gaps and launches, which are no time of the operation,
    only the number of calls is a cause.

    - ``state``: Of its calls, as :func:`_state` says.
    - ``was``, ``became``: How often it runs.
    - Returns: Of a table with ``kind``, ``before_ns``, ``after_ns`` and ``machine_ns``, those of
      the path.
    """
    before, after = pl.col("before_ns"), pl.col("after_ns")
    change = after - before - pl.col("machine_ns")
    is_own = pl.col("kind").is_in(_OWN_TIME)
    fits = ((change > 0) & state.is_in(_LENGTHENS)) | ((change < 0) & state.is_in(_SHORTENS))
    fits &= is_own | state.is_in(["called more", "called less"])
    onto, off = pl.lit("moved onto the path"), pl.lit("moved off the path")
    moved = pl.when(change > 0).then(onto).otherwise(off)
    hidden = pl.when(change > 0).then(pl.lit("hidden less")).otherwise(pl.lit("hidden more"))
    return (
        pl.when(change == 0).then(pl.lit("same"))
        .when((was == 0) & (became == 0)).then(pl.lit("waiting"))
        .when((was == 0) & (before == 0)).then(pl.lit("added"))
        .when((became == 0) & (after == 0)).then(pl.lit("removed"))
        .when((before == 0) | (after == 0)).then(moved)
        .when(fits).then(state)
        .when(is_own).then(hidden)
        .when(change > 0).then(pl.lit("longer"))
        .otherwise(pl.lit("shorter"))
    )  # fmt: skip


def _compared_paths(
    sides: tuple[RunSide, RunSide], operations: list[pl.DataFrame], speed: Speed
) -> pl.DataFrame:
    sums, each = [], []
    for side, table in zip(sides, operations, strict=True):
        segments = side.path.segments.select(
            "rank", "node", "kind", own=_aligned(side.path.segments["name"].cast(pl.String)),
            ns=(pl.col("end") - pl.col("start")) / side.num_steps,
        ).join(table.select("rank", "node", "name"), on=["rank", "node"], how="left")  # fmt: skip
        named = segments.with_columns(name=pl.coalesce("name", "own"))
        sums.append(named.group_by("name", "kind").agg(pl.sum("ns")))
        each.append(table.filter("inside").group_by("name").agg(
            count=pl.len() / side.num_steps, ns=pl.sum("ns") / side.num_steps
        ))  # fmt: skip
    both = sums[0].join(sums[1], on=["name", "kind"], how="full", suffix="_after", coalesce=True)
    calls = each[0].join(each[1], on="name", how="full", suffix="_after", coalesce=True)
    calls = calls.rename({"ns": "each", "ns_after": "each_after"})
    kind = pl.col("kind").cast(pl.String)
    factor = (
        pl.when(kind.is_in(["host op", "host gap"])).then(speed.host)
        .when(kind == "kernel").then(speed.device)
        .otherwise(1.0)
    )  # fmt: skip
    known = both.join(calls, on="name", how="left").with_columns(
        pl.col("ns", "ns_after", "count", "count_after", "each", "each_after").fill_null(0.0)
    )
    was, became, took = pl.col("count"), pl.col("count_after"), pl.col("each_after")
    state = _state(was, became, pl.col("each") * factor, took)
    on_both = (pl.col("ns") > 0) & (pl.col("ns_after") > 0)
    return (
        known.select(
            "name", pl.col("kind").cast(pl.String), pl.col("ns").alias("before_ns"),
            pl.col("ns_after").alias("after_ns"), change_ns=pl.col("ns_after") - pl.col("ns"),
            machine_ns=pl.when(on_both).then(pl.col("ns") * (factor - 1)).otherwise(0.0),
            state=state, was=was, became=became,
        )
        .with_columns(cause=path_cause(pl.col("state"), pl.col("was"), pl.col("became")))
        .drop("state", "was", "became")
        .sort((pl.col("change_ns") - pl.col("machine_ns")).abs(), "name", "kind",
              descending=[True, False, False])
    )  # fmt: skip


def _compared_steps(before: RunSide, after: RunSide) -> pl.DataFrame:
    was, became = map(_steps_of_ranks, (before, after))
    both = was.join(became, on=["rank", "step"], suffix="_after")
    return both.select(
        "rank", "step", before="number", after="number_after", before_ns="ns",
        after_ns="ns_after", change_ns=pl.col("ns_after") - pl.col("ns"),
    ).sort("rank", "step")  # fmt: skip


def marked_steps(side: RunSide) -> list[Window]:
    """Return the marked steps of the window; none in a recording without marks."""
    steps = side.window.steps or ((side.window,) if side.window.number >= 0 else ())
    return [step for step in steps if step.is_marked]


def _steps_of_ranks(side: RunSide) -> pl.DataFrame:
    """List the marked steps of the window on each rank: their positions, numbers and times."""
    graph, marked = side.graph, marked_steps(side)
    rows = [
        (rank, position, marked[position].number, took)
        for place, rank in enumerate(graph.job.ranks)
        for position, took in enumerate(step_times(graph, marked, graph.time, place).tolist())
    ]
    schema = dict.fromkeys(("rank", "step", "number", "ns"), pl.Int64)
    return pl.DataFrame(rows, schema=schema, orient="row")


_Places = Path | str | Sequence[Path | str]


def diff(
    before: _Places,
    after: _Places,
    *,
    step: str | int = "all",
    progress: Callable[[str], None] = lambda _: None,
    **reading: Unpack[Reading],
) -> ComparedRuns:
    """Compare two recordings of a program: what got slower, and what of it lengthens the step.

    Parameters
    ----------
    before, after
        A folder or file of each, or several, as for :func:`nadi.run`.
    step
        Number of a step of both, or ``all``: then times are means over the steps of each.
    progress
        Called with a line of text before each longer stage.
    reading
        ``force``, ``capture`` and ``executor`` for both, as in :func:`nadi.load_job`.

    Raises
    ------
    InputError
        If files cannot be read.
    UsageError
        If a recording has no such step.
    """
    return compare_runs(
        *(read_side(places, str(step), reading, progress) for places in (before, after))
    )


def diff_runs(before: Run, after: Run) -> ComparedRuns:
    """Compare two recordings that are analysed already, each in the window of its analysis."""
    return compare_runs(*(
        RunSide(run.graph, run.window, run.path, max(run.num_steps, 1))
        for run in (before, after)
    ))  # fmt: skip


def read_side(
    places: _Places, step: str, reading: Reading, progress: Callable[[str], None]
) -> RunSide:  # fmt: skip
    """Read one of the recordings that :func:`diff` compares, with its arguments."""
    paths: Any = places if isinstance(places, list | tuple) else [places]
    graph = load_graph(paths, progress, **reading)
    window = choose_window(graph, find_steps(graph), step)
    path = walk_critical_path(replay_graph(graph), window)
    return RunSide(graph, window, path, max(window.num_steps, 1))
