"""Timelines in Perfetto's own format, which ui.perfetto.dev and trace_processor open.

Tracks lie under one track for each process, and these under one for all, because only
there does Perfetto keep the order that it is told. Times are ns since the origin of the
timeline, on the clock that Perfetto takes for granted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from nadi.formats.timeline.perfetto_kernels import Slices
from nadi.formats.timeline.perfetto_packets import (
    EXPLICIT,
    NAME,
    ORDERING,
    PARENT,
    PLACE,
    UUID,
    Ids,
    descriptor,
    field,
    find_flows,
    number_names,
    slice_packets,
    texts_packet,
)
from nadi.formats.timeline.timeline_values import PATH_CATEGORY, Timeline
from nadi.formats.timeline.tracks import find_lanes
from nadi.model.issues import IssueLog
from nadi.model.schema import CATEGORIES

__all__ = ["encode"]

_IDS = Ids(0)  # the packets of all ranks are one sequence
_CATEGORIES = [*CATEGORIES, PATH_CATEGORY]
_FIELDS = {"node": False, "critical": False, "longest operation": True}  # whether it is a text


def encode(timeline: Timeline, log: IssueLog) -> Iterator[bytes]:
    """Write a timeline; gives the pieces of the file.

    Slices have the notes node, critical (1 where they have time on the path) and, of a
    path, longest operation. The log is told which arrows cannot be drawn.
    """
    slices = timeline.slices
    track, start, end = (slices[name].to_numpy(writable=True) for name in ("track", "start", "end"))
    # they lie in each other or apart already: what is asked for is their order
    boundary = find_lanes(track, start, end).boundary
    time = np.stack([start, end], axis=1).ravel()
    boundary = boundary[np.argsort(time[boundary], kind="stable")]
    flows = find_flows(_IDS, boundary, 2 * timeline.tail, 2 * timeline.head)
    log.add(
        "timeline.arrow", "info", flows.num_left_out,
        "steps of the path between operations that begin at the same time are drawn without an "
        "arrow",
    )  # fmt: skip
    names, name = number_names(slices["name"].cast(pl.Categorical))
    texts, longest = number_names(slices["longest"].cast(pl.Categorical))
    yield from _descriptors(timeline)
    yield texts_packet(_IDS, _CATEGORIES, names.to_list(), list(_FIELDS), texts.to_list())
    number = {category: 1 + place for place, category in enumerate(_CATEGORIES)}
    category = slices["category"].replace_strict(number, return_dtype=pl.Int64)
    drawn = Slices(
        boundary=boundary,
        start=start,
        end=end,
        track=_first_track(timeline) + track,
        name=name,
        category=category.to_numpy(),
        values=np.stack([
            slices["node"].to_numpy(),
            np.where(slices["critical"].to_numpy(), 1, -1),
            np.where((slices["longest"] != "").to_numpy(), longest, -1),
        ]),
        is_text=np.array(list(_FIELDS.values())),
        first_flow=flows.first_flow,
        flow=flows.flow,
        is_last=flows.is_last,
    )  # fmt: skip
    yield from slice_packets(drawn, _IDS)


def _first_track(timeline: Timeline) -> int:
    """Give the id of the first track; before it are that of all and those of processes."""
    return _IDS.process + 1 + timeline.processes.height


def _descriptors(timeline: Timeline) -> Iterator[bytes]:
    """Describe the track of all, the processes and their tracks."""
    of_all, first = _IDS.process, _first_track(timeline)
    ordered = field(ORDERING, EXPLICIT)
    yield descriptor(_IDS, [field(UUID, of_all), field(NAME, timeline.title), ordered])
    for place, title in enumerate(timeline.processes["title"]):
        yield descriptor(_IDS, [
            field(UUID, of_all + 1 + place), field(NAME, title), field(PARENT, of_all),
            field(PLACE, place), ordered,
        ])  # fmt: skip
    for place, (process, title) in enumerate(timeline.tracks.iter_rows()):
        yield descriptor(_IDS, [
            field(UUID, first + place), field(NAME, title),
            field(PARENT, of_all + 1 + process), field(PLACE, place),
        ])  # fmt: skip
