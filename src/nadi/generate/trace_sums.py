"""What the nodes of a generated trace amount to: FLOPs by phase, and bytes by group."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.model.trace import Job, Trace

__all__ = ["communication_by_role", "flops_by_phase"]


def flops_by_phase(trace: Trace, stage: int) -> pl.DataFrame:
    """Return the FLOPs of a rank in a step: one row, a column per phase."""
    attributes = trace.attributes
    rows = attributes.rows_named("phase")
    # equal texts are stored once
    text, first, which = np.unique(attributes.value[rows], return_index=True, return_inverse=True)
    flops = np.maximum(trace.column("flops"), 0)[attributes.node[rows]]
    sums = np.zeros(text.size, dtype=np.int64)
    np.add.at(sums, which.reshape(-1), flops)
    names = [attributes.python_value(int(row)) for row in rows[first]]
    found = dict(zip(names, sums.tolist(), strict=True))
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
