"""A schedule that was saved without its traces, as a part of a timeline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nadi.graph.timeline.schedule_timeline import TimelinePart
from nadi.simulation.runs.saved import SavedSimulation
from nadi.trace.provenance import Provenance
from nadi.trace.schedule import Schedule
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODES, SCHEDULE
from nadi.trace.trace import Job, Trace
from nadi.version import __version__

__all__ = ["saved_part"]

_HOST = ("cpu", "thread")  # how resources of the host begin


def saved_part(
    saved: SavedSimulation, title: str = "", ranks: Sequence[int] | None = None
) -> TimelinePart:
    """Create a timeline part from a saved simulation; its critical path is not known.

    Parameters
    ----------
    title
        As of :class:`TimelinePart`.
    ranks
        The ranks that are shown; all by default.
    """
    schedule = saved.schedule
    if ranks is not None:
        schedule = schedule.filter(pl.col("rank").is_in(list(ranks)))
    parts = schedule.sort("rank", maintain_order=True).partition_by("rank", maintain_order=True)
    world_size = saved.rank_times.height
    traces = [_trace(rows, world_size) for rows in parts]
    row = np.concatenate([np.arange(rows.height) for rows in parts] or [np.empty(0, np.int64)])
    ordered = pl.concat(parts) if parts else schedule
    columns = {name: ordered[name] for name in ("rank", "start", "end")}
    resource = ordered["resource"].cast(pl.String)
    table = SCHEDULE.build(ordered.height, {**columns, "node": row, "resource": resource})
    return TimelinePart(Schedule(table), Job(tuple(traces), MATCHES.empty(), ISSUES.empty()),
                        None, title)  # fmt: skip


def _trace(rows: pl.DataFrame, world_size: int) -> Trace:
    """Return the operations of a rank, each after the one that let it be issued."""
    resource = rows["resource"].cast(pl.String)
    is_host = pl.Series(np.zeros(rows.height, dtype=np.bool_))
    for begin in _HOST:
        is_host |= resource.str.starts_with(begin)
    category = np.where(is_host.to_numpy(), "operator", "kernel")
    nodes = NODES.build(rows.height, {
        "id": rows["id"], "name": rows["name"].cast(pl.String), "kind": rows["kind"],
        "category": category.tolist(), "start": rows["start"],
        "duration": rows["end"] - rows["start"], "is_cpu": is_host,
    })  # fmt: skip
    numbered = rows.select("id", row=pl.int_range(pl.len(), dtype=pl.Int64))
    waits = rows.select(id="cause", dst=pl.int_range(pl.len(), dtype=pl.Int64)).drop_nulls()
    edges = waits.join(numbered, on="id", how="inner", maintain_order="left")
    deps = DEPS.build(edges.height, {"src": edges["row"], "dst": edges["dst"], "kind": "order"})
    rank = int(rows["rank"][0])
    return Trace(nodes, deps, GROUPS.empty(), ISSUES.empty(), Provenance(__version__, ()), rank,
                 world_size)  # fmt: skip
