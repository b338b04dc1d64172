"""Slowdown by stragglers: a job with the times of its operations, against one with ideal times."""

import re
from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nadi.analyses.recorded.operation_tables import COMPUTATION, OperationTable, ordered_nodes
from nadi.errors import InputError, checked
from nadi.graph.edges.job_graph import build_graph
from nadi.graph.windows import find_steps
from nadi.trace.arrays import Floats, Ints
from nadi.trace.trace import Job

_SLOWEST = 0.03  # of the ranks
_MESSAGE = re.compile("-(send|recv)$")
_DRAWS, _ENDS = 1_000, (0.05, 0.95)
_NS = 1e9


def table_of_job(job: Job) -> OperationTable:
    """Return the collectives of all ranks of a recording, and what each rank does between them.

    Each rank computes until it enters a collective: from the end of the one before, or, if ranks
    mostly enter before that, from its begin. Collectives of some ranks are part of what they
    compute. Steps with another number of collectives than most are left out.

    - Raises InputError if no steps are found, or no collective of all ranks.
    """
    graph = build_graph(job)
    steps = find_steps(graph)
    starts = np.array([step.start(graph.time) for step in steps], dtype=np.int64)
    ends = np.array([step.end(graph.time) for step in steps], dtype=np.int64)
    parts = []
    for trace in job.traces:
        mine = job.matches.filter(pl.col("rank") == trace.rank)
        begun = trace.column("start")[mine["node"].to_numpy()] - job.origin
        ended = begun + trace.column("duration")[mine["node"].to_numpy()]
        names = trace.nodes["name"].gather(mine["node"]).cast(pl.String).alias("name")
        parts.append(mine.with_columns(names, begin=begun, end=ended))
    calls = pl.concat(parts).filter(pl.len().over("collective") == len(job.traces))
    calls = calls.with_columns(last=pl.max("begin").over("collective"))
    step = np.searchsorted(starts, calls["last"].to_numpy(), side="right") - 1
    inside = (step >= 0) & (calls["last"].to_numpy() < ends[step] if steps else False)
    calls = calls.with_columns(step=pl.Series(step)).filter(pl.Series(inside, dtype=pl.Boolean))
    counts = calls.group_by("step").agg(pl.n_unique("collective").alias("count"))
    if len(job.traces) < 2 or not counts.height:
        raise InputError(
            "", "it has no steps with collectives of all ranks",
            "pass the device traces of all ranks, with steps marked by profile.step()",
        )  # fmt: skip
    count = int(counts["count"].mode().sort()[-1])
    whole = counts.filter(count=count)["step"].sort()
    calls = calls.filter(pl.col("step").is_in(whole.implode()))
    calls = calls.sort("step", "last", "collective", "rank")
    shape = whole.len(), count, len(job.traces)
    begin, end = (calls[name].to_numpy().reshape(shape).swapaxes(0, 1) for name in ("begin", "end"))
    chosen = whole.to_numpy()
    called = calls["name"].to_list()[: count * len(job.traces) : len(job.traces)]
    numbers = tuple(steps[at].number for at in chosen)
    since, until = (of[chosen][None, :, None] for of in (starts, ends))
    return _chained(numbers, job.ranks, called, begin - since, end - since, until - since)


def _chained(
    steps: tuple[int, ...], ranks: Sequence[int], names: list[str], begin: Ints, end: Ints,
    length: Ints,
) -> OperationTable:  # fmt: skip
    """Return the table of ranks that compute and meet in turn; ns, (collectives, steps, ranks)."""
    count = len(names)
    shape = begin.shape[1:]
    kind, number, before = [], [], []
    start, duration = [], []
    for at in range(count + 1):
        former = np.zeros(shape, dtype=np.int64) if at == 0 else end[at - 1]
        waits = [2 * at - 1] if at else []
        entered = begin[at] if at < count else np.broadcast_to(length[0], shape)
        if 0 < at < count and np.median(entered - former) < 0:  # it goes on beside what follows
            former, waits = begin[at - 1], [2 * at - 2]
        kind.append(COMPUTATION)
        number.append(at)
        before.append(waits)
        start.append(former)
        duration.append(np.maximum(entered - former, 0))
        if at < count:
            kind.append(names[at])
            number.append(at)
            before.append([2 * at])
            start.append(begin[at])
            duration.append(end[at] - begin[at])
    nodes = ordered_nodes(before, [], set(range(1, 2 * count, 2)))
    return OperationTable(
        steps, tuple(ranks), (0,) * len(kind), tuple(kind), tuple(number),
        tuple(map(str, range(len(kind)))), before, nodes,
        np.array(start) / _NS, np.array(duration) / _NS,
    )  # fmt: skip


@checked
def slowdowns(source: OperationTable | Job) -> pl.DataFrame:
    """Return how much slower a job is than an ideal one, and by what.

    Returns
    -------
    polars.DataFrame
        A row for the job, each type of operation, stage, data-parallel rank and step, for the
        slowest 3 % of the ranks, and for the last stage: ``group``, ``name``; ``slowdown``: with
        the recorded times of these alone against ideal times (S; of the job and of steps all
        times), from ``low`` to ``high`` in 90 % of the samples of several steps; ``ideal_ns``: the
        mean step if these were ideal; ``gain_percent``: which part of all time lost that gains
        (M_W of the slowest ranks, M_S of the last stage). O(operations * steps * ranks) for
        each type and stage.
    """
    table = source if isinstance(source, OperationTable) else table_of_job(source)
    against = _against(table)
    rows = [against.row("job", "all", against.actual, against.ideal)]
    rows += _labelled(
        table, against, "operation", [_MESSAGE.sub("-pp-comm", k) for k in table.kind]
    )
    of_stage = _labelled(table, against, "stage", [str(stage) for stage in table.stage])
    if len(of_stage) > 1:
        rows += [*of_stage, {**of_stage[-1], "group": "last stage"}]
    alone = _alone_by_dp(table)
    of_dp = [
        against.row("dp rank", str(rank), alone[:, at]) for at, rank in enumerate(table.dp_ranks)
    ]
    rows.append(_slowest(table, against, of_stage, of_dp))
    rows += sorted(of_dp, key=lambda one: -one["slowdown"])
    rows += [
        {"group": "step", "name": str(step), "slowdown": own / best, "ideal_ns": best * _NS}
        for step, own, best in zip(
            table.steps, against.actual.tolist(), against.ideal.tolist(), strict=True
        )
    ]
    return pl.DataFrame(rows, schema=_SLOWDOWNS)


_Row = dict[str, Any]


class _Against(NamedTuple):
    """Step times with recorded and with ideal times, and which steps each sample has; s."""

    actual: Floats
    ideal: Floats
    drawn: Ints

    def row(self, group: str, name: str, alone: Floats, without: Floats | None = None) -> _Row:
        """Return the row of what alone takes ``alone``; without it, steps take ``without``."""
        alone = np.broadcast_to(alone, self.ideal.shape)
        slowdown = float(alone.mean() / self.ideal.mean())
        found: _Row = {"group": group, "name": name, "slowdown": slowdown}
        if alone.size > 1:  # one step does not tell how much steps differ
            samples = alone[self.drawn].mean(axis=1) / self.ideal[self.drawn].mean(axis=1)
            found["low"], found["high"] = np.quantile(samples, _ENDS)
        if without is not None:
            lost, gained = (self.actual.mean() - one.mean() for one in (self.ideal, without))
            found |= {"ideal_ns": without.mean() * _NS, "gain_percent": 0.0}
            found["gain_percent"] = 100 * gained / lost if lost else 0.0
        return found


def _against(table: OperationTable) -> _Against:
    actual = table.step_times(table.recorded)[:, 0]
    ideal = np.broadcast_to(table.step_times(table.ideal)[:, 0], actual.shape)
    if not ideal.mean() > 0:
        raise InputError("the table of operations", "its operations take no time", "record them")
    drawn = np.random.default_rng(0).integers(0, actual.size, (_DRAWS, actual.size))
    return _Against(actual, ideal, drawn)


def _labelled(
    table: OperationTable, against: _Against, group: str, labels: Sequence[str]
) -> list[_Row]:
    """Return a row for the operations of each label."""
    found = []
    for label in dict.fromkeys(labels):
        chosen = np.array([one == label for one in labels])
        alone, without = (table.step_times(table.only(one))[:, 0] for one in (chosen, ~chosen))
        found.append(against.row(group, label, alone, without))
    return found


_SLOWDOWNS = {
    "group": pl.String, "name": pl.String, "slowdown": pl.Float64, "low": pl.Float64,
    "high": pl.Float64, "ideal_ns": pl.Float64, "gain_percent": pl.Float64,
}  # fmt: skip


def _alone_by_dp(table: OperationTable) -> Floats:
    """Return the step times if one data-parallel rank takes its recorded times; s, (steps, ranks).

    All other ranks are alike then: one stands for them, and meets each.
    """
    pairs = zip(table.recorded, table.ideal, strict=True)
    both = [np.stack(np.broadcast_arrays(one, other)) for one, other in pairs]
    found: Floats = table.step_times(both, meet=0)[0]
    return found


def _slowest(
    table: OperationTable, against: _Against, of_stage: list[_Row], of_dp: list[_Row]
) -> _Row:
    """Return the row of the slowest ranks: slow by their stage and by their data-parallel rank."""
    by_stage = {int(one["name"]): one["slowdown"] for one in of_stage}
    stage = [by_stage[one] for one in table.stages]
    dp = [one["slowdown"] for one in of_dp]
    both = np.minimum(np.array(stage)[:, None], np.array(dp)[None, :])
    count = ceil(_SLOWEST * both.size)
    chosen = np.argsort(-both, axis=None, kind="stable")[:count]
    is_slow = np.zeros(both.shape, dtype=np.bool_)
    is_slow.flat[chosen] = True
    place = {one: at for at, one in enumerate(table.stages)}
    pairs = list(zip(table.recorded, table.ideal, table.stage, strict=True))
    without = [np.where(is_slow[place[of]], best, own) for own, best, of in pairs]
    alone = [np.where(is_slow[place[of]], own, best) for own, best, of in pairs]
    at_stage, at_dp = np.unravel_index(chosen, both.shape)
    names = [f"{table.dp_ranks[d]}/{table.stages[s]}" for s, d in zip(at_stage, at_dp, strict=True)]
    shown = " ".join(names[:4]) + (f" and {count - 4} more" if count > 4 else "")
    times = (table.step_times(one)[:, 0] for one in (alone, without))
    return against.row("slowest ranks", shown, *times)


@checked
def ideal_timeline(source: OperationTable | Job) -> pl.DataFrame:
    """Return when each operation of a step would run if all took their ideal times.

    Returns
    -------
    polars.DataFrame
        ``stage``, ``operation``, ``number``, ``start_ns`` and ``duration_ns`` (float64) since the
        begin of a step, the same for all ranks and steps; ``recorded_ns``: the mean duration as
        recorded, waiting for others included. O(operations).
    """
    table = source if isinstance(source, OperationTable) else table_of_job(source)
    start, end = table.ends(table.ideal)
    begun, ended = (np.array([one.item() for one in times]) * _NS for times in (start, end))
    return pl.DataFrame({
        "stage": table.stage, "operation": table.kind, "number": table.number, "start_ns": begun,
        "duration_ns": ended - begun, "recorded_ns": table.duration.mean(axis=(1, 2)) * _NS,
    }).sort("stage", "start_ns", maintain_order=True)  # fmt: skip
