"""What ranks and streams do, and totals of operations and collectives: as data."""

from __future__ import annotations

from typing import Any

import polars as pl

from nadi.bottlenecks.steps.recorded_bounds import link_bounds
from nadi.bottlenecks.steps.run import Run
from nadi.graph.operation_totals import collective_totals, operation_totals
from nadi.graph.rank_activity import rank_activity, stream_activity

__all__ = ["describe_activity"]

_MOST = 30  # names of operations and of collectives


def describe_activity(run: Run) -> dict[str, Any]:
    """Compute the parts of ``summary.json`` on activity and totals; times are int ns.

    ``activity`` has an object per rank, ``streams`` one per thread and stream; ``operations`` and
    ``collectives`` have the 30 with most time, and ``collectives_bound_by`` names the system whose
    links their bounds are of.
    """
    graph, window = run.graph, run.window
    bounds = link_bounds(run)
    collectives = collective_totals(graph, window, bounds.least_time if bounds else None)
    renamed = {name: f"{name}_gb_per_s"
               for name in ("bandwidth", "bus_bandwidth", "bound_bus_bandwidth")}  # fmt: skip
    return {
        "activity": _in_ns(
            rank_activity(graph, window), "computing", "transferring", "waiting", "copying", "idle"
        ),
        "streams": _in_ns(stream_activity(graph, window), "busy", "communicating", "idle"),
        "operations": _in_ns(
            operation_totals(graph, window).head(_MOST), "time", "shortest", "longest"
        ),
        "collectives": _in_ns(
            collectives.head(_MOST).rename(renamed), "waiting", "transferring", "bound"
        ),
        "collectives_bound_by": (
            {"system": bounds.system, "reason": bounds.reason} if bounds else None
        ),
    }


def _in_ns(found: pl.DataFrame, *times: str) -> list[dict[str, Any]]:
    return found.rename({name: f"{name}_ns" for name in times}).to_dicts()
