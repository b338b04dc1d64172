"""What a page shows beside the content of ``summary.json``: other analyses of the recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from nadi.analyses.recorded.call_stacks import describe_flame, module_frames
from nadi.analyses.recorded.events import RankEvents, events_of
from nadi.analyses.recorded.memory_timeline import describe_memory
from nadi.analyses.recorded.rates import operator_rates
from nadi.bottlenecks.steps.run import Run
from nadi.bottlenecks.waiting.bottlenecks import find_waits
from nadi.bottlenecks.waiting.result import describe_waits
from nadi.errors import InputError
from nadi.systems.roofs import describe_roofs, recorded_roofs

__all__ = ["more_results"]


def more_results(run: Run) -> dict[str, Any]:
    """Compute what other commands would find in the same recording.

    Returns
    -------
    dict
        ``waits`` as ``nadi waits --json`` prints it, ``rates`` as ``nadi analyze rates``,
        ``memory`` with ``peaks`` as ``nadi analyze memory``; ``roofs`` of the device that the
        recording names; ``flame`` with ``calls`` and ``modules``
        (:mod:`nadi.analyses.recorded.call_stacks`). What was not recorded is left out, or is
        empty.
    """
    ranks = [events_of(trace) for trace in run.job.traces]
    time, origin = run.graph.time, run.job.origin
    between = run.window.start(time) + origin, run.window.end(time) + origin
    flame = {"calls": describe_flame(ranks, between)}
    if run.modules is not None:
        flame["modules"] = module_frames(run.modules)
    found: dict[str, Any] = {
        "waits": describe_waits(find_waits(run.graph, run.window)),
        "rates": _rates(ranks),
        "memory": describe_memory(ranks),
        "flame": flame,
    }
    if found["rates"] and (roofs := recorded_roofs(run.job)) is not None:
        found["roofs"] = describe_roofs(roofs, [row["type"] for row in found["rates"]])
    return found


def _rates(ranks: Sequence[RankEvents]) -> list[dict[str, Any]]:
    """Measure FLOP/s of all ranks; nothing if one has no shapes, or no device work with one."""
    try:
        return pl.concat([operator_rates(events) for events in ranks]).to_dicts()
    except InputError:
        return []
