"""Several device traces of each rank, one per step or cycle of the profiler: which are read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import polars as pl

from nadi.recordings.discover import recording_of, with_ranks
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

__all__ = ["one_per_rank"]

_TOLD = 3  # files


def one_per_rank(devices: Sequence[Trace]) -> tuple[list[Trace], pl.DataFrame]:
    """Keep one trace of each rank, if each has several that were recorded one after the other.

    Traces of a rank follow each other if their file names differ in one number, as
    ``rank0_step12.json`` and ``rank0_step13.json`` do, and their times do not overlap. Of the
    lowest rank the last is kept, and of the others the one that begins nearest to it.

    Returns
    -------
    traces, issues
        All traces and no issue if some rank has several traces that do not follow each other.
    """
    by_rank: dict[int, list[Trace]] = defaultdict(list)
    for trace, ranked in zip(devices, with_ranks(list(map(recording_of, devices))), strict=True):
        by_rank[ranked.rank].append(trace)
    log = IssueLog()
    if len(by_rank) == len(devices) or not all(map(_follow_each_other, by_rank.values())):
        return list(devices), log.table()
    reference = max(map(_begin, by_rank[min(by_rank)]))
    kept = [min(same, key=lambda one: abs(_begin(one) - reference)) for same in by_rank.values()]
    left_out = [trace for trace in devices if not any(trace is one for one in kept)]
    log.add(
        "job.step-files", "warning", len(left_out),
        f"each rank has several device traces, one after the other: {_names(kept)} "
        f"{'is' if len(kept) == 1 else 'are'} read",
        f"pass the files of another step to analyse it, such as {_names(left_out[:1])}",
    )  # fmt: skip
    return kept, log.table()


def _follow_each_other(traces: list[Trace]) -> bool:
    """Return whether names of traces differ in one number, and their times do not overlap."""
    if len(traces) == 1:
        return True
    if any(trace.nodes.height == 0 for trace in traces):
        return False
    names = [Path(recording_of(trace).path).name for trace in traces]
    if len({re.sub(r"\d+", "0", name) for name in names}) > 1:
        return False
    numbers = list(zip(*(re.findall(r"\d+", name) for name in names), strict=True))
    differing = [set(column) for column in numbers if len(set(column)) > 1]
    if len(differing) != 1 or len(differing[0]) < len(names):
        return False
    spans = sorted((_begin(trace), _end(trace)) for trace in traces)
    return all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def _begin(trace: Trace) -> int:
    return int(trace.column("start").min())


def _end(trace: Trace) -> int:
    return int((trace.column("start") + trace.column("duration")).max())


def _names(traces: Sequence[Trace]) -> str:
    names = [Path(recording_of(trace).path).name for trace in traces]
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return ", ".join(names[:_TOLD]) + more
