"""Frames of calls over each other, drawn as SVG."""

from __future__ import annotations

import numpy as np

from nadi.results.charts.chart_shapes import BOTTOM, COLORS, HEIGHT, RIGHT, TOP, WIDTH, text_at
from nadi.results.charts.chart_text import escape
from nadi.results.charts.charts import FlameChart
from nadi.results.charts.scales import short_number
from nadi.trace.arrays import Floats, Ints

__all__ = ["flames"]

_LETTER = 6.2  # width of one
_FRAME = 18
_NARROWEST = 0.4  # frame that is drawn


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
        color = _color(sum(name.encode()))
        drawn.append(_box(x, y, max(wide - 0.5, 0.3), max(tall - 1, 1), color, said))
        if tall >= 11 and wide > 4 * _LETTER:
            drawn.append(text_at(x + 3, y + tall - 5, _cut(name, wide - 6), size=10,
                                 color="#ffffff"))  # fmt: skip
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


def _color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _box(x: float, y: float, width: float, height: float, color: str, said: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{max(height, 1):.2f}" '
        f'fill="{color}"><title>{escape(said)}</title></rect>'
    )


def _cut(name: str, width: float) -> str:
    most = max(int(width / _LETTER), 1)
    return name if len(name) <= most else f"{name[: most - 1]}…"
