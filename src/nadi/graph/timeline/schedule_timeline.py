"""Schedules and their critical paths as timelines, one or several side by side.

A schedule in a file, drawn as a timeline for trace viewers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.files.files import check_target, locate
from nadi.files.timeline.timeline_values import (
    CRITICAL,
    PATH_CATEGORY,
    Timeline,
    TimelineCounter,
    find_lanes,
    lane_suffix,
    write_file,
    writer_of_suffix,
)
from nadi.graph.critical_paths import CriticalPath
from nadi.graph.replay import Replay
from nadi.results.saved import read_schedule
from nadi.trace.arrays import Ints
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Job, Schedule
from nadi.units import parse_frequency

_PATH_TITLE = "critical path"
_BEFORE, _AFTER = "before", "after"


@dataclass(frozen=True, eq=False)
class TimelinePart:
    """One of several schedules in a timeline.

    Attributes
    ----------
    schedule
        When each operation runs, measured, changed or simulated.
    job
        The traces that its rows refer to.
    path
        The critical path of a replay, if the schedule is that replay's.
    title
        Text after the ranks in the names of processes.
    """

    schedule: Schedule
    job: Job
    path: CriticalPath | None = None
    title: str = ""

    @classmethod
    def of_replay(cls, replay: Replay, path: CriticalPath, title: str = "") -> TimelinePart:
        """Create a part from a replay and its critical path."""
        return cls(replay.schedule(), replay.graph.job, path, title)

    def later(self, ns: int) -> TimelinePart:
        """Return it with all times later by so many ns, below 0 earlier."""
        moved = (pl.col("start") + ns, pl.col("end") + ns)
        path = self.path
        if path is not None:
            path = replace(path, segments=path.segments.with_columns(*moved))
        return replace(self, schedule=Schedule(self.schedule.table.with_columns(*moved)), path=path)


def write_timeline(
    path: Path | str, replay: Replay, critical: CriticalPath,
    counters: Iterable[TimelineCounter] = (),
) -> pl.DataFrame:  # fmt: skip
    """Write a replay as a timeline: one process per rank, one track per thread and stream.

    As :func:`write_timelines`, of one part.
    """
    return write_timelines(path, [TimelinePart.of_replay(replay, critical)], counters=counters)


def write_timelines(
    path: Path | str, parts: Sequence[TimelinePart], title: str = "timeline",
    counters: Iterable[TimelineCounter] = (),
) -> pl.DataFrame:  # fmt: skip
    """Write several schedules; the processes of a rank are listed one below the other.

    Operations with time on the critical path have ``"critical": true`` and are red in
    chrome://tracing; each process's first track shows the kinds of its part of the path,
    and arrows follow the path from operation to operation. Times begin at the job's
    origin.

    Parameters
    ----------
    path
        A ``.json`` or ``.pftrace`` file or URL; a name that ends in ``.gz`` is compressed. An
        existing file is replaced only after everything is written.
    parts
        At least one part, in display order.
    title
        Title of the timeline.
    counters
        Values over time, drawn below the ranks of the first part.

    Returns
    -------
    polars.DataFrame
        ``schema.ISSUES``: operations that could not be drawn. O(operations log operations).

    Raises
    ------
    UsageError
        If the suffix is not one of a timeline, or there is no part.
    InputError
        If the file cannot be written.
    """
    place = locate(path)
    writer_of_suffix(place)
    log = IssueLog()
    write_file(place, draw_timeline(parts, title, log, counters), log)
    return log.table()


def check_timeline(path: Path | str, source: Path | str, *, overwrite: bool) -> None:
    """Check that a timeline can be written before it is computed; writes nothing.

    - Raises UsageError if the suffix is not one of a timeline, or the file is also an input.
    - Raises InputError if it cannot be written, or exists already and ``overwrite`` is not given.
    """
    place = locate(path)
    writer_of_suffix(place)
    check_target(place, [locate(source)], overwrite=overwrite)


# --- what is drawn


def draw_timeline(
    parts: Sequence[TimelinePart], title: str, log: IssueLog,
    counters: Iterable[TimelineCounter] = (),
) -> Timeline:  # fmt: skip
    """Lay out schedules side by side, as :func:`write_timelines` writes them."""
    if not parts:
        raise UsageError(
            Parameter("parts"), "there is nothing to draw", "give at least one schedule"
        )
    operations = pl.concat([_operations(number, part) for number, part in enumerate(parts)])
    operations = _drawable(operations, log)
    processes = _processes(parts)
    operations = operations.join(
        processes.select("rank", "part", process="row"), on=("rank", "part"), maintain_order="left"
    )
    operations = _on_lanes(operations)
    tracks = _tracks(operations, processes, parts)
    operations = operations.join(
        tracks.select("process", "resource", "track"), on=("process", "resource"),
        maintain_order="left",
    )  # fmt: skip
    path_track = tracks.filter(resource=_PATH_TITLE)
    slices = [_slices(operations)]
    arrows = [np.empty((2, 0), dtype=np.int64)]
    for number, part in enumerate(parts):
        if part.path is not None:
            of_part = processes.filter(part=number).join(
                path_track, left_on="row", right_on="process"
            )
            slices.append(_path_slices(part.path, of_part))
            arrows.append(_arrows(part, operations, number))
    tail, head = np.concatenate(arrows, axis=1)
    drawn = pl.concat(slices)
    # Perfetto takes track N of process N, and track 0 of any, for the main thread of a process
    first = 1 + max(processes["number"].to_list())
    return Timeline(
        title,
        processes.select("number", "title"),
        tracks.select(
            "process", title="resource", number=first + pl.int_range(pl.len()).over("process")
        ),
        drawn.select("track", "category", "name", "start", "end"),
        {"node": drawn["node"], CRITICAL: drawn["critical"], "longest operation": drawn["longest"]},
        2 * tail,
        2 * head,
        counters=_on_processes(counters, processes),
    )


def _on_processes(
    counters: Iterable[TimelineCounter], processes: pl.DataFrame
) -> tuple[tuple[int, TimelineCounter], ...]:
    """Return counters with the processes of their ranks, of the first part."""
    row = dict(processes.filter(part=0).select("rank", "row").iter_rows())
    return tuple((row[one.rank], one) for one in counters if one.rank in row)


def _operations(number: int, part: TimelinePart) -> pl.DataFrame:
    """Return the operations of a part; ``op`` is the row of the schedule."""
    schedule = part.schedule.table.with_row_index("op")
    ranks = np.array(part.job.ranks)
    heights = [trace.nodes.height for trace in part.job.traces]
    first = np.cumsum([0, *heights[:-1]])
    row = first[np.searchsorted(ranks, schedule["rank"])] + schedule["node"].to_numpy()
    nodes = pl.concat([
        trace.nodes.select("id", "name", "category", "is_cpu", "duration")
        for trace in part.job.traces
    ])[row]  # fmt: skip
    if part.path is None:
        schedule = schedule.with_columns(critical=pl.lit(False))
    else:
        on_path = part.path.segments.select("rank", "node", critical=pl.lit(True)).unique()
        schedule = schedule.join(
            on_path, on=("rank", "node"), how="left", maintain_order="left"
        ).with_columns(pl.col("critical").fill_null(False))
    return schedule.select(
        "op", "rank", "start", "end", "critical",
        pl.col("resource").cast(pl.String),
        part=pl.lit(number),
        node=nodes["id"],
        name=nodes["name"].cast(pl.String),
        category=nodes["category"].cast(pl.String),
        is_host=nodes["is_cpu"],
        recorded=nodes["duration"],
    )  # fmt: skip


def _drawable(operations: pl.DataFrame, log: IssueLog) -> pl.DataFrame:
    """Omit operations without a duration, and prevent ends before starts."""
    start, end = operations["start"], operations["end"]
    vanished = (operations["recorded"] > 0) & (start == end)
    log.add(
        "timeline.no-time", "info", int(vanished.sum()),
        "operations without a duration are not drawn",
    )  # fmt: skip
    log.add(
        "timeline.backwards", "warning", int((end < start).sum()),
        "operations end before they begin and are drawn with length 0",
        "an edit removed the edges from their start to their end",
    )  # fmt: skip
    return operations.with_columns(end=pl.max_horizontal("start", "end")).filter(~vanished)


def _processes(parts: Sequence[TimelinePart]) -> pl.DataFrame:
    """Return each rank of each part a process: rank, part, row, number, title.

    The processes of a rank follow each other; with one part their numbers are the ranks.
    """
    suffixes = {k: f" {part.title}" if part.title else "" for k, part in enumerate(parts)}
    pairs = [(rank, number) for number, part in enumerate(parts) for rank in part.job.ranks]
    return (
        pl.DataFrame(pairs, schema={"rank": pl.Int64, "part": pl.Int32}, orient="row")
        .sort("rank", "part")
        .with_columns(
            row=pl.int_range(pl.len()),
            number=pl.col("rank") * len(parts) + pl.col("part"),
            title=pl.format(
                "rank {}{}", "rank", pl.col("part").replace_strict(suffixes, return_dtype=pl.String)
            ),
        )
    )


def _on_lanes(operations: pl.DataFrame) -> pl.DataFrame:
    """Use another lane for operations that outlive the operation that they began in."""
    place = operations.select(
        pl.struct("process", pl.col("resource").cast(pl.Categorical).to_physical())
        .rank("dense").cast(pl.Int64) - 1
    ).to_series()  # fmt: skip
    lane, _ = find_lanes(
        place.to_numpy(writable=True),
        operations["start"].to_numpy(writable=True),
        operations["end"].to_numpy(writable=True),
    )
    suffixes = [lane_suffix(number) for number in range(int(lane.max(initial=0)) + 1)]
    return operations.with_columns(
        resource=pl.col("resource") + pl.Series(suffixes, dtype=pl.String).gather(lane)
    )


def _tracks(
    operations: pl.DataFrame, processes: pl.DataFrame, parts: Sequence[TimelinePart]
) -> pl.DataFrame:
    """Return the tracks: process, resource, track; those of a process follow each other.

    The path comes first, then threads before streams, those with steps and most work
    first: of all parts together, so that all show a rank in the same order.
    """
    with_path = [number for number, part in enumerate(parts) if part.path is not None]
    path = processes.filter(pl.col("part").is_in(with_path)).select(
        process="row", resource=pl.lit(_PATH_TITLE)
    )
    order = operations.group_by("rank", "resource").agg(
        is_host=pl.col("is_host").first(),
        has_steps=pl.col("name").str.starts_with("ProfilerStep#").any(),
        count=pl.len().cast(pl.Int64),
    )
    used = (
        operations.select("process", "rank", "resource")
        .unique()
        .join(order, on=("rank", "resource"))
        .sort("process", ~pl.col("is_host"), ~pl.col("has_steps"), -pl.col("count"), "resource")
        .select("process", "resource")
    )
    return (
        pl.concat([path, used]).sort("process", maintain_order=True).with_columns(
            track=pl.int_range(pl.len())
        )
    )  # fmt: skip


def _slices(operations: pl.DataFrame) -> pl.DataFrame:
    return operations.select(
        "track",
        "category",
        "name",
        "start",
        "end",
        "node",
        "critical",
        longest=pl.lit(None, dtype=pl.String),
    )


def path_runs(critical: CriticalPath) -> pl.DataFrame:
    """Join consecutive segments of one rank and kind.

    - Returns: rank, name (the kind), start, end (ns), longest (the name of the longest segment).
    """
    run = pl.struct("rank", "kind").rle_id()
    return (
        critical.segments.group_by(run.alias("run"), maintain_order=True)
        .agg(
            pl.col("rank").first(),
            name=pl.col("kind").first().cast(pl.String),
            start=pl.col("start").first(),
            end=pl.col("end").last(),
            longest=pl.col("name")
            .sort_by(pl.col("end") - pl.col("start"))
            .last()
            .replace("", "(between operations)"),
        )
        .drop("run")
    )


def _path_slices(critical: CriticalPath, tracks: pl.DataFrame) -> pl.DataFrame:
    """Return slices with the kinds of the path."""
    return (
        path_runs(critical)
        .join(tracks.select("rank", "track"), on="rank", maintain_order="left")
        .select(
            "track", pl.lit(PATH_CATEGORY).alias("category"), "name", "start", "end",
            node=pl.lit(-1, dtype=pl.Int64), critical=pl.lit(True), longest="longest",
        )
    )  # fmt: skip


def _arrows(part: TimelinePart, operations: pl.DataFrame, number: int) -> Ints:
    """Draw arrows along the path, but not into and out of nested operations.

    Both ends of an arrow hold on to the start of a slice: there a viewer finds the slice
    that begins, and not one that lies in it or has ended.

    - Returns: int64, shape (2, arrows): rows of ``operations``.
    """
    num_ops = part.schedule.table.height
    row_of = np.full(num_ops, -1, dtype=np.int64)
    rows = np.flatnonzero((operations["part"] == number).to_numpy())
    row_of[operations["op"].to_numpy()[rows]] = rows
    vertices = part.path.vertices  # type: ignore[union-attr]
    vertices = vertices[vertices < 2 * num_ops]
    vertices = vertices[row_of[vertices // 2] >= 0]
    if not vertices.size:
        return np.empty((2, 0), dtype=np.int64)
    track = operations["track"].to_numpy()
    # where the path comes to the end of an operation from another track, that operation and
    # those around it only waited, and began before the cause: the arrow goes on to what
    # begins next
    visit = np.cumsum(np.append(0, np.diff(track[row_of[vertices // 2]]) != 0))
    begun = np.cumsum(vertices % 2 == 0)
    begun_before = np.append(0, begun)[np.searchsorted(visit, visit)]
    vertices = vertices[(visit == 0) | (begun > begun_before)]
    row, is_end = row_of[vertices // 2], vertices % 2
    same_track = np.diff(track[row]) == 0
    drawn = (row[1:] != row[:-1]) & (~same_track | ((is_end[:-1] == 1) & (is_end[1:] == 0)))
    return np.stack([row[:-1][drawn], row[1:][drawn]])


def draw_schedule(
    source: Path, target: Path, frequency: str = "1GHz", *, overwrite: bool = False
) -> tuple[int, pl.DataFrame]:
    """Write the schedule in a file as a timeline: a process per rank, a track per resource.

    Parameters
    ----------
    source
        As :func:`nadi.results.saved.read_schedule` takes it.
    target
        ``.json`` or ``.pftrace``, also with ``.gz``.
    frequency
        Of the cycles that a log counts, such as ``1.5GHz``; MHz without a unit.

    Returns
    -------
    int
        The number of drawn operations.
    polars.DataFrame
        ``schema.ISSUES``: what is left out. O(operations log operations).

    Raises
    ------
    UsageError
        If the suffix is not one of a timeline, or the frequency is none.
    InputError, FormatError
        If the source cannot be read, or the target cannot be written.
    """
    try:
        rate = parse_frequency(frequency)
    except ValueError:
        raise UsageError(
            Parameter("frequency", frequency), "is not a frequency",
            "give one such as 1.5GHz or 1500 (MHz)",
        ) from None  # fmt: skip
    place = locate(target)
    writer_of_suffix(place)
    check_target(place, [locate(source)], overwrite=overwrite)
    log = IssueLog()
    found = read_schedule(source, rate, log)
    write_file(place, _timeline(found, source.name), log)
    return found.height, log.table()


def _timeline(found: pl.DataFrame, title: str) -> Timeline:
    key = pl.struct("rank", "resource").rank("dense").cast(pl.Int64) - 1
    lane, _ = find_lanes(
        found.select(key).to_series().to_numpy(writable=True),
        found["start"].to_numpy(writable=True), found["end"].to_numpy(writable=True),
    )  # fmt: skip
    suffixes = [lane_suffix(number) for number in range(int(lane.max(initial=0)) + 1)]
    found = found.with_columns(
        title=pl.col("resource") + pl.Series(suffixes, dtype=pl.String).gather(lane)
    )
    ranks = found.select("rank").unique().sort("rank").with_columns(row=pl.int_range(pl.len()))
    tracks = (
        found.select("rank", "title").unique().sort("rank", "title")
        .with_columns(track=pl.int_range(pl.len()))
        .join(ranks, on="rank", maintain_order="left")
    )  # fmt: skip
    first = 1 + int(ranks["rank"].max() or 0)  # type: ignore[arg-type]
    drawn = found.join(tracks, on=("rank", "title"), maintain_order="left")
    none = np.empty(0, dtype=np.int64)
    return Timeline(
        title,
        ranks.select(number="rank", title=pl.format("rank {}", "rank")),
        tracks.select(
            "title", process="row", number=first + pl.int_range(pl.len()).over("rank")
        ).select("process", "title", "number"),
        drawn.select("track", pl.lit("operator").alias("category"), "name", "start", "end"),
        {"node": drawn["id"], CRITICAL: pl.repeat(False, drawn.height, eager=True)},
        none, none,
    )  # fmt: skip
