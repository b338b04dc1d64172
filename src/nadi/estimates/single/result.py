"""The results of ``nadi estimate``, and sweeps on a terminal, as data, and in files."""

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.estimates.execution import moved_tensors
from nadi.estimates.network_steps import NetworkEstimate
from nadi.estimates.single_estimate import Estimate
from nadi.estimates.sweep_axes import SweepAxis
from nadi.estimates.tier_words import schedule_words, tier_words
from nadi.files.csv_tables import csv_bytes, parquet_bytes
from nadi.files.files import write_beside
from nadi.results.charts.chart_files import CHART_FILES, write_charts
from nadi.results.charts.charts import ChartAxis, HeatMap, LineChart, LineSeries, short_number
from nadi.results.declared import (
    ALL,
    BLANK,
    LABEL,
    MEAN,
    NUMBER,
    PERCENT,
    SECONDS,
    Column,
    Lines,
    Result,
    Rows,
    Tiles,
    in_words,
    named,
    number,
    share_of,
    text_of,
    valued,
)
from nadi.results.text import to_json
from nadi.trace.arrays import Floats
from nadi.units import (
    format_bytes,
    format_change,
    format_count,
    format_counted,
    format_ns,
    format_number,
    format_percent,
)

_PART_NAMES = {
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
_TENSOR_NAMES = {
    "weights": "weights",
    "activations": "activations",
    "checkpoints": "checkpoints",
    "activation_gradients": "gradients of activations",
    "weight_gradients": "gradients of weights",
    "optimizer": "optimizer",
    "keys_and_values": "keys and values",
}


PRICE_SOURCES = {
    "exact": "as recorded", "interpolated": "between recorded ones",
    "curve": "by the device's curves", "roofline": "by a plain roofline", "none": "without a price",
}  # fmt: skip
"""What a price comes from, in words."""

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
        "mfu": estimate.mfu,
        "bounds": estimate.bounds and estimate.bounds._asdict(),
        "parameters": estimate.model.num_parameters,
        "lacks": estimate.lacks or None,
        "reason": estimate.reason or None,
        "times": {name: estimate.times[name] for name in _PART_NAMES},
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


def _network_estimate(estimate: NetworkEstimate) -> dict[str, Any]:
    """Compute the JSON output of an estimate of a network."""
    return {
        "seconds": estimate.seconds, "rate": estimate.rate, "samples": estimate.plan.samples,
        "lacks": estimate.lacks or None,
        "times": dict(sorted(estimate.times.items(), key=lambda one: -one[1])),
        "memory_bytes": estimate.memory,
        "memory_capacity": estimate.system.memory_capacity or None,
        "plan": msgspec.to_builtins(estimate.plan),
    }  # fmt: skip


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


# results as text and pages


def _headline(data: dict[str, Any]) -> str:
    decoding = data["execution"]["decoding"]
    rates = f"{format_number(data['rate'])} sequences/s"
    if decoding:
        each = format_number(1 / data["seconds"])
        rates = f"{format_number(data['rate'])} tokens/s in all, {each} for each user"
    step = "an output token" if decoding else "a step"
    name, share = "model FLOPs utilization", data.get("mfu")
    if share is None:
        name, share = "Calculon's total_efficiency", data["statistics"]["total_efficiency"]
    told = f"{name} {format_percent(share, 1)}"
    sequences = format_counted(data["execution"]["batch_size"], "sequence")
    return _if_possible(data, f"{_time(data['seconds'])} {step} of {sequences}, {rates}, {told}")


def _if_possible(data: dict[str, Any], figures: str) -> str:
    """Say first why a step is not possible, if it is not: its figures are of a step that is."""
    return f"not possible: {data['lacks']}\nif it were: {figures}" if data["lacks"] else figures


def _bounds(data: dict[str, Any]) -> Iterator[str]:
    """Say how sure a calibrated estimate is, and what prices of kernels come from."""
    if bounds := data.get("bounds"):
        low, high = (_time(bounds[end]) for end in ("low", "high"))
        yield f"{low} to {high}, by the intervals of kernels' prices"
        shares = (
            f"{format_percent(share, 1)} {PRICE_SOURCES[name]}"
            for name, share in sorted(bounds["sources"].items(), key=lambda one: -one[1])
        )
        yield f"time of layers' kernels: {', '.join(shares)}"
        if bounds["collectives"]:
            yield f"measured collectives: {', '.join(bounds['collectives'])}"


def _costs(data: dict[str, Any]) -> Iterator[str]:
    """Say what the step costs."""
    if data.get("price_per_hour"):
        currency = data["currency"]
        yield (
            f"{data['price_per_hour']:,.2f} {currency} an hour, "
            f"{format_number(data['price_per_step'])} {currency} a step, "
            f"{format_number(data['price_per_million_tokens'])} {currency} a million tokens"
        )


def _sizes(data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the bytes of each kind of tensor, those of all, and the capacity, in both tiers."""
    tiers = [data["tier1_bytes"], data["tier2_bytes"]]
    capacities = [data["tier1_capacity"], data["tier2_capacity"]]
    rows = {title: [tier[name] for tier in tiers] for name, title in _TENSOR_NAMES.items()}
    used = {title: sizes for title, sizes in rows.items() if any(sizes)}
    sums = [sum(tier.values()) for tier in tiers]
    for title, sizes in (used | {"all": sums, "capacity": capacities}).items():
        yield (), {"tensors": title, "tier 1": int(sizes[0]), "tier 2": int(sizes[1])}


def _hidden(data: dict[str, Any]) -> Iterator[str]:
    needed = data["statistics"]["offload_mem_bw_req"]
    if needed is not None and 0 < needed < math.inf:
        yield f"offloading would be hidden by {needed / 1e9:.4g} GB/s to the second tier"


def _checked(data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the parts of a step both ways, and the step."""
    if check := data.get("check"):
        step = {"name": "step", "estimated": check["estimated"], "simulated": check["simulated"]}
        for part in (*check["parts"], step):
            difference = part["estimated"] - part["simulated"]
            yield (), part | {"difference": format_percent(difference, check["simulated"])}


def _reasons(data: dict[str, Any]) -> Iterator[str]:
    """Say why estimate and simulation part, and what was measured."""
    check = data.get("check") or {"parts": ()}
    for part in check["parts"]:
        if part["reason"]:
            yield f"{part['name']}: {part['reason']}"
    if data.get("check") and not check["measured"]:
        yield "no published step time is known for this model, system and plan"
    elif data.get("check"):
        yield f"measured: {_time(check['measured'])} ({check['source']})"
        for name, key in (("estimate", "estimated"), ("simulation", "simulated")):
            yield f"  {name} {format_change(check[key], check['measured'])}"


def _time(seconds: float) -> str:
    return format_ns(round(seconds * 1e9))


_TIME, _SIZE = text_of(_time), text_of(lambda size: format_bytes(int(size)))

ESTIMATE = Result(
    kind="estimate", title="Estimate", order=2, needs="seconds", facts=describe_estimate,
    headline=_headline,
    parts=(
        Tiles((
            Column("seconds", "step", SECONDS, "estimated"),
            Column("rate", "rate", MEAN, "sequences per second"),
            Column("mfu", "utilization", PERCENT, "model FLOPs, of the peak"),
            Column("price_per_million_tokens", "price", MEAN, "of a million tokens"),
        )),
        Lines(_bounds), Lines(_costs), BLANK,
        Rows("times", "Time", None, (
            named("part", lambda name: _PART_NAMES[name]), valued("time", SECONDS),
            valued("share", share_of("seconds")),
        ), top=ALL),
        BLANK,
        Rows("", "Memory of a rank", None, (
            Column("tensors", "tensors"), Column("tier 1", "tier 1", _SIZE),
            Column("tier 2", "tier 2", _SIZE, is_rare=True),
        ), made=_sizes, top=ALL),
        Lines(lambda data: data["assumed"]), BLANK,
        Rows("limits", "Limits", None, (
            Column("name", "limit", in_words(str)), Column("seconds", "share", share_of("seconds")),
            Column("lifted_by", "what would lift it", in_words(str)),
        ), top=ALL, pick=lambda data: [
            i for i, limit in enumerate(data["limits"])
            if limit["seconds"] >= 0.005 * data["seconds"]
        ]),
        Lines(_hidden),
        Lines(lambda data: [""] if data.get("check") else []),
        Rows("", "Estimate and simulated job", None, (
            Column("name", "part"), Column("estimated", "estimate", _TIME),
            Column("simulated", "simulation", _TIME), Column("difference", "of the step", LABEL),
        ), made=_checked, top=ALL),
        Lines(_reasons),
    ),
)  # fmt: skip


def _lifted(data: dict[str, Any]) -> Iterator[str]:
    name, remedy = max(_LIFTED.items(), key=lambda one: data["times"].get(one[0], 0.0))
    yield f"bound by {name}; what would lift it: {remedy}"


def _all_tensors(data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    memory = data["memory_bytes"]
    both = {"all": sum(memory.values()), "capacity": data["memory_capacity"]}
    for name, size in (memory | both).items():
        if size:
            yield (), {"name": name, "size": size}


NETWORK_ESTIMATE = Result(
    kind="network_estimate", title="Estimate", order=2, facts=_network_estimate,
    headline=lambda data: _if_possible(data, (
        f"{_time(data['seconds'])} a step of {format_counted(data['samples'], 'sample')}, "
        f"{format_number(data['rate'])} samples/s"
    )),
    parts=(
        BLANK,
        Rows("times", "Time", None, (
            named("part"), valued("time", SECONDS), valued("share", share_of("seconds")),
        ), top=ALL),
        BLANK,
        Rows("", "Memory of the rank with most", None, (
            Column("name", "tensors"), Column("size", "bytes", _SIZE),
        ), made=_all_tensors, top=ALL),
        BLANK, Lines(_lifted),
    ),
)  # fmt: skip


SWEEP_FILES = (".csv", ".json", ".parquet", *CHART_FILES)
_MOST_ROWS, _MOST_COLUMNS = 40, 12
_MOST_LINES = 10  # of a chart, before two axes make a heat map
_RATE = "sequences/s"
CHOICES = {
    "tensor_par": "tp", "pipeline_par": "pp", "data_par": "dp", "context_par": "cp",
    "microbatch_size": "micro-batch", "pipeline_interleaving": "interleaving",
}  # fmt: skip
"""What a search chooses, and what it is called in tables."""
_CHOICE = text_of(lambda value: "-" if value is None else value)
_BYTES = number(lambda size: format_bytes(int(size)))


def offloads(execution: dict[str, Any]) -> str:
    """Name what lives in the second memory tier, of the fields of an execution."""
    kinds = {"weights": "weight_offload", "activations": "activations_offload",
             "optimizer": "optimizer_offload"}  # fmt: skip
    return " ".join(name for name, field in kinds.items() if execution.get(field)) or "-"


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
    is_table = len(axes) == 2 and len(axes[1].values) <= _MOST_COLUMNS
    (_by_two if is_table else _by_point)(frame, axes).print({}, console, _MOST_ROWS)
    feasible = frame["rate"].is_not_null().sum()
    console.print()
    counts = f"{format_counted(frame.height, 'point')}, {format_count(int(feasible))} possible"
    if feasible:
        row = frame.row(int(frame["rate"].arg_max() or 0), named=True)
        where = ", ".join(_at(axis, row[axis.name]) for axis in axes)
        counts += f"; fastest: {format_number(row['rate'])} {_RATE} at {where}"
    console.print(Text(counts))


def _by_two(frame: pl.DataFrame, axes: Sequence[SweepAxis]) -> Rows:
    """Return a table of the rates by two axes; rows are lists, with the first value first."""
    first, last = axes
    size, rates = len(last.values), frame["rate"].to_list()
    rows = [[value, *rates[k * size : (k + 1) * size]] for k, value in enumerate(first.values)]
    columns = [Column("", first.title, text_of(_shown), shown=itemgetter(0))]
    for k, value in enumerate(last.values, 1):
        columns.append(Column("", _shown(value), NUMBER, shown=itemgetter(k)))
    title = f"{_RATE}, by {first.name} and {last.title}"
    return Rows("", title, None, tuple(columns), made=lambda _: [((), row) for row in rows])


def _by_point(frame: pl.DataFrame, axes: Sequence[SweepAxis]) -> Rows:
    """Return a table with a row per point."""
    is_search = "feasible" in frame.columns
    columns = [Column(axis.name, axis.title, text_of(_shown)) for axis in axes]
    columns += [Column("rate", _RATE, NUMBER), Column("seconds", "step", SECONDS)]
    if is_search:
        columns += [Column(key, title, _CHOICE) for key, title in CHOICES.items()]
        columns.append(Column("activation_recompute", "recompute", _CHOICE))
        columns.append(Column("", "offload", shown=offloads))
    columns += [Column("tier1_bytes", "tier 1", _BYTES), Column("tier2_bytes", "tier 2", _BYTES)]
    columns += [] if is_search else [Column("lacks", "lacks")]
    rows = frame.iter_rows(named=True)
    return Rows("", lambda _: "", None, tuple(columns), made=lambda _: [((), row) for row in rows])
