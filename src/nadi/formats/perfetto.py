"""Perfetto's own format, which ui.perfetto.dev and trace_processor open: writing.

A file is a row of packets (``TracePacket`` of Perfetto's protos/perfetto/trace). The
first ones say which tracks there are and give every text a number; then each slice has
a packet where it begins and one where it ends, in order of time.

Times are whole nanoseconds since the epoch, as in the trace. They are written as those
of Perfetto's boot clock, the one that it takes for granted; a snapshot says that the
wall clock shows the same, so that viewers can show dates.

Ids of tracks, sequences and flows contain the rank: files of several ranks, one after
the other in one file, are a timeline of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.formats.tracks import find_lanes, lane_suffix
from nadi.issues import IssueLog
from nadi.kernels.groups import group_rows
from nadi.kernels.perfetto import (
    BYTES_PER_FLOW,
    BYTES_PER_PACKET,
    BYTES_PER_VALUE,
    Slices,
    write_packets,
)
from nadi.schema import CATEGORIES, COMM_TYPES
from nadi.trace import Trace
from nadi.wire import write_varint

__all__ = ["encode"]

_Ints = npt.NDArray[np.int64]

# numbers of protobuf fields, by message
_CLOCK_SNAPSHOT, _SEQUENCE, _INTERNED, _FLAGS, _DESCRIPTOR = 6, 10, 12, 13, 60  # TracePacket
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _ORDERING, _RANK = 1, 2, 3, 4, 5, 11, 12  # descriptor
_CATEGORIES, _NAMES, _FIELD_NAMES, _TEXTS = 1, 2, 3, 29  # InternedData
_REALTIME, _BOOTTIME = 1, 6  # builtin clocks
_STATE_CLEARED = 1  # SEQ_INCREMENTAL_STATE_CLEARED: numbers of texts are given anew
_EXPLICIT = 3  # children of a track in the order of their ranks

_LARGEST_ID = 2**31  # of processes and threads, which Perfetto holds in an int32
_TRACKS_PER_RANK = 2**20
_FLOWS_PER_RANK = 2**32
_PACKETS_AT_ONCE = 2**16

# what is noted of a slice: column and the name that it gets
_NUMBERS = {
    "id": "id", "rf_id": "record function id", "external_id": "external id",
    "correlation": "correlation", "sequence": "sequence", "stream": "stream",
    "bytes": "bytes", "exclusive": "exclusive ns", "comm_bytes": "comm bytes",
    "src": "source rank", "dst": "destination rank", "tag": "tag", "is_async": "asynchronous",
    "flops": "flops",
}  # fmt: skip
_TEXT_FIELDS = ("comm type", "group")
# arrows for dependencies that tracks do not show by themselves: whether they leave and
# reach a slice at its end
_ARROWS = {
    "launch": (False, False),
    "sync": (True, True),
    "thread": (True, False),
    "data": (True, False),
    "ctrl": (True, False),
}


@dataclass(frozen=True)
class _Ids:
    """Ids of one rank's packets, different from those of other ranks."""

    rank: int

    @property
    def sequence(self) -> int:
        return self.rank + 2

    @property
    def process(self) -> int:
        """Give the uuid of the process's track, the rank's first."""
        return (self.rank + 2) * _TRACKS_PER_RANK

    @property
    def flow(self) -> int:
        return (self.rank + 2) * _FLOWS_PER_RANK


def encode(trace: Trace, log: IssueLog) -> Iterator[bytes]:
    """Write a trace as a timeline in Perfetto's format.

    Each host thread has a track, with its real process and thread id, and so has each
    stream, under its device. Slices that cut others get tracks beside. Arrows show
    launches, synchronisations, hand-overs between threads, and what a Chakra file gives.

    Parameters
    ----------
    trace
        Any trace with times.
    log
        Told, once all is written, what could not be drawn.

    Yields
    ------
    bytes
        Pieces of the file. O(nodes log nodes + deps).
    """
    row = np.flatnonzero(trace.column("start") >= 0)
    log.add(
        "perfetto.untimed", "warning", trace.nodes.height - row.size,
        "nodes without a time cannot be drawn", "link the host trace to its device trace first",
    )  # fmt: skip
    ids = _Ids(trace.rank)
    nodes = trace.nodes if row.size == trace.nodes.height else trace.nodes[row]
    start = nodes["start"].to_numpy()
    end = start + np.maximum(nodes["duration"].to_numpy(), 0)
    tracks, track = _tracks(nodes)
    lanes = find_lanes(track, start, end)
    places, place = np.unique(
        track + lanes.lane * max(tracks.height, 1), return_inverse=True
    )  # fmt: skip
    time = np.empty(2 * row.size, dtype=np.int64)
    time[0::2], time[1::2] = start, end
    boundary = lanes.boundary[np.argsort(time[lanes.boundary], kind="stable")]
    names, name = _numbered(nodes["name"])
    yield _packet(ids, [_clock_snapshot()])
    yield from _descriptors(trace, ids, tracks, places)
    yield _texts(ids, names, [*COMM_TYPES, *trace.groups["name"].to_list()])
    slices = Slices(
        boundary=boundary,
        start=start,
        end=end,
        track=_track_uuids(ids, tracks, places.size)[place],
        name=name,
        category=nodes["category"].to_physical().to_numpy().astype(np.int64) + 1,
        values=_values(nodes),
        is_text=np.array([False] * len(_NUMBERS) + [True] * len(_TEXT_FIELDS)),
        **_flows(trace, ids, row, boundary, log),
    )
    yield from _packets(slices, ids)


def _tracks(nodes: pl.DataFrame) -> tuple[pl.DataFrame, _Ints]:
    """Give a table of the threads and streams, and the row in it of each node."""
    # recordings do not say which device an annotation on it belongs to: often there is but one
    devices = nodes.filter(pl.col("device") >= 0)["device"].unique()
    unknown = devices[0] if len(devices) == 1 else -1
    place = nodes.select(
        "is_cpu",
        number=pl.when("is_cpu").then("thread").otherwise("stream"),
        device=pl.when("is_cpu").then(-1).otherwise(pl.col("device").replace(-1, unknown)),
    )
    order = (pl.col("is_cpu").not_(), "device", "number")
    tracks = place.unique().sort(*order).with_row_index("track")
    track = place.join(
        tracks, on=place.columns, how="left", maintain_order="left", nulls_equal=True
    )["track"]
    return tracks, track.cast(pl.Int64).to_numpy()


def _numbered(names: pl.Series) -> tuple[pl.Series, _Ints]:
    """Give every different name once, and for each element the number of its name, from 1."""
    unique = names.unique()
    codes = unique.to_physical().to_numpy()
    number = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    number[codes] = np.arange(1, codes.size + 1)
    return unique.cast(pl.String), number[names.to_physical().to_numpy()]


def _values(nodes: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Give the noted columns; shape (fields, nodes)."""
    values = np.empty((len(_NUMBERS) + len(_TEXT_FIELDS), nodes.height), dtype=np.int64)
    for field, column in enumerate(_NUMBERS):
        values[field] = nodes[column].to_numpy()
    comm_type = nodes["comm_type"].to_physical().to_numpy().astype(np.int64)
    values[-2] = np.where(comm_type > 0, comm_type + 1, -1)
    group = nodes["group"].to_numpy()
    values[-1] = np.where(group >= 0, group + len(COMM_TYPES) + 1, -1)
    return values


# --- dependencies as arrows


def _flows(
    trace: Trace, ids: _Ids, row: _Ints, boundary: _Ints, log: IssueLog
) -> dict[str, npt.NDArray[np.generic]]:
    """Give the ends of arrows by the boundary that they hold on to."""
    deps = trace.deps.filter(pl.col("kind").is_in(list(_ARROWS)))
    kind = deps["kind"].cast(pl.String)
    position = np.full(trace.nodes.height, -1, dtype=np.int64)
    position[row] = np.arange(row.size)
    src = position[deps["src"].to_numpy()]
    dst = position[deps["dst"].to_numpy()]
    from_end = kind.replace_strict({k: int(ends[0]) for k, ends in _ARROWS.items()}).to_numpy()
    to_end = kind.replace_strict({k: int(ends[1]) for k, ends in _ARROWS.items()}).to_numpy()
    timed = (src >= 0) & (dst >= 0)
    tail, head = (2 * src + from_end)[timed], (2 * dst + to_end)[timed]
    packet = np.empty(boundary.size, dtype=np.int64)
    packet[boundary] = np.arange(boundary.size)
    # Perfetto refuses an arrow that ends before it begins
    forward = packet[tail] < packet[head]
    log.add(
        "perfetto.arrow", "info", int((~forward).sum()),
        "dependencies that end no later than they begin are drawn without an arrow",
    )  # fmt: skip
    tail, head = tail[forward], head[forward]
    keys = np.concatenate([tail, head])
    first = np.empty(boundary.size + 1, dtype=np.int64)
    order = np.empty(keys.size, dtype=np.int64)
    group_rows(keys, first, order)
    return {
        "first_flow": first,
        "flow": (order % max(tail.size, 1)).astype(np.uint64) + np.uint64(ids.flow),
        "is_last": order >= tail.size,
    }


# --- packets


def _packets(slices: Slices, ids: _Ids) -> Iterator[bytes]:
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


def _field(number: int, value: int | str | bytes) -> bytes:
    """Write one field of a message."""
    if isinstance(value, int):
        return write_varint(number << 3) + write_varint(value)
    content = value.encode() if isinstance(value, str) else value
    return write_varint(number << 3 | 2) + write_varint(len(content)) + content


def _packet(ids: _Ids, fields: Sequence[bytes], flags: int = 0) -> bytes:
    common = [_field(_SEQUENCE, ids.sequence)] + [_field(_FLAGS, flags)] * bool(flags)
    return _field(1, b"".join([*fields, *common]))


def _clock_snapshot() -> bytes:
    """Say that the boot clock and the wall clock show the same.

    At a moment that is the same for all ranks: in one file, snapshots must not go back.
    """
    clocks = [_field(1, _field(1, clock) + _field(2, 1)) for clock in (_BOOTTIME, _REALTIME)]
    return _field(_CLOCK_SNAPSHOT, b"".join(clocks) + _field(2, _BOOTTIME))


def _texts(ids: _Ids, names: pl.Series, texts: Sequence[str]) -> bytes:
    """Give every text its number, from 1 for each sort."""
    fields = [*_NUMBERS.values(), *_TEXT_FIELDS]
    interned = [
        _field(sort, _field(1, number) + _field(2, text))
        for sort, sorted_texts in (
            (_CATEGORIES, CATEGORIES),
            (_NAMES, names.to_list()),
            (_FIELD_NAMES, fields),
            (_TEXTS, texts),
        )
        for number, text in enumerate(sorted_texts, start=1)
    ]
    return _packet(ids, [_field(_INTERNED, b"".join(interned))], _STATE_CLEARED)


# --- tracks


def _track_uuids(ids: _Ids, tracks: pl.DataFrame, num_places: int) -> _Ints:
    """Give the ids of the tracks, which follow those of the process and the devices."""
    return ids.process + 1 + tracks["device"].n_unique() + np.arange(num_places, dtype=np.int64)


def _descriptors(trace: Trace, ids: _Ids, tracks: pl.DataFrame, places: _Ints) -> Iterator[bytes]:
    """Describe the process, its threads, the devices and their streams."""
    owner = f"rank {trace.rank} " if trace.rank >= 0 else ""
    has_process = 0 < trace.process < _LARGEST_ID
    process = [_field(_UUID, ids.process)]
    if has_process:
        process_fields = _field(1, trace.process) + _field(6, owner.strip() or "process")
        process.append(_field(_PROCESS, process_fields))
    else:
        process += [_field(_NAME, f"{owner}host"), _field(_ORDERING, _EXPLICIT)]
    yield _descriptor(ids, process)
    devices = tracks.filter(~pl.col("is_cpu"))["device"].unique().sort().to_list()
    device_uuid = {device: ids.process + 1 + k for k, device in enumerate(devices)}
    for device, uuid in device_uuid.items():
        title = f"{owner}device {device}" if device >= 0 else f"{owner}device"
        yield _descriptor(ids, [
            _field(_UUID, uuid), _field(_NAME, title), _field(_ORDERING, _EXPLICIT),
        ])  # fmt: skip
    uuids = _track_uuids(ids, tracks, places.size).tolist()
    described = tracks.rows(named=True)
    for number, (place, uuid) in enumerate(zip(places.tolist(), uuids, strict=True)):
        lane, at = divmod(place, tracks.height)
        track = described[at]
        fields = [_field(_UUID, uuid)]
        if not track["is_cpu"]:
            parent, title = device_uuid[track["device"]], _title("stream", track["number"])
            fields.append(_field(_RANK, at * len(places) + lane))
        elif has_process and 0 < track["number"] < _LARGEST_ID:
            thread = _field(1, trace.process) + _field(2, track["number"])
            if lane == 0:
                yield _descriptor(ids, [*fields, _field(_THREAD, thread)])
                continue
            # the lanes of the first kind come first: number at is that of the thread itself
            parent, title = uuids[at], _title("thread", track["number"])
        else:
            parent, title = ids.process, _title("thread", track["number"])
            fields.append(_field(_RANK, number))
        fields += [_field(_NAME, title + lane_suffix(lane)), _field(_PARENT, parent)]
        yield _descriptor(ids, fields)


def _title(kind: str, number: int) -> str:
    return f"{kind} {number}" if number >= 0 else f"without a {kind}"


def _descriptor(ids: _Ids, fields: Sequence[bytes]) -> bytes:
    return _packet(ids, [_field(_DESCRIPTOR, b"".join(fields))])
