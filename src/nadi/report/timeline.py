"""A schedule and its critical path as a timeline for trace viewers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from nadi.critical_paths import CriticalPath
from nadi.formats.chrome import json_text, microseconds, write_events
from nadi.graph import EventGraph, Replay

__all__ = ["write_timeline"]

_PATH_TRACK = 0
_PATH_TITLE = "critical path"


def write_timeline(path: Path, replay: Replay, critical: CriticalPath) -> None:
    """Write ``timeline.json.gz``: one process per rank, one track per thread and stream.

    Operations on the critical path have ``"critical": true`` and are red in
    chrome://tracing; each rank's first track shows the kinds of its part of the path, and
    arrows follow the path from operation to operation. Times begin at the job's origin.
    """
    operations = _operations(replay, critical)
    tracks = _tracks(operations)
    operations = operations.join(tracks, on=("rank", "resource"), maintain_order="left")
    write_events(path, _events(replay.graph, operations, tracks, critical))


def _events(
    graph: EventGraph, operations: pl.DataFrame, tracks: pl.DataFrame, critical: CriticalPath
) -> Iterator[pl.Series]:
    yield _titles(tracks)
    yield _slices(operations)
    yield _path_slices(critical)
    yield _arrows(graph, operations, critical)


def _operations(replay: Replay, critical: CriticalPath) -> pl.DataFrame:
    graph = replay.graph
    on_path = np.zeros(graph.num_ops, dtype=np.bool_)
    vertices = critical.vertices[critical.vertices < 2 * graph.num_ops]
    on_path[vertices // 2] = True
    return replay.schedule().table.with_columns(
        name=graph.op_names,
        category=graph.gather("category").cast(pl.String),
        id=graph.gather("id"),
        is_host=graph.gather("is_cpu"),
        critical=pl.Series(on_path),
    )


def _tracks(operations: pl.DataFrame) -> pl.DataFrame:
    """Give the tracks of each rank their numbers: threads first, the busiest of them on top."""
    return (
        operations.group_by("rank", "resource")
        .agg(is_host=pl.col("is_host").first(), count=pl.len())
        .sort("rank", ~pl.col("is_host"), -pl.col("count").cast(pl.Int64),
              pl.col("resource").cast(pl.String))
        .with_columns(track=pl.int_range(1, pl.len() + 1).over("rank"))
        .select("rank", "resource", "track")
    )  # fmt: skip


def _titles(tracks: pl.DataFrame) -> pl.Series:
    """Name and order processes and tracks."""
    ranks = tracks["rank"].unique().sort().to_list()
    rows = [(rank, _PATH_TRACK, _PATH_TITLE) for rank in ranks]
    rows += [(rank, track, resource) for rank, resource, track in tracks.iter_rows()]
    events = []
    for rank in ranks:
        common = f'"ph":"M","pid":{rank},"tid":0'
        events.append(f'{{{common},"name":"process_name","args":{{"name":"rank {rank}"}}}}')
        events.append(f'{{{common},"name":"process_sort_index","args":{{"sort_index":{rank}}}}}')
    for rank, track, title in rows:
        common = f'"ph":"M","pid":{rank},"tid":{track}'
        events.append(f'{{{common},"name":"thread_name","args":{{"name":"{title}"}}}}')
        events.append(f'{{{common},"name":"thread_sort_index","args":{{"sort_index":{track}}}}}')
    return pl.Series(events)


def _slices(operations: pl.DataFrame) -> pl.Series:
    critical = '"cname":"terrible","args":{"node":'
    return (
        operations.with_columns(name=json_text(operations["name"]))
        .select(
            pl.concat_str(
                pl.lit('{"ph":"X","name":'), "name",
                pl.lit(',"cat":"'), "category",
                pl.lit('","pid":'), "rank", pl.lit(',"tid":'), "track",
                pl.lit(',"ts":'), microseconds(pl.col("start")),
                pl.lit(',"dur":'), microseconds(pl.col("end") - pl.col("start")),
                pl.lit(","),
                pl.when("critical").then(pl.lit(critical)).otherwise(pl.lit('"args":{"node":')),
                "id",
                pl.when("critical").then(pl.lit(',"critical":true}}')).otherwise(pl.lit("}}")),
            )
        )
        .to_series()
    )  # fmt: skip


def _path_slices(critical: CriticalPath) -> pl.Series:
    """Show the kinds of the path, joined where they follow each other on one rank."""
    segments = critical.segments.with_columns(
        # where no operation runs, the path stays on the rank that it was on
        rank=pl.when(pl.col("node") >= 0).then("rank").forward_fill().backward_fill(),
    ).fill_null(0)
    run = pl.struct("rank", "kind").rle_id()
    return (
        segments.group_by(run.alias("run"), maintain_order=True)
        .agg(
            pl.col("rank").first(),
            pl.col("kind").first().cast(pl.String),
            pl.col("start").first(),
            pl.col("end").last(),
            longest=pl.col("name").sort_by(pl.col("end") - pl.col("start")).last(),
        )
        .select(
            pl.concat_str(
                pl.lit('{"ph":"X","cat":"critical_path","name":"'), "kind",
                pl.lit('","pid":'), "rank", pl.lit(f',"tid":{_PATH_TRACK},"ts":'),
                microseconds(pl.col("start")),
                pl.lit(',"dur":'), microseconds(pl.col("end") - pl.col("start")),
                pl.lit(',"args":{"longest operation":'),
                pl.col("longest").map_batches(json_text, return_dtype=pl.String), pl.lit("}}"),
            )
        )
        .to_series()
    )  # fmt: skip


def _arrows(graph: EventGraph, operations: pl.DataFrame, critical: CriticalPath) -> pl.Series:
    """Draw the path from operation to operation, but not into and out of nested ones."""
    vertices = critical.vertices[critical.vertices < 2 * graph.num_ops]
    op, is_end = vertices // 2, vertices % 2
    row = operations.select("rank", "track", "start", "end")[op]
    start, end = row["start"].to_numpy(), row["end"].to_numpy()
    rank, track = row["rank"].to_numpy(), row["track"].to_numpy()
    # an arrow holds on to the slice around its ends: just inside, where a slice has an inside
    time = np.where(is_end == 1, np.maximum(end - 1, start), start)
    same_track = (rank[1:] == rank[:-1]) & (track[1:] == track[:-1])
    drawn = (op[1:] != op[:-1]) & (~same_track | ((is_end[:-1] == 1) & (is_end[1:] == 0)))
    ends = []
    for phase, chosen in (("s", np.append(drawn, False)), ("f", np.append(False, drawn))):
        at = np.flatnonzero(chosen)
        ends.append(
            pl.DataFrame({
                "number": np.arange(at.size), "rank": rank[at], "track": track[at],
                "time": time[at],
            })
            .select(
                pl.concat_str(
                    pl.lit(f'{{"ph":"{phase}","bp":"e","cat":"critical_path",'
                           '"name":"critical path","id":'),
                    "number", pl.lit(',"pid":'), "rank", pl.lit(',"tid":'), "track",
                    pl.lit(',"ts":'), microseconds(pl.col("time")), pl.lit("}"),
                )
            )
            .to_series()
        )  # fmt: skip
    return pl.concat(ends)
