"""Whether recording took a large share of the steps that were recorded."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import polars as pl

from nadi.trace.issues import IssueLog
from nadi.trace.trace import Job, Trace

__all__ = ["recording_cost"]

_TOLERATED = 0.15
_FEWEST = 10  # calls of an operator
_LEAST = 0.1  # the quantile that counts as the least


def recording_cost(job: Job, observed: Sequence[Trace] = ()) -> pl.DataFrame:
    """Say by how much recording made steps longer, if by more than 15 %.

    Parameters
    ----------
    observed
        Traces of the job in whose steps the execution trace observer and the profiler ran at once.
        What both cost is known at least: an operator takes no longer without them, and so do times
        between operators inside of one.

    Returns
    -------
    polars.DataFrame
        Issues, as ``schema.ISSUES``; none if the cost is lower, or not known. O(nodes of one rank).
    """
    lengths = [one.step_lengths for one in job.traces]
    costs = [one.cost for one in lengths if one is not None and one.cost is not None]
    cost = statistics.mean(costs) if costs and len(costs) == len(job.traces) else 0.0
    log = IssueLog()
    log.add(
        "job.recording-cost", "warning", int(cost > _TOLERATED),
        f"recording made steps {100 * cost:.0f} % longer than steps without a recorder",
        "short operators and gaps between operations seem longer than they are, and gains by "
        "other operations smaller",
    )  # fmt: skip
    share = _share_of_both(observed[0]) if observed else 0.0
    log.add(
        "job.both-recorders", "warning", int(share > _TOLERATED),
        "the execution trace observer and the profiler ran at once: they take at least "
        f"{100 * share:.0f} % of the time of the thread with most operators",
        "record with nadi collect or nadi.record, which run one after the other; until then short "
        "operators seem several times as long as they are",
    )  # fmt: skip
    return log.table()


def _share_of_both(trace: Trace) -> float:
    """Return which share of its busiest thread recorders take at least."""
    operators = (
        trace.nodes.lazy()
        .select(
            "name",
            "thread",
            "category",
            "parent",
            "start",
            end=pl.col("start") + pl.col("duration"),
        )
        .with_row_index("row")
        .filter(pl.col("category").cast(pl.String) == "operator", pl.col("start") >= 0)
        .filter(pl.col("thread") == pl.col("thread").mode().min())
        .sort("start")
        .collect()
    )
    inside = operators.filter(pl.col("parent") >= 0)
    between = (pl.col("start") - pl.col("end").shift(1).over("parent")).drop_nulls()
    least = inside.select(between.quantile(_LEAST)).item()
    quickest = (
        operators.join(inside.select(row="parent"), on="row", how="anti")
        .group_by("name")
        .agg(pl.len(), median=(pl.col("end") - pl.col("start")).median())
        .filter(pl.col("len") >= _FEWEST)["median"]
        .min()
    )
    lasts = operators.select(pl.col("end").max() - pl.col("start").min()).item()
    if least is None or quickest is None or not lasts:
        return 0.0
    return float((max(least, 0) + quickest) * operators.height / lasts)
