"""Charts as values: what is drawn, and nothing of how; and scales, from values to lengths."""

import html
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nadi.trace.arrays import Floats, Ints
from nadi.units import UNSHOWN


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


_ROUND = (1, 2, 2.5, 5, 10)
_MOST_LABELS = 10


class ChartScale(NamedTuple):
    """An axis from ``least`` to ``most``, drawn from ``begin`` to ``end``."""

    least: float
    most: float
    begin: float
    end: float
    is_log: bool
    labels: tuple[float, ...]  # where it is labeled

    def at(self, values: Floats | float) -> Floats:
        """Give where values stand."""
        low, high, where = self.least, self.most, np.asarray(values, dtype=np.float64)
        if self.is_log:
            low, high, where = math.log(low), math.log(high), np.log(where)
        place: Floats = self.begin + (where - low) / (high - low) * (self.end - self.begin)
        return place


def scale_of(
    values: Floats, begin: float, end: float, *, is_log: bool, from_zero: bool = False
) -> ChartScale:
    """Choose a scale for values, of which some are finite.

    Labels are the values themselves if there are few that stand apart, else round numbers.

    - ``begin``, ``end``: Where the axis is drawn.
    - ``is_log``: Whether equal ratios are equally long.
    - ``from_zero``: Whether the axis starts at 0 rather than at the smallest value.
    """
    there = np.unique(values[np.isfinite(values)])
    least, most = float(there[0]), float(there[-1])
    if is_log:
        if least == most:
            least, most = least / 2, most * 2
        few = tuple(float(one) for one in there) if _are_apart(there) else ()
        return ChartScale(least, most, begin, end, True, few or _log_labels(least, most))
    if from_zero:
        least, most = min(least, 0.0), max(most, 0.0)
    if least == most:
        least, most = least - 1, most + 1
    step = _round_step((most - least) / 6)
    first = math.ceil(least / step - 1e-9)
    if from_zero:  # to the next label, so that the last value stands below one
        most = step * math.ceil(most / step - 1e-9)
    last = math.floor(most / step + 1e-9)
    labels = tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))
    return ChartScale(least, most, begin, end, False, labels)


def _are_apart(values: Floats) -> bool:
    """Return whether there are few values, far enough apart on a logarithmic axis for labels."""
    if values.size > _MOST_LABELS:
        return False
    whole = math.log(values[-1]) - math.log(values[0])
    return bool((np.diff(np.log(values)) >= whole / (_MOST_LABELS + 2)).all())


def _round_step(rough: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(one * power for one in _ROUND if one * power >= rough * (1 - 1e-9))


def _log_labels(least: float, most: float) -> tuple[float, ...]:
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    for steps in ((1, 2, 5), (1,)):
        found = [one * 10.0**power for power in powers for one in steps]
        labels = tuple(one for one in found if least * (1 - 1e-9) <= one <= most * (1 + 1e-9))
        if 2 <= len(labels) <= _MOST_LABELS:
            return labels
    return _spread((least, *labels, most))


def _spread(labels: Sequence[float]) -> tuple[float, ...]:
    every = -(-len(labels) // _MOST_LABELS)
    return tuple(labels[::every])


def short_number(value: float, digits: int = 4) -> str:
    """Write a number for a label: four digits, thousands separated, no exponent below 10^9."""
    if value and not 1e-3 <= abs(value) < 1e9:
        return f"{value:.3g}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


WIDTH, HEIGHT = 760, 420
LEFT, TOP, BOTTOM, RIGHT = 72, 64, 56, 24
FONT = "Inter, Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
INK, SOFT, GRID = "#1f2933", "#616e7c", "#e4e7eb"
COLORS = ("#2f6db5", "#e0762f", "#2f9464", "#c33d4c", "#7d5fb0", "#8a6a4f", "#d0609f",
           "#5f6b78", "#a8921f", "#2a9fb0")  # fmt: skip


def text_at(
    x: float, y: float, text: str, *, size: int = 12, color: str = SOFT, anchor: str = "start",
    weight: int = 400,
) -> str:  # fmt: skip
    """Write a text at a place; ``anchor`` says which part of it stands there."""
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}"{where}{bold}>'
        f"{escape(text)}</text>"
    )


def line_between(x1: float, y1: float, x2: float, y2: float, color: str = GRID) -> str:
    """Draw a line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


# with what XML cannot have: a browser refuses the whole drawing
_FORBIDDEN = re.compile(rf"[{UNSHOWN}\ud800-\udfff\ufffe\uffff]")


def escape(text: str) -> str:
    """Return a text as XML and HTML take it; characters that are not shown are U+FFFD."""
    return html.escape(_FORBIDDEN.sub("\ufffd", text))
