"""Studies of a second memory tier: what it gains, from which bandwidth it pays, and charts."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from nadi.estimates.tier_words import schedule_words, sharing_words
from nadi.files.csv_tables import csv_bytes
from nadi.files.whole_folders import check_new_files
from nadi.memory.tiers.study import StudiedExecution, StudiedJob
from nadi.results.charts.chart_files import CHART_PAGE, write_chart_folder
from nadi.results.charts.charts import (
    Chart,
    ChartAxis,
    HeatMap,
    LineChart,
    LineSeries,
    short_number,
)
from nadi.results.declared import (
    ALL,
    COUNT,
    LABEL,
    NUMBER,
    Charts,
    Column,
    Lines,
    Result,
    Rows,
    Unit,
    number,
    value_at,
)
from nadi.units import format_counted, format_number

_POINTS = "points.csv"
_BANDWIDTH = ChartAxis("bandwidth of the second tier (GB/s)", is_log=True)
_RATE = "sequences/s"
_SAME = 0.0005  # a gain that is none
_EVERY = 2  # of the curve's points are drawn


# data


def describe_studies(jobs: Sequence[StudiedJob]) -> list[dict[str, Any]]:
    """Compute the JSON output; what has no value is null."""
    found = []
    for job in jobs:
        study, curve = job.study, job.study.break_even
        moved = {name for row in study.best for one in row if one for name in one.moved}
        largest = study.best[-1][-1]
        found.append({
            "model": job.model, "system": job.system, "ranks": job.ranks,
            "global_batch": job.global_batch, "executions": study.num_executions,
            "bandwidths_gbps": study.bandwidths, "capacities_gib": study.capacities,
            "without": _columns(study.without),
            "best": [[_columns(one) for one in row] for row in study.best],
            "pays_from_gbps": curve.pays_from, "enough_from_gbps": curve.enough_from,
            "rate_at_any_bandwidth": curve.limit,
            **({"rate_bounds": study.bounds} if study.bounds else {}),
            "price_that_pays": study.price_that_pays, "pays_below": _price(job),
            "offloads": None if largest is None else " ".join(largest.moved) or "nothing",
            "assumed": [f"bandwidths are those of a tier {sharing_words(study.tier)}",
                        *schedule_words(moved)],
            "curve": {"bandwidths_gbps": curve.bandwidths.tolist(), "rates": curve.rates.tolist()},
        })  # fmt: skip
    return found


def _columns(one: StudiedExecution | None) -> dict[str, Any]:
    if one is None:
        return {"rate": None}
    figures = {name: getattr(one, name) for name in ("rate", "seconds", "tier1_bytes",
                                                     "tier2_bytes")}  # fmt: skip
    fields: dict[str, Any] = msgspec.to_builtins(one.execution)
    return figures | fields


def _price(job: StudiedJob) -> str:
    """Say which price of the fastest tier makes a token cost as much as without it."""
    study = job.study
    share = study.price_that_pays
    if share is None:
        return "any" if study.best[-1][-1] is not None else "-"
    if share < _SAME:
        return "no price"
    if study.price_per_hour:
        return f"{share * study.price_per_hour:.3g} {study.currency}/h"
    return f"{share:.1%} of a GPU"


def _points(jobs: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Give a row per model, system, capacity and bandwidth, and for each job one without a tier.

    The last columns are the fastest execution's fields; null where nothing is possible.
    """
    rows = []
    for job in jobs:
        base = {"model": job["model"], "system": job["system"]}
        rows.append(base | {"capacity_gib": 0.0, "bandwidth_gbps": 0.0} | job["without"])
        for size, row in zip(job["capacities_gib"], job["best"], strict=True):
            for bandwidth, one in zip(job["bandwidths_gbps"], row, strict=True):
                rows.append(base | {"capacity_gib": size, "bandwidth_gbps": bandwidth} | one)
    return pl.DataFrame(rows, infer_schema_length=None)


# what is shown


def _by_bandwidth(jobs: Any) -> Iterator[Column]:
    """Yield the columns of rates with the largest tiers."""
    yield from (
        Column("model", "model"),
        Column("system", "system"),
        Column("ranks", "GPUs", COUNT),
    )
    yield Column("without/rate", "without", NUMBER)
    for k, rate in enumerate(jobs[0]["bandwidths_gbps"]):
        yield _gain(f"best/{len(jobs[0]['best']) - 1}/{k}/rate", f"{short_number(rate)} GB/s")
    yield Column("pays_from_gbps", "pays from", LABEL, shown=lambda job: (
        "possible" if job["without"]["rate"] is None and job["pays_from_gbps"]
        else _gbps(job["pays_from_gbps"])
    ))  # fmt: skip
    yield Column("enough_from_gbps", "enough", number(_gbps, "never"))
    yield Column("pays_below", "pays below", LABEL)


def _by_capacity(jobs: Any) -> Iterator[Column]:
    """Yield the columns of rates with the fastest tiers."""
    yield from (Column("model", "model"), Column("system", "system"))
    yield Column("without/rate", "without", NUMBER)
    for k, size in enumerate(jobs[0]["capacities_gib"]):
        fastest = len(jobs[0]["best"][k]) - 1
        yield _gain(f"best/{k}/{fastest}/rate", f"{short_number(size)} GiB")
    yield Column("offloads", "offloads", shown=lambda job: job["offloads"] or "-")
    yield Column("best", "tier 1", LABEL, shown=partial(_gib, "tier1_bytes"))
    yield Column("best", "tier 2", LABEL, shown=partial(_gib, "tier2_bytes"))


def _rate(one: dict[str, Any]) -> str:
    return "-" if one["rate"] is None else format_number(one["rate"])


def _gain(key: str, title: str) -> Column:
    """Return the column of a rate; in text with its gain."""

    def shown(job: dict[str, Any]) -> str:
        rate, without = value_at(job, key), job["without"]["rate"]
        if rate is None or without is None:
            return "-" if rate is None else format_number(rate)
        gain = rate / without - 1
        return f"{format_number(rate)} " + (f"{gain:+.1%}" if gain >= _SAME else " same")

    return Column(key, title, Unit(lambda told, _: told, NUMBER.write), shown=shown)


def _gbps(bandwidth: float | None) -> str:
    return "never" if bandwidth is None else f"{bandwidth:.3g} GB/s"


def _gib(tier: str, job: dict[str, Any]) -> str:
    size = job["best"][-1][-1].get(tier)
    return "-" if size is None else f"{size / 2**30:,.0f} GiB"


def _lines(jobs: Any) -> Iterator[str]:
    """Say how much was tried, and what is assumed of a tier."""
    num_capacities = len(jobs[0]["capacities_gib"])
    tried = format_counted(sum(job["executions"] for job in jobs), "execution")
    rates = format_counted(len(jobs[0]["bandwidths_gbps"]), "bandwidth")
    sizes = f"{num_capacities} {'capacity' if num_capacities == 1 else 'capacities'}"
    yield ""
    yield f"{tried}, each at {rates} and {sizes}"
    low, *_, high = jobs[0]["curve"]["bandwidths_gbps"]
    ends = f"{short_number(low)} to {short_number(high)} GB/s"
    fastest = short_number(jobs[0]["bandwidths_gbps"][-1])
    yield f"pays from, enough: looked for from {ends}; pays below: of a tier of {fastest} GB/s"
    for job in jobs:
        if bounds := job.get("rate_bounds"):
            without, most = ([format_number(one) for one in pair[::-1]] for pair in bounds)
            gains = sorted(b / a - 1 for a, b in zip(*bounds, strict=True))
            yield (
                f"{job['model']} on {job['system']}: {without[0]} to {without[1]} {_RATE} without, "
                f"{most[0]} to {most[1]} with the largest, fastest tier, by the intervals of "
                f"kernels' prices: {gains[0]:+.1%} to {gains[1]:+.1%}"
            )
    yield from dict.fromkeys(line for job in jobs for line in job["assumed"])


def _titled(what: str, key: str, unit: str) -> Callable[[Any], str]:
    return lambda jobs: f"{_RATE} by {what} {short_number(jobs[0][key][-1])} {unit}"


SECOND_TIER = Result(
    kind="second_tier", title="Second memory tier", order=86, facts=(),
    headline=None,
    parts=(
        Rows("", _titled("bandwidth, with tiers of", "capacities_gib", "GiB"), None, _by_bandwidth,
             top=ALL),
        Lines(lambda _: [""]),
        Rows("", _titled("capacity, with tiers of", "bandwidths_gbps", "GB/s"), None, _by_capacity,
             top=ALL),
        Lines(_lines),
        Charts(lambda jobs: _charts(jobs).values()),
    ),
)  # fmt: skip
"""Its data is a list of objects, one for each model and system."""


# a folder


def check_study_folder(folder: Path, *, overwrite: bool) -> None:
    """Check that results can be written, before they are worked out.

    - Raises InputError if results exist there already, or it cannot be written.
    """
    check_new_files(folder, (_POINTS, CHART_PAGE), overwrite=overwrite)


def write_studies(folder: Path, jobs: Sequence[dict[str, Any]]) -> None:
    """Write ``points.csv``, a page with all charts, and each chart as SVG.

    - Raises InputError if a file cannot be written.
    """
    title = "Training with a second memory tier"
    write_chart_folder(folder, {_POINTS: csv_bytes(_points(jobs))}, _charts(jobs), title)


def _charts(jobs: Any) -> dict[str, Chart]:
    """Draw the gains of all, the rates of each model, and each by capacity, by file name."""
    charts: dict[str, Chart] = {}
    gains = tuple(
        _curve(job, f"{job['model']} {job['system']}", job["without"]["rate"])
        for job in jobs if job["without"]["rate"] is not None
    )  # fmt: skip
    size = short_number(jobs[0]["capacities_gib"][-1])
    if gains:
        charts["gain"] = LineChart(
            "What a second memory tier gains", _BANDWIDTH, ChartAxis("gain of the rate (%)"),
            gains, f"fastest execution with tiers of {size} GiB, against none",
        )  # fmt: skip
    for model in dict.fromkeys(job["model"] for job in jobs):
        these = [job for job in jobs if job["model"] == model]
        told = ", ".join(f"{job['system']} {_rate(job['without'])}" for job in these
                         if job["without"]["rate"])  # fmt: skip
        charts[f"rate-{Path(model).stem}"] = LineChart(
            f"{model} on {these[0]['ranks']} GPUs", _BANDWIDTH, ChartAxis(_RATE),
            tuple(_curve(job, job["system"]) for job in these), _without(told),
        )  # fmt: skip
    for job in jobs:
        rates = [[math.nan if one["rate"] is None else one["rate"] for one in row]
                 for row in job["best"]]  # fmt: skip
        has_rate = job["without"]["rate"] is not None
        charts[f"points-{Path(job['model']).stem}-{Path(job['system']).stem}"] = HeatMap(
            f"{job['model']} on {job['ranks']} {job['system']}", "bandwidth of a tier (GB/s)",
            "capacity of a tier (GiB)", tuple(map(short_number, job["bandwidths_gbps"])),
            tuple(map(short_number, job["capacities_gib"])), np.array(rates), _RATE,
            _without(_rate(job["without"]) if has_rate else ""),
        )  # fmt: skip
    return charts


def _curve(job: dict[str, Any], name: str, of: float = 0.0) -> LineSeries:
    """Draw rates by bandwidth, or their gains in percent of a rate; below 0 there is none."""
    x, y = (np.array(job["curve"][key][::_EVERY], dtype=np.float64)
            for key in ("bandwidths_gbps", "rates"))  # fmt: skip
    return LineSeries(name, x, 100 * (y / of - 1) if of else np.where(y > 0, y, math.nan))


def _without(told: str) -> str:
    return f"without a second tier: {told}" if told else "not possible without a second tier"
