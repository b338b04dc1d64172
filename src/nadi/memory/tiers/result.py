"""Studies of a second memory tier as tables, data, and a folder with charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.errors import InputError, Parameter
from nadi.estimates.tier_words import schedule_words, sharing_words
from nadi.files.csv_tables import csv_bytes
from nadi.files.files import check_writable, write_pieces
from nadi.files.whole_folders import whole_files
from nadi.memory.tiers.study import StudiedExecution, StudiedJob
from nadi.results.charts.chart_files import write_charts
from nadi.results.charts.charts import ChartAxis, HeatMap, LineChart, LineSeries
from nadi.results.charts.scales import short_number
from nadi.results.text import make_table, print_table
from nadi.trace.arrays import Floats
from nadi.units import format_count, format_counted, format_number

__all__ = [
    "check_study_folder", "describe_studies", "print_studies", "study_points", "write_studies",
]  # fmt: skip

_POINTS, _PAGE = "points.csv", "index.html"
_BANDWIDTH = ChartAxis("bandwidth of the second tier (GB/s)", is_log=True)
_RATE = "sequences/s"
_EVERY = 2  # of the curve's points are drawn


# data


def study_points(jobs: Sequence[StudiedJob]) -> pl.DataFrame:
    """Give a row per model, system, capacity and bandwidth, and for each job one without a tier.

    The last columns are the fastest execution's fields; null where nothing is possible.
    """
    rows = []
    for job in jobs:
        study = job.study
        base = {"model": job.model, "system": job.system}
        rows.append(base | {"capacity_gib": 0.0, "bandwidth_gbps": 0.0} | _columns(study.without))
        for size, row in zip(study.capacities, study.best, strict=True):
            for bandwidth, one in zip(study.bandwidths, row, strict=True):
                place = {"capacity_gib": size, "bandwidth_gbps": bandwidth}
                rows.append(base | place | _columns(one))
    return pl.DataFrame(rows, infer_schema_length=None)


def _columns(one: StudiedExecution | None) -> dict[str, Any]:
    if one is None:
        return {"rate": None}
    figures = {name: getattr(one, name) for name in ("rate", "seconds", "tier1_bytes",
                                                     "tier2_bytes")}  # fmt: skip
    fields: dict[str, Any] = msgspec.to_builtins(one.execution)
    return figures | fields


def describe_studies(jobs: Sequence[StudiedJob]) -> list[dict[str, Any]]:
    """Compute the JSON output; what has no value is null."""
    found = []
    for job in jobs:
        study, curve = job.study, job.study.break_even
        found.append({
            "model": job.model, "system": job.system, "ranks": job.ranks,
            "global_batch": job.global_batch, "executions": study.num_executions,
            "bandwidths_gbps": study.bandwidths, "capacities_gib": study.capacities,
            "without": _columns(study.without),
            "best": [[_columns(one) for one in row] for row in study.best],
            "pays_from_gbps": curve.pays_from, "enough_from_gbps": curve.enough_from,
            "rate_at_any_bandwidth": curve.limit,
            "price_that_pays": study.price_that_pays,
            "curve": {"bandwidths_gbps": curve.bandwidths.tolist(), "rates": curve.rates.tolist()},
        })  # fmt: skip
    return found


# text


def print_studies(jobs: Sequence[StudiedJob], console: Console) -> None:
    """Print the gain by bandwidth, by capacity, and what becomes possible."""
    study = jobs[0].study
    most = short_number(study.capacities[-1])
    columns = {"model": "left", "system": "left", "GPUs": "right", "without": "right"}
    columns |= {f"{short_number(one)} GB/s": "right" for one in study.bandwidths}
    columns |= {"pays from": "right", "enough": "right", "pays below": "right"}
    table = make_table(f"{_RATE} by bandwidth, with tiers of {most} GiB", **columns)
    for job in jobs:
        without, curve = job.study.without, job.study.break_even
        table.add_row(
            job.model, job.system, format_count(job.ranks), _rate(without),
            *(_gain(one, without) for one in job.study.best[-1]),
            "possible" if without is None and curve.pays_from else _gbps(curve.pays_from),
            _gbps(curve.enough_from), _price(job),
        )  # fmt: skip
    print_table(table, console)
    console.print()
    fastest = short_number(study.bandwidths[-1])
    columns = {"model": "left", "system": "left", "without": "right"}
    columns |= {f"{short_number(one)} GiB": "right" for one in study.capacities}
    columns |= {"offloads": "left", "tier 1": "right", "tier 2": "right"}
    table = make_table(f"{_RATE} by capacity, with tiers of {fastest} GB/s", **columns)
    for job in jobs:
        best = job.study.best[-1][-1]
        table.add_row(
            job.model, job.system, _rate(job.study.without),
            *(_gain(row[-1], job.study.without) for row in job.study.best),
            "-" if best is None else " ".join(best.moved) or "nothing",
            *(("-", "-") if best is None else
              (_gib(best.tier1_bytes), _gib(best.tier2_bytes))),
        )  # fmt: skip
    print_table(table, console)
    console.print()
    tried = sum(job.study.num_executions for job in jobs)
    console.print(Text(
        f"{format_counted(tried, 'execution')}, each at "
        f"{format_counted(len(study.bandwidths), 'bandwidth')} and "
        f"{len(study.capacities)} {'capacity' if len(study.capacities) == 1 else 'capacities'}"
    ))  # fmt: skip
    console.print(Text(f"bandwidths are those of a tier {sharing_words(study.tier)}"))
    moved = {name for job in jobs for row in job.study.best for one in row if one
             for name in one.moved}  # fmt: skip
    for line in schedule_words(moved):
        console.print(Text(line))


def _rate(one: StudiedExecution | None) -> str:
    return "-" if one is None else format_number(one.rate)


def _gain(one: StudiedExecution | None, without: StudiedExecution | None) -> str:
    if one is None or without is None:
        return _rate(one)
    gain = one.rate / without.rate - 1
    rate = format_number(one.rate)
    return f"{rate} {gain:+.1%}" if gain >= 0.0005 else f"{rate}  same"


def _price(job: StudiedJob) -> str:
    """Say which price of the fastest tier makes a token cost as much as without it."""
    study = job.study
    share = study.price_that_pays
    if share is None:
        return "any" if study.best[-1][-1] is not None else "-"
    if study.price_per_hour:
        return f"{share * study.price_per_hour:.3g} {study.currency}/h"
    return f"{share:.1%} of a GPU"


def _gbps(bandwidth: float | None) -> str:
    return "never" if bandwidth is None else f"{bandwidth:.3g} GB/s"


def _gib(size: float) -> str:
    return f"{size / 2**30:,.0f} GiB"


# a folder


def check_study_folder(folder: Path, *, overwrite: bool) -> None:
    """Check that results can be written, before they are worked out.

    Raises
    ------
    InputError
        If results exist there already, or it cannot be written.
    """
    check_writable(folder / _POINTS)
    for name in (_POINTS, _PAGE):
        if not overwrite and (folder / name).exists():
            raise InputError(
                str(folder / name), "exists already",
                ["give another folder, or ", Parameter("overwrite", True)],
            )  # fmt: skip


def write_studies(folder: Path, jobs: Sequence[StudiedJob]) -> None:
    """Write ``points.csv``, a page with all charts, and each chart as SVG.

    Raises
    ------
    InputError
        If a file cannot be written.
    """
    charts = _charts(jobs)
    files = [folder / name for name in (_PAGE, _POINTS, *(f"{name}.svg" for name in charts))]
    with whole_files(files) as (page, points, *images):
        write_pieces(points, [csv_bytes(study_points(jobs))])
        for image, chart in zip(images, charts.values(), strict=True):
            write_charts(image, [chart])
        write_charts(page, list(charts.values()), "Training with a second memory tier")


def _charts(jobs: Sequence[StudiedJob]) -> dict[str, LineChart | HeatMap]:
    """Draw the gains of all, the rates of each model, and each by capacity, by file name."""
    charts: dict[str, LineChart | HeatMap] = {}
    gains = tuple(
        LineSeries(
            f"{job.model} {job.system}", job.study.break_even.bandwidths[::_EVERY],
            100 * (job.study.break_even.rates[::_EVERY] / job.study.without.rate - 1),
        )
        for job in jobs if job.study.without is not None
    )  # fmt: skip
    size = short_number(jobs[0].study.capacities[-1])
    if gains:
        charts["gain"] = LineChart(
            "What a second memory tier gains", _BANDWIDTH, ChartAxis("gain of the rate (%)"),
            gains, f"fastest execution with tiers of {size} GiB, against none",
        )  # fmt: skip
    for model in dict.fromkeys(job.model for job in jobs):
        these = [job for job in jobs if job.model == model]
        lines = [LineSeries(job.system, job.study.break_even.bandwidths[::_EVERY],
                            _above_zero(job.study.break_even.rates[::_EVERY]))
                 for job in these]  # fmt: skip
        told = ", ".join(
            f"{job.system} {_rate(job.study.without)}" for job in these if job.study.without
        )
        charts[f"rate-{_file(model)}"] = LineChart(
            f"{model} on {these[0].ranks} GPUs", _BANDWIDTH, ChartAxis(_RATE), tuple(lines),
            f"without a second tier: {told}" if told else "not possible without a second tier",
        )  # fmt: skip
    for job in jobs:
        study = job.study
        charts[f"points-{_file(job.model)}-{_file(job.system)}"] = HeatMap(
            f"{job.model} on {job.ranks} {job.system}", "bandwidth of a tier (GB/s)",
            "capacity of a tier (GiB)", tuple(map(short_number, study.bandwidths)),
            tuple(map(short_number, study.capacities)),
            np.array([[math.nan if one is None else one.rate for one in row]
                      for row in study.best]),
            _RATE, f"without a second tier: {_rate(study.without)}" if study.without
            else "not possible without a second tier",
        )  # fmt: skip
    return charts


def _above_zero(rates: Floats) -> Floats:
    return np.where(rates > 0, rates, math.nan)


def _file(name: str) -> str:
    return Path(name).stem
