"""Call stacks, and the time of each path of calls: what a flame graph shows."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents
from nadi.analyses.recorded.per_rank import per_rank
from nadi.trace.arrays import Ints, numbered_texts
from nadi.trace.schema import THREAD_WORK

__all__ = ["call_stacks", "flame_graph"]


@per_rank("operators", "host events")
def call_stacks(events: RankEvents) -> pl.DataFrame:
    """List the events of threads with what is around them and what they launch.

    Returns
    -------
    polars.DataFrame
        In order of rows: ``row``, ``name``, ``thread``, ``depth`` (0 outermost), ``parent`` (a
        row, or -1), ``duration_ns``, ``self_ns`` (without nested ones), ``kernels`` and
        ``device_ns`` (number and sum of work launched in it, at any depth). O(events * depth).
    """
    rows = np.flatnonzero(events.is_of(*THREAD_WORK) & (events.column("start") >= 0))
    parent = events.parent
    launched = events.work[events.launcher[events.work] >= 0]
    own = np.zeros((2, parent.size), dtype=np.int64)
    np.add.at(own[0], events.launcher[launched], 1)
    np.add.at(own[1], events.launcher[launched], events.column("duration")[launched])
    inside = own.copy()
    depth = np.zeros(parent.size, dtype=np.int64)
    above = parent[rows]
    source = rows
    while above.size and (above >= 0).any():
        source, above = source[above >= 0], above[above >= 0]
        depth[source] += 1
        np.add.at(inside[0], above, own[0][source])
        np.add.at(inside[1], above, own[1][source])
        above = parent[above]
    return pl.DataFrame({
        "row": rows, "name": events.table["name"].gather(rows).cast(pl.String),
        "thread": events.column("thread")[rows], "depth": depth[rows], "parent": parent[rows],
        "duration_ns": events.column("duration")[rows], "self_ns": _self_times(events, rows)[rows],
        "kernels": inside[0][rows], "device_ns": inside[1][rows],
    })  # fmt: skip


def _self_times(events: RankEvents, rows: Ints) -> Ints:
    duration = events.column("duration").copy()
    nested = rows[events.parent[rows] >= 0]
    left: Ints = duration.copy()
    np.subtract.at(left, events.parent[nested], duration[nested])
    return np.maximum(left, 0)


@per_rank("operators", "host events")
def flame_graph(
    events: RankEvents, deepest: int = 64, between: tuple[int, int] | None = None
) -> pl.DataFrame:
    """Sum time by path of calls: the frames of a flame graph.

    Parameters
    ----------
    events
        A job, a trace, or several.
    deepest
        Calls in more others than this count for the one around them.
    between
        Only calls that start between two times in ns since the epoch.

    Returns
    -------
    polars.DataFrame
        A row per frame, after the one below it: ``frame`` (its number), ``parent`` (of the frame
        below, or -1), ``depth``, ``name``, ``count``, ``total_ns``, ``self_ns``, ``device_ns`` (sum
        of work launched in it, at any depth). O(events * depth).
    """
    table = call_stacks(events)
    depth = table["depth"].to_numpy().copy()
    if between is not None:
        begun = events.column("start")[table["row"].to_numpy()]
        depth[(begun < between[0]) | (begun > between[1])] = -1  # in no level
    position = np.full(events.table.height, -1, dtype=np.int64)
    position[table["row"].to_numpy()] = np.arange(table.height)
    parent = table["parent"].to_numpy()
    above = np.where(parent >= 0, position[parent], -1)
    code, names = numbered_texts(table["name"])  # frames are in order of their first names
    num_names = max(len(names), 1)
    frame = np.full(table.height + 1, -1, dtype=np.int64)
    parts, number = [], 0
    for level in range(min(int(depth.max(initial=-1)) + 1, deepest)):
        mine = np.flatnonzero(depth == level)
        if mine.size == 0:
            continue
        below = frame[above[mine]]
        keys, first, which = np.unique(
            (below + 1) * num_names + code[mine], return_index=True, return_inverse=True
        )
        frame[mine] = number + which
        sums = np.zeros((4, first.size), dtype=np.int64)
        for line, values in enumerate(("duration_ns", "self_ns", "device_ns")):
            np.add.at(sums[line], which, table[values].to_numpy()[mine])
        np.add.at(sums[3], which, 1)
        parts.append(pl.DataFrame({
            "frame": np.arange(number, number + first.size), "parent": keys // num_names - 1,
            "depth": np.full(first.size, level), "name": table["name"].gather(mine[first]),
            "count": sums[3], "total_ns": sums[0], "self_ns": sums[1], "device_ns": sums[2],
        }))  # fmt: skip
        number += first.size
    return pl.concat(parts) if parts else pl.DataFrame(schema=_FLAME)


_FLAME = {
    "frame": pl.Int64, "parent": pl.Int64, "depth": pl.Int64, "name": pl.String,
    "count": pl.Int64, "total_ns": pl.Int64, "self_ns": pl.Int64, "device_ns": pl.Int64,
}  # fmt: skip
