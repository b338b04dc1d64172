"""Bars of several parts, drawn as SVG."""

from __future__ import annotations

import numpy as np

from nadi.results.charts.chart_shapes import (
    COLORS,
    INK,
    RIGHT,
    SOFT,
    TOP,
    WIDTH,
    line_between,
    text_at,
)
from nadi.results.charts.chart_text import escape
from nadi.results.charts.charts import BarChart
from nadi.results.charts.scales import scale_of, short_number

__all__ = ["bar_chart", "bars_height"]

_TALL, _GAP = 20, 8  # of a bar, and below it
_MOST = 40  # bars
_LETTER, _LETTERS = 7, 34  # width of a letter, and letters of a row's name
_BELOW = 52  # the axis and its label
_LEGEND = 22  # height of a line of the legend


def bars_height(chart: BarChart) -> int:
    """Return the height of a drawing."""
    shown = min(len(chart.rows), _MOST) + (len(chart.rows) > _MOST)
    return _top(chart) + shown * (_TALL + _GAP) + _BELOW


def bar_chart(chart: BarChart) -> list[str]:
    """Draw the bars, their names, the axis and the legend; of many rows the first 40."""
    names = [_shortened(name) for name in chart.rows[:_MOST]]
    left = 24 + _LETTER * max(map(len, names), default=0) + 12
    top = _top(chart)
    ends = np.append(chart.values.sum(axis=1), 0.0)
    across = scale_of(np.linspace(0, max(float(ends.max()), 1e-9), 21), left, WIDTH - RIGHT - 24,
                      is_log=False, from_zero=True)  # fmt: skip
    bottom = top + len(names) * (_TALL + _GAP)
    parts = _legend(chart)
    for value in across.labels:
        x = float(across.at(value))
        parts.append(line_between(x, top - 4, x, bottom))
        parts.append(text_at(x, bottom + 16, short_number(value), anchor="middle"))
    parts.append(text_at((left + WIDTH - RIGHT) / 2, bottom + 36, chart.label, anchor="middle",
                         size=13))  # fmt: skip
    for row, name in enumerate(names):
        y = top + row * (_TALL + _GAP)
        parts.append(text_at(left - 10, y + 14, name, anchor="end", color=INK))
        borders = np.append(0.0, np.cumsum(chart.values[row]))
        for part, value in enumerate(chart.values[row].tolist()):
            if value <= 0:
                continue
            begin, end = (float(across.at(borders[part + k])) for k in (0, 1))
            said = "\n".join(filter(None, (chart.rows[row], chart.parts[part],
                                           f"{chart.label}: {short_number(value)}")))  # fmt: skip
            parts.append(
                f'<rect x="{begin:.2f}" y="{y}" width="{end - begin:.2f}" height="{_TALL}" '
                f'fill="{COLORS[part % len(COLORS)]}"><title>{escape(said)}</title></rect>'
            )
    if len(chart.rows) > _MOST:
        parts.append(text_at(24, bottom + _TALL, f"and {len(chart.rows) - _MOST} more"))
    return parts


def _top(chart: BarChart) -> int:
    return TOP + _LEGEND * len(_legend_lines(chart))


def _legend_lines(chart: BarChart) -> list[list[int]]:
    """Return the parts that have a value, as lines of the legend."""
    if chart.parts == ("",):
        return []
    lines: list[list[int]] = [[]]
    x = 24.0
    for part in np.flatnonzero(chart.values.sum(axis=0) > 0).tolist():
        width = _legend_width(chart.parts[part])
        if x + width > WIDTH - RIGHT and lines[-1]:
            lines.append([])
            x = 24.0
        lines[-1].append(part)
        x += width
    return [line for line in lines if line]


def _legend_width(name: str) -> int:
    return 34 + _LETTER * len(name)


def _legend(chart: BarChart) -> list[str]:
    parts = []
    for number, line in enumerate(_legend_lines(chart)):
        x, y = 24, TOP - 4 + number * _LEGEND
        for part in line:
            parts.append(
                f'<rect x="{x}" y="{y - 9}" width="11" height="11" '
                f'fill="{COLORS[part % len(COLORS)]}"/>'
            )
            parts.append(text_at(x + 17, y, chart.parts[part], color=SOFT))
            x += _legend_width(chart.parts[part])
    return parts


def _shortened(name: str) -> str:
    one_line = "".join(c if c.isprintable() else " " for c in name)
    return one_line if len(one_line) <= _LETTERS else f"{one_line[: _LETTERS - 1]}…"
