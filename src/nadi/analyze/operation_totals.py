"""Operations by name, and collectives by name, group and size: how often, and how long."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.analyze.participants import find_participants
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window
from nadi.model.arrays import Bools, Ints
from nadi.model.kernel_classes import kernel_class
from nadi.model.schema import DEVICE_WORK

__all__ = ["collective_totals", "operation_totals"]


def operation_totals(graph: EventGraph, window: Window) -> pl.DataFrame:
    """Sum the time of device work by name; of operators on the CPU if no rank has a device.

    Counted is what begins in the window. The time of an operator is its self time.

    Returns
    -------
    polars.DataFrame
        name, class (of kernels: what they compute), count, time, shortest, longest (int64 ns) and
        ranks (how many have it); the longest time first. O(ops).
    """
    category = graph.gather("category")
    wanted = category.is_in(DEVICE_WORK).to_numpy()
    on_device = bool(wanted.any())
    if not on_device:
        wanted = (category == "operator").to_numpy()
    ops = np.flatnonzero(wanted & _begins(graph, window))
    lasts = graph.time[2 * ops + 1] - graph.time[2 * ops]
    found = (
        pl.DataFrame({
            "name": graph.names(ops),
            "time": lasts if on_device else np.maximum(graph.numbers("exclusive", ops), 0),
            "trace": graph.op_trace[ops],
        })
        .group_by("name")
        .agg(
            count=pl.len().cast(pl.Int64), time=pl.sum("time"), shortest=pl.min("time"),
            longest=pl.max("time"), ranks=pl.col("trace").n_unique().cast(pl.Int64),
        )
        .sort("time", "name", descending=[True, False])
    )  # fmt: skip
    classes = [kernel_class(name) if on_device else "" for name in found["name"]]
    return found.insert_column(1, pl.Series("class", classes, dtype=pl.String))


def collective_totals(graph: EventGraph, window: Window) -> pl.DataFrame:
    """Sum collectives and transfers that ranks have in common, apart from their wait times.

    Returns
    -------
    polars.DataFrame
        A row per name, group and size: name, group (its description, or its name), members (of
        the recording), bytes (of the tensors of a member; -1 if not stated), count, waiting
        (from the first entry of a rank that waits to the entry that it waits for, summed; int64
        ns), transferring (from the last entry to the last end, summed) and bytes_per_second (bytes
        by transfer time; -1 if not known); the longest first. O(edges log edges).
    """
    hub, op, waits = find_participants(graph)
    inside = (graph.time[hub] >= window.start(graph.time)) & (
        graph.time[hub] <= window.end(graph.time)
    )
    hub, op, waits = hub[inside], op[inside], waits[inside]
    begin = graph.time[2 * op]
    entries = pl.DataFrame({
        "hub": hub,
        "name": graph.names(op),
        "group": _groups(graph, op),
        "bytes": graph.numbers("comm_bytes", op),
        "entry": np.where(waits, np.minimum(begin, graph.time[hub]), graph.time[hub]),
        "end": graph.time[2 * op + 1],
        "last": np.maximum(begin, graph.time[hub]),
        "straggler": graph.time[hub],
    })  # fmt: skip
    each = entries.group_by("hub").agg(
        pl.first("name"), pl.first("group"), pl.max("bytes"),
        members=pl.len().cast(pl.Int64), last=pl.max("last"), straggler=pl.first("straggler"),
        entry=pl.min("entry"), end=pl.max("end"),
    )  # fmt: skip
    found = each.group_by("name", "group", "members", "bytes").agg(
        count=pl.len().cast(pl.Int64),
        waiting=(pl.col("straggler") - pl.col("entry")).sum(),
        transferring=(pl.col("end") - pl.col("last")).sum(),
    )
    known = (pl.col("bytes") >= 0) & (pl.col("transferring") > 0)
    rate = 1e9 * pl.col("bytes") * pl.col("count") / pl.col("transferring")
    return found.with_columns(
        bytes_per_second=pl.when(known).then(rate).otherwise(-1.0)
    ).sort(
        pl.col("waiting") + pl.col("transferring"), "name", "group", "bytes",
        descending=[True, False, False, False],
    )  # fmt: skip


def _begins(graph: EventGraph, window: Window) -> Bools:
    start = graph.time[0 : 2 * graph.num_ops : 2]
    inside: Bools = (start >= window.start(graph.time)) & (start < window.end(graph.time))
    return inside


def _groups(graph: EventGraph, ops: Ints) -> pl.Series:
    """Return the description of the process group of each operation, or its name; text."""
    found = np.full(ops.size, "", dtype=object)
    group = graph.numbers("group", ops)
    for place, trace in enumerate(graph.job.traces):
        mine = np.flatnonzero((graph.op_trace[ops] == place) & (group >= 0))
        if not mine.size:
            continue
        rows = trace.groups.select("name", "description").iter_rows()
        texts = np.array([description or name for name, description in rows], dtype=object)
        found[mine] = texts[group[mine]]
    return pl.Series(found.tolist(), dtype=pl.String)
