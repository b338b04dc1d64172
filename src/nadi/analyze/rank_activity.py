"""What each rank, thread and stream does in a window: compute, communicate, wait, or nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.analyze.host_computation import host_computation
from nadi.analyze.participants import find_participants
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import Window
from nadi.kernels.intervals import union_length
from nadi.model.arrays import Bools, Ints
from nadi.model.schema import COMMUNICATION_KINDS, DEVICE_WORK

__all__ = ["rank_activity", "stream_activity"]

_NOT_WORK = ("annotation", "python", "metadata")


class _Operations(NamedTuple):
    """The operations of a job, cut to a window: times in ns, and what they are; shape (ops,)."""

    start: Ints
    end: Ints
    entered: Ints  # when the straggler has entered the collective; the start for others
    on_device: Bools
    communicates: Bools
    copies: Bools
    kernels: Bools  # except for communication
    is_work: Bools


def rank_activity(graph: EventGraph, window: Window) -> pl.DataFrame:
    """Divide the window of each rank by what it does; times are int64 ns. O(ops log ops).

    Of several activities at the same time the first counts: computation (kernels, or the self time
    of operators on a rank without a device), transfer in collectives and messages, wait time in
    them for the straggler, copies and memory sets. The rest is idle.

    Returns
    -------
    polars.DataFrame
        A row per rank: rank, computing, transferring, waiting, copying, idle, whose sum is the
        length of the window; has_device.
    """
    ops = _operations(graph, window)
    length = window.end(graph.time) - window.start(graph.time)
    rows = []
    for place, rank in enumerate(graph.job.ranks):
        mine = graph.op_trace == place
        comm, has_device = mine & ops.communicates, bool((mine & ops.on_device).any())
        spans = [
            _spans(ops.start, ops.end, mine & ops.kernels)
            if has_device
            else _host_spans(graph, place, window),
            _spans(np.maximum(ops.start, ops.entered), ops.end, comm),
            _spans(ops.start, ops.end, comm),
            _spans(ops.start, ops.end, mine & ops.copies),
        ]
        busy = [0]
        for number in range(1, len(spans) + 1):
            joined = (np.concatenate(side) for side in zip(*spans[:number], strict=True))
            busy.append(union_length(*joined))
        parts = np.diff([*busy, length]).tolist()
        rows.append((rank, *parts, has_device))
    names = ("rank", "computing", "transferring", "waiting", "copying", "idle", "has_device")
    return pl.DataFrame(rows, schema=names, orient="row")


def stream_activity(graph: EventGraph, window: Window) -> pl.DataFrame:
    """Sum what runs on each thread and stream in a window; times are int64 ns. O(ops log ops).

    Annotations and Python functions do not count as work.

    Returns
    -------
    polars.DataFrame
        A row per thread and stream with work: rank, resource (such as ``device 0 stream 7``),
        is_host, operations (that overlap the window), busy (time in which any of them runs),
        communicating (the same of communication) and idle.
    """
    ops = _operations(graph, window)
    length = window.end(graph.time) - window.start(graph.time)
    places = pl.DataFrame({
        "trace": graph.op_trace,
        "is_host": ~ops.on_device,
        "device": np.where(ops.on_device, graph.numbers("device"), -1),
        "lane": np.where(ops.on_device, graph.op_stream, graph.numbers("thread")),
    }).with_row_index("op")  # fmt: skip
    inside = ops.is_work & (ops.end > ops.start)
    rows = []
    groups = places.filter(pl.Series(inside)).group_by(
        "trace", "is_host", "device", "lane", maintain_order=True
    )
    for (trace, is_host, device, lane), found in groups:
        which = found["op"].to_numpy()
        comm = which[ops.communicates[which]]
        busy = union_length(ops.start[which], ops.end[which])
        name = f"thread {lane}" if is_host else f"device {device} stream {lane}"
        rows.append((
            graph.job.ranks[trace], name, is_host, which.size, busy,
            union_length(ops.start[comm], ops.end[comm]), length - busy,
        ))  # fmt: skip
    names = ("rank", "resource", "is_host", "operations", "busy", "communicating", "idle")
    table = pl.DataFrame(
        rows, orient="row",
        schema=dict(zip(names, (pl.Int64, pl.String, pl.Boolean, *[pl.Int64] * 4), strict=True)),
    )  # fmt: skip
    return table.sort("rank", "is_host", "busy", descending=[False, False, True])


def _operations(graph: EventGraph, window: Window) -> _Operations:
    begin, end = window.start(graph.time), window.end(graph.time)
    times = np.clip(graph.time[: 2 * graph.num_ops], begin, end)
    category = graph.gather("category")
    on_device = category.is_in(DEVICE_WORK).to_numpy()
    communicates = graph.gather("kind").is_in(COMMUNICATION_KINDS).to_numpy()
    kernels = (category == "kernel").to_numpy() & ~communicates
    return _Operations(
        start=times[0::2],
        end=times[1::2],
        entered=np.clip(_entered(graph), begin, end),
        on_device=on_device,
        communicates=communicates,
        copies=on_device & ~kernels & ~communicates,
        kernels=kernels,
        is_work=~category.is_in(_NOT_WORK).to_numpy(),
    )


def _host_spans(graph: EventGraph, place: int, window: Window) -> tuple[Ints, Ints]:
    """Return when operators of a rank without a device compute; ns, cut to the window."""
    mine = np.flatnonzero(graph.op_trace == place)
    op_of_row = np.full(graph.job.traces[place].nodes.height, -1, dtype=np.int64)
    op_of_row[graph.op_row[mine]] = mine
    start, end = (
        np.clip(
            graph.time[2 * op_of_row[border // 2] + border % 2],
            window.start(graph.time), window.end(graph.time),
        )
        for border in host_computation(graph.job.traces[place])
    )  # fmt: skip
    return _spans(start, end, np.ones(start.size, dtype=np.bool_))


def _entered(graph: EventGraph) -> Ints:
    """Return until when an operation waits in a collective, its start if never; ns."""
    entered = graph.time[0 : 2 * graph.num_ops : 2].copy()
    hub, op, waits = find_participants(graph)
    entered[op[waits]] = np.maximum(graph.time[hub[waits]], entered[op[waits]])
    return entered


def _spans(start: Ints, end: Ints, which: Bools) -> tuple[Ints, Ints]:
    inside = which & (end > start)
    return start[inside], end[inside]
