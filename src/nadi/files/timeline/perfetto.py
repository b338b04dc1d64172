"""Write timelines in Perfetto's format, for ui.perfetto.dev and trace_processor.

Times are those of the boot clock, Perfetto's default. For times since the epoch, a clock snapshot
states that the wall clock shows the same time, so that viewers can show dates.

Ids of tracks, sequences and flows contain the rank, so that concatenated files of several
ranks are one timeline.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from nadi.files.timeline.perfetto_kernels import Slices
from nadi.files.timeline.perfetto_packets import (
    EXPLICIT,
    NAME,
    ORDERING,
    PARENT,
    PLACE,
    PROCESS,
    THREAD,
    UUID,
    Ids,
    clock_snapshot,
    descriptor,
    field,
    find_flows,
    slice_packets,
    texts_packet,
)
from nadi.files.timeline.timeline_values import Timeline, find_lanes, lane_suffix, number_texts
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog


def encode(timeline: Timeline, log: IssueLog) -> Iterator[bytes]:
    """Write a timeline in Perfetto's format.

    Slices that overlap others without nesting get additional tracks.

    Parameters
    ----------
    timeline
        Any.
    log
        Collects, when the first piece is written, which arrows cannot be drawn.

    Yields
    ------
    bytes
        Pieces of the file. O(slices log slices + arrows).
    """
    ids = Ids(timeline.rank)
    track, start, end = timeline.times()
    lanes = find_lanes(track, start, end)
    num_tracks = timeline.tracks.height
    # every track has its first lane, if nothing is on it too
    places, place = np.unique(
        np.concatenate([np.arange(num_tracks), track + lanes.lane * num_tracks]),
        return_inverse=True,
    )
    time = np.stack([start, end], axis=1).ravel()
    boundary = lanes.boundary[np.argsort(time[lanes.boundary], kind="stable")]
    flows = find_flows(ids, boundary, timeline.tail, timeline.head)
    log.add(
        "perfetto.arrow", "info", flows.num_left_out,
        "arrows that do not point forward in time are not drawn, because Perfetto rejects them",
    )  # fmt: skip
    names, name = number_texts(timeline.slices["name"])
    categories, category = number_texts(timeline.slices["category"])
    texts, values = _notes(timeline)
    if timeline.is_absolute:
        yield clock_snapshot(ids)
    yield from _descriptors(timeline, ids, places)
    yield texts_packet(ids, categories, names, list(timeline.notes), texts)
    slices = Slices(
        boundary=boundary,
        start=start,
        end=end,
        track=_first_track(timeline, ids) + place[num_tracks:],
        name=name,
        category=category,
        values=values,
        is_text=np.array([_is_text(note) for note in timeline.notes.values()], dtype=np.bool_),
        first_flow=flows.first_flow,
        flow=flows.flow,
        is_last=flows.is_last,
    )
    yield from slice_packets(slices, ids)


def _is_text(note: pl.Series) -> bool:
    return note.dtype not in (pl.Int64, pl.Boolean)


def _notes(timeline: Timeline) -> tuple[list[str], Ints]:
    """Return all texts of notes, and the notes: numbers, or numbers of texts from 1.

    int64, shape (notes, slices); -1 is left out.
    """
    texts: list[str] = []
    values = np.empty((len(timeline.notes), timeline.slices.height), dtype=np.int64)
    for row, note in enumerate(timeline.notes.values()):
        if _is_text(note):
            known, number = number_texts(note)
            values[row] = np.where(number > 0, number + len(texts), -1)
            texts += known
        else:
            values[row] = note.to_numpy() if note.dtype == pl.Int64 else np.where(note, 1, -1)
    return texts, values


def _first_process(timeline: Timeline, ids: Ids) -> int:
    """Return the id of the first process's track, after the track of the whole timeline if any."""
    return ids.process + bool(timeline.title)


def _first_track(timeline: Timeline, ids: Ids) -> int:
    """Return the id of the first track, which follow those of the processes."""
    return _first_process(timeline, ids) + timeline.processes.height


def _descriptors(timeline: Timeline, ids: Ids, places: Ints) -> Iterator[bytes]:
    """Describe the timeline, its processes and their tracks.

    Without a real process, Perfetto keeps a given order only among the children of a track.
    A timeline with a title therefore has one parent track for all.
    ``places`` are numbers of lanes of tracks, first lanes first: ``lane * tracks + track``.
    """
    ordered = field(ORDERING, EXPLICIT)
    first_process, first_track = _first_process(timeline, ids), _first_track(timeline, ids)
    if timeline.title:
        yield descriptor(ids, [field(UUID, ids.process), field(NAME, timeline.title), ordered])
    processes = timeline.processes.rows(named=True)
    for number, process in enumerate(processes):
        fields = [field(UUID, first_process + number)]
        if process.get("pid", -1) > 0:
            fields.append(field(PROCESS, field(1, process["pid"]) + field(6, process["title"])))
        else:
            fields += [field(NAME, process["title"]), ordered]
        if timeline.title:
            fields += [field(PARENT, ids.process), field(PLACE, number)]
        yield descriptor(ids, fields)
    tracks = timeline.tracks.rows(named=True)
    for uuid, position in enumerate(places.tolist(), first_track):
        lane, number = divmod(position, len(tracks))
        track = tracks[number]
        fields, parent = [field(UUID, uuid)], first_process + track["process"]
        if track.get("tid", -1) > 0:
            if lane == 0:
                pid = processes[track["process"]]["pid"]
                yield descriptor(
                    ids, [*fields, field(THREAD, field(1, pid) + field(2, track["tid"]))]
                )
                continue
            parent = first_track + number
        else:
            fields.append(field(PLACE, number * len(places) + lane))
        fields += [field(NAME, track["title"] + lane_suffix(lane)), field(PARENT, parent)]
        yield descriptor(ids, fields)
