"""How an analysis of one rank becomes one of a job: a table with a column ``rank``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol

import numpy as np
import polars as pl

from nadi.analyses.hta.recorded_fields import trace_name
from nadi.analyses.recorded.events import RankEvents, Recorded, events_of_ranks
from nadi.errors import InputError
from nadi.files.kineto.kineto_columns import NO_ARGUMENTS, NO_HOST_EVENTS

__all__ = ["missing", "per_rank", "require"]

_P = ParamSpec("_P")
_OneRank = Callable[Concatenate[RankEvents, _P], pl.DataFrame]


class _AllRanks(Protocol[_P]):
    """An analysis of a job, of a trace, or of several."""

    def __call__(self, source: Recorded, *args: _P.args, **kwargs: _P.kwargs) -> pl.DataFrame: ...


def per_rank(*needs: str, uses: tuple[str, ...] = ()) -> Callable[[_OneRank[_P]], _AllRanks[_P]]:
    """Make an analysis of one rank one of a job, in whose table each rank's rows come together.

    Parameters
    ----------
    needs
        What a recording must have, by the names in :data:`NEEDS`.
    uses
        What the analysis takes into account where a recording has it.
    """

    def decorate(analysis: _OneRank[_P]) -> _AllRanks[_P]:
        @wraps(analysis)
        def of_all(source: Recorded, *args: _P.args, **kwargs: _P.kwargs) -> pl.DataFrame:
            parts = []
            for events in events_of_ranks(source):
                require(events, *needs)
                table = analysis(events, *args, **kwargs)
                rank = pl.Series("rank", np.full(table.height, events.rank, dtype=np.int64))
                parts.append(table.insert_column(0, rank))
            return pl.concat(parts) if parts else pl.DataFrame()

        of_all.needs = needs  # type: ignore[attr-defined]
        of_all.uses = uses  # type: ignore[attr-defined]
        return of_all

    return decorate


def require(events: RankEvents, *needs: str) -> None:
    """Check that a recording has what an analysis needs.

    Raises
    ------
    InputError
        If not: what it lacks, and how to record it.
    """
    if why := missing(events, needs):
        raise InputError(trace_name(events.trace), *why)


def missing(events: RankEvents, needs: tuple[str, ...]) -> tuple[str, str] | None:
    """Return what a recording lacks and how to record it; None if it has all."""
    if "launches" in needs:
        needs = ("device work", *needs)
    for need in needs:
        has, what, remedy = NEEDS[need]
        if not has(events):
            return what, remedy
    return None


_PART = "choose a part of it, with --step or --window of the command line"
_Has = Callable[[RankEvents], bool]
NEEDS: dict[str, tuple[_Has, str, str]] = {
    "device work": (
        lambda events: events.work.size > 0,
        "the recording has no device work",
        "record with ProfilerActivity.CUDA (or of your device)",
    ),
    "launches": (
        lambda events: bool((events.launcher[events.work] >= 0).any()),
        "no device work has the call that launched it",
        "record with ProfilerActivity.CPU too",
    ),
    "annotations": (
        lambda events: bool(events.is_of("annotation", "device_annotation").any()),
        "the recording has no user annotations",
        "mark parts of the program with torch.profiler.record_function",
    ),
    "copies": (
        lambda events: events.of_type("memory").size > 0,
        "the recording has no copies and no memory sets",
        "",
    ),
    "host events": (
        lambda events: events.work.size < events.table.height,
        "the recording has no host events",
        "record with ProfilerActivity.CPU too",
    ),
    "operators": (
        lambda events: not events.has_issue(NO_HOST_EVENTS),
        "the file is so large that its operators are not read",
        _PART,
    ),
    "arguments": (
        lambda events: not events.has_issue(NO_ARGUMENTS),
        "the file is so large that arguments of its events are not read",
        _PART,
    ),
}
"""What a recording may lack: how to see whether it has it, what to say, how to record it."""
