"""What a search finds: the best executions, and how many break which rule."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.estimates.calculon.rules import EstimateRules
from nadi.estimates.evaluation import Best, Evaluated, Evaluation
from nadi.estimates.execution import BOOLEAN, CODES, Execution, Executions, execution_at
from nadi.estimates.feasibility import REASONS
from nadi.estimates.search_layouts import SearchSpace
from nadi.trace.arrays import Floats, Ints


class RankedExecution(NamedTuple):
    """One execution that can be."""

    rate: float  # sequences a second
    number: int  # in the space
    seconds: float
    tier1_bytes: float
    tier2_bytes: float
    tier2_bandwidth: float  # bytes a second that hide its offloading
    execution: Execution


class SearchResult(NamedTuple):
    """What a search, or a part of one, found.

    Attributes
    ----------
    num_executions
        How many were evaluated.
    best
        The fastest that can be, of equal ones the first of the space.
    reasons
        How many break each rule first: int64, shape (reasons,), at 0 those that break none.
    """

    num_executions: int
    best: tuple[RankedExecution, ...]
    reasons: Ints

    @property
    def num_feasible(self) -> int:
        """How many can be."""
        return int(self.reasons[0])

    def lacking(self) -> dict[str, int]:
        """Give how many lack what, most first."""
        counts = {
            reason.rule: int(count)
            for reason, count in zip(REASONS[1:], self.reasons[1:], strict=True)
            if count
        }
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


class SearchTask(NamedTuple):
    """All that evaluating a part of a space needs, in any process."""

    space: SearchSpace
    rules: EstimateRules
    keep: int  # how many of the best


def search_part(
    task: SearchTask, begin: int, end: int, *, with_rows: bool = False
) -> tuple[SearchResult, list[pl.DataFrame]]:
    """Evaluate the executions with numbers from ``begin`` to ``end``; with rows, gives all."""
    found = SearchResult(0, (), np.zeros(len(REASONS), dtype=np.int64))
    frames: list[pl.DataFrame] = []
    space = task.space
    for executions in space.executions(begin, end):
        evaluation = Evaluation(space.model, space.machine, executions, task.rules)
        (evaluated,) = evaluation.with_tiers((space.machine.mem2,), follows=with_rows)
        slowest = found.best[-1] if len(found.best) == task.keep else None
        evaluation.follow_best(space.machine.mem2, evaluated, Best(
            evaluated.reason == 0, task.keep, 1.0 / slowest.rate if slowest else np.inf
        ))  # fmt: skip
        here = tally(executions, evaluated, begin + found.num_executions, task.keep)
        found = merged([found, here], task.keep)
        if with_rows:
            frames.append(frame_of(executions, evaluated))
    return found, frames


def tally(executions: Executions, evaluated: Evaluated, first: int, keep: int) -> SearchResult:
    """Count executions by reason, and take the fastest of those that can be."""
    counts = np.bincount(evaluated.reason, minlength=len(REASONS)).astype(np.int64)
    feasible = np.flatnonzero(evaluated.reason == 0)
    batch = executions.batch_size
    rate: Floats = (batch if batch.size == 1 else batch[feasible]) / evaluated.seconds[feasible]
    if feasible.size > keep:
        least = np.partition(rate, -keep)[-keep]
        feasible, rate = feasible[rate >= least], rate[rate >= least]
    order = np.argsort(-rate, kind="stable")[:keep]
    best = tuple(
        RankedExecution(
            float(rate[k]), first + int(row), float(evaluated.seconds[row]),
            float(evaluated.tier1_bytes[row]), float(evaluated.tier2_bytes[row]),
            float(evaluated.tier2_bandwidth[row]), execution_at(executions, int(row)),
        )
        for k, row in zip(order, feasible[order], strict=True)
    )  # fmt: skip
    return SearchResult(executions.num_executions, best, counts)


def merged(parts: Sequence[SearchResult], keep: int) -> SearchResult:
    """Put the results of parts together."""
    best = sorted(
        (one for part in parts for one in part.best), key=lambda one: (-one.rate, one.number)
    )
    reasons = np.sum([part.reasons for part in parts], axis=0)
    return SearchResult(sum(part.num_executions for part in parts), tuple(best[:keep]), reasons)


def frame_of(executions: Executions, evaluated: Evaluated) -> pl.DataFrame:
    """Give executions and what was found of each as a table.

    - Returns: The fields of ``Execution``; ``lacks``, a reason's name, empty if it can be;
      ``seconds`` of a step and ``rate`` in sequences a second, null if it was not evaluated;
      ``tier1_bytes``, ``tier2_bytes``; ``tier2_bandwidth``, bytes a second.
    """
    num = executions.num_executions
    columns: dict[str, pl.Series] = {}
    for field, column in zip(Executions._fields, executions, strict=True):
        values = np.broadcast_to(column, num)
        if field in CODES:
            columns[field] = _named(CODES[field], values)
        elif field in BOOLEAN:
            columns[field] = pl.Series(values == 1)
        else:
            columns[field] = pl.Series(values.astype(np.int32))
    reasons = [reason.name for reason in REASONS]
    known = np.isfinite(evaluated.seconds)
    return (
        pl.DataFrame(columns)
        .with_columns(
            lacks=_named(reasons, evaluated.reason),
            seconds=pl.Series(evaluated.seconds),
            tier1_bytes=pl.Series(evaluated.tier1_bytes),
            tier2_bytes=pl.Series(evaluated.tier2_bytes),
            tier2_bandwidth=pl.Series(evaluated.tier2_bandwidth),
            known=pl.Series(known),
        )
        .with_columns(seconds=pl.when("known").then("seconds"))
        .with_columns(rate=pl.col("batch_size") / pl.col("seconds"))
        .drop("known")
    )


def _named(names: Sequence[str], codes: Ints) -> pl.Series:
    """Give the names of codes, kept as codes."""
    return pl.Series(names, dtype=pl.Enum(names)).gather(codes)
