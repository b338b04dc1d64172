"""The results of ``nadi estimate`` and ``nadi search``, as data and as text.

What the parts of an estimate are called.

Sweeps as tables on a terminal, as data, and in files: tables and charts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nadi.estimates.execution import moved_tensors
from nadi.estimates.network_steps import NetworkEstimate
from nadi.estimates.search_layouts import SearchSpace
from nadi.estimates.search_results import RankedExecution, SearchResult
from nadi.estimates.single_estimate import Estimate, hourly_price
from nadi.estimates.sweep_axes import SweepAxis
from nadi.estimates.tier_words import schedule_words, tier_words
from nadi.files.csv_tables import csv_bytes, parquet_bytes
from nadi.files.files import write_beside
from nadi.results.charts.chart_files import CHART_FILES, write_charts
from nadi.results.charts.charts import ChartAxis, HeatMap, LineChart, LineSeries
from nadi.results.charts.scales import short_number
from nadi.results.text import make_table, print_table, to_json
from nadi.trace.arrays import Floats
from nadi.units import (
    format_bytes,
    format_count,
    format_counted,
    format_ns,
    format_number,
    format_percent,
)

__all__ = [
    "PART_NAMES", "SWEEP_FILES", "TENSOR_NAMES", "describe_estimate", "describe_network_estimate",
    "describe_search", "print_estimate", "print_network_estimate", "print_search", "print_sweep",
    "sweep_chart", "sweep_rows", "write_sweep",
]  # fmt: skip


PART_NAMES = {
    "forward": "forward",
    "backward": "backward",
    "ends": "embedding, head and loss",
    "optimizer": "optimizer",
    "computed_again": "recomputation",
    "bubble": "pipeline bubble",
    "tensor_parallel": "exposed tensor parallelism",
    "exchanged_again": "exposed, of recomputation",
    "pipeline_parallel": "exposed pipeline transfers",
    "data_parallel": "exposed data parallelism",
    "forward_offload": "exposed offloading, forward",
    "backward_offload": "exposed offloading, backward",
    "update_offload": "exposed offloading, update",
}
"""What the parts of an estimated step are called."""
TENSOR_NAMES = {
    "weights": "weights",
    "activations": "activations",
    "checkpoints": "checkpoints",
    "activation_gradients": "gradients of activations",
    "weight_gradients": "gradients of weights",
    "optimizer": "optimizer",
    "keys_and_values": "keys and values",
}
"""What the tensors of an estimate are called."""


_SHORT = {
    "tensor_par": "tp", "pipeline_par": "pp", "data_par": "dp", "microbatch_size": "micro-batch",
    "pipeline_interleaving": "interleaving",
}  # fmt: skip
# what would lift each part of a network's step
_LIFTED = {
    "tables": "more bandwidth of memory, or rows of fewer bytes",
    "products": "a faster engine, or larger batches that use it better",
    "other operations": "more bandwidth of memory, or fused layers",
    "optimizer": "sharding it over ranks",
    "exposed exchange of tables": "more bandwidth of the network, or fewer columns",
    "exposed data parallelism": "more bandwidth of the network, or larger batches",
}


# results as data


def describe_estimate(estimate: Estimate) -> dict[str, Any]:
    """Compute the JSON output; what has no value is null."""
    statistics = estimate.statistics
    return {
        "seconds": estimate.seconds,
        "rate": estimate.rate,
        "efficiency": statistics["total_efficiency"],
        "parameters": estimate.model.num_parameters,
        "lacks": estimate.lacks or None,
        "reason": estimate.reason or None,
        "times": estimate.times,
        "limits": [limit._asdict() for limit in estimate.limits],
        "tier1_bytes": estimate.tier1,
        "tier2_bytes": estimate.tier2,
        "tier1_capacity": estimate.capacities[0],
        "tier2_capacity": estimate.capacities[1],
        "tokens_per_second": estimate.tokens_per_second,
        "seconds_per_output_token": estimate.seconds if estimate.execution.decoding else None,
        "price_per_hour": estimate.price_per_hour or None,
        "price_per_step": estimate.price_per_step or None,
        "price_per_million_tokens": estimate.price_per_million_tokens or None,
        "currency": estimate.machine.currency if estimate.price_per_hour else None,
        "assumed": _assumed(estimate),
        "execution": msgspec.to_builtins(estimate.execution),
        "statistics": {
            name: None if math.isnan(value) else value for name, value in statistics.items()
        },
    }


def describe_network_estimate(estimate: NetworkEstimate) -> dict[str, Any]:
    """Compute the JSON output of an estimate of a network."""
    return {
        "seconds": estimate.seconds, "rate": estimate.rate, "lacks": estimate.lacks or None,
        "times": estimate.times, "memory_bytes": estimate.memory,
        "memory_capacity": estimate.system.memory_capacity or None,
        "plan": msgspec.to_builtins(estimate.plan),
    }  # fmt: skip


def describe_search(found: SearchResult, space: SearchSpace) -> dict[str, Any]:
    """Compute the JSON output."""
    prices = [_prices(one, space) for one in found.best]
    return {
        "executions": found.num_executions,
        "feasible": found.num_feasible,
        "lacking": found.lacking(),
        "best": [
            one._asdict() | {"execution": msgspec.to_builtins(one.execution)} | price
            for one, price in zip(found.best, prices, strict=True)
        ],
    }


# results as text


def print_estimate(estimate: Estimate, console: Console) -> None:
    """Print the step's time, where it goes, where the bytes are, and what limits it."""
    share = format_percent(estimate.statistics["total_efficiency"], 1)
    how = estimate.execution
    rates = f"{format_number(estimate.rate)} sequences/s"
    if how.decoding:
        each = format_number(1 / estimate.seconds)
        rates = f"{format_number(estimate.rate)} tokens/s in all, {each} for each user"
    step = "an output token" if how.decoding else "a step"
    console.print(Text.assemble(
        (_seconds(estimate.seconds), "bold"),
        f" {step} of {format_counted(how.batch_size, 'sequence')}, {rates}, "
        f"{share} of the matrix engine's peak",
    ))  # fmt: skip
    if estimate.price_per_hour:
        currency = estimate.machine.currency
        console.print(Text(
            f"{estimate.price_per_hour:,.2f} {currency} an hour, "
            f"{format_number(estimate.price_per_step)} {currency} a step, "
            f"{format_number(estimate.price_per_million_tokens)} {currency} a million tokens"
        ))  # fmt: skip
    if estimate.lacks:
        console.print(Text(f"not possible: {estimate.lacks}", "bold red"))
    console.print()
    table = make_table("Time", part="left", time="right", share="right")
    for name, title in PART_NAMES.items():
        if estimate.times[name]:
            part = estimate.times[name]
            table.add_row(title, _seconds(part), format_percent(part, estimate.seconds))
    print_table(table, console)
    console.print()
    print_table(_memory_table(estimate), console)
    for line in _assumed(estimate):
        console.print(Text(line))
    console.print()
    columns = {"limit": "left", "share": "right", "what would lift it": "left"}
    table = make_table("Limits", **columns)
    for limit in estimate.limits:
        if limit.seconds >= 0.005 * estimate.seconds:
            share = format_percent(limit.seconds, estimate.seconds)
            table.add_row(limit.name, share, limit.lifted_by)
    print_table(table, console)
    needed = estimate.statistics["offload_mem_bw_req"]
    if 0 < needed < math.inf:
        console.print(Text(
            f"offloading would be hidden by {needed / 1e9:.4g} GB/s to the second tier"
        ))  # fmt: skip


def print_network_estimate(estimate: NetworkEstimate, console: Console) -> None:
    """Print the step's time and where it goes, most first, and where the bytes are."""
    console.print(Text.assemble(
        (_seconds(estimate.seconds), "bold"),
        f" a step of {format_counted(estimate.plan.samples, 'sample')}, "
        f"{format_number(estimate.rate)} samples/s",
    ))  # fmt: skip
    if estimate.lacks:
        console.print(Text(f"not possible: {estimate.lacks}", "bold red"))
    console.print()
    table = make_table("Time", part="left", time="right", share="right")
    for name, part in sorted(estimate.times.items(), key=lambda one: -one[1]):
        table.add_row(name, _seconds(part), format_percent(part, estimate.seconds))
    print_table(table, console)
    console.print()
    table = make_table("Memory of the rank with most", tensors="left", bytes="right")
    rows = estimate.memory | {"all": sum(estimate.memory.values())}
    for name, size in (rows | {"capacity": estimate.system.memory_capacity}).items():
        if size:
            table.add_row(name, format_bytes(size))
    print_table(table, console)
    console.print()
    name, remedy = max(_LIFTED.items(), key=lambda one: estimate.times.get(one[0], 0.0))
    console.print(Text(f"bound by {name}; what would lift it: {remedy}"))


def _assumed(estimate: Estimate) -> list[str]:
    """Say what is assumed of kernels, and of the second tier if something lives there."""
    if estimate.rules.blocks_of_calculon:
        return []
    machine, moved = estimate.machine, moved_tensors(estimate.execution)
    device = machine.device
    found = []
    if device is not None and device.is_plain and device.roofline.compute == 1.0:
        found.append(
            f"kernels run at the peaks that {machine.name} states: it has no curves of what they "
            "reach, so the step takes at least this long"
        )
    return [*found, *([tier_words(machine.mem2), *schedule_words(moved)] if moved else [])]


def _memory_table(estimate: Estimate) -> Table:
    capacities = estimate.capacities
    used = [(capacities[0], estimate.tier1)]
    if capacities[1] or any(estimate.tier2.values()):
        used.append((capacities[1], estimate.tier2))
    columns = {f"tier {k + 1}": "right" for k in range(len(used))}
    table = make_table("Memory of a rank", tensors="left", **columns)
    for name, title in TENSOR_NAMES.items():
        if any(sizes[name] for _, sizes in used):
            table.add_row(title, *(format_bytes(int(sizes[name])) for _, sizes in used))
    table.add_row("all", *(format_bytes(int(sum(sizes.values()))) for _, sizes in used))
    table.add_row("capacity", *(format_bytes(int(capacity)) for capacity, _ in used))
    return table


def _prices(one: RankedExecution, space: SearchSpace) -> dict[str, float]:
    """Give the prices of a step and of a million tokens; nothing if the machine states none."""
    hour = hourly_price(space.machine, one.execution)
    tokens = one.execution.batch_size * (1 if one.execution.decoding else space.model.seq_size)
    step = hour / 3600 * one.seconds
    return {"price_per_step": step, "price_per_million_tokens": step / tokens * 1e6} if hour else {}


def print_search(found: SearchResult, space: SearchSpace, console: Console) -> None:
    """Print the fastest executions, and what the others lack."""
    console.print(Text(
        f"{format_counted(found.num_executions, 'configuration')}, "
        f"{format_count(found.num_feasible)} possible"
    ))  # fmt: skip
    if found.best:
        console.print()
        print_table(_best_table(found.best, space), console)
    lacking = found.lacking()
    if lacking:
        console.print()
        table = make_table("Not possible", configurations="right", reason="left")
        for rule, count in lacking.items():
            table.add_row(format_count(count), rule)
        print_table(table, console)


def _best_table(best: tuple[RankedExecution, ...], space: SearchSpace) -> Table:
    rate = "tokens/s" if all(one.execution.decoding for one in best) else "sequences/s"
    columns = {rate: "right", "step": "right"} | dict.fromkeys(_SHORT.values(), "right")
    columns |= {"recompute": "left", "tensors": "left", "offload": "left", "tier 1": "right"}
    currency = space.machine.currency
    titles = [f"{currency} a step", f"{currency} a million tokens"]
    if any(_prices(one, space) for one in best):
        columns |= dict.fromkeys(titles, "right")
    table = make_table("Fastest", **columns)
    for one in best:
        e = one.execution
        also = {
            e.tensor_par_overlap: e.tensor_par_overlap != "none",
            "redo": e.seq_par_ag_redo,
            "sharded": e.optimizer_sharding,
            "overlapped dp": e.data_par_overlap,
        }
        tensors = [e.tensor_par_comm_type, *(name for name, is_so in also.items() if is_so)]
        table.add_row(
            format_number(one.rate), _seconds(one.seconds),
            *(str(getattr(e, field)) for field in _SHORT),
            e.activation_recompute, " ".join(tensors), " ".join(moved_tensors(e)) or "-",
            format_bytes(int(one.tier1_bytes)), *map(format_number, _prices(one, space).values()),
        )  # fmt: skip
    return table


def _seconds(seconds: float) -> str:
    return format_ns(round(seconds * 1e9))


SWEEP_FILES = (".csv", ".json", ".parquet", *CHART_FILES)
_MOST_ROWS, _MOST_COLUMNS = 40, 12
_MOST_LINES = 10  # of a chart, before two axes make a heat map
_RATE = "sequences/s"
_CHOICES = {
    "tensor_par": "tp", "pipeline_par": "pp", "data_par": "dp", "microbatch_size": "micro-batch",
    "pipeline_interleaving": "interleaving", "activation_recompute": "recompute",
}  # fmt: skip
_MOVED = ("weight_offload", "activations_offload", "optimizer_offload")


def sweep_rows(frame: pl.DataFrame) -> bytes:
    """Write the rows of a sweep as JSON."""
    return to_json(frame.to_dicts())


def write_sweep(path: Path, frame: pl.DataFrame, axes: Sequence[SweepAxis], title: str) -> None:
    """Write a table, or a chart of the rate; which, the suffix says."""
    if path.suffix in CHART_FILES:
        write_charts(path, [sweep_chart(frame, axes, title)])
        return
    with write_beside(path) as file:
        if path.suffix == ".parquet":
            file.write(parquet_bytes(frame))
        elif path.suffix == ".csv":
            file.write(csv_bytes(frame))
        else:
            file.write(sweep_rows(frame))


# charts


def sweep_chart(frame: pl.DataFrame, axes: Sequence[SweepAxis], title: str) -> LineChart | HeatMap:
    """Draw the rate over the axes: lines, or a heat map where there would be too many."""
    rate = _rates(frame, axes)
    first, last = axes[0], axes[-1]
    note = "points without a value are not possible" if np.isnan(rate).any() else ""
    numbers = {axis.name: _numbers(axis) for axis in axes}
    if len(axes) == 1:
        return LineChart(
            title, _chart_axis(first, numbers[first.name]), ChartAxis(_RATE),
            (LineSeries("", numbers[first.name], rate[:, 0]),), note,
        )  # fmt: skip
    if len(last.values) <= _MOST_LINES:
        series = tuple(
            LineSeries(_at(last, value), numbers[first.name], rate[:, k])
            for k, value in enumerate(last.values)
        )
        x = _chart_axis(first, numbers[first.name])
        return LineChart(title, x, ChartAxis(_RATE), series, note)
    return HeatMap(
        title, first.title, last.title, tuple(map(_shown, first.values)),
        tuple(map(_shown, last.values)), rate.T, _RATE, note,
    )  # fmt: skip


def _rates(frame: pl.DataFrame, axes: Sequence[SweepAxis]) -> Floats:
    """Give the rate by the value of each axis; NaN where nothing is possible."""
    rate = frame["rate"].fill_null(float("nan")).to_numpy().astype(np.float64)
    return rate.reshape(len(axes[0].values), -1)


def _numbers(axis: SweepAxis) -> Floats:
    """Give the values of an axis as numbers; names and truth values by their position."""
    if all(type(value) in (int, float) for value in axis.values):
        return np.array(axis.values, dtype=np.float64)
    return np.arange(len(axis.values), dtype=np.float64)


def _chart_axis(axis: SweepAxis, numbers: Floats) -> ChartAxis:
    if any(isinstance(value, (str, bool)) for value in axis.values):
        named = ", ".join(f"{k} {value}" for k, value in enumerate(axis.values))
        return ChartAxis(f"{axis.name}: {named}")
    ratio = numbers.max() / numbers.min() if numbers.min() > 0 else 1
    return ChartAxis(axis.title, is_log=bool(ratio >= 8))


# text


def _shown(value: Any) -> str:
    return short_number(value) if type(value) in (int, float) else str(value)


def _at(axis: SweepAxis, value: Any) -> str:
    return f"{axis.name} {_shown(value)}{' ' if axis.unit else ''}{axis.unit}"


def print_sweep(frame: pl.DataFrame, axes: Sequence[SweepAxis], console: Console) -> None:
    """Print a row per point, or the rates of two axes as a table; and the best point."""
    if len(axes) == 2 and len(axes[1].values) <= _MOST_COLUMNS:
        _print_rates(frame, axes, console)
    else:
        _print_points(frame, axes, console)
    feasible = frame["rate"].is_not_null().sum()
    console.print()
    points = f"{format_count(frame.height)} point{'s' if frame.height > 1 else ''}"
    counts = f"{points}, {format_count(int(feasible))} possible"
    if feasible:
        row = frame.row(int(frame["rate"].arg_max() or 0), named=True)
        where = ", ".join(_at(axis, row[axis.name]) for axis in axes)
        counts += f"; fastest: {format_number(row['rate'])} {_RATE} at {where}"
    console.print(Text(counts))


def _print_rates(frame: pl.DataFrame, axes: Sequence[SweepAxis], console: Console) -> None:
    columns = {axes[0].title: "right"} | {_shown(value): "right" for value in axes[1].values}
    table = make_table(f"{_RATE}, by {axes[0].name} and {axes[1].title}", **columns)
    rates = _rates(frame, axes)
    rows = rates.shape[0]
    for value, rate in zip(axes[0].values[:_MOST_ROWS], rates, strict=False):
        table.add_row(
            _shown(value), *("-" if np.isnan(one) else format_number(one) for one in rate)
        )
    print_table(table, console)
    _say_left_out(rows, console)


def _print_points(frame: pl.DataFrame, axes: Sequence[SweepAxis], console: Console) -> None:
    is_search = "feasible" in frame.columns
    columns = dict.fromkeys((axis.title for axis in axes), "right")
    columns |= {_RATE: "right", "step": "right"}
    columns |= dict.fromkeys(_CHOICES.values(), "right") if is_search else {}
    columns |= {"offload": "left"} if is_search else {}
    columns |= {"tier 1": "right", "tier 2": "right"}
    columns |= {} if is_search else {"lacks": "left"}
    table = make_table("", **columns)
    table.title = None
    for row in frame.head(_MOST_ROWS).iter_rows(named=True):
        values = [_shown(row[axis.name]) for axis in axes]
        values += [
            "-" if row["rate"] is None else format_number(row["rate"]),
            _step(row["seconds"]),
        ]
        if is_search:
            there = row["rate"] is not None
            values += [str(row.get(field)) if there else "-" for field in _CHOICES]
            moved = [field.split("_")[0] for field in _MOVED if row.get(field)]
            values.append(" ".join(moved) or "-")
        values += [_bytes(row["tier1_bytes"]), _bytes(row["tier2_bytes"])]
        table.add_row(*values, *([] if is_search else [str(row["lacks"])]))
    print_table(table, console)
    _say_left_out(frame.height, console)


def _say_left_out(rows: int, console: Console) -> None:
    if rows > _MOST_ROWS:
        left = format_count(rows - _MOST_ROWS)
        console.print(Text(f"{left} more rows are not shown; -o FILE.csv has all"))


def _step(seconds: float | None) -> str:
    return "-" if seconds is None else format_ns(round(seconds * 1e9))


def _bytes(size: float | None) -> str:
    return "-" if size is None else format_bytes(int(size))
