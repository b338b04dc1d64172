"""What the caching allocator of each device holds in its segments, from a memory snapshot."""

from __future__ import annotations

import msgspec
import polars as pl

from nadi.analyses.hta.recorded_fields import trace_name
from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.errors import InputError
from nadi.files.memory_snapshot import SEGMENTS

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


_KINDS = {"kind": pl.String, "expandable": pl.Boolean}
_SCHEMA = {name: _KINDS.get(name, pl.Int64) for name in _MemorySegment.__struct_fields__}
_decoder = msgspec.json.Decoder(list[_MemorySegment])


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
        found = _decoder.decode(attributes.span(rows[0]))
    except (IndexError, msgspec.DecodeError):
        raise InputError(
            trace_name(events.trace), "no segments are recorded",
            "pass a memory snapshot: torch.cuda.memory._dump_snapshot writes one",
        ) from None  # fmt: skip
    table = pl.DataFrame(
        [msgspec.structs.astuple(one) for one in found],
        schema=_SCHEMA,
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
