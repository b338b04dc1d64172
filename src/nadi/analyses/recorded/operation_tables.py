"""Slowdown by stragglers, from tables with one row per operation, rank and step.

The definitions are published (arXiv 2505.05713): a job is simulated with the recorded times of its
operations, and with ideal ones. Each rank and step has the same operations, and they wait for each
other as in the first rank and step. So a job of thousands of ranks is a few hundred operations,
and the times of each are an array over steps and data-parallel ranks.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import InputError, checked
from nadi.trace.arrays import Bools, Floats

_LONGEST = 9e9  # s: what int64 ns hold
_KEY = ("stage", "optype", "seq_id")
OPERATION_COLUMNS: dict[str, type[pl.DataType]] = {
    "dp_rank": pl.Int64, "stage": pl.Int64, "step": pl.Int64, "optype": pl.String,
    "seq_id": pl.Int64, "mc": pl.Int64, "start_ts": pl.Float64, "duration": pl.Float64,
}  # fmt: skip
_COMPUTE = ("forward-compute", "backward-compute")
COMPUTATION = "computation"
"""What a rank of a recording does between collectives."""
_MEANS = (*_COMPUTE, COMPUTATION, "gc", "optimizer")  # the ideal of others is their median
_EMBEDDING, _SCATTER, _CLIP = (
    "embedding-grads-all-reduce", "grads-reduce-scatter", "optimizer-clip-main-grad",
)  # fmt: skip
_TAIL = ("gc", "layernorm-grads-all-reduce", _EMBEDDING, _SCATTER, _CLIP, "optimizer")
_GATHER = "params-all-gather"
_OVER_DP = (_GATHER, _SCATTER, _CLIP)
_OTHER_CLOCK = -0.01  # s: an end so long before the last start states no time
Times = list[Floats]
"""What each operation takes, or when it runs; s."""


class _Node(NamedTuple):
    """Operations that end together: one that computes, or the members of a communication.

    ``members`` are operations, ``meets`` says whether all data-parallel ranks take part.
    """

    members: tuple[int, ...]
    meets: bool


class _Operations(NamedTuple):
    """The operations of a rank of each stage: pipeline stage, type, number and model chunk."""

    stage: tuple[int, ...]
    kind: tuple[str, ...]
    number: tuple[int, ...]
    chunk: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class OperationTable:
    """The operations of a job, each with its times over steps and data-parallel ranks.

    Attributes
    ----------
    steps, dp_ranks
        Their numbers, ascending.
    stage, kind, number
        Of each operation: pipeline stage, ``optype``, ``seq_id``.
    alike
        What has one ideal time, as it is the same work: equal texts.
    before
        The operations that each one waits for before it starts.
    nodes
        What ends together, in an order in which nothing waits for what comes later.
    start, duration
        float64 s, shape (operations, steps, data-parallel ranks), since the begin of each step.
    """

    steps: tuple[int, ...]
    dp_ranks: tuple[int, ...]
    stage: tuple[int, ...]
    kind: tuple[str, ...]
    number: tuple[int, ...]
    alike: tuple[str, ...]
    before: list[list[int]]
    nodes: list[_Node]
    start: Floats
    duration: Floats

    @property
    def stages(self) -> list[int]:
        """The pipeline stages, ascending."""
        return sorted(set(self.stage))

    @cached_property
    def recorded(self) -> Times:
        """What each operation takes once all its members have begun; s, (steps, dp ranks)."""
        found = list(self.duration)
        for node in self.nodes:
            if len(node.members) == 1 and not node.meets:
                continue
            latest = self.start[list(node.members)].max(axis=0)
            latest = latest.max(axis=-1, keepdims=True) if node.meets else latest
            for op in node.members:
                transfer = self.start[op] + self.duration[op] - latest
                found[op] = np.where(transfer <= _OTHER_CLOCK, 0.0, transfer)
        return found

    @cached_property
    def ideal(self) -> Times:
        """The same for all ranks and steps: means of what computes, else medians; s, (1, 1)."""
        together = defaultdict(list)
        for alike, times in zip(self.alike, self.recorded, strict=True):
            together[alike].append(times)
        kinds = dict(zip(self.alike, self.kind, strict=True))
        typical = {
            alike: float((np.mean if kinds[alike] in _MEANS else np.median)(np.stack(times)))
            for alike, times in together.items()
        }
        return [np.full((1, 1), typical[alike]) for alike in self.alike]

    def ends(self, times: Times, *, meet: int = -1) -> tuple[Times, Times]:
        """Simulate a step: when each operation starts and ends; s.

        Parameters
        ----------
        times
            What each operation takes; arrays of shapes that fit each other.
        meet
            The axis over which collectives of data-parallel ranks meet.
        """
        zero = np.zeros((1, 1))
        start, end = [zero] * len(times), [zero] * len(times)
        for node in self.nodes:
            for op in node.members:
                start[op] = _latest([end[one] for one in self.before[op]] or [zero])
            latest = _latest([start[op] for op in node.members])
            if node.meets:
                latest = latest.max(axis=meet, keepdims=True)
            for op in node.members:
                end[op] = latest + times[op]
        return start, end

    def step_times(self, times: Times, *, meet: int = -1) -> Floats:
        """Return how long each step takes if operations take given times; s.

        As many axes as ``times``, of which the one of ``meet`` has length 1.
        """
        _, end = self.ends(times, meet=meet)
        found: Floats = _latest(end).max(axis=meet, keepdims=True)
        return found

    def only(self, is_recorded: Bools) -> Times:
        """Return recorded times of some operations, and ideal ones of the others; (operations,)."""
        pairs = zip(self.recorded, self.ideal, strict=True)
        return [one if is_recorded[op] else other for op, (one, other) in enumerate(pairs)]


def _latest(times: Sequence[Floats]) -> Floats:
    found = times[0]
    for one in times[1:]:
        found = np.maximum(found, one)
    return found


@checked
def operation_table(rows: pl.DataFrame) -> OperationTable:
    """Return the operations of a table.

    Parameters
    ----------
    rows
        ``dp_rank``, ``stage``, ``step``, ``optype``, ``seq_id``, ``mc``, and ``start_ts`` and
        ``duration`` in seconds since the begin of the step; other columns are ignored.

    Raises
    ------
    InputError
        If columns are missing or have another type, or not every rank and step has the same
        operations once.
    """
    if lacking := [name for name in OPERATION_COLUMNS if name not in rows.columns]:
        raise InputError(
            "the table of operations", f"it has no column {lacking[0]}",
            f"its columns are {', '.join(OPERATION_COLUMNS)}",
        )  # fmt: skip
    try:
        rows = rows.select(pl.col(name).cast(dtype) for name, dtype in OPERATION_COLUMNS.items())
    except pl.exceptions.PolarsError as error:
        what = str(error).splitlines()[0]
        raise InputError("the table of operations", what, "see docs/analyze.md") from None
    if not rows.height or rows.select(pl.any_horizontal(pl.all().is_null().any())).item():
        raise InputError("the table of operations", "it has no rows, or empty fields", "fill them")
    steps, dps = (rows[name].unique().sort().to_list() for name in ("step", "dp_rank"))
    first = rows.filter((pl.col("step") == steps[0]) & (pl.col("dp_rank") == dps[0]))
    operations = first.sort("stage", "start_ts", maintain_order=True).select(*_KEY, "mc")
    shape = operations.height, len(steps), len(dps)
    order = operations.select(*_KEY).with_row_index("op")
    placed = rows.join(order, on=_KEY, how="left").sort("op", "step", "dp_rank")
    odd = placed.select("op", "step", "dp_rank").is_duplicated() | placed["op"].is_null()
    if odd.any() or rows.height != np.prod(shape):
        raise InputError(
            "the table of operations",
            f"it has {rows.height} rows, and dp_rank {dps[0]} has {shape[0]} operations in step "
            f"{steps[0]}: not each of {len(dps)} dp ranks has these once in each of {len(steps)} "
            "steps", "leave out steps that are not whole",
        )  # fmt: skip
    start, duration = (placed[name].to_numpy().reshape(shape) for name in ("start_ts", "duration"))
    if not (np.abs([start, duration]) < _LONGEST).all():  # nor is it no number
        raise InputError(
            "the table of operations", "it has times that are no seconds of a job",
            f"start_ts and duration are seconds, below {_LONGEST:.0e}",
        )  # fmt: skip
    names = ("stage", "optype", "seq_id", "mc")
    found = _Operations(*(tuple(operations[name].to_list()) for name in names))
    before = _dependencies(found)
    meeting = {op for op, kind in enumerate(found.kind) if kind in _OVER_DP}
    nodes = ordered_nodes(before, _together(found), meeting)
    return OperationTable(
        tuple(steps), tuple(dps), *found[:3], found.kind, before, nodes, start, duration
    )  # fmt: skip


def _dependencies(table: _Operations) -> list[list[int]]:
    """Return what each operation waits for; operations of a stage are in order of start."""
    before: list[list[int]] = [[] for _ in table.kind]
    for stage in sorted(set(table.stage)):
        own = [op for op, of in enumerate(table.stage) if of == stage]
        kinds: dict[str, list[int]] = defaultdict(list)
        for op in own:
            kinds[table.kind[op]].append(op)
        computes = [op for op in own if table.kind[op] in _COMPUTE]
        chains = [computes, *(kinds[f"{way}-{end}"] for way in ("forward", "backward")
                              for end in ("send", "recv"))]  # fmt: skip
        for chain in chains:
            for one, following in pairwise(chain):
                before[following].append(one)
        for way in ("forward", "backward"):
            _messages(table, kinds, way, before)
        is_backward = [table.kind[op] == _COMPUTE[1] for op in computes]
        first = is_backward.index(True) if True in is_backward else 0
        if first >= 2:  # what a stage does before it asks for the first gradient
            for end in ("backward-recv", "backward-send"):
                for op in kinds[end][:1]:
                    before[op].append(computes[first - 2])
        for gather in kinds[_GATHER]:
            chunk = [op for op in kinds[_COMPUTE[0]] if table.chunk[op] == table.chunk[gather]]
            for op in chunk[:1]:
                before[op].append(gather)
            for op in kinds[_SCATTER]:
                before[op].append(gather)
        tail = [kinds[kind] for kind in _TAIL if kinds[kind]]
        for ones, others in zip([computes[-1:], *tail], tail, strict=False):
            for op in others:
                before[op] += ones
    return before


def _messages(
    table: _Operations, kinds: dict[str, list[int]], way: str, before: list[list[int]]
) -> None:
    """Let computations wait for what a stage receives, and messages for computations."""
    computes = kinds[f"{way}-compute"]
    place = {table.number[op]: at for at, op in enumerate(computes)}
    for op in kinds[f"{way}-send"]:
        if (at := place.get(table.number[op])) is not None:
            before[op].append(computes[at])
    for op in kinds[f"{way}-recv"]:
        if (at := place.get(table.number[op])) is not None:
            before[computes[at]].append(op)
            if at:
                before[op].append(computes[at - 1])


def _together(table: _Operations) -> list[tuple[int, ...]]:
    """Return the members of each communication between stages."""
    of: dict[tuple[str, int], list[int]] = defaultdict(list)
    for op, kind in enumerate(table.kind):
        of[kind, table.stage[op]].append(op)
    stages = sorted(set(table.stage))
    found: list[tuple[int, ...]] = []
    for at, stage in enumerate(stages):
        for way, towards in (("forward", 1), ("backward", -1)):
            other = stages[(at + towards) % len(stages)]
            sends, receives = of[f"{way}-send", stage], of[f"{way}-recv", other]
            found += zip(sends, receives, strict=False)
    ends = dict.fromkeys((stages[0], stages[-1]))
    found += zip(*(of[_EMBEDDING, stage] for stage in ends), strict=False)
    found += zip(*(of[_CLIP, stage] for stage in stages), strict=False)
    return [one for one in found if len(one) > 1]


def ordered_nodes(
    before: list[list[int]], together: list[tuple[int, ...]], meeting: set[int]
) -> list[_Node]:
    """Return what ends together, in an order in which nothing waits for what comes later.

    - Raises InputError if operations wait for each other.
    """
    alone = set(range(len(before))) - {op for one in together for op in one}
    groups = [*together, *((op,) for op in sorted(alone))]
    node_of = {op: at for at, one in enumerate(groups) for op in one}
    graph = {
        at: {node_of[awaited] for op in one for awaited in before[op]}
        for at, one in enumerate(groups)
    }
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError:
        raise InputError(
            "the table of operations", "its operations wait for each other",
            "check start_ts of the first data-parallel rank in the first step",
        ) from None  # fmt: skip
    return [_Node(groups[at], groups[at][0] in meeting) for at in order]
