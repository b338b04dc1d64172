"""Times as bars, in the unit in which they read best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nadi.results.charts.charts import BarChart

__all__ = ["time_bars"]

_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))


def time_bars(
    title: str,
    rows: Sequence[str],
    parts: Sequence[str],
    times: Sequence[Sequence[float]],
    note: str = "",
) -> BarChart:
    """Make a chart of times in ns; parts that are 0 in all rows are left out.

    Parameters
    ----------
    rows, parts
        What bars, and their parts, are called.
    times
        Shape (rows, parts), ns.
    """
    values = np.asarray(times, dtype=np.float64).reshape(len(rows), len(parts))
    kept = [part for part in range(len(parts)) if len(parts) == 1 or values[:, part].any()]
    values = values[:, kept]
    longest = float(values.sum(axis=1).max(initial=0.0))
    unit, size = next((one for one in _UNITS if longest >= one[1]), _UNITS[-1])
    names = tuple(parts[part] for part in kept)
    return BarChart(title, f"time ({unit})", tuple(rows), names, values / size, note)
