"""A schedule in a file, drawn as a timeline for trace viewers."""

from pathlib import Path

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.files.files import check_target, check_writable, locate
from nadi.files.timeline.timeline_values import (
    CRITICAL,
    Timeline,
    find_lanes,
    lane_suffix,
    write_file,
    writer_of_suffix,
)
from nadi.results.saved import read_schedule
from nadi.trace.issues import IssueLog
from nadi.units import parse_frequency


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
    check_writable(target)
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
