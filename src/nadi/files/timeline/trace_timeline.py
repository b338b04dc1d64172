"""Make timelines of recorded traces: each host thread and each stream is a track."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from nadi.files.timeline import perfetto
from nadi.files.timeline.timeline_values import Timeline, optional_texts
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

_LARGEST_ID = 2**31  # of processes and threads, which viewers hold in an int32

# what is noted of a slice: column and the name that it gets
_NUMBERS = {
    "id": "id", "rf_id": "record function id", "external_id": "external id",
    "correlation": "correlation", "sequence": "sequence", "stream": "stream",
    "bytes": "bytes", "exclusive": "exclusive ns", "comm_bytes": "comm bytes",
    "src": "source rank", "dst": "destination rank", "tag": "tag", "is_async": "asynchronous",
    "flops": "flops",
}  # fmt: skip
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
    """Write a trace in Perfetto's format: see :func:`trace_timeline` and :mod:`perfetto`."""
    return perfetto.encode(trace_timeline(trace, log), log)


def trace_timeline(trace: Trace, log: IssueLog) -> Timeline:
    """Make a timeline of a trace.

    Each host thread has a track, with its real process and thread id, and so has each
    stream, under its device. Arrows show launches, synchronizations, dependencies
    between threads, and dependencies that a Chakra file states.

    - ``trace``: Any trace with times.
    - ``log``: Collects what cannot be drawn. O(nodes + deps).
    """
    row = np.flatnonzero(trace.column("start") >= 0)
    log.add(
        "perfetto.untimed", "warning", trace.nodes.height - row.size,
        "nodes without a time cannot be drawn", "link the host trace to its device trace first",
    )  # fmt: skip
    nodes = trace.nodes if row.size == trace.nodes.height else trace.nodes[row]
    # recordings do not say which device an annotation on it belongs to: often there is but one
    devices = nodes.filter(pl.col("device") >= 0)["device"].unique()
    places = nodes.with_columns(
        pl.col("device").replace(-1, devices[0] if len(devices) == 1 else -1)
    )
    processes, tracks, track = tracks_of(trace, places)
    tail, head = _arrows(trace, row)
    return Timeline(
        title="",
        processes=processes,
        tracks=tracks,
        slices=nodes.select(
            pl.lit(track).alias("track"), "category", "name", "start",
            end=pl.col("start") + pl.max_horizontal("duration", 0),
        ),
        notes={
            **{title: nodes[column] for column, title in _NUMBERS.items()},
            "comm type": nodes["comm_type"].replace("none", None),
            "group": optional_texts(trace.groups["name"], nodes["group"].to_numpy()),
        },
        tail=tail,
        head=head,
        rank=trace.rank,
        is_absolute=True,
    )  # fmt: skip


def tracks_of(trace: Trace, nodes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, Ints]:
    """Return the process and the devices, their threads and streams, and the track of each node.

    - ``trace``: The trace, for rank and process.
    - ``nodes``: Columns is_cpu, thread, device and stream, and only nodes with a time.
    - Returns processes, tracks, track: As :class:`Timeline` has them; int64, shape (nodes,).
    """
    place = nodes.select(
        "is_cpu",
        number=pl.when("is_cpu").then("thread").otherwise("stream"),
        device=pl.when("is_cpu").then(-1).otherwise("device"),
    )
    found = place.unique().sort(pl.col("is_cpu").not_(), "device", "number")
    found = found.with_row_index("track")
    track = place.join(
        found, on=place.columns, how="left", maintain_order="left", nulls_equal=True
    )["track"]
    devices = found.filter(~pl.col("is_cpu"))["device"].unique().sort()
    owner = f"rank {trace.rank} " if trace.rank >= 0 else ""
    is_real = 0 < trace.process < _LARGEST_ID
    host = (owner.strip() or "process") if is_real else f"{owner}host"
    processes = pl.DataFrame({
        "number": [trace.process, *devices],
        "title": [host, *(f"{owner}device {d}" if d >= 0 else f"{owner}device" for d in devices)],
        "label": ["CPU", *(f"GPU {device}" for device in devices)],
        "pid": [trace.process if is_real else -1, *([-1] * len(devices))],
    })  # fmt: skip
    is_thread = pl.col("is_cpu") & pl.col("number").is_between(1, _LARGEST_ID - 1) & is_real
    kind = pl.when("is_cpu").then(pl.lit("thread")).otherwise(pl.lit("stream"))
    tracks = found.select(
        "number",
        process=pl.when("is_cpu").then(0).otherwise(1 + devices.search_sorted(found["device"])),
        title=pl.when(pl.col("number") >= 0).then(pl.format("{} {}", kind, "number"))
        .otherwise(pl.format("without a {}", kind)),
        tid=pl.when(is_thread).then("number").otherwise(-1),
    )  # fmt: skip
    return processes, tracks, track.cast(pl.Int64).to_numpy()


def _arrows(trace: Trace, row: Ints) -> tuple[Ints, Ints]:
    """Return the ends of arrows; ``row`` has the node of each slice."""
    deps = trace.deps.filter(pl.col("kind").is_in(list(_ARROWS)))
    kind = deps["kind"].cast(pl.String)
    position = np.full(trace.nodes.height, -1, dtype=np.int64)
    position[row] = np.arange(row.size)
    src, dst = position[deps["src"].to_numpy()], position[deps["dst"].to_numpy()]
    leaves, reaches = (
        kind.replace_strict({k: int(ends[side]) for k, ends in _ARROWS.items()}).to_numpy()
        for side in (0, 1)
    )
    timed = (src >= 0) & (dst >= 0)
    return (2 * src + leaves)[timed], (2 * dst + reaches)[timed]
