"""What a page tells of a recording as it is: rates by shape, memory over time, flame graphs."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from nadi.analyses.recorded.call_stacks import Frame
from nadi.results.charts.charts import Chart, ChartAxis, LineChart, LineSeries
from nadi.results.declared import (
    ALL,
    BYTES,
    COUNT,
    MEAN,
    NS,
    PAGE,
    PLAIN,
    WORDS,
    Charts,
    Column,
    Html,
    Result,
    Rows,
    Unit,
    barred,
    name_or,
    or_dash,
    value_at,
)
from nadi.results.page.figures import Figures, compact, packed, zipped
from nadi.trace.arrays import Ints
from nadi.units import printable

_Data = dict[str, Any]
_POINTS = 400  # shapes in the roofline
_DEVICES = 16  # whose memory is drawn


def _roofs(data: _Data) -> list[_Data]:
    found: list[_Data] = (data.get("roofs") or {}).get("types", [])
    return found


def _roofline(data: _Data) -> Iterator[Chart]:
    """Draw each shape by its intensity, below the roofs if these are known."""
    found, roofs = data["rates"], _roofs(data)
    shown = [row for row in found if row["tflop_per_s"] > 0 and row["flops_per_byte"] > 0]
    shown = sorted(shown, key=lambda row: -row["sum_ns"])[:_POINTS]
    if len(shown) + len(roofs) < 2:  # a point alone says nothing
        return
    series = []
    for name in dict.fromkeys(row["class"] for row in shown):
        mine = [row for row in shown if row["class"] == name]
        labels = tuple(f"{row['operator']} {row['shape']} {row['type']}" for row in mine)
        x, y = (np.array([row[key] for row in mine]) for key in ("flops_per_byte", "tflop_per_s"))
        series.append(LineSeries(name, x, y, is_points=True, labels=labels))
    every = np.array([row["flops_per_byte"] for row in shown] or [1.0])
    for row in roofs:
        ridge = row["ridge_flops_per_byte"]
        x = np.array(sorted({min(every.min(), ridge / 8), ridge, max(every.max(), ridge * 8)}))
        y = np.minimum(x * row["tb_per_s"], row["peak_tflops"])
        series.append(LineSeries(f"roof, {row['type']}", x, y))
    yield LineChart(
        "Roofline: FLOP/s by intensity", ChartAxis("FLOP per byte", is_log=True),
        ChartAxis("TFLOP/s", is_log=True), tuple(series),
    )  # fmt: skip


def _bound_by_memory(figures: Figures, row: _Data) -> tuple[int, bool]:
    """Return the number of the roof of a shape, -1 if there is none, and whether memory bounds."""
    roofs = figures.rows("roofs", "types")
    number = {roof["type"]: i for i, roof in enumerate(roofs)}.get(row["type"], -1)
    return number, number >= 0 and row["flops_per_byte"] < roofs[number]["ridge_flops_per_byte"]


def _bound(figures: Figures, _: tuple[str | int, ...], row: _Data) -> str:
    roof, by_memory = _bound_by_memory(figures, row)
    return "" if roof < 0 else "memory" if by_memory else "compute"


def _of_roof(figures: Figures, at: tuple[str | int, ...], row: _Data) -> str:
    roof, by_memory = _bound_by_memory(figures, row)
    rate, peak = ("tb_per_s",) * 2 if by_memory else ("tflop_per_s", "peak_tflops")
    return "-" if roof < 0 else figures.share((*at, rate), ("roofs", "types", roof, peak))


def _of_row(title: str, write: Any, sign: str, about: str) -> Column:
    unit = Unit(lambda _, __: "", write, sign)
    return Column("", title, unit, about, shown=lambda row: row, on=PAGE)


_RATES = (
    Column("rank", "rank", PLAIN, is_rare=True), Column("operator", "operator"),
    Column("shape", "shape"), Column("type", "type"), Column("count", "count", COUNT),
    Column("sum_ns", "time", NS, "of device work"),
    Column("tflop_per_s", "TFLOP/s", barred(MEAN)), Column("tb_per_s", "TB/s", MEAN),
    Column("flops_per_byte", "FLOP per byte", MEAN),
)  # fmt: skip
_OF_ROOF = (
    _of_row("bound by", _bound, "", "what the ridge point of the roof says"),
    _of_row("of the roof", _of_roof, "#", "of the rate that bounds it"),
)
RATES = Result(
    kind="rates", title="FLOP/s and B/s by shape", order=75, facts=(), headline=None,
    parts=(
        Charts(_roofline),
        Rows("roofs/types", lambda data: "Roofs of {recorded}, as nadi systems {system} states "
             "them".format(**data["roofs"]), None, (
            Column("type", "type"), Column("peak_tflops", "peak TFLOP/s", MEAN),
            Column("tb_per_s", "TB/s", MEAN),
            Column("ridge_flops_per_byte", "ridge point FLOP per byte", MEAN),
        )),
        Rows("rates", "Device work of operators, whole recording, most time first", None,
             lambda data: (*_RATES, *(_OF_ROOF if _roofs(data) else ())), pick=lambda data: sorted(
            range(len(data["rates"])), key=lambda i: -data["rates"][i]["sum_ns"])),
    ),
    at="", needs="rates",
)  # fmt: skip
"""FLOP/s and B/s of operators by shape, against what the device could reach."""


def _memory(figures: Figures) -> str:
    """Write who holds the memory of devices over time, which a script of the page draws."""
    series = figures.rows("memory", "series")
    largest = sorted(series, key=lambda row: -max(row["allocated_bytes"]))[:_DEVICES]
    if not largest:
        return ""
    titles = [f"rank {row['rank']} {row['device']}" if row["rank"] >= 0 else row["device"]
              for row in largest]  # fmt: skip
    header = {"devices": [
        {"title": title, "holders": [one["operator"] or "(no operator)" for one in row["holders"]]}
        for title, row in zip(titles, largest, strict=True)
    ]}  # fmt: skip
    columns: dict[str, Ints] = {}
    for i, row in enumerate(largest):
        found = {"time": row["time_ns"], "allocated": row["allocated_bytes"],
                 "reserved": row["reserved_bytes"]}  # fmt: skip
        found |= {f"held{k}-": one["held_bytes"] for k, one in enumerate(row["holders"])}
        for name, values in found.items():
            numbers: Ints = np.array([0, *values], dtype=np.int64)
            columns[f"{name}{i}±"] = np.diff(numbers)
    options = "".join(
        f"<option value={i}>{escape(title)}</option>" for i, title in enumerate(titles)
    )
    hidden = "" if len(largest) > 1 else " hidden"
    choice = f'<select class=button aria-label="device"{hidden}>{options}</select>'
    if len(series) > len(largest):
        choice += f"<small>those with the highest peaks of {len(series)}</small>"
    return f"""<div class=held><div class=tools>{choice}</div><div class=beside>
<div><canvas tabindex=0 role=slider aria-label="time" aria-valuemin=0></canvas>
<small>The pointer, or the arrow keys, Home and End, choose a time; P goes to the peak. Dashed:
reserved by the allocator.</small></div><div class=holders></div></div>
<pre hidden>{packed(header, columns)}</pre></div>"""


RECORDED_MEMORY = Result(
    kind="recorded_memory", title="Memory over time", order=78, facts=(), headline=None,
    parts=(
        Html(_memory),
        Rows("memory/peaks", "Allocations by operator, whole recording", None, (
            Column("rank", "rank", PLAIN), Column("device", "device"),
            Column("peak_bytes", "peak of the device", BYTES), Column("peak_ns", "at", NS),
            Column("operator", "operator", name_or("(no operator)")),
            Column("allocations", "allocations", COUNT),
            Column("size_bytes", "allocated in all", barred(BYTES)),
        )),
    ),
    at="", needs="memory/peaks",
)  # fmt: skip
"""Recorded memory of devices over time, its peak, and the operators that allocate most."""

_NAME = 200  # letters
_HELP = (
    "A frame is as wide as its time with all that is nested in it; callers: as the time of a "
    "name alone, in it those that call it. A click zooms in; tables have what is zoomed to. By "
    "keyboard: arrows go from frame to frame, Enter zooms in, Escape zooms out."
)
_COMPARED = "Red takes longer after, blue takes less, gray takes the same; per step."
_VIEWS = {"graph": "flame graph", "callers": "callers", "names": "table by name",
          "paths": "table by path"}  # fmt: skip


def _frames(figures: Figures) -> str:
    """Write the frames as lines, which a script of the page draws."""
    kinds = "calls", "modules"
    return frames_html({kind: [(Frame(**frame),) for frame in figures.rows("flame", kind)]
                        for kind in kinds})  # fmt: skip


def frames_html(sets: Mapping[str, Sequence[tuple[Frame, ...]]]) -> str:
    """Write flame graphs and their tables, one at a time; empty if none has two frames.

    - ``sets``: Frames by what they are (``calls``, ``modules``): of one recording, or each of two.
    """
    sets = {kind: frames for kind, frames in sets.items() if len(frames) > 1}
    if not sets:
        return ""
    every = [one for frames in sets.values() for one in frames]
    is_compared = len(every[0]) > 1
    choices = {
        "set": {str(i): f"by {kind}" for i, kind in enumerate(sets)},
        "view": _VIEWS,
        "place": {"total": "host", "device": "devices"}
        if any(side.device_ns for one in every for side in one) else {},
        "side": {"1": "after", "0": "before"} if is_compared else {},
    }  # fmt: skip
    groups = "".join(
        f'<span role=group aria-label="{choice}">' + "".join(
            f'<button class=button data-choice={choice} data-value="{value}" '
            f"aria-pressed={str(i == 0).lower()}>{title}</button>"
            for i, (value, title) in enumerate(values.items())
        ) + "</span>"
        for choice, values in choices.items() if len(values) > 1
    )  # fmt: skip
    lines = "".join(
        f"<pre hidden data-kind={kind.removesuffix('s')}>{zipped(_lines(frames).encode())}</pre>"
        for kind, frames in sets.items()
    )
    legend = f"<small>{_COMPARED}</small>" if is_compared else ""
    return f"""<div class=flame>
<div class=tools>{groups}<button class=button data-out>all</button>
<input type=search placeholder="search: text or /regex/"
 aria-label="search frames: a text or a /regular expression/"><output></output></div>
<div class=frames tabindex=0 role=application aria-label="flame graph"></div>
<p class=frame-details role=status></p><div class=frame-table hidden></div>
<details class=help><summary>how to use it</summary>{_HELP}</details>{legend}{lines}</div>"""


def _lines(frames: Sequence[tuple[Frame, ...]]) -> str:
    return "\n".join(
        "\t".join([
            str(sides[0].depth), *(str(number) for side in sides for number in side[2:]),
            printable(sides[0].name, _NAME),
        ])
        for sides in frames
    )  # fmt: skip


FLAME = Result(
    kind="flame", title="Flame graph", order=32, facts=(), headline=None, parts=(Html(_frames),),
    at="", needs="flame",
)  # fmt: skip
"""Flame graphs: time by path of calls, and by module."""


_ALONE = "Alone (self) and with what they call, whole recording, all ranks"
_MORE = "nadi analyze operators has all"


def _operators(by: str) -> Rows:
    """Declare the rows of a way to sum, with device times where there are any."""
    key = f"operators/{by}"
    detail = [Column(by, by, name_or("-"))] if by != "name" else []
    return Rows(
        key, lambda data: f"{_ALONE}; the first {len(value_at(data, key))}: {_MORE}", None,
        (
            Column("name", "name"), *detail, Column("kind", "kind", WORDS),
            Column("count", "calls", COUNT), Column("self_host_ns", "self, host", barred(NS)),
            Column("host_ns", "total, host", NS),
            Column("self_device_ns", "self, device", barred(or_dash(NS), "kernel"), is_rare=True),
            Column("device_ns", "total, device", or_dash(NS), is_rare=True),
            Column("kernels", "kernels", or_dash(COUNT), is_rare=True),
        ), most=ALL,
    )  # fmt: skip


def _opened(title: str, table: Rows) -> Html:
    """Declare a table that a click opens; compressed, as few are."""

    def write(figures: Figures) -> str:
        found = table.html(figures.get(), figures)
        if not found:
            return ""
        rows = f"<pre class=opened hidden>{zipped(compact(found).encode())}</pre>"
        return f"<details><summary>{title}</summary>{rows}</details>"

    return Html(write)


OPERATORS = Result(
    kind="operators", title="Operators", order=72, facts=(), headline=None,
    parts=(
        _operators("name"), _opened("by the shapes of their inputs", _operators("shape")),
        _opened("by call stack", _operators("stack")),
    ),
    at="", needs="operators",
)  # fmt: skip
"""Operators as PyTorch's ``key_averages()`` sums them: by name, by shape, by call stack."""
