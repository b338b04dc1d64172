"""What runs in a window on devices, and while nothing recorded explains the critical path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.graph.critical_paths import CriticalPath
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window
from nadi.kernels.sequences import union_of
from nadi.trace.arrays import Bools, Ints
from nadi.trace.categories import pattern
from nadi.trace.schema import DEVICE_WORK

_ON_THREADS = ("operator", "runtime", "driver")
_WAITS = ("device sync", "stream sync", "event sync", "event query")


class Meanwhile(NamedTuple):
    """The work that overlaps most of the unexplained time of a path.

    ``time_ns`` is the time that operations of this name overlap; each counts, also if they run at
    the same time.
    """

    name: str
    time_ns: int
    on_device: bool


def device_work(graph: EventGraph, window: Window) -> pl.DataFrame:
    """Sum the work of devices in a window by name, as a mean over ranks with a device.

    Returns
    -------
    polars.DataFrame
        name, time (ns), count, end (of the longest, ns), communicates; most time first. O(ops).
    """
    begin, end = window.start(graph.time), window.end(graph.time)
    ops = np.flatnonzero(graph.gather("category").is_in(DEVICE_WORK).to_numpy())
    start, stop = (np.clip(graph.time[2 * ops + side], begin, end) for side in (0, 1))
    ops, start, stop = (column[stop > start] for column in (ops, start, stop))
    ranks = max(np.unique(graph.op_trace[ops]).size, 1)
    return (
        pl.DataFrame({
            "name": graph.names(ops), "time": stop - start, "end": stop,
            "communicates": graph.gather("comm_type", ops) != "none",
        })
        .sort("time", descending=True)
        .group_by("name", "communicates", maintain_order=True)
        .agg(pl.sum("time") // ranks, pl.len().alias("count"), pl.first("end"))
        .sort("time", "name", descending=[True, False])
    )  # fmt: skip


def work_meanwhile(graph: EventGraph, path: CriticalPath) -> Meanwhile | None:
    """Find the work that overlaps most of the unexplained time of a path; None without any.

    Work of devices counts before that of other threads. O(ops + path).
    """
    unexplained = path.segments.filter(pl.col("kind") == "unexplained")
    category = graph.gather("category")
    on_device = category.is_in(DEVICE_WORK).to_numpy()
    on_thread = category.is_in(_ON_THREADS).to_numpy() & (graph.op_parent < 0)
    on_thread &= ~graph.named(pattern(*_WAITS))
    thread = graph.numbers("thread")
    for kind, wanted in ((True, on_device), (False, on_thread)):
        ops = np.flatnonzero(wanted)
        overlap = np.zeros(ops.size, dtype=np.int64)
        for (rank, own), segments in unexplained.group_by("rank", "thread"):
            mine = graph.op_trace[ops] == graph.job.ranks.index(rank)
            mine &= kind | (thread[ops] != own)
            overlap += _overlap(graph, ops, mine, segments)
        if overlap.any():
            sums = pl.DataFrame({"name": graph.names(ops), "time": overlap})
            sums = sums.group_by("name").agg(pl.sum("time"))
            name, time = sums.sort("time", "name", descending=[True, False]).row(0)
            return Meanwhile(name, time, kind)
    return None


def _overlap(graph: EventGraph, ops: Ints, mine: Bools, segments: pl.DataFrame) -> Ints:
    """Return for how long operations overlap segments, which do not overlap each other; ns."""
    path = union_of(segments["start"].to_numpy(), segments["end"].to_numpy())
    overlap = path.until(graph.time[2 * ops + 1]) - path.until(graph.time[2 * ops])
    found: Ints = np.where(mine, overlap, 0)
    return found
