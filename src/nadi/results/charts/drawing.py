"""Draw charts as SVG, with nothing but plain shapes, which every program shows alike.

Bars of several parts, drawn as SVG.

Frames of calls over each other, drawn as SVG.
"""

from itertools import pairwise

import numpy as np

from nadi.results.charts.charts import (
    BOTTOM,
    COLORS,
    FONT,
    HEIGHT,
    INK,
    LEFT,
    RIGHT,
    SOFT,
    TOP,
    WIDTH,
    BarChart,
    Chart,
    ChartScale,
    FlameChart,
    HeatMap,
    LineChart,
    LineSeries,
    escape,
    line_between,
    scale_of,
    short_number,
    text_at,
)
from nadi.trace.arrays import Floats, Ints

_LETTER_OF_FLAMES = 6.2  # width of one
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
        if tall >= 11 and wide > 4 * _LETTER_OF_FLAMES:
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
    most = max(int(width / _LETTER_OF_FLAMES), 1)
    return name if len(name) <= most else f"{name[: most - 1]}…"


_TALL, _GAP = 20, 8  # of a bar, and below it
_MOST = 40  # bars
_LETTER, _LETTERS = 7, 34  # width of a letter, and letters of a row's name
_BELOW = 52  # the axis and its label
_LEGEND_OF_BARS = 22  # height of a line of the legend


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
    across = scale_of(np.linspace(0, max(float(ends.max()), 1e-9), 21), left, WIDTH - RIGHT - 44,
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
        end = float(across.at(borders[-1]))
        parts.append(text_at(end + 5, y + 14, short_number(float(borders[-1])), color=INK))
    if len(chart.rows) > _MOST:
        parts.append(text_at(24, bottom + _TALL, f"and {len(chart.rows) - _MOST} more"))
    return parts


def _top(chart: BarChart) -> int:
    return TOP + _LEGEND_OF_BARS * len(_legend_lines(chart))


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
        x, y = 24, TOP - 4 + number * _LEGEND_OF_BARS
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


_LEGEND = 8  # units of width per letter of the longest name, or label of a row
_DASHES = ("", "6 4", "2 3")
_HEAT = ("#f4f9e9", "#bfe3c0", "#66bfb4", "#2f86ae", "#2b4c8c", "#20255c")
_MOST_DOTS = 60  # of a line, above which points are not marked
_MOST_POINTS = 1500  # of a line, above which only extremes of equal stretches are drawn
_MOST_CELLS = 100  # in a row or a column
_MOST_WRITTEN = 14  # columns of a heat map whose values are written


def drawn(chart: Chart) -> str:
    """Draw a chart as the text of an SVG file."""
    height = HEIGHT
    if isinstance(chart, HeatMap):
        parts = _heat_map(chart)
    elif isinstance(chart, BarChart):
        parts, height = bar_chart(chart), bars_height(chart)
    elif isinstance(chart, FlameChart):
        parts = flames(chart)
    else:
        parts = _line_chart(chart)
    size = f'width="{WIDTH}" height="{height}" font-family="{FONT}" role="img"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {size}>',
        f"<title>{escape(chart.title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        text_at(24, 28, chart.title, size=16, color=INK, weight=600),
    ]
    if chart.note:
        head.append(text_at(24, 47, chart.note, size=12, color=SOFT))
    return "\n".join([*head, *parts, "</svg>", ""])


# lines


def _line_chart(chart: LineChart) -> list[str]:
    names = [one.name for one in chart.series if one.name]
    legend = 36 + _LEGEND * max(map(len, names)) if names else 0
    right = WIDTH - RIGHT - min(legend, WIDTH // 3)
    bottom = HEIGHT - BOTTOM
    every_x = np.concatenate([one.x for one in chart.series])
    every_y = np.concatenate([one.y for one in chart.series])
    if not np.isfinite(every_y).any():
        return [text_at((LEFT + right) / 2, 200, "nothing is possible here", anchor="middle")]
    across = scale_of(every_x, LEFT, right, is_log=chart.x.is_log)
    up = scale_of(every_y, bottom, TOP, is_log=chart.y.is_log, from_zero=not chart.y.is_log)
    parts = _frame(across, up, chart.x.label, chart.y.label)
    ends = []
    for number, series in enumerate(chart.series):
        color = COLORS[number % len(COLORS)]
        dash = _DASHES[number // len(COLORS) % len(_DASHES)]
        parts += _one_line(series, chart, across, up, (color, dash))
        last = series.y[np.isfinite(series.y)]
        ends.append((-float(last[-1]) if last.size else np.inf, series.name, color, dash))
    y = TOP + 8.0
    for _, name, color, dash in sorted(ends) if names else ():
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(
            f'<line x1="{right + 16}" y1="{y:.1f}" x2="{right + 34}" y2="{y:.1f}" '
            f'stroke="{color}" stroke-width="3"{dashes}/>'
        )
        parts.append(text_at(right + 40, y + 4, name, color=INK))
        y += 19
    return parts


def _frame(across: ChartScale, up: ChartScale, x_label: str, y_label: str) -> list[str]:
    """Draw the grid, the labels and the names of both axes."""
    parts = []
    for value in up.labels:
        y = float(up.at(value))
        parts.append(line_between(across.begin, y, across.end, y))
        parts.append(text_at(across.begin - 8, y + 4, short_number(value), anchor="end"))
    for value in across.labels:
        x = float(across.at(value))
        parts.append(line_between(x, up.begin, x, up.begin + 5, SOFT))
        parts.append(text_at(x, up.begin + 19, short_number(value), anchor="middle"))
    parts.append(line_between(across.begin, up.begin, across.end, up.begin, SOFT))
    middle = (across.begin + across.end) / 2
    parts.append(text_at(middle, up.begin + 42, x_label, anchor="middle", size=13))
    center = (up.begin + up.end) / 2
    parts.append(
        f'<g transform="translate(20 {center:.1f}) rotate(-90)">'
        f"{text_at(0, 0, y_label, anchor='middle', size=13)}</g>"
    )
    return parts


def _way(places: Floats, *, is_steps: bool) -> str:
    """Return the way from place to place, as SVG writes it: straight, or across and then up."""
    if is_steps:
        first, *rest = places.tolist()
        steps = "".join(f" H{a:.1f} V{b:.1f}" for a, b in rest)
        return f"M{first[0]:.1f} {first[1]:.1f}{steps}"
    return "M" + " L".join(f"{a:.1f} {b:.1f}" for a, b in places)


def _one_line(
    series: LineSeries, chart: LineChart, across: ChartScale, up: ChartScale,
    stroke: tuple[str, str],
) -> list[str]:  # fmt: skip
    """Draw a line with its gaps, and its points, each with what it says to the pointer."""
    labels = series.labels
    x, y = (series.x, series.y) if labels else _thinned(series.x, series.y)
    with np.errstate(invalid="ignore", divide="ignore"):
        places = np.column_stack([across.at(x), up.at(y)])
    whole = np.isfinite(y)
    starts = np.flatnonzero(whole & ~np.append(False, whole[:-1]))
    ends = np.flatnonzero(whole & ~np.append(whole[1:], False)) + 1
    dash = f' stroke-dasharray="{stroke[1]}"' if stroke[1] else ""
    parts = [
        f'<path d="{_way(places[begin:end], is_steps=series.is_steps)}" fill="none" '
        f'stroke="{stroke[0]}" stroke-width="2" stroke-linejoin="round"{dash}/>'
        for begin, end in zip(starts, ends, strict=True)
        if end - begin > 1 and not series.is_points
    ]
    radius = 3.2 if whole.sum() <= _MOST_DOTS or series.is_points else 0.6
    for at in np.flatnonzero(whole).tolist():
        (a, b), one, value = places[at], x[at], y[at]
        said = f"{chart.x.label}: {short_number(one)}\n{chart.y.label}: {short_number(value)}"
        named = "\n".join(filter(None, (series.name, labels[at] if labels else "", said)))
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
    width = (WIDTH - left - 110 - RIGHT) / columns.size
    height = (HEIGHT - TOP - BOTTOM) / rows.size
    bottom = HEIGHT - BOTTOM
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
                color = "#ffffff" if np.isfinite(value) and share > 0.5 else INK
                text = shown if np.isfinite(value) else "-"
                parts.append(
                    text_at(x + width / 2, y + height / 2 + 4, text, anchor="middle", color=color)
                )
    return parts + _heat_labels(chart, (rows, columns), (least, most))


def _left_of(chart: HeatMap) -> float:
    """Return where columns begin, so that the longest label of a row has room before them."""
    return max(LEFT, 34 + _LEGEND * max(map(len, chart.rows), default=0))


def _heat_labels(
    chart: HeatMap, kept: tuple[Floats, Floats], ends: tuple[float, float]
) -> list[str]:
    """Label rows and columns, both axes, and the colors."""
    rows, columns = kept
    left = _left_of(chart)
    width = (WIDTH - left - 110 - RIGHT) / columns.size
    height = (HEIGHT - TOP - BOTTOM) / rows.size
    bottom = HEIGHT - BOTTOM
    parts = []
    every = -(-columns.size // 10)
    for j in range(0, columns.size, every):
        label = chart.columns[int(columns[j])]
        parts.append(text_at(left + (j + 0.5) * width, bottom + 19, label, anchor="middle"))
    for i in range(0, rows.size, -(-rows.size // 14)):
        label = chart.rows[int(rows[i])]
        parts.append(text_at(left - 8, bottom - (i + 0.5) * height + 4, label, anchor="end"))
    middle = left + width * columns.size / 2
    parts.append(text_at(middle, bottom + 42, chart.x_label, anchor="middle", size=13))
    parts.append(
        f'<g transform="translate(20 {(TOP + bottom) / 2:.1f}) rotate(-90)">'
        f"{text_at(0, 0, chart.y_label, anchor='middle', size=13)}</g>"
    )
    x, steps = WIDTH - RIGHT - 90, 40
    tall = (bottom - TOP - 24) / steps
    parts += [
        f'<rect x="{x}" y="{bottom - (k + 1) * tall:.2f}" width="16" height="{tall + 0.4:.2f}" '
        f'fill="{_heat((k + 0.5) / steps)}"/>'
        for k in range(steps)
    ]
    for k in range(5):
        value = ends[0] + (ends[1] - ends[0]) * k / 4
        y = bottom - k * (bottom - TOP - 24) / 4
        parts.append(text_at(x + 22, y + 4, short_number(value)))
    parts.append(text_at(WIDTH - 8, TOP - 8, chart.label, anchor="end"))
    return parts


def _heat(share: float) -> str:
    """Give the color of a share from 0 to 1."""
    place = min(max(share, 0.0), 1.0) * (len(_HEAT) - 1)
    low = min(int(place), len(_HEAT) - 2)
    pair = [[int(text[k : k + 2], 16) for k in (1, 3, 5)] for text in _HEAT[low : low + 2]]
    mixed = [round(a + (b - a) * (place - low)) for a, b in zip(*pair, strict=True)]
    return "#" + "".join(f"{one:02x}" for one in mixed)
