"""The range around operations, such as an annotation or a module, with most time of a path."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.graph.communicating_operations import communicating
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import MARK
from nadi.trace.arrays import Bools, Ints

__all__ = ["leading_range"]

_HOST = ("host op", "host gap", "launch")
_ALL_OF_IT = 0.9  # of a path or a range: what holds so much says no more than the whole
_MOST_OF_IT = 0.5  # of a range: its own time is what takes long there
_MODULE = "nn.Module: "


def leading_range(
    graph: EventGraph, path: CriticalPath, most_ns: int
) -> tuple[str, int, pl.DataFrame] | None:
    """Find the range in which the host spends most time of a path.

    Ranges are annotations and modules, but for the marks of steps and communication.

    Parameters
    ----------
    most_ns
        The time of the operation with most of it.

    Returns
    -------
    name, ns and segments, or None
        Of the range with most time, if that is more than of any operation, and no more than nine
        tenths of the path, or of a range that is nine tenths of that one; the segments of
        operations of the host in it. None too if half of its time is its own, as it is an operation
        then. O(path * depth + ops).
    """
    segments = path.segments.filter(pl.col("kind").is_in(_HOST) & (pl.col("node") >= 0))
    segments = segments.with_columns(ns=pl.col("end") - pl.col("start")).with_row_index("at")
    op = _operations(graph, segments)
    is_range = _ranges(graph)
    pairs = _around(graph, op, is_range)
    pairs = pairs.join(segments.select("at", "ns"), on="at")
    sums = pairs.group_by("range").agg(pl.sum("ns"))
    wide = sums.filter((pl.col("ns") > most_ns) & (pl.col("ns") <= _ALL_OF_IT * path.length))
    if not wide.height:
        return None
    name, whole = wide.sort("ns", "range", descending=[True, False]).row(0)
    inside = pairs.join(pairs.filter(range=name).select("at"), on="at")
    inside = inside.group_by("range").agg(within=pl.sum("ns")).join(sums, on="range")
    inside = inside.filter((pl.col("within") >= _ALL_OF_IT * whole) & (pl.col("ns") <= whole))
    name, _, whole = inside.sort("ns", "range").row(0)
    chosen = segments.filter(pl.col("at").is_in(pairs.filter(range=name)["at"].implode()))
    own = int(chosen.filter(name=name)["ns"].sum())
    chosen = chosen.filter(~pl.Series(is_range[op]).gather(chosen["at"]))
    return (name, int(whole), chosen) if own < _MOST_OF_IT * whole and chosen.height else None


def _ranges(graph: EventGraph) -> Bools:
    names = graph.op_names
    found = (graph.gather("category") == "annotation").to_numpy()
    found |= names.str.starts_with(_MODULE).to_numpy()
    is_range: Bools = found & ~names.str.starts_with(MARK).to_numpy() & ~communicating(graph)
    return is_range


def _around(graph: EventGraph, op: Ints, is_range: Bools) -> pl.DataFrame:
    """Return the names of the ranges around each segment's operation, and its position: at."""
    at = np.arange(op.size, dtype=np.uint32)
    positions, around = [], []
    while at.size:
        inside = is_range[op]
        positions.append(at[inside])
        around.append(op[inside])
        above = graph.op_parent[op]
        at, op = at[above >= 0], above[above >= 0]
    ops = np.concatenate([np.empty(0, dtype=np.int64), *around])
    where = np.concatenate([np.empty(0, dtype=np.uint32), *positions])
    return pl.DataFrame({"at": where, "range": graph.names(ops)}).unique()


def _operations(graph: EventGraph, segments: pl.DataFrame) -> Ints:
    """Return the operation of each segment; int64."""
    op = np.empty(segments.height, dtype=np.int64)
    rank, node = segments["rank"].to_numpy(), segments["node"].to_numpy()
    for place, number in enumerate(graph.job.ranks):
        mine = rank == number
        op[mine] = graph.ops_of_rows(place)[node[mine]]
    return op
