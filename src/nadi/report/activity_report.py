"""What ranks and streams do, and totals of operations and collectives: as data."""

from __future__ import annotations

from typing import Any

import polars as pl

from nadi.analyze.operation_totals import collective_totals, operation_totals
from nadi.analyze.rank_activity import rank_activity, stream_activity
from nadi.pipeline.run_results import Run

__all__ = ["describe_activity"]

_MOST = 30  # names of operations and of collectives


def describe_activity(run: Run) -> dict[str, Any]:
    """Compute the parts of ``summary.json`` on activity and totals; times are int ns.

    ``activity`` has an object per rank, ``streams`` one per thread and stream; ``operations`` and
    ``collectives`` have the 30 with most time.
    """
    graph, window = run.graph, run.window
    return {
        "activity": _in_ns(
            rank_activity(graph, window), "computing", "transferring", "waiting", "copying", "idle"
        ),
        "streams": _in_ns(stream_activity(graph, window), "busy", "communicating", "idle"),
        "operations": _in_ns(
            operation_totals(graph, window).head(_MOST), "time", "shortest", "longest"
        ),
        "collectives": _in_ns(
            collective_totals(graph, window).head(_MOST), "waiting", "transferring"
        ),
    }


def _in_ns(found: pl.DataFrame, *times: str) -> list[dict[str, Any]]:
    return found.rename({name: f"{name}_ns" for name in times}).to_dicts()
