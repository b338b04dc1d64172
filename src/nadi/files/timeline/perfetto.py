"""Write timelines in Perfetto's format, for ui.perfetto.dev and trace_processor.

Times are those of the boot clock, Perfetto's default. For times since the epoch, a clock snapshot
states that the wall clock shows the same time, so that viewers can show dates.

Ids of tracks, sequences and flows contain the rank, so that concatenated files of several
ranks are one timeline.

A file is a sequence of packets (``TracePacket`` of Perfetto's protos/perfetto/trace). The first
ones describe the tracks and number every text. Then each slice has a packet at its begin and one at
its end, in order of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.files.timeline.perfetto_kernels import (
    BYTES_PER_FLOW,
    BYTES_PER_PACKET,
    BYTES_PER_VALUE,
    Slices,
    write_packets,
)
from nadi.files.timeline.timeline_values import Timeline, find_lanes, lane_suffix, number_texts
from nadi.kernels.sequences import group_rows
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.protobuf_values import write_varint


def encode(timeline: Timeline, log: IssueLog) -> Iterator[bytes]:
    """Write a timeline in Perfetto's format.

    Slices that overlap others without nesting get additional tracks.

    - ``timeline``: Any.
    - ``log``: Collects, when the first piece is written, which arrows cannot be drawn.
    - Yields: Pieces of the file. O(slices log slices + arrows).
    """
    ids = Ids(timeline.rank)
    track, start, end = timeline.times()
    lane, boundary = find_lanes(track, start, end)
    num_tracks = timeline.tracks.height
    # every track has its first lane, if nothing is on it too
    places, place = np.unique(
        np.concatenate([np.arange(num_tracks), track + lane * num_tracks]),
        return_inverse=True,
    )
    time = np.stack([start, end], axis=1).ravel()
    boundary = boundary[np.argsort(time[boundary], kind="stable")]
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
    yield from _counter_packets(timeline, ids, places.size)


def _counter_packets(timeline: Timeline, ids: Ids, num_lanes: int) -> Iterator[bytes]:
    """Describe a track for each counter, after those of slices, and write its values."""
    first = _first_track(timeline, ids) + num_lanes
    for uuid, (process, counter) in enumerate(timeline.counters, first):
        parent = _first_process(timeline, ids) + process
        unit = field(COUNTER, field(_UNIT_NAME, counter.unit) if counter.unit else b"")
        yield descriptor(ids, [
            field(UUID, uuid), field(PLACE, timeline.tracks.height * num_lanes + uuid - first),
            field(NAME, counter.title), field(PARENT, parent), unit,
        ])  # fmt: skip
        track = field(_TYPE, _COUNTER_TYPE) + field(_TRACK, uuid)
        for time, value in zip(counter.time.tolist(), counter.value.tolist(), strict=True):
            event = track + field(_VALUE, value % 2**64)  # negative ones as protobuf has them
            yield packet(ids, [field(_TIMESTAMP, time), field(_TRACK_EVENT, event)])


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


# numbers of protobuf fields, by message
_CLOCK_SNAPSHOT, _SEQUENCE, _INTERNED, _FLAGS, _DESCRIPTOR = 6, 10, 12, 13, 60  # TracePacket
UUID, NAME, PROCESS, THREAD, PARENT, COUNTER, ORDERING, PLACE = 1, 2, 3, 4, 5, 8, 11, 12
"""Fields of a track's descriptor."""
_CATEGORIES, _NAMES, _FIELD_NAMES, _TEXTS = 1, 2, 3, 29  # InternedData
_TIMESTAMP, _TRACK_EVENT = 8, 11  # TracePacket
_TYPE, _TRACK, _VALUE = 9, 11, 30  # TrackEvent
_COUNTER_TYPE = 4  # TYPE_COUNTER
_UNIT_NAME = 6  # CounterDescriptor
_REALTIME, _BOOTTIME = 1, 6  # builtin clocks
_STATE_CLEARED = 1  # SEQ_INCREMENTAL_STATE_CLEARED: numbers of texts are given anew
EXPLICIT = 3
"""Children of a track stand in the order of their ``PLACE``."""

_TRACKS_PER_RANK = 2**20
_FLOWS_PER_RANK = 2**32
_MOST_IDS = 2**63  # only a damaged file tells of ranks that have to share some
_PACKETS_AT_ONCE = 2**16


@dataclass(frozen=True)
class Ids:
    """Ids of one rank's packets, different from those of other ranks."""

    rank: int

    @property
    def sequence(self) -> int:
        """Return the id of the sequence of packets, which has its own numbers of texts."""
        return (self.rank + 2) % 2**32

    @property
    def process(self) -> int:
        """Return the uuid of the process's track, the rank's first."""
        return (self.rank + 2) * _TRACKS_PER_RANK % _MOST_IDS

    @property
    def flow(self) -> int:
        """Return the id of the first arrow."""
        return (self.rank + 2) * _FLOWS_PER_RANK % _MOST_IDS


class _Flows(NamedTuple):
    """Arrows by the slice boundaries that they connect, as in :class:`Slices`."""

    first_flow: Ints
    flow: npt.NDArray[np.uint64]
    is_last: Bools
    num_left_out: int


def find_flows(ids: Ids, boundary: Ints, tail: Ints, head: Ints) -> _Flows:
    """Sort arrows by their ends.

    - ``boundary``: int64, shape (packets,): starts and ends of slices in the order of the file.
    - ``tail``, ``head``: int64, shape (arrows,): the start or end of a slice that each leaves and
      reaches. An arrow that does not lead to a later packet is left out, because Perfetto rejects
      it.
    """
    place = np.empty(boundary.size, dtype=np.int64)
    place[boundary] = np.arange(boundary.size)
    forward = place[tail] < place[head]
    tail, head = tail[forward], head[forward]
    keys = np.concatenate([tail, head])
    first = np.empty(boundary.size + 1, dtype=np.int64)
    order = np.empty(keys.size, dtype=np.int64)
    group_rows(keys, first, order)
    flow = (order % max(tail.size, 1)).astype(np.uint64) + np.uint64(ids.flow)
    return _Flows(first, flow, order >= tail.size, int((~forward).sum()))


def slice_packets(slices: Slices, ids: Ids) -> Iterator[bytes]:
    """Yield the packets of slices in small pieces."""
    num_fields = slices.is_text.size
    # every packet may begin a slice with all fields; flows are many or none
    size_of_one = BYTES_PER_PACKET + num_fields * BYTES_PER_VALUE
    num_flows = np.diff(slices.first_flow)[slices.boundary]
    before = np.concatenate([[0], np.cumsum(num_flows)])
    out = np.empty(0, dtype=np.uint8)
    for low in range(0, slices.boundary.size, _PACKETS_AT_ONCE):
        high = min(low + _PACKETS_AT_ONCE, slices.boundary.size)
        size = (high - low) * size_of_one + int(before[high] - before[low]) * BYTES_PER_FLOW
        if size > out.size:
            out = np.empty(size, dtype=np.uint8)
        yield out[write_packets(slices, ids.sequence, low, high, out) :].tobytes()


def field(number: int, value: int | str | bytes) -> bytes:
    """Write one field of a message."""
    if isinstance(value, int):
        return write_varint(number << 3) + write_varint(value)
    content = value.encode() if isinstance(value, str) else value
    return write_varint(number << 3 | 2) + write_varint(len(content)) + content


def packet(ids: Ids, fields: Sequence[bytes], flags: int = 0) -> bytes:
    """Write one packet of a rank."""
    common = [field(_SEQUENCE, ids.sequence)] + [field(_FLAGS, flags)] * bool(flags)
    return field(1, b"".join([*fields, *common]))


def descriptor(ids: Ids, fields: Sequence[bytes]) -> bytes:
    """Write a packet that describes a track."""
    return packet(ids, [field(_DESCRIPTOR, b"".join(fields))])


def clock_snapshot(ids: Ids) -> bytes:
    """Return a snapshot in which the boot clock and the wall clock show the same time.

    All ranks use the same moment, because snapshots in one file must not go back in time.
    """
    clocks = [field(1, field(1, clock) + field(2, 1)) for clock in (_BOOTTIME, _REALTIME)]
    return packet(ids, [field(_CLOCK_SNAPSHOT, b"".join(clocks) + field(2, _BOOTTIME))])


def texts_packet(
    ids: Ids,
    categories: Sequence[str],
    names: Sequence[str],
    field_names: Sequence[str],
    texts: Sequence[str],
) -> bytes:
    """Return a packet that numbers every text, from 1 in each table."""
    interned = [
        field(sort, field(1, number) + field(2, text))
        for sort, sorted_texts in (
            (_CATEGORIES, categories),
            (_NAMES, names),
            (_FIELD_NAMES, field_names),
            (_TEXTS, texts),
        )
        for number, text in enumerate(sorted_texts, start=1)
    ]
    return packet(ids, [field(_INTERNED, b"".join(interned))], _STATE_CLEARED)
