"""What the nodes of a generated trace amount to: FLOPs by phase, and bytes by group."""

from __future__ import annotations

import polars as pl

from nadi.trace.trace import Job, Trace

__all__ = ["communication_by_role", "flops_by_phase"]


def flops_by_phase(trace: Trace, stage: int) -> pl.DataFrame:
    """Return the FLOPs of a rank in a step: one row, a column per phase."""
    sums = (
        trace.nodes.filter(pl.col("flops") > 0)
        .group_by(pl.col("phase").cast(pl.String))
        .agg(pl.col("flops").sum())
    )
    found = dict(sums.iter_rows())
    phases = ("forward", "backward", "recompute", "optimizer")
    columns = {phase: found.get(phase, 0) for phase in phases}
    return pl.DataFrame({"stage": stage, **columns})


def communication_by_role(trace: Trace, job: Job, stage: int) -> pl.DataFrame:
    """Return the collectives and messages of a rank in a step: a row per role and type."""
    assert job.rank_groups is not None
    roles = trace.groups["name"].to_list()
    sizes = [job.rank_groups.members[role].shape[1] for role in roles]
    names = pl.DataFrame(
        {"group": range(len(roles)), "role": roles, "ranks": sizes},
        schema={"group": pl.Int64, "role": pl.String, "ranks": pl.Int64},
    )
    return (
        trace.nodes.filter(pl.col("group") >= 0)
        .group_by("group", pl.col("comm_type").cast(pl.String).alias("type"), maintain_order=True)
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("comm_bytes").sum().alias("bytes"))
        .join(names, on="group")
        .select(
            pl.lit(stage, dtype=pl.Int64).alias("stage"), "role", "type", "ranks", "count", "bytes"
        )
        .sort("role", "type")
    )
