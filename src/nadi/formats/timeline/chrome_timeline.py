"""Timelines as JSON, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import polars as pl

from nadi.formats.timeline.timeline_values import PATH_CATEGORY, Timeline
from nadi.model.arrays import Ints
from nadi.model.issues import IssueLog

__all__ = ["encode"]

_ROWS_AT_ONCE = 100_000
_RED = "cq_build_failed"  # of the few colours that chrome://tracing knows by name


def encode(timeline: Timeline, _: IssueLog) -> Iterator[bytes]:
    """Write a timeline; gives the pieces of the file. All of it can be drawn."""
    tracks = _numbered(timeline)
    on_track = timeline.slices["track"].to_numpy()
    slices = timeline.slices.with_columns(
        tracks["pid"].gather(on_track), tracks["tid"].gather(on_track),
        name=_json_text(timeline.slices["name"]),
        longest=pl.when(pl.col("longest") != "").then(_json_text(timeline.slices["longest"]))
        .otherwise(pl.lit("")),
    )  # fmt: skip
    yield b'{"nadiTimeline":1,"displayTimeUnit":"ns","otherData":{"title":'
    yield msgspec.json.encode(timeline.title) + b'},"traceEvents":[\n'
    yield b",\n".join(_titles(timeline, tracks))
    for piece in slices.iter_slices(_ROWS_AT_ONCE):
        yield _lines(piece.select(_slice()))
    for phase, at in (("s", timeline.tail), ("f", timeline.head)):
        for low in range(0, at.size, _ROWS_AT_ONCE):
            yield _lines(_ends(phase, slices, at[low : low + _ROWS_AT_ONCE], low))
    yield b"\n]}\n"


def _lines(events: pl.DataFrame) -> bytes:
    return b",\n" + events.to_series().str.join(",\n").item().encode()  # type: ignore[no-any-return]


def _json_text(names: pl.Series) -> pl.Series:
    """Encode texts as JSON strings with their quotes; shape (texts,)."""
    unique = names.unique().to_list()
    return names.replace_strict(
        unique, [msgspec.json.encode(n).decode() for n in unique], return_dtype=pl.String
    )


def _microseconds(nanoseconds: pl.Expr) -> pl.Expr:
    """Write int64 ns, 0 or more, as decimal microseconds with every digit."""
    return pl.concat_str(
        (nanoseconds // 1000).cast(pl.String),
        pl.lit("."),
        (nanoseconds % 1000).cast(pl.String).str.zfill(3),
    )


def _numbered(timeline: Timeline) -> pl.DataFrame:
    """Give the tracks with the numbers of their process and their own: pid, tid, title.

    A track's number is never that of a process: Perfetto takes track N of process N, and
    track 0 of any, for the main thread of that process.
    """
    first = 1 + max(timeline.processes["number"].to_list(), default=0)
    return timeline.tracks.select(
        "title",
        pid=timeline.processes["number"].gather(timeline.tracks["process"]),
        tid=first + pl.int_range(pl.len()).over("process"),
    )


def _titles(timeline: Timeline, tracks: pl.DataFrame) -> list[bytes]:
    """Name and order processes and tracks."""
    events = []
    first = min(tracks["tid"].to_list(), default=0)
    for place, (number, title) in enumerate(timeline.processes.iter_rows()):
        about = {"process_name": {"name": title}, "process_sort_index": {"sort_index": place}}
        events += [_metadata(name, number, first, args) for name, args in about.items()]
    for title, pid, tid in tracks.iter_rows():
        about = {"thread_name": {"name": title}, "thread_sort_index": {"sort_index": tid}}
        events += [_metadata(name, pid, tid, args) for name, args in about.items()]
    return events


def _metadata(name: str, pid: int, tid: int, args: dict[str, str | int]) -> bytes:
    return msgspec.json.encode({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args})


def _slice() -> pl.Expr:
    critical = pl.col("critical")
    return pl.concat_str(
        pl.lit('{"ph":"X","name":'), "name",
        pl.lit(',"cat":"'), "category",
        pl.lit('","pid":'), "pid", pl.lit(',"tid":'), "tid",
        pl.lit(',"ts":'), _microseconds(pl.col("start")),
        pl.lit(',"dur":'), _microseconds(pl.col("end") - pl.col("start")),
        pl.when(critical).then(pl.lit(f',"cname":"{_RED}"')).otherwise(pl.lit("")),
        pl.lit(',"args":{'),
        pl.when(pl.col("longest") == "")
        .then(pl.concat_str(
            pl.lit('"node":'), "node",
            pl.when(critical).then(pl.lit(',"critical":true')).otherwise(pl.lit("")),
        ))
        .otherwise(pl.concat_str(pl.lit('"longest operation":'), "longest")),
        pl.lit("}}"),
    )  # fmt: skip


def _ends(phase: str, slices: pl.DataFrame, at: Ints, first: int) -> pl.DataFrame:
    """Write one end of arrows, numbered from ``first``."""
    head = f'{{"ph":"{phase}","bp":"e","cat":"{PATH_CATEGORY}","name":"critical path","id":'
    return slices.select("pid", "tid", "start")[at].select(
        pl.concat_str(
            pl.lit(head), first + pl.int_range(pl.len()),
            pl.lit(',"pid":'), "pid", pl.lit(',"tid":'), "tid",
            pl.lit(',"ts":'), _microseconds(pl.col("start")), pl.lit("}"),
        )
    )  # fmt: skip
