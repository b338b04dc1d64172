"""Bars, and frames of calls over each other, as parts of an SVG drawing."""

from __future__ import annotations

from html import escape

import numpy as np

from nadi.model.arrays import Floats, Ints
from nadi.report.chart_scales import scale_of, short_number
from nadi.report.chart_shapes import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    INK,
    RIGHT,
    TOP,
    WIDTH,
    line,
    text_at,
)
from nadi.report.chart_values import BarChart, FlameChart

__all__ = ["bars", "flames"]

_NAMES = 230  # width of the names of bars
_LETTER = 6.2  # width of one
_TALLEST = 26
_FRAME = 18
_NARROWEST = 0.4  # frame that is drawn


def bars(chart: BarChart) -> list[str]:
    """Draw bars with their names on the left, and the values that they have."""
    total = np.sum([part.values for part in chart.parts], axis=0)
    several = len(chart.parts) > 1
    top, bottom = TOP + (18 if several else 0), HEIGHT - BOTTOM
    scale = scale_of(np.append(total, 0.0), _NAMES, WIDTH - RIGHT - 60, is_log=False,
                     from_zero=True)  # fmt: skip
    drawn = []
    for value in scale.labels:
        x = float(scale.at(value))
        drawn.append(line(x, top, x, bottom))
        drawn.append(text_at(x, bottom + 19, short_number(value), anchor="middle"))
    height = min((bottom - top) / max(len(chart.names), 1), _TALLEST)
    for row, name in enumerate(chart.names):
        y = top + row * height
        middle = y + height / 2 + 4
        drawn.append(text_at(_NAMES - 8, middle, _cut(name, _NAMES - 24), anchor="end", colour=INK))
        passed = 0.0
        for number, part in enumerate(chart.parts):
            value = float(part.values[row])
            left, right = float(scale.at(passed)), float(scale.at(passed + value))
            passed += value
            said = "\n".join(filter(None, (
                name, part.name if several else "", f"{chart.label}: {short_number(value)}",
            )))  # fmt: skip
            drawn.append(_box(left, y + 2, right - left, height - 4, _colour(number), said))
        drawn.append(text_at(float(scale.at(passed)) + 6, middle, short_number(passed)))
    middle = (scale.begin + scale.end) / 2
    drawn.append(text_at(middle, bottom + 42, chart.label, anchor="middle", size=13))
    return drawn + (_legend([part.name for part in chart.parts]) if several else [])


def _legend(names: list[str]) -> list[str]:
    drawn, x = [], 24.0
    for number, name in enumerate(names):
        drawn.append(_box(x, TOP - 6, 12, 12, _colour(number), name))
        drawn.append(text_at(x + 18, TOP + 4, name, colour=INK))
        x += 36 + _LETTER * len(name)
    return drawn


def flames(chart: FlameChart) -> list[str]:
    """Draw frames from the bottom, each over the one that it is called from."""
    values, parent = chart.values, chart.parent
    depth, left = _places(parent, values)
    shown = np.flatnonzero(parent < 0)
    whole = float(values[shown].sum()) or 1.0
    width = WIDTH - 2 * RIGHT
    tall = min(_FRAME, (HEIGHT - TOP - BOTTOM + 20) / (int(depth.max(initial=0)) + 1))
    bottom = HEIGHT - BOTTOM + 20
    drawn = []
    for frame in np.flatnonzero(values * width / whole >= _NARROWEST).tolist():
        x, wide = RIGHT + float(left[frame]) * width / whole, float(values[frame]) * width / whole
        y = bottom - (int(depth[frame]) + 1) * tall
        name = chart.names[frame]
        said = f"{name}\n{chart.label}: {short_number(float(values[frame]))}"
        colour = _colour(sum(name.encode()))
        drawn.append(_box(x, y, max(wide - 0.5, 0.3), max(tall - 1, 1), colour, said))
        if tall >= 11 and wide > 4 * _LETTER:
            drawn.append(text_at(x + 3, y + tall - 5, _cut(name, wide - 6), size=10,
                                 colour="#ffffff"))  # fmt: skip
    drawn.append(text_at(WIDTH / 2, HEIGHT - 14, chart.label, anchor="middle", size=13))
    return drawn


def _places(parent: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Return the depth of each frame, and where it begins; shape (frames,)."""
    depth, left = np.zeros(parent.size, dtype=np.int64), np.zeros(parent.size)
    filled = np.zeros(parent.size + 1)  # the last one: frames on the ground
    for frame, below in enumerate(parent.tolist()):
        if below >= 0:
            depth[frame] = depth[below] + 1
        left[frame] = filled[below] + (left[below] if below >= 0 else 0.0)
        filled[below] += values[frame]
    return depth, left


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _box(x: float, y: float, width: float, height: float, colour: str, said: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{max(height, 1):.2f}" '
        f'fill="{colour}"><title>{escape(said)}</title></rect>'
    )


def _cut(name: str, width: float) -> str:
    most = max(int(width / _LETTER), 1)
    return name if len(name) <= most else f"{name[: most - 1]}…"
