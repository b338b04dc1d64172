"""Perfetto's own format, which ui.perfetto.dev and trace_processor open: writing.

Times are whole nanoseconds since the epoch, as in the trace. They are written as those
of Perfetto's boot clock, the one that it takes for granted; a snapshot says that the
wall clock shows the same, so that viewers can show dates.

Ids of tracks, sequences and flows contain the rank: files of several ranks, one after
the other in one file, are a timeline of all of them.
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
    PROCESS,
    THREAD,
    UUID,
    Flows,
    Ids,
    clock_snapshot,
    descriptor,
    field,
    find_flows,
    number_names,
    slice_packets,
    texts_packet,
)
from nadi.formats.timeline.tracks import find_lanes, lane_suffix
from nadi.model.arrays import Ints
from nadi.model.issues import IssueLog
from nadi.model.schema import CATEGORIES, COMM_TYPES
from nadi.model.trace import Trace

__all__ = ["encode"]


_LARGEST_ID = 2**31  # of processes and threads, which Perfetto holds in an int32

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
    ids = Ids(trace.rank)
    nodes = trace.nodes if row.size == trace.nodes.height else trace.nodes[row]
    start = nodes["start"].to_numpy(writable=True)
    end = start + np.maximum(nodes["duration"].to_numpy(), 0)
    tracks, track = _tracks(nodes)
    lanes = find_lanes(track, start, end)
    places, place = np.unique(
        track + lanes.lane * max(tracks.height, 1), return_inverse=True
    )  # fmt: skip
    time = np.empty(2 * row.size, dtype=np.int64)
    time[0::2], time[1::2] = start, end
    boundary = lanes.boundary[np.argsort(time[lanes.boundary], kind="stable")]
    names, name = number_names(nodes["name"])
    fields = [*_NUMBERS.values(), *_TEXT_FIELDS]
    texts = [*COMM_TYPES, *trace.groups["name"].to_list()]
    flows = _flows(trace, ids, row, boundary)
    log.add(
        "perfetto.arrow", "info", flows.num_left_out,
        "dependencies that end no later than they begin are drawn without an arrow",
    )  # fmt: skip
    yield clock_snapshot(ids)
    yield from _descriptors(trace, ids, tracks, places)
    yield texts_packet(ids, CATEGORIES, names.to_list(), fields, texts)
    slices = Slices(
        boundary=boundary,
        start=start,
        end=end,
        track=_track_uuids(ids, tracks, places.size)[place],
        name=name,
        category=nodes["category"].to_physical().to_numpy().astype(np.int64) + 1,
        values=_values(nodes),
        is_text=np.array([False] * len(_NUMBERS) + [True] * len(_TEXT_FIELDS)),
        first_flow=flows.first_flow,
        flow=flows.flow,
        is_last=flows.is_last,
    )
    yield from slice_packets(slices, ids)


def _tracks(nodes: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
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


def _values(nodes: pl.DataFrame) -> Ints:
    """Give the noted columns; shape (fields, nodes)."""
    values = np.empty((len(_NUMBERS) + len(_TEXT_FIELDS), nodes.height), dtype=np.int64)
    for number, column in enumerate(_NUMBERS):
        values[number] = nodes[column].to_numpy()
    comm_type = nodes["comm_type"].to_physical().to_numpy().astype(np.int64)
    values[-2] = np.where(comm_type > 0, comm_type + 1, -1)
    group = nodes["group"].to_numpy()
    values[-1] = np.where(group >= 0, group + len(COMM_TYPES) + 1, -1)
    return values


# --- dependencies as arrows


def _flows(trace: Trace, ids: Ids, row: Ints, boundary: Ints) -> Flows:
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
    return find_flows(ids, boundary, (2 * src + from_end)[timed], (2 * dst + to_end)[timed])


# --- tracks


def _track_uuids(ids: Ids, tracks: pl.DataFrame, num_places: int) -> Ints:
    """Give the ids of the tracks, which follow those of the process and the devices."""
    return ids.process + 1 + tracks["device"].n_unique() + np.arange(num_places, dtype=np.int64)


def _descriptors(trace: Trace, ids: Ids, tracks: pl.DataFrame, places: Ints) -> Iterator[bytes]:
    """Describe the process, its threads, the devices and their streams."""
    owner = f"rank {trace.rank} " if trace.rank >= 0 else ""
    has_process = 0 < trace.process < _LARGEST_ID
    process = [field(UUID, ids.process)]
    if has_process:
        process_fields = field(1, trace.process) + field(6, owner.strip() or "process")
        process.append(field(PROCESS, process_fields))
    else:
        process += [field(NAME, f"{owner}host"), field(ORDERING, EXPLICIT)]
    yield descriptor(ids, process)
    devices = tracks.filter(~pl.col("is_cpu"))["device"].unique().sort().to_list()
    device_uuid = {device: ids.process + 1 + k for k, device in enumerate(devices)}
    for device, uuid in device_uuid.items():
        title = f"{owner}device {device}" if device >= 0 else f"{owner}device"
        yield descriptor(ids, [
            field(UUID, uuid), field(NAME, title), field(ORDERING, EXPLICIT),
        ])  # fmt: skip
    uuids = _track_uuids(ids, tracks, places.size).tolist()
    described = tracks.rows(named=True)
    for number, (place, uuid) in enumerate(zip(places.tolist(), uuids, strict=True)):
        lane, at = divmod(place, tracks.height)
        track = described[at]
        fields = [field(UUID, uuid)]
        if not track["is_cpu"]:
            parent, title = device_uuid[track["device"]], _title("stream", track["number"])
            fields.append(field(PLACE, at * len(places) + lane))
        elif has_process and 0 < track["number"] < _LARGEST_ID:
            thread = field(1, trace.process) + field(2, track["number"])
            if lane == 0:
                yield descriptor(ids, [*fields, field(THREAD, thread)])
                continue
            # the lanes of the first kind come first: number at is that of the thread itself
            parent, title = uuids[at], _title("thread", track["number"])
        else:
            parent, title = ids.process, _title("thread", track["number"])
            fields.append(field(PLACE, number))
        fields += [field(NAME, title + lane_suffix(lane)), field(PARENT, parent)]
        yield descriptor(ids, fields)


def _title(kind: str, number: int) -> str:
    return f"{kind} {number}" if number >= 0 else f"without a {kind}"
