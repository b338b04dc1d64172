"""Memory of each device: over time, as the profiler records allocations, and its segments.

Memory over time is also data that is short enough to draw.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.analyses.hta.recorded_fields import (
    added_base_time,
    rows_holding,
    rows_of_file,
    trace_name,
)
from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.errors import InputError
from nadi.files.memory_snapshot import SEGMENTS
from nadi.files.remedies import with_option
from nadi.trace.arrays import Ints

_KINDS = {0: "cpu", 1: "cuda", 20: "privateuse"}
_SCHEMA = {
    "device": pl.String, "time": pl.Int64, "change_bytes": pl.Int64, "allocated_bytes": pl.Int64,
    "reserved_bytes": pl.Int64, "thread": pl.Int64, "address": pl.Int64, "place": pl.String,
}  # fmt: skip


_LATEST = 2**62 / 1000  # us


class _Allocation(msgspec.Struct):
    ts: float = -1
    tid: Any = None
    args: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(_Allocation)


@per_rank("arguments")
def memory_timeline(events: RankEvents) -> pl.DataFrame:
    """Follow the memory of each device: a row per allocation and release.

    Returns
    -------
    polars.DataFrame
        ``device`` such as ``cuda:0``, ``time_ns`` (since the rank's first event), ``change_bytes``,
        ``allocated_bytes`` and ``reserved_bytes`` after it (if the profiler does not state the
        former: what was allocated since the recording began), ``operator`` (the innermost on its
        thread, in a memory snapshot the line of the program; empty if none). O(allocations log
        events).

    Raises
    ------
    InputError
        If no allocations are recorded.
    """
    return _timeline(events).drop("address")


def _timeline(events: RankEvents) -> pl.DataFrame:
    """Return the same with the address of each allocation; null where none is stated."""
    table = _allocations(events)
    begin = int(events.column("start").min())
    inside = _operators(events, table["time"].to_numpy(), table["thread"].to_numpy())
    names = events.table["name"].cast(pl.String)
    operator = names.gather(np.maximum(inside, 0)).set(pl.Series(inside < 0), "")
    return table.select(
        "device", (pl.col("time") - begin).alias("time_ns"), "change_bytes", "allocated_bytes",
        "reserved_bytes", operator=pl.coalesce("place", operator), address="address",
    )  # fmt: skip


@per_rank("arguments")
def memory_holders(events: RankEvents) -> pl.DataFrame:
    """Find who holds the memory of each device when it holds the most.

    Returns
    -------
    polars.DataFrame
        A row per device and operator, or line of the program, that has allocated what is held at
        that moment, the most first: ``device``, ``operator``, ``blocks``, ``held_bytes``,
        ``largest_bytes`` (of a block), ``peak_bytes`` and ``peak_ns`` (of the device). What the
        device holds from before the recording has the operator ``(before the recording)``.
        O(allocations log events).

    Raises
    ------
    InputError
        If no allocations are recorded, or none with its address.
    """
    parts = []
    for (device,), rows in _timeline(events).group_by("device", maintain_order=True):
        at = int(rows["allocated_bytes"].arg_max() or 0)
        peak, time = (int(rows[name][at]) for name in ("allocated_bytes", "time_ns"))
        held = (
            _blocks(rows).filter((pl.col("first") <= at) & (pl.col("last") > at))
            .group_by("operator")
            .agg(blocks=pl.len().cast(pl.Int64), held_bytes=pl.sum("size_bytes"),
                 largest_bytes=pl.max("size_bytes"))
        )  # fmt: skip
        if (before := peak - int(held["held_bytes"].sum())) > 0:
            row = {"operator": _BEFORE, "blocks": -1, "held_bytes": before, "largest_bytes": -1}
            held = pl.concat([held, pl.DataFrame([row], schema=held.schema)])
        parts.append(held.select(
            pl.lit(device).alias("device"), "operator", "blocks", "held_bytes", "largest_bytes",
            peak_bytes=pl.lit(peak, dtype=pl.Int64), peak_ns=pl.lit(time, dtype=pl.Int64),
        ).sort("held_bytes", "operator", descending=[True, False]))  # fmt: skip
    return pl.concat(parts)


_BEFORE = "(before the recording)"
_OTHERS = "(others)"


def _blocks(rows: pl.DataFrame) -> pl.DataFrame:
    """List the blocks that a device's allocations make, in any order.

    - Returns: ``operator``, ``size_bytes``, ``first`` (the position of the allocation) and ``last``
      (that of the next event at its address, which ends it; the number of rows if there is none).
    """
    known = rows.with_row_index("first").drop_nulls("address")
    following = pl.col("first").shift(-1).over("address").fill_null(rows.height)
    return (
        known.with_columns(pl.col("first").cast(pl.Int64), last=following.cast(pl.Int64))
        .filter(pl.col("change_bytes") > 0)
        .select("operator", "first", "last", size_bytes="change_bytes")
    )


def _held_over_time(rows: pl.DataFrame, kept: Ints) -> dict[str, Ints]:
    """Return what each operator holds after some events of a device: int64 bytes, shape (kept,).

    Those that hold most at some time come first, with names of their own; the sum of all is what
    is allocated. Empty if no allocation states its address.
    """
    blocks = _blocks(rows)
    if blocks.is_empty():
        return {}
    changes = pl.concat([
        blocks.select("operator", at="first", change="size_bytes"),
        blocks.filter(pl.col("last") < rows.height)
        .select("operator", at="last", change=-pl.col("size_bytes")),
    ]).sort("at", maintain_order=True)  # fmt: skip
    most = changes.with_columns(held=pl.col("change").cum_sum().over("operator"))
    most = most.group_by("operator").agg(pl.max("held")).sort(
        "held", "operator", descending=[True, False])  # fmt: skip
    names = most["operator"].head(_HOLDERS).to_list()
    number = {name: i for i, name in enumerate(names)}
    held = np.zeros((len(names) + 1, kept.size), dtype=np.int64)
    for (name,), part in changes.group_by("operator"):
        sums = np.append(0, np.cumsum(part["change"].to_numpy()))
        place = np.searchsorted(part["at"].to_numpy(), kept, side="right")
        held[number.get(str(name), -1)] += sums[place]
    before = np.maximum(rows["allocated_bytes"].to_numpy()[kept] - held.sum(axis=0), 0)
    found = dict(zip([*names, _OTHERS], held, strict=True))
    found[_BEFORE] = found.get(_BEFORE, 0) + before
    return {name: values for name, values in found.items() if values.any()}


@per_rank("arguments")
def memory_peaks(events: RankEvents) -> pl.DataFrame:
    """Find when each device holds the most, and which operators allocate the most.

    Returns
    -------
    polars.DataFrame
        A row per device and operator, the most first: ``device``, ``operator``, ``allocations``,
        ``size_bytes`` (of all its allocations), ``peak_bytes`` and ``peak_ns`` (of the device: how
        much, and when). O(allocations log events).
    """
    return peaks_of(memory_timeline(events).drop("rank"))


def peaks_of(series: pl.DataFrame) -> pl.DataFrame:
    """Find the same in a timeline that is known, of one rank and without its column."""
    most = series.group_by("device").agg(
        peak_bytes=pl.max("allocated_bytes"),
        peak_ns=pl.col("time_ns").get(pl.col("allocated_bytes").arg_max()),
    )
    return (
        series.filter(pl.col("change_bytes") > 0)
        .group_by("device", "operator")
        .agg(allocations=pl.len().cast(pl.Int64), size_bytes=pl.sum("change_bytes"))
        .join(most, on="device")
        .sort("device", "size_bytes", "operator", descending=[True, True, False])
    )


def _allocations(events: RankEvents) -> pl.DataFrame:
    attributes = events.trace.attributes
    rows = rows_holding(attributes, rows_of_file(attributes, "event"), b'"[memory]"')
    base = added_base_time(attributes)
    found = []
    for row in rows.tolist():
        try:
            one = _decoder.decode(attributes.span(row))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if abs(one.ts) > _LATEST:
            continue
        kind, number = (_number(one.args, f"Device {name}", -1) for name in ("Type", "Id"))
        device = f"{_KINDS.get(kind, f'type {kind}')}{f':{number}' if kind else ''}"
        found.append((
            device, round(one.ts * 1000) + base, _number(one.args, "Bytes"),
            _number(one.args, "Total Allocated"), _number(one.args, "Total Reserved"),
            one.tid if isinstance(one.tid, int) and abs(one.tid) < 2**62 else -1,
            address if isinstance(address := one.args.get("Addr"), int) and 0 <= address < 2**63
            else None,
            place if isinstance(place := one.args.get("Place"), str) else None,
        ))  # fmt: skip
    if not found:
        raise InputError(
            trace_name(events.trace), "no allocations are recorded",
            with_option(events.trace, "profile_memory=True"),
        )  # fmt: skip
    table = pl.DataFrame(found, schema=_SCHEMA, orient="row").sort(
        "device", "time", maintain_order=True
    )
    if (table["allocated_bytes"] == 0).all():  # old profilers: since the begin of the recording
        table = table.with_columns(allocated_bytes=pl.col("change_bytes").cum_sum().over("device"))
    return table


def _number(args: dict[str, Any], name: str, otherwise: int = 0) -> int:
    value = args.get(name, otherwise)
    return value if isinstance(value, int) and abs(value) < 2**62 else otherwise


def _operators(events: RankEvents, time: Ints, thread: Ints) -> Ints:
    """Return the innermost operator on a thread at some times, or -1."""
    found = np.full(time.size, -1, dtype=np.int64)
    start, end = events.column("start"), events.end
    is_operator = events.is_of("operator")
    for one in np.unique(thread):
        rows = np.flatnonzero((events.column("thread") == one) & is_operator)
        rows = rows[np.lexsort((-end[rows], start[rows]))]
        mine = np.flatnonzero(thread == one)
        if rows.size == 0:
            continue
        at = np.searchsorted(start[rows], time[mine], side="right") - 1
        row = np.where(at >= 0, rows[np.maximum(at, 0)], -1)
        while (passed := (row >= 0) & (end[row] < time[mine])).any():
            row[passed] = events.around(events.parent[row[passed]], is_operator)
        found[mine] = row
    return found


_POINTS = 500  # of a line
_HOLDERS = 9  # with a line of their own


def describe_memory(ranks: Iterable[RankEvents]) -> dict[str, Any] | None:
    """Give the peaks and operators of each device, and its memory over time; None if not recorded.

    ``peaks`` are the rows of ``nadi analyze memory``, ``series`` those of ``nadi analyze
    memory-series``, of many the smallest and the largest of equal stretches, with ``holders``: who
    holds the memory then, as ``nadi analyze memory-holders`` says of the peak (``operator``,
    ``held_bytes``).
    """
    peaks, series = [], []
    for events in ranks:
        try:
            table = _timeline(events)
        except InputError:  # no allocations were recorded
            continue
        found = peaks_of(table).to_dicts()
        peaks += [{"rank": events.rank, **row} for row in found]
        for (device,), rows in table.group_by("device", maintain_order=True):
            kept = _extremes(rows["allocated_bytes"].to_numpy())
            columns = rows.select("time_ns", "allocated_bytes", "reserved_bytes")[kept]
            series.append({
                "rank": events.rank, "device": device,
                **{name: columns[name].to_list() for name in columns.columns},
                "holders": [
                    {"operator": name, "held_bytes": held.tolist()}
                    for name, held in _held_over_time(rows, kept).items()
                ],
            })  # fmt: skip
    return {"peaks": peaks, "series": series} if series else None


def _extremes(values: Ints) -> Ints:
    """Return the positions of the first, the last, and the extremes of equal stretches."""
    if values.size <= _POINTS:
        return np.arange(values.size)
    borders = np.linspace(0, values.size, _POINTS // 2 + 1).astype(np.int64)
    stretch = np.repeat(np.arange(borders.size - 1), np.diff(borders))
    table = pl.DataFrame({"stretch": stretch, "value": values}).with_row_index("at")
    ends = table.group_by("stretch", maintain_order=True).agg(
        low=pl.col("at").get(pl.col("value").arg_min()),
        high=pl.col("at").get(pl.col("value").arg_max()),
    )
    kept = {0, values.size - 1, *ends["low"].to_list(), *ends["high"].to_list()}
    return np.array(sorted(kept), dtype=np.int64)


_SUMS = ("reserved_bytes", "used_bytes", "requested_bytes", "free_bytes")


class _MemorySegment(msgspec.Struct):
    device: int
    stream: int
    kind: str
    expandable: bool
    reserved_bytes: int
    blocks: int
    used_bytes: int
    requested_bytes: int
    free_blocks: int
    free_bytes: int
    largest_free_bytes: int


_NOT_COUNTED = {"kind": pl.String, "expandable": pl.Boolean}
_SEGMENT_SCHEMA = {
    name: _NOT_COUNTED.get(name, pl.Int64) for name in _MemorySegment.__struct_fields__
}
_segment_decoder = msgspec.json.Decoder(list[_MemorySegment])


@per_rank()
def memory_segments(events: RankEvents) -> pl.DataFrame:
    """Tabulate the segments of each device, and what in them is free.

    Returns
    -------
    polars.DataFrame
        A row per device, kind of segment and stream, the largest first: ``device``, ``kind``,
        ``stream``, ``segments``, ``reserved_bytes``, ``blocks`` in use, ``requested_bytes`` by the
        program, ``rounding_bytes`` (what blocks have beyond that), ``free_blocks``,
        ``free_bytes``, ``largest_free_bytes`` (an allocation that is larger needs a new segment).
        O(segments).

    Raises
    ------
    InputError
        If the file is no memory snapshot.
    """
    attributes = events.trace.attributes
    rows = [row for row in attributes.rows_named(SEGMENTS) if attributes.node[row] < 0]
    try:
        found = _segment_decoder.decode(attributes.span(rows[0]))
    except (IndexError, msgspec.DecodeError):
        raise InputError(
            trace_name(events.trace), "no segments are recorded",
            "pass a memory snapshot: torch.cuda.memory._dump_snapshot writes one",
        ) from None  # fmt: skip
    table = pl.DataFrame(
        [msgspec.structs.astuple(one) for one in found],
        schema=_SEGMENT_SCHEMA,
        orient="row",
    )  # fmt: skip
    return (
        table.group_by("device", "kind", "stream")
        .agg(
            segments=pl.len().cast(pl.Int64),
            **{name: pl.sum(name) for name in (*_SUMS, "blocks", "free_blocks")},
            largest_free_bytes=pl.max("largest_free_bytes"),
        )
        .select(
            pl.format("cuda:{}", "device").alias("device"), "kind", "stream", "segments",
            "reserved_bytes", "blocks", "requested_bytes",
            (pl.col("used_bytes") - pl.col("requested_bytes")).alias("rounding_bytes"),
            "free_blocks", "free_bytes", "largest_free_bytes",
        )
        .sort("device", "reserved_bytes", "kind", "stream", descending=[False, True, False, False])
    )  # fmt: skip
