"""A schedule and its critical path as a timeline for trace viewers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from nadi.critical_paths import CriticalPath
from nadi.formats.chrome import json_text, microseconds, write_events
from nadi.formats.tracks import find_lanes, lane_suffix
from nadi.graph import EventGraph, Replay

__all__ = ["write_timeline"]

_PATH_TITLE = "critical path"


def write_timeline(path: Path, replay: Replay, critical: CriticalPath) -> None:
    """Write ``timeline.json.gz``: one process per rank, one track per thread and stream.

    Operations with time on the critical path have ``"critical": true`` and are red in
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
    path_track = _path_track(operations)
    yield _titles(tracks, path_track)
    yield _slices(operations)
    yield _path_slices(critical, path_track)
    yield _arrows(graph, operations, critical)


def _operations(replay: Replay, critical: CriticalPath) -> pl.DataFrame:
    graph = replay.graph
    on_path = critical.segments.select("rank", "node", critical=pl.lit(True)).unique()
    schedule = replay.schedule().table.join(
        on_path, on=("rank", "node"), how="left", maintain_order="left"
    )
    return schedule.with_columns(
        pl.col("critical").fill_null(False),
        resource=pl.col("resource").cast(pl.String) + _lanes(schedule),
        name=graph.op_names,
        category=graph.gather("category").cast(pl.String),
        id=graph.gather("id"),
        is_host=graph.gather("is_cpu"),
    )


def _lanes(schedule: pl.DataFrame) -> pl.Series:
    """Name another lane for what outlives the operation that it began in; shape (ops,)."""
    track = schedule.select(
        pl.struct("rank", pl.col("resource").to_physical()).rank("dense").cast(pl.Int64) - 1
    ).to_series()
    lanes = find_lanes(track.to_numpy(), schedule["start"].to_numpy(), schedule["end"].to_numpy())
    suffixes = [lane_suffix(lane) for lane in range(int(lanes.lane.max(initial=0)) + 1)]
    return pl.Series(suffixes).gather(lanes.lane)


def _tracks(operations: pl.DataFrame) -> pl.DataFrame:
    """Give tracks their numbers: threads before streams, those with steps and most work first.

    A number is never that of a rank: Perfetto takes track N of process N, and track 0 of
    any, for the main thread of that process.
    """
    is_step = pl.col("name").str.starts_with("ProfilerStep#")
    return (
        operations.group_by("rank", "resource")
        .agg(is_host=pl.col("is_host").first(), has_steps=is_step.any(), count=pl.len())
        .sort("rank", ~pl.col("is_host"), ~pl.col("has_steps"),
              -pl.col("count").cast(pl.Int64), "resource")
        .with_columns(track=pl.int_range(1, pl.len() + 1).over("rank"))
        .select("rank", "resource", track=pl.col("track") + _path_track(operations))
    )  # fmt: skip


def _path_track(operations: pl.DataFrame) -> int:
    """Give the number of the first track of every rank, the one for the critical path."""
    ranks: int = operations["rank"].max()  # type: ignore[assignment]
    return ranks + 1


def _titles(tracks: pl.DataFrame, path_track: int) -> pl.Series:
    """Name and order processes and tracks."""
    ranks = tracks["rank"].unique().sort().to_list()
    rows = [(rank, path_track, _PATH_TITLE) for rank in ranks]
    rows += [(rank, track, resource) for rank, resource, track in tracks.iter_rows()]
    events = []
    for rank in ranks:
        common = f'"ph":"M","pid":{rank},"tid":{path_track}'
        events.append(f'{{{common},"name":"process_name","args":{{"name":"rank {rank}"}}}}')
        events.append(f'{{{common},"name":"process_sort_index","args":{{"sort_index":{rank}}}}}')
    for rank, track, title in rows:
        common = f'"ph":"M","pid":{rank},"tid":{track}'
        events.append(f'{{{common},"name":"thread_name","args":{{"name":"{title}"}}}}')
        events.append(f'{{{common},"name":"thread_sort_index","args":{{"sort_index":{track}}}}}')
    return pl.Series(events)


def _slices(operations: pl.DataFrame) -> pl.Series:
    critical = '"cname":"cq_build_failed","args":{"node":'
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


def _path_slices(critical: CriticalPath, path_track: int) -> pl.Series:
    """Show the kinds of the path, joined where they follow each other on one rank."""
    run = pl.struct("rank", "kind").rle_id()
    return (
        critical.segments.group_by(run.alias("run"), maintain_order=True)
        .agg(
            pl.col("rank").first(),
            pl.col("kind").first().cast(pl.String),
            pl.col("start").first(),
            pl.col("end").last(),
            longest=pl.col("name")
            .sort_by(pl.col("end") - pl.col("start"))
            .last()
            .replace("", "(between operations)"),
        )
        .select(
            pl.concat_str(
                pl.lit('{"ph":"X","cat":"critical_path","name":"'), "kind",
                pl.lit('","pid":'), "rank", pl.lit(f',"tid":{path_track},"ts":'),
                microseconds(pl.col("start")),
                pl.lit(',"dur":'), microseconds(pl.col("end") - pl.col("start")),
                pl.lit(',"args":{"longest operation":'),
                pl.col("longest").map_batches(json_text, return_dtype=pl.String), pl.lit("}}"),
            )
        )
        .to_series()
    )  # fmt: skip


def _arrows(graph: EventGraph, operations: pl.DataFrame, critical: CriticalPath) -> pl.Series:
    """Draw the path from operation to operation, but not into and out of nested ones.

    Both ends of an arrow hold on to the start of a slice: there a viewer finds the slice
    that begins, and not one that lies in it or has ended.
    """
    vertices = critical.vertices[critical.vertices < 2 * graph.num_ops]
    op = vertices // 2
    rank = operations["rank"].to_numpy()
    track = operations["track"].to_numpy()
    # where the path comes to the end of an operation from another track, that operation
    # only waited, and began before its cause: the arrow goes on to what comes next
    elsewhere = (np.diff(rank[op]) != 0) | (np.diff(track[op]) != 0)
    only_waited = np.append(False, elsewhere & (vertices[1:] % 2 == 1))
    vertices = vertices[~only_waited]
    op, is_end = vertices // 2, vertices % 2
    rank, track, time = rank[op], track[op], operations["start"].to_numpy()[op]
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
