"""Every analysis of recordings: its name, title and function.

A new analysis is one file in ``recorded/`` and one line in :data:`ANALYSES`: a function with the
decorator :func:`~nadi.analyses.recorded.events.per_rank`, which says what it needs, from the
events of one rank to a table. Then ``nadi analyze``, ``nadi.analyses`` and the documentation
include it. Columns of times end in ``_ns``, of sizes in ``_bytes``, of shares in ``_percent``.

Charts of analyses: what the registry says of each, drawn from its table.

Tables of analyses: printed, as JSON, and in files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.errors import Parameter, UsageError
from nadi.files.csv_tables import csv_bytes, parquet_bytes
from nadi.files.files import write_beside
from nadi.results.charts.chart_files import CHART_FILES, write_charts
from nadi.results.charts.charts import (
    BarChart,
    Chart,
    ChartAxis,
    FlameChart,
    LineChart,
    LineSeries,
)
from nadi.results.text import make_table, name_cell, print_table, to_json
from nadi.trace.arrays import Floats
from nadi.units import format_bytes, format_count, format_counted, format_ns


@dataclass(frozen=True)
class Analysis:
    """One analysis of recordings.

    Attributes
    ----------
    name
        Name for ``nadi analyze``.
    title
        What its table says.
    function
        Module and function in :mod:`nadi.analyses.recorded`.
    group
        What it is about, for lists.
    chart
        How it is drawn: a kind, then columns. ``bars``: of labels, then of lengths, summed over
        equal labels; ``means``: the mean of these; ``lines``: of times, of values, of the
        name of the line; ``flame``.
    of_job
        Whether it needs all ranks at once; else ranks are analysed one after the other.
    of_table
        Whether it takes a table of operations (CSV, Parquet), too.
    """

    name: str
    title: str
    function: str
    group: str
    chart: tuple[str, ...]
    of_job: bool = False
    of_table: bool = False

    def __call__(self, *arguments: Any, **options: Any) -> pl.DataFrame:
        """Run it; its module is imported on first use."""
        table: pl.DataFrame = self._found(*arguments, **options)
        return table

    @property
    def needs(self) -> tuple[str, ...]:
        """What a recording must have, by the names in ``recorded.per_rank.NEEDS``."""
        return getattr(self._found, "needs", ())

    @property
    def uses(self) -> tuple[str, ...]:
        """What it takes into account where a recording has it, by the same names."""
        return getattr(self._found, "uses", ())

    @property
    def _found(self) -> Callable[..., Any]:
        module, _, name = self.function.rpartition(".")
        found: Callable[..., Any] = getattr(import_module(f"nadi.analyses.recorded.{module}"), name)
        return found

    def options(self, settings: Sequence[str]) -> dict[str, Any]:
        """Read its parameters from texts such as ``kernel_gap_ns=30000``.

        Raises
        ------
        UsageError
            If it has no such parameter, or the value is not of its type.
        """
        parameters = list(signature(self._found).parameters.values())[1:]
        defaults = {one.name: one.default for one in parameters if one.default is not None}
        found = {}
        for text in settings:
            name, _, value = text.partition("=")
            if name not in defaults:
                known = ", ".join(f"{key}={default}" for key, default in defaults.items()) or "none"
                raise UsageError(
                    Parameter("set", text), f"{self.name} has no parameter {name!r}",
                    f"its parameters are: {known}",
                )  # fmt: skip
            found[name] = _read(value, defaults[name], text)
        return found


ANALYSES = (
    Analysis("temporal", "what devices do from their first to their last work",
             "breakdown.temporal_breakdown", "devices",
             ("bars", "rank", "computation_ns", "exposed_communication_ns", "exposed_memory_ns",
              "idle_ns")),
    Analysis("idle", "idle times of streams by cause", "breakdown.idle_times", "devices",
             ("bars", "cause", "idle_ns")),
    Analysis("kernel-types", "busy time by the types of work that run at once",
             "kernels.kernel_types", "devices", ("bars", "type", "time_ns")),
    Analysis("kernels", "time of device work by name", "kernels.top_kernels", "devices",
             ("bars", "name", "sum_ns")),
    Analysis("overlap", "communication of devices while they compute",
             "breakdown.communication_overlap", "communication",
             ("bars", "rank", "overlapped_ns", "exposed_ns")),
    Analysis("annotations", "time of user annotations", "kernels.annotation_times",
             "annotations", ("bars", "name", "sum_ns")),
    Analysis("annotation-kernels", "device work by user annotation",
             "kernels.annotation_kernels", "annotations",
             ("bars", "annotation", "sum_ns")),
    Analysis("queue", "lengths of the queues of streams", "launches.queue_summary",
             "launches", ("means", "stream", "mean_over_time")),
    Analysis("queue-series", "lengths of the queues of streams over time",
             "launches.queue_lengths", "launches", ("steps", "time_ns", "length", "stream")),
    Analysis("full-queues", "time in which queues of streams were full",
             "launches.full_queues", "launches", ("bars", "stream", "full_ns")),
    Analysis("bandwidth", "copies and memory sets by kind", "over_time.memory_bandwidth",
             "memory", ("means", "kind", "gb_per_s")),
    Analysis("bandwidth-series", "bandwidth of copies and memory sets over time",
             "over_time.memory_bandwidth_series", "memory",
             ("steps", "time_ns", "gb_per_s", "kind")),
    Analysis("launches", "launch calls: their time, and the delay of what they launch",
             "launches.launch_summary", "launches", ("bars", "call", "count")),
    Analysis("launch-list", "device work with its launch call", "launches.launches",
             "launches", ("bars", "name", "call_ns", "delay_ns", "work_ns")),
    Analysis("operator-delays", "from operators to their launches, from there to kernels",
             "launches.operator_delays", "launches",
             ("means", "operator", "call_delay_ns", "kernel_delay_ns")),
    Analysis("sequences", "sequences of kernels that operators launch",
             "launches.kernel_sequences", "launches", ("bars", "operator", "work_ns")),
    Analysis("memory", "memory of devices by operator, and its peak",
             "memory_timeline.memory_peaks", "memory", ("bars", "operator", "size_bytes")),
    Analysis("memory-holders", "who holds the memory of devices at its peak",
             "memory_timeline.memory_holders", "memory", ("bars", "operator", "held_bytes")),
    Analysis("memory-segments", "segments of devices: used, free, and why not",
             "memory_timeline.memory_segments", "memory",
             ("bars", "kind", "requested_bytes", "rounding_bytes", "free_bytes")),
    Analysis("memory-series", "memory of devices over time", "memory_timeline.memory_timeline",
             "memory", ("steps", "time_ns", "allocated_bytes", "device")),
    Analysis("flame", "time by path of calls", "call_stacks.flame_graph", "operators",
             ("flame", "name", "total_ns")),
    Analysis("stacks", "call stacks, and what each call launches", "call_stacks.call_stacks",
             "operators", ("bars", "name", "self_ns")),
    Analysis("operators", "time of operators, with and without nested calls",
             "operators.operator_times", "operators", ("bars", "name", "self_host_ns")),
    Analysis("compiled", "kernels of torch.compile: what each fuses, and its region",
             "compiled.compiled_kernels", "operators", ("bars", "kernel", "sum_ns")),
    Analysis("counters", "hardware counters of kernels", "kernels.device_counters",
             "devices", ("means", "counter", "value")),
    Analysis("modules", "time by module: forward, backward, optimizer",
             "from_graph.module_table", "operators", ("bars", "module", "forward_device_ns"),
             of_job=True),
    Analysis("steps", "steps, as marked or as they repeat", "from_graph.step_table",
             "steps", ("bars", "step", "duration_ns"), of_job=True),
    Analysis("stragglers", "ranks that others wait for", "from_graph.straggler_ranks",
             "communication", ("bars", "rank", "wait_time_caused_ns"), of_job=True),
    Analysis("slowdown", "slowdown by stragglers: operations, stages, ranks, steps",
             "slowdowns.slowdowns", "communication", ("means", "name", "slowdown"),
             of_job=True, of_table=True),
    Analysis("ideal-timeline", "a step in which each operation takes its ideal time",
             "slowdowns.ideal_timeline", "steps",
             ("bars", "operation", "duration_ns"), of_job=True, of_table=True),
    Analysis("late", "collectives, and the rank that entered last",
             "from_graph.late_collectives", "communication",
             ("bars", "name", "wait_time_caused_ns"), of_job=True),
    Analysis("collectives", "collectives: transfer time, apart from the skew of ranks",
             "collectives.collective_skew", "communication",
             ("bars", "name", "transfer_ns", "skew_ns"), of_job=True),
    Analysis("collective-list", "each collective: its skew, its transfer time",
             "collectives.collective_list", "communication",
             ("lines", "start_ns", "transfer_ns", "name"), of_job=True),
    Analysis("contention", "kernels beside communication, against the same kernels alone",
             "from_graph.kernel_contention", "communication", ("means", "class", "ratio"),
             of_job=True),
    Analysis("experts", "imbalance of experts by layer",
             "experts.expert_imbalance", "operators", ("bars", "layer", "cost_ns"), of_job=True),
    Analysis("rates", "FLOP/s and B/s of operators by shape", "rates.operator_rates",
             "operators", ("means", "shape", "tflop_per_s")),
)  # fmt: skip
"""All analyses, in the order of ``nadi analyze``."""

_BY_NAME = {one.name: one for one in ANALYSES}


def _read(value: str, default: Any, text: str) -> Any:
    """Return a value of the type of the default."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    try:
        if isinstance(default, bool):
            return words[value.lower()]
        return type(default)(value)
    except (KeyError, ValueError):
        raise UsageError(
            Parameter("set", text), f"{value!r} is no {type(default).__name__}",
            f"the default is {default}",
        ) from None  # fmt: skip


def analysis_named(name: str) -> Analysis:
    """Return the analysis with a name.

    Raises
    ------
    UsageError
        If the name is unknown; the message lists all analyses.
    """
    if name not in _BY_NAME:
        raise UsageError(name, "unknown analysis", f"there are all, {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


_MOST_BARS = 16
_MOST_LINES = 8
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def analysis_chart(one: Analysis, table: pl.DataFrame) -> Chart:
    """Draw the table of an analysis, of all its ranks together.

    Bars are sums over equal labels, or means of them; the longest are drawn. Lines are one for
    each stream, kind or name.
    """
    kind, *columns = one.chart
    if kind in ("lines", "steps"):
        return _lines(one.title, table, columns, is_steps=kind == "steps")
    if kind == "flame":
        return _flame(one.title, table)
    return _bars(one.title, table, columns, is_mean=kind == "means")


def _bars(title: str, table: pl.DataFrame, columns: list[str], *, is_mean: bool) -> BarChart:
    label, *values = columns
    together = [(pl.mean if is_mean else pl.sum)(name).fill_null(0) for name in values]
    rows = table.group_by(pl.col(label).cast(pl.String).fill_null("")).agg(together)
    rows = rows.sort(pl.sum_horizontal(values), label, descending=[True, False])
    shown = rows.head(_MOST_BARS)
    most = shown.select(pl.sum_horizontal(values)).to_series().max() if shown.height else 0
    factor, unit = _unit(values[0], float(most or 0))  # type: ignore[arg-type]
    left = rows.height - shown.height
    note = f"the {_MOST_BARS} largest of {rows.height:,}" if left else ""
    names = tuple(f"{label} {name}" if _is_number(label) else name for name in shown[label])
    parts = tuple(map(_told, values)) if len(values) > 1 else ("",)
    lengths = np.column_stack([np.maximum(_floats(shown[name]), 0) / factor for name in values])
    told = "time" if values[0].endswith("_ns") and len(values) > 1 else _told(values[0])
    return BarChart(title, f"{told}{f' in {unit}' if unit else ''}", names, parts, lengths, note)


def _lines(title: str, table: pl.DataFrame, columns: list[str], *, is_steps: bool) -> LineChart:
    x, y, by = columns
    groups = table.with_columns(pl.col(by).cast(pl.String)).partition_by(
        by, as_dict=True, maintain_order=True
    )
    largest = sorted(groups.items(), key=lambda item: -item[1].height)[:_MOST_LINES]
    begin = float(table[x].min() or 0)  # type: ignore[arg-type]
    along, unit = _unit(x, float(table[x].max() or 0) - begin)  # type: ignore[arg-type]
    high, of_y = _unit(y, float(table[y].max() or 0))  # type: ignore[arg-type]
    series = tuple(
        LineSeries(
            f"{by} {name}" if _is_number(by) else str(name),
            (_floats(rows[x]) - begin) / along, _floats(rows[y]) / high, is_steps=is_steps,
        )
        for (name,), rows in largest
    )  # fmt: skip
    left = len(groups) - len(series)
    note = f"the {len(series)} with most rows of {len(groups)}" if left else ""
    across = ChartAxis(f"{_told(x)} since the first in {unit}")
    return LineChart(title, across, ChartAxis(f"{_told(y)}{f' in {of_y}' if of_y else ''}"),
                     series, note)  # fmt: skip


def _flame(title: str, table: pl.DataFrame) -> FlameChart:
    total = _floats(table["total_ns"])
    factor, unit = _unit("total_ns", float(total.max(initial=0)))
    # frames are numbered anew for each rank
    first = pl.col("row").min().over("rank")
    parent = pl.when(pl.col("parent") < 0).then(-1).otherwise(pl.col("parent") + first)
    rows = table.with_row_index("row").cast({"row": pl.Int64})
    below = rows.select(parent).to_series().to_numpy()
    return FlameChart(title, f"time in {unit}", tuple(table["name"]), below, total / factor)


def time_unit(largest_ns: float) -> tuple[float, str]:
    """Return the unit in which a time has at least one digit before the point, and ns of it."""
    return next((unit for unit in _UNITS if largest_ns >= unit[0]), (1.0, "ns"))


def _unit(name: str, largest: float) -> tuple[float, str]:
    if name.endswith("_ns"):
        return time_unit(largest)
    if name.endswith("_bytes"):
        return (2.0**30, "GiB") if largest >= 2**30 else (2.0**20, "MiB")
    return 1.0, ""


def _told(name: str) -> str:
    """Return a column's name as words."""
    words = name.removesuffix("_ns").removesuffix("_bytes").replace("_", " ")
    return "% " + words.removesuffix(" percent") if name.endswith("_percent") else words


def _is_number(name: str) -> bool:
    return name in ("rank", "stream", "device", "step")


def _floats(values: pl.Series) -> Floats:
    found: Floats = values.cast(pl.Float64).fill_null(0.0).to_numpy().astype(np.float64)
    return found


ANALYSIS_FILES = (".csv", ".json", ".parquet", *CHART_FILES)
_TOP = 20  # rows
_RATE_UNITS = {"gb": "GB/s", "tb": "TB/s", "tflop": "TFLOP/s"}
_OF_SINGLE_ONES = ("min", "median", "max")
_RATES = tuple(f"{unit}_per_s" for unit in _RATE_UNITS)


def print_analyses(console: Console) -> None:
    """Print the list of analyses."""
    table = make_table("", name="left", table="left", about="left")
    for one in ANALYSES:
        table.add_row(one.name, one.title, one.group)
    print_table(table, console)


def print_analysis(one: Analysis, table: pl.DataFrame, console: Console, top: int = _TOP) -> None:
    """Print the first rows of a table; columns of one value only in many rows are left out."""
    if table.height == 0:
        console.print(Text(f"{one.title}: none"))
        return
    shown = [name for name in table.columns if not _is_idle(table, name)]
    layout = {
        _heading(name, table.columns): "right" if table[name].dtype.is_numeric() else "left"
        for name in shown
    }
    printed = make_table(one.title, **layout)
    for row in table.head(min(top, table.height)).select(shown).iter_rows():
        printed.add_row(*(_cell(name, value) for name, value in zip(shown, row, strict=True)))
    print_table(printed, console)
    if table.height > top:
        console.print(f"{format_counted(table.height - top, 'more row')}: -o writes all")


def _is_idle(table: pl.DataFrame, name: str) -> bool:
    """Return whether a column says nothing: one rank, one device, or no value at all."""
    if table[name].null_count() == table.height:
        return True
    return name in ("rank", "device") and table[name].n_unique() == 1


def _heading(name: str, names: Sequence[str]) -> str:
    if name.endswith(_RATES):
        what, _, unit = name.rpartition("_per_s")[0].rpartition("_")
        return f"{what.replace('_', ' ')} {_RATE_UNITS[unit]}".lstrip()
    if name in _OF_SINGLE_ONES:  # of the rate beside it
        rates = [_heading(one, ()) for one in names if one.endswith(_RATES)]
        return f"{name} {rates[0]}" if rates else name
    for suffix, unit in (("_ns", " time"), ("_bytes", " size"), ("_percent", " %")):
        if name.endswith(suffix):
            base = name.removesuffix(suffix)
            alike = [one for one in names if one in (base, f"{base}_ns", f"{base}_bytes")]
            is_told = suffix == "_percent" or len(alike) > 1
            return base.replace("_", " ") + (unit if is_told else "")
    return "%" if name == "percent" else name.replace("_", " ")


def _cell(name: str, value: Any) -> str | Text:
    if value is None:
        return ""
    if name.endswith("_ns") and not isinstance(value, list):
        return format_ns(round(value))
    if name.endswith("_bytes") and not isinstance(value, list):
        return format_bytes(round(value)) if value != -1 else "-"  # not recorded
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        # an identifier is no quantity
        is_number = name in ("rank", "device", "stream", "thread", "correlation", "step")
        return str(value) if is_number else format_count(value)
    if isinstance(value, float):
        return f"{value:.1f}" if name.endswith("percent") else f"{value:.4g}"
    return name_cell(str(value))


def write_analysis(path: Path, one: Analysis, table: pl.DataFrame) -> None:
    """Write all rows of a table as CSV, JSON or Parquet, or a chart; which, the suffix says."""
    if path.suffix in CHART_FILES:
        write_charts(path, [analysis_chart(one, table)])
        return
    with write_beside(path) as file:
        if path.suffix == ".parquet":
            file.write(parquet_bytes(table))
        elif path.suffix == ".csv":
            file.write(csv_bytes(_flat(table)))
        else:
            file.write(to_json(table.to_dicts()))


def write_analysis_page(path: Path, found: Mapping[str, pl.DataFrame]) -> None:
    """Write a page with the charts of several analyses, by their names."""
    drawn = [
        analysis_chart(analysis_named(name), table) for name, table in found.items() if table.height
    ]
    write_charts(path, drawn, "Analyses")


def _flat(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table without lists, which CSV files do not have."""
    lists: Sequence[str] = [name for name in table.columns if table[name].dtype == pl.List]
    return table.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists
    )
