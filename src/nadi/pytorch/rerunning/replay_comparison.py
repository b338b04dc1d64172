"""A replay beside its original: steps, and operators by name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.pytorch.rerunning.rank_replays import RankReplay
from nadi.pytorch.rerunning.recorded_calls import RecordedCalls
from nadi.recordings.matching.name_alignment_kernels import align
from nadi.trace.arrays import Ints
from nadi.trace.trace import Trace

__all__ = ["ReplayComparison", "compare_replay"]

_MOST_EDITS = 2048  # calls of which one of both recordings has no other, in a row


class ReplayComparison(NamedTuple):
    """The original of one rank beside its replay, both with a recorder.

    Attributes
    ----------
    original_steps, replayed_steps
        Times of steps in ns; empty without marks of steps.
    operators
        ``name``, ``count``, ``original`` and ``replayed`` (sums in ns), the longest first.
    num_different
        How many replayed calls are not in the new recording, with name and shapes and in their
        order; 0 if the replay has the same sequence of operators.
    """

    original_steps: tuple[int, ...]
    replayed_steps: tuple[int, ...]
    operators: pl.DataFrame
    num_different: int


@checked
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
    pairs = _pairs(before, after, replay)
    different = len(replay.calls) - len(pairs)
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


def _pairs(
    before: RecordedCalls, after: RecordedCalls, replay: RankReplay
) -> list[tuple[int, int]]:
    """Return the rows of calls in both recordings that have the same name and shapes.

    Each thread of the replay is one thread of its recording, whose numbers are others: the one
    that has most of its calls.
    """
    calls: dict[int, list[int]] = {}
    for row in replay.calls:
        calls.setdefault(before.thread(row), []).append(row)
    rows: dict[int, list[int]] = {}
    for row in after.outermost():
        rows.setdefault(after.thread(row), []).append(row)
    found = []
    for mine in sorted(calls.values(), key=len, reverse=True):
        pairs = {thread: _pairs_of_thread(before, after, mine, rows[thread]) for thread in rows}
        best = max(pairs, key=lambda thread: len(pairs[thread]), default=-1)
        found += pairs.get(best, [])
        rows.pop(best, None)
    return found


def _pairs_of_thread(
    before: RecordedCalls, after: RecordedCalls, calls: list[int], rows: list[int]
) -> list[tuple[int, int]]:
    """Return the rows of the same calls of a thread: as many as can be, in their order.

    The replay has views between its calls, and what torch.distributed calls beside a collective is
    called once more.
    """
    numbers: dict[tuple[str, str], int] = {}

    def keys(recorded: RecordedCalls, of: list[int]) -> Ints:
        named = [(recorded.names[row], recorded.input_shapes(row)) for row in of]
        return np.array([numbers.setdefault(key, len(numbers)) for key in named], dtype=np.int64)

    partner = np.full(len(calls), -1, dtype=np.int64)
    align(keys(before, calls), keys(after, rows), _MOST_EDITS, partner)
    pairs = zip(calls, partner.tolist(), strict=True)
    return [(row, rows[place]) for row, place in pairs if place >= 0]


def _durations(trace: Trace, rows: Ints) -> Ints:
    durations: Ints = trace.nodes["duration"].to_numpy()[rows]
    return np.maximum(durations, 0)


def _steps(trace: Trace) -> tuple[int, ...]:
    marks = trace.nodes.filter(pl.col("name").cast(pl.String).str.starts_with("ProfilerStep#"))
    return tuple(marks.sort("start")["duration"].to_list())
