"""The communication operations of all ranks in one table, and their process groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.recordings.communication.process_groups import communication_rows
from nadi.trace.trace import Trace

_COLUMNS = (
    "id", "name", "kind", "comm_type", "comm_bytes", "group", "src", "dst", "tag", "comms_id",
    "is_cpu", "start", "duration",
)  # fmt: skip


class Across(NamedTuple):
    """The communication operations and process groups of several ranks."""

    # one row per communication operation, by rank and then in the order of issue: columns of the
    # nodes, ``rank``, ``node`` (its row), ``end`` in ns, ``part`` (the row in this table).
    # ``group`` is a row of ``groups``, or -1.
    work: pl.DataFrame
    # one row per group of the job: ``name``, ``ranks``, ``size``, and ``is_here``, whether all of
    # its members have a trace. If no rank lists the members of a group, they are the ranks that use
    # it.
    groups: pl.DataFrame
    is_whole: bool  # whether all ranks of the job have a trace


def communications_of(traces: Sequence[Trace]) -> Across:
    """Collect the communication operations of ranks. O(nodes + members of groups)."""
    parts, groups = [], []
    for trace in traces:
        rows = communication_rows(trace.nodes)
        chosen = trace.nodes[rows].select(_COLUMNS)
        parts.append(chosen.with_columns(rank=pl.lit(trace.rank, pl.Int64), node=rows))
        own = trace.groups.select("name", "ranks").with_row_index("group")
        groups.append(own.with_columns(rank=pl.lit(trace.rank, pl.Int64)))
    every = pl.concat(groups).with_columns(
        # names alone are not unique: two halves of a job may each have a group "1"
        members=pl.col("ranks").cast(pl.List(pl.String)).list.join(","),
        group=pl.col("group").cast(pl.Int64),
    )
    number = every.unique(["name", "members"], maintain_order=True).with_row_index("number")
    numbers = every.join(number.select("name", "members", "number"), on=["name", "members"])
    work = (
        pl.concat(parts)
        .join(
            numbers.select("rank", "group", "number"),
            on=["rank", "group"], how="left", maintain_order="left",
        )
        .with_columns(
            group=pl.col("number").cast(pl.Int64).fill_null(-1),
            end=pl.col("start") + pl.col("duration"),
        )
        .drop("number")
        .with_row_index("part")
        .with_columns(pl.col("part").cast(pl.Int64))
    )  # fmt: skip
    present = [trace.rank for trace in traces]
    is_whole = max(trace.world_size for trace in traces) <= len(traces)
    return Across(work, _groups(number, work, present), is_whole)


def _groups(number: pl.DataFrame, work: pl.DataFrame, present: list[int]) -> pl.DataFrame:
    """Add to each group whether all of its members have a trace."""
    users = work.group_by("group").agg(users=pl.col("rank").unique().sort())
    stated = number.select(
        "name", "ranks", group=pl.col("number").cast(pl.Int64)
    ).join(users, on="group", how="left", maintain_order="left")  # fmt: skip
    ranks = pl.when(pl.col("ranks").list.len() > 0).then("ranks").otherwise("users")
    stated = stated.with_columns(ranks=ranks.fill_null(pl.lit([], pl.List(pl.Int64))))
    members = stated["ranks"].explode(empty_as_null=False)
    size = stated["ranks"].list.len().to_numpy().astype(np.int64)
    here = np.append(0, np.cumsum(np.isin(members.to_numpy(), present)))
    last = np.cumsum(size)
    num_here = here[last] - here[last - size]
    return stated.select("name", "ranks").with_columns(
        size=pl.Series(size), is_here=pl.Series((num_here == size) & (size > 0))
    )
