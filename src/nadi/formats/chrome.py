"""Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open: writing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import polars as pl
from isal import igzip

from nadi.formats.container import write_beside

__all__ = ["json_text", "microseconds", "write_events"]

_LEVEL = 1  # of isal: timelines are large, and opened once or twice
_ROWS_AT_ONCE = 100_000


def json_text(names: pl.Series) -> pl.Series:
    """Encode texts as JSON strings with their quotes; shape (texts,)."""
    unique = names.unique().to_list()
    return names.replace_strict(unique, [msgspec.json.encode(n).decode() for n in unique])


def microseconds(nanoseconds: pl.Expr) -> pl.Expr:
    """Write int64 ns, 0 or more, as decimal microseconds with every digit."""
    return pl.concat_str(
        (nanoseconds // 1000).cast(pl.String),
        pl.lit("."),
        (nanoseconds % 1000).cast(pl.String).str.zfill(3),
    )


def write_events(path: Path, events: Iterable[pl.Series]) -> None:
    """Write a gzip file of events.

    Parameters
    ----------
    path
        Replaced only once all is written.
    events
        Series of text, each element one event as a JSON object.
    """
    with (
        write_beside(path) as raw,
        igzip.open(raw, "wb", compresslevel=_LEVEL) as file,
    ):
        file.write(b'{"nadiTimeline":1,"displayTimeUnit":"ns","traceEvents":[\n')
        separator = b""
        for series in events:
            for piece in series.rechunk().to_frame().iter_slices(_ROWS_AT_ONCE):
                file.write(separator)
                file.write(",\n".join(piece.to_series().to_list()).encode())
                separator = b",\n"
        file.write(b"\n]}\n")
