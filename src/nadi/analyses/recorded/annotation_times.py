"""Time of user annotations, and the device work in each."""

from __future__ import annotations

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, per_rank, require
from nadi.analyses.recorded.kernel_types import KERNEL_TYPES
from nadi.analyses.recorded.kernels import times_by_name
from nadi.trace.arrays import Ints

_PLACES = {"annotation": "host", "device_annotation": "device"}


@per_rank("annotations")
def annotation_times(events: RankEvents) -> pl.DataFrame:
    """Sum the time of user annotations by name, of the host and of devices.

    Returns
    -------
    polars.DataFrame
        ``place`` (host or device), ``name``, ``count``, ``sum_ns``, ``percent``, ``mean_ns``,
        ``std_ns``, ``min_ns``, ``max_ns``; the largest sum first. Annotations in each other both
        count. O(annotations log annotations).
    """
    chosen = events.table.filter(events.is_of(*_PLACES))
    table = chosen.select(
        pl.col("category").cast(pl.String).replace_strict(_PLACES).alias("place"),
        pl.col("name").cast(pl.String), "duration",
    )  # fmt: skip
    return times_by_name(table, "place", "name").sort("place", descending=True, maintain_order=True)


@per_rank("device work", "annotations")
def annotation_kernels(events: RankEvents) -> pl.DataFrame:
    """Sum the device work in each user annotation by name.

    Work belongs to the innermost annotation of the device that contains it on its stream; where the
    profiler made none, to the innermost annotation of the host around the call that launched it.

    Returns
    -------
    polars.DataFrame
        ``annotation`` (empty outside of all), ``name``, ``type``, ``count``, ``sum_ns``,
        ``percent``, ``mean_ns``, ``std_ns``, ``min_ns``, ``max_ns``. O(work log annotations).
    """
    names = events.table["name"].cast(pl.String)
    inside = kernel_annotations(events)
    named = names.gather(np.maximum(inside, 0)).set(pl.Series(inside < 0), "")
    types = pl.Series(KERNEL_TYPES, dtype=pl.Enum(KERNEL_TYPES)).gather(events.type_codes)
    table = pl.DataFrame({
        "annotation": named, "name": names.gather(events.work), "type": types,
        "duration": events.column("duration")[events.work],
    })  # fmt: skip
    return times_by_name(table, "annotation", "name", "type")


def kernel_annotations(events: RankEvents) -> Ints:
    """Return the row of the annotation of each piece of device work, or -1; int64, (work,)."""
    on_device = np.flatnonzero(events.is_of("device_annotation"))
    if on_device.size:
        return _containing(events, on_device)
    require(events, "operators")
    return events.around(events.launcher[events.work], events.is_of("annotation"))


def _containing(events: RankEvents, annotations: Ints) -> Ints:
    """Return the innermost of some annotations that contains each piece of work on its stream."""
    start, end = events.column("start"), events.end
    found = np.full(events.work.size, -1, dtype=np.int64)
    device, stream = events.column("device"), events.column("stream")
    places = _places(events, annotations)
    for place in np.unique(places, axis=0):
        mine = annotations[(places == place).all(axis=1)]
        mine = mine[np.lexsort((-end[mine], start[mine]))]
        outer = _outer(start[mine], end[mine])
        which = (device[events.work] == place[0]) & (stream[events.work] == place[1])
        rows = events.work[which]
        at = np.searchsorted(start[mine], start[rows], side="right") - 1
        while (left := (at >= 0) & (end[mine[at]] < end[rows])).any():
            at[left] = outer[at[left]]
        found[which] = np.where(at >= 0, mine[at], -1)
    return found


def _places(events: RankEvents, annotations: Ints) -> Ints:
    """Return device and stream of annotations: process and thread of the file; (rows, 2)."""
    node = annotations if events.node is None else events.node[annotations]
    attributes = events.trace.attributes
    places = np.full((annotations.size, 2), -1, dtype=np.int64)
    at = {int(one): number for number, one in enumerate(node)}
    for column, name in enumerate(("pid", "tid")):
        for row in attributes.rows_named(name).tolist():
            number = at.get(int(attributes.node[row]))
            if number is not None and isinstance(value := attributes.python_value(row), int):
                places[number, column] = value
    return places


def _outer(start: Ints, end: Ints) -> Ints:
    """Return the interval around each, or -1: sorted by start, the longest first."""
    outer = np.full(start.size, -1, dtype=np.int64)
    stack: list[int] = []
    for number in range(start.size):
        while stack and end[stack[-1]] < end[number]:
            stack.pop()
        outer[number] = stack[-1] if stack else -1
        stack.append(number)
    return outer
