"""Critical paths as data: by kind, and what differs between two."""

from typing import Any

import polars as pl

from nadi.graph.critical_paths import CriticalPath

_MOST = 30  # operations


def path_by_kind(path: CriticalPath) -> dict[str, int]:
    """Sum a critical path by kind, in ns, with names as in JSON."""
    return {kind.replace(" ", "_"): time for kind, time in path.by_kind().items()}


def path_changes(measured: CriticalPath, predicted: CriticalPath) -> list[dict[str, Any]]:
    """List the operations whose time on the critical path changes most, at most 30."""
    sums = [
        path.by_operation().select("name", pl.col("kind").cast(pl.String), "time")
        for path in (measured, predicted)
    ]
    both = sums[0].join(sums[1], on=["name", "kind"], how="full", suffix="_after", coalesce=True)
    was, becomes = pl.col("time").fill_null(0), pl.col("time_after").fill_null(0)
    found = both.select(
        "name", pl.col("kind").str.replace(" ", "_"), measured_ns=was, predicted_ns=becomes,
        change_ns=becomes - was,
    ).filter(pl.col("change_ns") != 0)  # fmt: skip
    order = pl.col("change_ns").abs(), "name", "kind"
    return found.sort(*order, descending=[True, False, False]).head(_MOST).to_dicts()
