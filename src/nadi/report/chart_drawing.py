"""Draw charts as SVG, with nothing but plain shapes, which every program shows alike."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import numpy as np

from nadi.model.arrays import Floats
from nadi.report.chart_scales import ChartScale, scale_of, short_number
from nadi.report.chart_values import HeatMap, LineChart, LineSeries

__all__ = ["drawn"]

_WIDTH, _HEIGHT = 760, 420
_LEFT, _TOP, _BOTTOM, _RIGHT = 72, 64, 56, 24
_LEGEND = 8  # units of width per letter of the longest name, or label of a row
_FONT = "Inter, Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
_INK, _SOFT, _GRID = "#1f2933", "#616e7c", "#e4e7eb"
_COLOURS = ("#2f6db5", "#e0762f", "#2f9464", "#c33d4c", "#7d5fb0", "#8a6a4f", "#d0609f",
            "#5f6b78", "#a8921f", "#2a9fb0")  # fmt: skip
_DASHES = ("", "6 4", "2 3")
_HEAT = ("#f4f9e9", "#bfe3c0", "#66bfb4", "#2f86ae", "#2b4c8c", "#20255c")
_MOST_DOTS = 60  # of a line, above which points are not marked
_MOST_POINTS = 1500  # of a line, above which only extremes of equal stretches are drawn
_MOST_CELLS = 100  # in a row or a column
_MOST_WRITTEN = 14  # columns of a heat map whose values are written


def drawn(chart: LineChart | HeatMap) -> str:
    """Draw a chart as the text of an SVG file."""
    if isinstance(chart, HeatMap):
        parts, title, note = _heat_map(chart), chart.title, chart.note
    else:
        parts, title, note = _line_chart(chart), chart.title, chart.note
    size = f'width="{_WIDTH}" height="{_HEIGHT}" font-family="{_FONT}" role="img"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {size}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(24, 28, title, size=16, colour=_INK, weight=600),
    ]
    if note:
        head.append(_text(24, 47, note, size=12, colour=_SOFT))
    return "\n".join([*head, *parts, "</svg>", ""])


def _text(
    x: float, y: float, text: str, *, size: int = 12, colour: str = _SOFT, anchor: str = "start",
    weight: int = 400,
) -> str:  # fmt: skip
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{where}{bold}>'
        f"{escape(text)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = _GRID) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


# lines


def _line_chart(chart: LineChart) -> list[str]:
    names = [one.name for one in chart.series if one.name]
    legend = 36 + _LEGEND * max(map(len, names)) if names else 0
    right = _WIDTH - _RIGHT - min(legend, _WIDTH // 3)
    bottom = _HEIGHT - _BOTTOM
    every_x = np.concatenate([one.x for one in chart.series])
    every_y = np.concatenate([one.y for one in chart.series])
    if not np.isfinite(every_y).any():
        return [_text((_LEFT + right) / 2, 200, "nothing is possible here", anchor="middle")]
    across = scale_of(every_x, _LEFT, right, is_log=chart.x.is_log)
    up = scale_of(every_y, bottom, _TOP, is_log=chart.y.is_log, from_zero=not chart.y.is_log)
    parts = _frame(across, up, chart.x.label, chart.y.label)
    ends = []
    for number, series in enumerate(chart.series):
        colour = _COLOURS[number % len(_COLOURS)]
        dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
        parts += _one_line(series, chart, across, up, (colour, dash))
        last = series.y[np.isfinite(series.y)]
        ends.append((-float(last[-1]) if last.size else np.inf, series.name, colour, dash))
    y = _TOP + 8.0
    for _, name, colour, dash in sorted(ends) if names else ():
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<line x1="{right + 16}" y1="{y:.1f}" x2="{right + 34}" y2="{y:.1f}" '
            f'stroke="{colour}" stroke-width="3"{dashes}/>'
        )
        parts.append(_text(right + 40, y + 4, name, colour=_INK))
        y += 19
    return parts


def _frame(across: ChartScale, up: ChartScale, x_label: str, y_label: str) -> list[str]:
    """Draw the grid, the labels and the names of both axes."""
    parts = []
    for value in up.labels:
        y = float(up.at(value))
        parts.append(_line(across.begin, y, across.end, y))
        parts.append(_text(across.begin - 8, y + 4, short_number(value), anchor="end"))
    for value in across.labels:
        x = float(across.at(value))
        parts.append(_line(x, up.begin, x, up.begin + 5, _SOFT))
        parts.append(_text(x, up.begin + 19, short_number(value), anchor="middle"))
    parts.append(_line(across.begin, up.begin, across.end, up.begin, _SOFT))
    middle = (across.begin + across.end) / 2
    parts.append(_text(middle, up.begin + 42, x_label, anchor="middle", size=13))
    centre = (up.begin + up.end) / 2
    parts.append(
        f'<g transform="translate(20 {centre:.1f}) rotate(-90)">'
        f"{_text(0, 0, y_label, anchor='middle', size=13)}</g>"
    )
    return parts


def _one_line(
    series: LineSeries, chart: LineChart, across: ChartScale, up: ChartScale,
    stroke: tuple[str, str],
) -> list[str]:  # fmt: skip
    """Draw a line with its gaps, and its points, each with what it says to the pointer."""
    x, y = _thinned(series.x, series.y)
    with np.errstate(invalid="ignore", divide="ignore"):
        places = np.column_stack([across.at(x), up.at(y)])
    whole = np.isfinite(y)
    starts = np.flatnonzero(whole & ~np.append(False, whole[:-1]))
    ends = np.flatnonzero(whole & ~np.append(whole[1:], False)) + 1
    dash = f' stroke-dasharray="{stroke[1]}"' if stroke[1] else ""
    parts = [
        f'<path d="M{" L".join(f"{a:.1f} {b:.1f}" for a, b in places[begin:end])}" fill="none" '
        f'stroke="{stroke[0]}" stroke-width="2" stroke-linejoin="round"{dash}/>'
        for begin, end in zip(starts, ends, strict=True)
        if end - begin > 1
    ]
    radius = 3.2 if whole.sum() <= _MOST_DOTS else 0.6
    for (a, b), one, value in zip(places[whole], x[whole], y[whole], strict=True):
        said = f"{chart.x.label}: {short_number(one)}\n{chart.y.label}: {short_number(value)}"
        named = f"{series.name}\n{said}" if series.name else said
        parts.append(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}" fill="{stroke[0]}">'
            f"<title>{escape(named)}</title></circle>"
        )
    return parts


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Keep the smallest and the largest value of equal stretches of a long line."""
    if y.size <= _MOST_POINTS:
        return x, y
    borders = np.linspace(0, y.size, _MOST_POINTS // 2 + 1).astype(np.int64)
    kept = []
    for begin, end in pairwise(borders):
        part = y[begin:end]
        if np.isfinite(part).any():
            kept += sorted({begin + int(np.nanargmin(part)), begin + int(np.nanargmax(part))})
        else:
            kept.append(begin)
    return x[kept], y[kept]


# heat maps


def _heat_map(chart: HeatMap) -> list[str]:
    columns = np.unique(np.linspace(0, len(chart.columns) - 1, _MOST_CELLS).round().astype(int))
    rows = np.unique(np.linspace(0, len(chart.rows) - 1, _MOST_CELLS).round().astype(int))
    values = chart.values[np.ix_(rows, columns)]
    there = values[np.isfinite(values)]
    least, most = (float(there.min()), float(there.max())) if there.size else (0.0, 1.0)
    left = _left_of(chart)
    width = (_WIDTH - left - 110 - _RIGHT) / columns.size
    height = (_HEIGHT - _TOP - _BOTTOM) / rows.size
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for i, row in enumerate(rows):
        y = bottom - (i + 1) * height
        for j, column in enumerate(columns):
            value = float(values[i, j])
            x, share = left + j * width, (value - least) / (most - least or 1)
            fill = _heat(share) if np.isfinite(value) else "#eef0f2"
            shown = short_number(value) if np.isfinite(value) else "not possible"
            said = (
                f"{chart.x_label}: {chart.columns[column]}\n{chart.y_label}: {chart.rows[row]}\n"
                f"{chart.label}: {shown}"
            )
            parts.append(
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
                f'fill="{fill}" stroke="#ffffff" stroke-width="{min(1, width / 12):.2f}">'
                f"<title>{escape(said)}</title></rect>"
            )
            if columns.size <= _MOST_WRITTEN and height >= 14:
                colour = "#ffffff" if np.isfinite(value) and share > 0.5 else _INK
                text = shown if np.isfinite(value) else "-"
                parts.append(
                    _text(x + width / 2, y + height / 2 + 4, text, anchor="middle", colour=colour)
                )
    return parts + _heat_labels(chart, (rows, columns), (least, most))


def _left_of(chart: HeatMap) -> float:
    """Return where columns begin, so that the longest label of a row has room before them."""
    return max(_LEFT, 34 + _LEGEND * max(map(len, chart.rows), default=0))


def _heat_labels(
    chart: HeatMap, kept: tuple[Floats, Floats], ends: tuple[float, float]
) -> list[str]:
    """Label rows and columns, both axes, and the colours."""
    rows, columns = kept
    left = _left_of(chart)
    width = (_WIDTH - left - 110 - _RIGHT) / columns.size
    height = (_HEIGHT - _TOP - _BOTTOM) / rows.size
    bottom = _HEIGHT - _BOTTOM
    parts = []
    every = -(-columns.size // 10)
    for j in range(0, columns.size, every):
        label = chart.columns[int(columns[j])]
        parts.append(_text(left + (j + 0.5) * width, bottom + 19, label, anchor="middle"))
    for i in range(0, rows.size, -(-rows.size // 14)):
        label = chart.rows[int(rows[i])]
        parts.append(_text(left - 8, bottom - (i + 0.5) * height + 4, label, anchor="end"))
    middle = left + width * columns.size / 2
    parts.append(_text(middle, bottom + 42, chart.x_label, anchor="middle", size=13))
    parts.append(
        f'<g transform="translate(20 {(_TOP + bottom) / 2:.1f}) rotate(-90)">'
        f"{_text(0, 0, chart.y_label, anchor='middle', size=13)}</g>"
    )
    x, steps = _WIDTH - _RIGHT - 90, 40
    tall = (bottom - _TOP - 24) / steps
    parts += [
        f'<rect x="{x}" y="{bottom - (k + 1) * tall:.2f}" width="16" height="{tall + 0.4:.2f}" '
        f'fill="{_heat((k + 0.5) / steps)}"/>'
        for k in range(steps)
    ]
    for k in range(5):
        value = ends[0] + (ends[1] - ends[0]) * k / 4
        y = bottom - k * (bottom - _TOP - 24) / 4
        parts.append(_text(x + 22, y + 4, short_number(value)))
    parts.append(_text(_WIDTH - 8, _TOP - 8, chart.label, anchor="end"))
    return parts


def _heat(share: float) -> str:
    """Give the colour of a share from 0 to 1."""
    place = min(max(share, 0.0), 1.0) * (len(_HEAT) - 1)
    low = min(int(place), len(_HEAT) - 2)
    pair = [[int(text[k : k + 2], 16) for k in (1, 3, 5)] for text in _HEAT[low : low + 2]]
    mixed = [round(a + (b - a) * (place - low)) for a, b in zip(*pair, strict=True)]
    return "#" + "".join(f"{one:02x}" for one in mixed)
