"""The bandwidth of copies and memory sets."""

import msgspec
import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.trace.arrays import Floats, Ints


class _Args(msgspec.Struct):
    bandwidth: float = msgspec.field(default=float("nan"), name="memory bandwidth (GB/s)")
    size: int = msgspec.field(default=-1, name="bytes")


_decoder = msgspec.json.Decoder(_Args)


@per_rank("copies")
def memory_bandwidth_series(events: RankEvents) -> pl.DataFrame:
    """Follow the bandwidth of copies and memory sets: the sum over those that run at once.

    Copies whose bytes are not recorded are left out.

    Returns
    -------
    polars.DataFrame
        A row per change of each kind of copy: ``kind`` such as ``Memcpy HtoD``, ``time_ns`` (since
        the rank's first event), ``gb_per_s`` from then on. O(copies log copies).
    """
    rows, kind, rate, _ = _copies(events)
    known = ~np.isnan(rate)
    rows, kind, rate = rows[known], kind.filter(pl.Series(known)), rate[known]
    start = events.column("start")
    time = np.concatenate([start[rows], events.end[rows]]) - int(start.min())
    series = pl.DataFrame({
        "kind": pl.concat([kind, kind]), "time_ns": time, "change": np.concatenate([rate, -rate]),
        "which": np.tile(np.arange(rows.size), 2), "is_end": np.repeat([False, True], rows.size),
    })  # fmt: skip
    # a copy that takes no time begins before it ends
    ordered = series.sort("kind", "time_ns", "is_end", "which", maintain_order=True)
    total = pl.col("change").cum_sum().over("kind")
    running = pl.when("is_end").then(-1).otherwise(1).cum_sum().over("kind")
    return ordered.select(
        "kind", "time_ns", gb_per_s=pl.when(running == 0).then(0.0).otherwise(total)
    )


@per_rank("copies")
def memory_bandwidth(events: RankEvents) -> pl.DataFrame:
    """Summarize copies and memory sets by kind.

    Returns
    -------
    polars.DataFrame
        ``kind``, ``count``, ``size_bytes`` (their sum, null if not recorded), ``sum_ns``,
        ``gb_per_s`` (bytes by time), and ``min``, ``median``, ``max`` of single ones in GB/s; the
        longest first. O(copies log copies).
    """
    rows, kind, rate, size = _copies(events)
    table = pl.DataFrame({
        "kind": kind, "rate": pl.Series(rate).fill_nan(None),
        "duration": events.column("duration")[rows],
        "size": pl.Series(size).set(pl.Series(size < 0), None),
    })  # fmt: skip
    known = pl.col("size").null_count() == 0
    return (
        table.group_by("kind")
        .agg(
            count=pl.len().cast(pl.Int64),
            size_bytes=pl.when(known).then(pl.sum("size")),
            sum_ns=pl.sum("duration"),
            gb_per_s=pl.when(known).then(pl.sum("size") / pl.sum("duration")),
            min=pl.min("rate"), median=pl.median("rate"), max=pl.max("rate"),
        )
        .sort("sum_ns", "kind", descending=[True, False])
    )  # fmt: skip


def _copies(events: RankEvents) -> tuple[Ints, pl.Series, Floats, Ints]:
    """Return the rows of copies and sets, their kinds, bandwidths in GB/s and sizes."""
    rows = events.of_type("memory")
    kind = events.table["name"].gather(rows).cast(pl.String).str.split(" (").list.first()
    return rows, kind, *bandwidth_of(events, rows)


def bandwidth_of(events: RankEvents, rows: Ints) -> tuple[Floats, Ints]:
    """Return the bandwidth of some copies in GB/s, as recorded, or bytes by time; and their bytes.

    float64 and int64, shape (rows,); where not recorded, bytes are -1 and the bandwidth is NaN.
    """
    trace = events.trace
    node = rows if events.node is None else events.node[rows]
    size = trace.column("bytes")[node].copy()
    duration = events.column("duration")[rows]
    rate = np.where((size > 0) & (duration > 0), size / np.maximum(duration, 1), np.nan)
    attributes = trace.attributes
    place = np.full(trace.nodes.height, -1, dtype=np.int64)
    place[node] = np.arange(node.size)
    chosen = attributes.rows_named("args")
    owner = attributes.node[chosen]
    at_row = np.where(owner >= 0, place[owner], -1)
    for row, at in zip(chosen[at_row >= 0].tolist(), at_row[at_row >= 0].tolist(), strict=True):
        try:
            args = _decoder.decode(attributes.span(row))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # another tool's: not a number
        if args.bandwidth == args.bandwidth:
            rate[at] = args.bandwidth
        if size[at] < 0:
            size[at] = args.size
    return rate, size
