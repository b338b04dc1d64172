"""A replay beside its original: steps, and operators by name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.model.arrays import Ints
from nadi.model.trace import Trace
from nadi.replay.rank_replays import RankReplay
from nadi.replay.recorded_calls import RecordedCalls

__all__ = ["ReplayComparison", "compare_replay"]


class ReplayComparison(NamedTuple):
    """The original of one rank beside its replay, both with a recorder.

    Attributes
    ----------
    original_steps, replayed_steps
        Times of steps in ns; empty without marks of steps.
    operators
        ``name``, ``count``, ``original`` and ``replayed`` (sums in ns), the longest first.
    num_different
        How many replayed calls were recorded under another name or with other shapes; 0 if the
        replay has the same sequence of operators.
    """

    original_steps: tuple[int, ...]
    replayed_steps: tuple[int, ...]
    operators: pl.DataFrame
    num_different: int


def compare_replay(original: Trace, replayed: Trace, replay: RankReplay) -> ReplayComparison:
    """Compare the replay of a rank with what it replays. O(nodes).

    Parameters
    ----------
    original, replayed
        Host traces linked with their device traces, which have the times.
    replay
        What was replayed.
    """
    before, after = RecordedCalls(original), RecordedCalls(replayed)
    rows = _calls_of(after, replay)
    pairs = [(call.row, row) for call, row in zip(replay.calls, rows, strict=False)]
    different = len(replay.calls) - len(pairs)
    different += sum(not _are_same(before, a, after, b) for a, b in pairs)
    first = np.array([a for a, _ in pairs], dtype=np.int64)
    second = np.array([b for _, b in pairs], dtype=np.int64)
    names = original.nodes["name"].cast(pl.String).gather(first)
    operators = (
        pl.DataFrame({
            "name": names,
            "original": _durations(original, first),
            "replayed": _durations(replayed, second),
        })
        .group_by("name")
        .agg(pl.len().alias("count"), pl.col("original").sum(), pl.col("replayed").sum())
        .select("name", "count", "original", "replayed")
        .sort("original", "name", descending=[True, False])
    )  # fmt: skip
    return ReplayComparison(_steps(original), _steps(replayed), operators, different)


def _calls_of(recorded: RecordedCalls, replay: RankReplay) -> list[int]:
    """Return the rows of the replayed calls, without the views in between."""
    rows = iter(recorded.outermost())
    found: list[int] = []
    for call in replay.calls:
        for _ in range(call.num_views):
            next(rows, -1)
        row = next(rows, -1)
        if row < 0:
            break
        found.append(row)
    return found


def _are_same(before: RecordedCalls, a: int, after: RecordedCalls, b: int) -> bool:
    if before.names[a] != after.names[b]:
        return False
    return before.input_shapes(a) == after.input_shapes(b)


def _durations(trace: Trace, rows: Ints) -> Ints:
    return np.maximum(trace.nodes["duration"].to_numpy()[rows], 0)


def _steps(trace: Trace) -> tuple[int, ...]:
    marks = trace.nodes.filter(pl.col("name").cast(pl.String).str.starts_with("ProfilerStep#"))
    return tuple(marks.sort("start")["duration"].to_list())
