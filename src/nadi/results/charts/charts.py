"""Charts as values: what is drawn, and nothing of how.

Times as bars, in the unit in which they read best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.trace.arrays import Floats, Ints


class ChartAxis(NamedTuple):
    """An axis of a line chart.

    Attributes
    ----------
    label
        With its unit.
    is_log
        Whether equal ratios are equally long; all values must be above 0.
    """

    label: str
    is_log: bool = False


class LineSeries(NamedTuple):
    """A line of a chart, or points.

    Attributes
    ----------
    x, y
        float64, shape (points,); where ``y`` is NaN, the line has a gap.
    is_points
        Whether there is no line between them.
    labels
        What each point is called; empty if they have no names.
    is_steps
        Whether a value holds until the next one, such as a queue's length.
    """

    name: str
    x: Floats
    y: Floats
    is_points: bool = False
    labels: tuple[str, ...] = ()
    is_steps: bool = False


class LineChart(NamedTuple):
    """Lines over one axis; the note is a line of text below the title."""

    title: str
    x: ChartAxis
    y: ChartAxis
    series: tuple[LineSeries, ...]
    note: str = ""


class BarChart(NamedTuple):
    """A bar per row, made of parts one after the other.

    Attributes
    ----------
    label
        Of the values, with their unit.
    rows
        What each bar is called, from the top.
    parts
        What parts of bars are called; a single one without a name has no legend.
    values
        float64, shape (rows, parts), 0 or more.
    """

    title: str
    label: str
    rows: tuple[str, ...]
    parts: tuple[str, ...]
    values: Floats
    note: str = ""


class HeatMap(NamedTuple):
    """A value for each column and row.

    Attributes
    ----------
    columns, rows
        Their labels, from the left and from the bottom.
    values
        float64, shape (rows, columns); NaN where there is none.
    label
        Of the values, with their unit.
    """

    title: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: Floats
    label: str
    note: str = ""


class FlameChart(NamedTuple):
    """Frames over the frames that they are called from, as wide as their value."""

    title: str
    label: str  # of the values, with their unit
    names: tuple[str, ...]  # one per frame
    parent: Ints  # int64, shape (frames,): the frame below, which comes first, or -1
    # float64, shape (frames,): those of frames over one another add up to at most its own
    values: Floats
    note: str = ""


Chart = LineChart | HeatMap | BarChart | FlameChart
"""Any of them."""


_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))


def time_bars(
    title: str,
    rows: Sequence[str],
    parts: Sequence[str],
    times: Sequence[Sequence[float]],
    note: str = "",
) -> BarChart:
    """Make a chart of times in ns; parts that are 0 in all rows are left out.

    - ``rows``, ``parts``: What bars, and their parts, are called.
    - ``times``: Shape (rows, parts), ns.
    """
    values = np.asarray(times, dtype=np.float64).reshape(len(rows), len(parts))
    kept = [part for part in range(len(parts)) if len(parts) == 1 or values[:, part].any()]
    values = values[:, kept]
    longest = float(values.sum(axis=1).max(initial=0.0))
    unit, size = next((one for one in _UNITS if longest >= one[1]), _UNITS[-1])
    names = tuple(parts[part] for part in kept)
    return BarChart(title, f"time ({unit})", tuple(rows), names, values / size, note)
