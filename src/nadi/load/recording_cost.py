"""Whether recording took a large share of the steps that were recorded."""

from __future__ import annotations

import statistics

import polars as pl

from nadi.model.issues import IssueLog
from nadi.model.trace import Job

__all__ = ["recording_cost"]

_TOLERATED = 0.15


def recording_cost(job: Job) -> pl.DataFrame:
    """Say by how much recording made steps longer, if by more than 15 %.

    Returns
    -------
    polars.DataFrame
        Issues, as ``schema.ISSUES``; none if the cost is lower, or a rank's recording states none.
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
    return log.table()
