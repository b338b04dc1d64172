"""A job with memory tiers as text, data, and a folder with tables and charts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console

from nadi.errors import InputError, Parameter
from nadi.estimates.tier_words import schedule_words, tier_words
from nadi.files.csv_tables import csv_bytes
from nadi.files.files import check_writable, write_pieces
from nadi.files.whole_folders import whole_files
from nadi.memory.placement.placed_steps import PlacedStep
from nadi.memory.placement.study import PlacementStudy
from nadi.results.charts.chart_files import write_charts
from nadi.results.charts.charts import ChartAxis, HeatMap, LineChart, LineSeries
from nadi.results.charts.scales import short_number
from nadi.results.text import make_table, name_cell, print_table, to_json
from nadi.trace.schema import TENSOR_ROLES
from nadi.units import format_bytes, format_count, format_counted, format_ns, format_percent

__all__ = ["check_placement_folder", "describe_placement", "print_placement", "write_placement"]

_TABLES = ("tensors.csv", "live.csv", "points.csv")
_PAGE, _DATA = "index.html", "summary.json"
_TOP = 8
_POINTS = 400  # of a line of live bytes
_PARTS = (*TENSOR_ROLES, "buffers")
_ROOM = ("memory", "capacity", "shared_by", "latency")
_BANDWIDTH = ChartAxis("bandwidth of the tier (GB/s)", is_log=True)


# data


def describe_placement(study: PlacementStudy) -> dict[str, Any]:
    """Compute the JSON output; what has no value is null."""
    step, plain = study.chosen, study.plain
    pays = study.pays
    return {
        "ranks": step.simulation.like.size, "system": step.system.name,
        "without_tiers_ns": plain.ns, "with_tiers_ns": step.ns,
        "ratio": step.ns / max(plain.ns, 1), "placement": study.how, "moves": step.moved,
        "price_per_step": _price(step, step.ns, with_tier=step.is_placed) or None,
        "assumed": [tier_words(step.system.tiers[0]), *schedule_words(step.moved),
                    *_lookups(study)],
        "in_place_interval_ns": [step.low, step.high] if step.high else None,
        "tiers": [_tier(use) for use in step.accounts.tiers],
        "live": _live_lines(study),
        "waits": step.accounts.waits.head(_TOP).to_dicts(),
        "each_role_alone": [
            {"role": one.role, "step_ns": one.ns, "moved_bytes": one.moved,
             "freed_bytes": one.freed}
            for one in study.alone
        ],
        "estimates": None if study.estimates is None else {
            "roles": [one._asdict() for one in study.estimates.roles],
            "missing": study.estimates.missing or None,
        },
        "pays_from_gbps": None if pays is None or math.isinf(pays.pays_from) else pays.pays_from,
        "below": None if pays is None else pays._asdict() | {"pays_from": None},
        "points": study.points.to_dicts(),
    }  # fmt: skip


def _tier(use: Any) -> dict[str, Any]:
    return {
        "name": use.name, "capacity": use.capacity if math.isfinite(use.capacity) else None,
        "peak": use.peak, "at_ns": use.at, "rank": use.rank, "excess": use.excess,
        "peak_by_role": dict(zip(_PARTS, use.by_role.tolist(), strict=True)),
        "read": dict(zip(TENSOR_ROLES, use.read.tolist(), strict=True)),
        "written": dict(zip(TENSOR_ROLES, use.written.tolist(), strict=True)),
        "busy_ns": use.busy, "queued_ns": use.queued, "slowed_ns": use.slowed,
        "replicas_with_one_prefix": use.replicas,
    }  # fmt: skip


def _sentence(study: PlacementStudy) -> str:
    """Say from which bandwidth the placement pays."""
    pays = study.pays
    if pays is None:
        return "all tensors live in the first tier"
    bound = f", bound by {pays.bound_by}" if pays.bound_by else ""
    there = f"at {_gbps(pays.below)} the step is {pays.ratio:.2f} times as long{bound}"
    if math.isinf(pays.pays_from):
        return f"no bandwidth makes it cost less than 1 %: {there}"
    if pays.pays_from <= 1:
        return "it costs less than 1 % from 1 GB/s a device on"
    return f"it costs less than 1 % from {_gbps(pays.pays_from)} a device; {there}"


def _price(step: PlacedStep, ns: int, *, with_tier: bool) -> float:
    """Give the price of a step; 0 if the system states none."""
    system, lower = step.system, step.system.tiers[0]
    ranks = system.network.num_ranks
    share = lower.price_per_hour / (lower.shared_by or ranks) if with_tier else 0.0
    hour = system.price_per_hour and system.price_per_hour + share
    return hour * ranks * ns / 3.6e12


def _price_lines(study: PlacementStudy) -> list[str]:
    step, currency = study.chosen, study.chosen.system.currency
    there = _price(step, step.ns, with_tier=step.is_placed)
    without = _price(step, study.plain.ns, with_tier=False)
    if not there:
        return []
    return [f"{there:.4g} {currency} a step, {without:.4g} if all tensors had room without tiers"]


def _gbps(rate: float) -> str:
    return f"{short_number(rate)} GB/s"


def _no_room(study: PlacementStudy) -> list[str]:
    """Say what does not fit, by how much, when, and what would do."""
    lines = []
    for number, use in enumerate(study.chosen.accounts.tiers):
        if not use.excess:
            continue
        remedies = [f"{format_bytes(use.peak)} of it would"]
        if number == 0:
            enough = [one for one in study.alone[1:] if one.freed >= use.excess
                      and one.role not in study.chosen.moved]  # fmt: skip
            if enough:
                best = min(enough, key=lambda one: one.ns)
                lower = study.chosen.accounts.tiers[1].name
                remedies.append(
                    f"so would {best.role}={lower}, which frees {format_bytes(best.freed)}"
                )
        lines.append(
            f"does not fit: {use.name} lacks {format_bytes(use.excess)} on rank {use.rank} at "
            f"{format_ns(use.at)}; {', '.join(remedies)}"
        )
    return lines


def _copies(study: PlacementStudy) -> list[str]:
    """Say which tiers keep one copy of a prefix for several replicas."""
    return [
        f"{use.name} keeps one copy of the prefix for {format_count(use.replicas)} replicas"
        for use in study.chosen.accounts.tiers
        if use.replicas > 1
    ]


def _lookups(study: PlacementStudy) -> list[str]:
    """Say how much of tables is looked up, and what a cache serves of it."""
    traces = study.plain.tensors.traces
    most = max(traces, key=lambda one: one.looked_up)
    if not most.looked_up:
        return []
    told = f"rows of tables that a step reads and writes: {format_bytes(most.looked_up)}"
    cache = study.cache
    if cache is not None:
        served = 1 - most.moved_rows / most.looked_up
        told += (
            f"; a cache of {format_bytes(cache.capacity)} of them in the first tier serves "
            f"{100 * served:.1f} % (their popularity falls with the power {cache.skew:g})"
        )
    return [f"{told}, of the rank with most" if len(traces) > 1 else told]


# text


def print_placement(study: PlacementStudy, console: Console) -> None:
    """Print the step, its tiers, what waits, each role alone, and the points of the sweep."""
    step, plain = study.chosen, study.plain
    lower = step.system.tiers[0]
    told = f"{lower.name} of {short_number(lower.read_bandwidth)} GB/s"
    if lower.shared_by != 1:
        told += f" for {lower.shared_by or 'all'} ranks"
    console.print(
        f"{format_counted(step.simulation.like.size, 'rank')} on {step.system.name}: "
        f"{format_ns(plain.ns)} without tiers, {format_ns(step.ns)} with {told}: "
        f"{step.ns / max(plain.ns, 1):.3f} times as long",
        markup=False,
    )
    if step.high:
        small = sum(int(work.is_small.sum()) for work in step.placed.slowed)
        console.print(
            f"computations access tensors in place: the step takes {format_ns(step.low)} to "
            f"{format_ns(step.high)}; latency alone bounds {format_count(small)} of them",
            markup=False,
        )
    moved = ", ".join(step.moved) or "nothing"
    console.print(f"placement: {study.how}; in lower tiers: {moved}", markup=False)
    for line in _price_lines(study):
        console.print(line, markup=False)
    lines = (tier_words(lower), *schedule_words(step.moved), *_lookups(study), *_copies(study),
             *_no_room(study))  # fmt: skip
    for line in lines:
        console.print(line, markup=False)
    console.print(_sentence(study), markup=False)
    _print_tiers(study, console)
    _print_waits(study, console)
    _print_roles(study, console)
    _print_estimates(study, console)
    if study.points.height > 1:
        _print_points(study, console)


def _print_tiers(study: PlacementStudy, console: Console) -> None:
    tiers = study.chosen.accounts.tiers
    roles = [place for place in range(len(_PARTS)) if any(use.by_role[place] for use in tiers)]
    columns = {"tier": "left", "capacity": "right", "peak": "right", "at": "right"}
    columns |= {_PARTS[place]: "right" for place in roles}
    columns |= {"loaded": "right", "stored": "right", "busy": "right", "queued": "right"}
    table = make_table("tiers: what a rank has there at the peak, what all ranks move", **columns)
    for use in tiers:
        has = math.isfinite(use.capacity)
        table.add_row(
            use.name, format_bytes(int(use.capacity)) if has else "any", format_bytes(use.peak),
            format_ns(use.at), *(format_bytes(int(use.by_role[place])) for place in roles),
            format_bytes(int(use.read.sum())), format_bytes(int(use.written.sum())),
            format_ns(use.busy), format_ns(use.queued),
        )  # fmt: skip
    print_table(table, console)


def _print_waits(study: PlacementStudy, console: Console) -> None:
    waits = study.chosen.accounts.waits
    if not waits.height:
        return
    columns = {"operation": "left", "waits for": "left", "count": "right", "time": "right"}
    total = int(waits["ns"].sum())
    title = f"operations that wait for memory: {format_ns(total)} of all ranks"
    table = make_table(title, **columns, share="right")
    for name, role, count, ns in waits.head(_TOP).iter_rows():
        table.add_row(
            name_cell(name), role, format_count(count), format_ns(ns), format_percent(ns, total)
        )
    print_table(table, console)


def _print_roles(study: PlacementStudy, console: Console) -> None:
    table = make_table(
        "each role moved alone", moves="left", bytes="right", frees="right", step="right",
        ratio="right",
    )  # fmt: skip
    for one in study.alone:
        table.add_row(
            one.role or "nothing", format_bytes(one.moved), format_bytes(max(one.freed, 0)),
            format_ns(one.ns), f"{one.ns / max(study.plain.ns, 1):.3f}",
        )  # fmt: skip
    print_table(table, console)


def _print_estimates(study: PlacementStudy, console: Console) -> None:
    if study.estimates is None:
        return
    if study.estimates.missing:
        console.print(f"no estimate beside: {study.estimates.missing}", markup=False)
        return
    table = make_table(
        "beside an estimate: times as long as without tiers", moves="left", simulated="right",
        estimated="right", difference="right",
    )  # fmt: skip
    for one in study.estimates.roles:
        table.add_row(
            one.role, f"{one.simulated:.3f}", f"{one.estimated:.3f}",
            f"{100 * (one.estimated / one.simulated - 1):+.1f} %",
        )  # fmt: skip
    print_table(table, console)
    for one in study.estimates.roles:
        if one.reason:
            console.print(f"{one.role}: {one.reason}", markup=False)


def _print_points(study: PlacementStudy, console: Console) -> None:
    points = study.points
    rates = points["bandwidth"].unique(maintain_order=True).to_list()
    titles = ["first tier", "capacity", "shared by", "latency"]
    shown = [True, True, *(points[name].n_unique() > 1 for name in _ROOM[2:])]
    columns = {title: "right" for title, shows in zip(titles, shown, strict=True) if shows}
    columns |= {_gbps(rate): "right" for rate in rates}
    table = make_table("times as long as without tiers, by bandwidth", **columns)
    for (memory, capacity, ranks, latency), rows in points.group_by(_ROOM, maintain_order=True):
        ratios = [f"{one:.3f}" if one is not None else "no room" for one in rows["ratio"]]
        about = (_size(memory), _size(capacity), format_count(int(ranks)), format_ns(int(latency)))
        cells = [cell for cell, shows in zip(about, shown, strict=True) if shows]
        table.add_row(*cells, *ratios)
    print_table(table, console)


def _size(size: Any) -> str:
    return format_bytes(int(size)) if size else "any"


# files


def check_placement_folder(folder: Path, *, overwrite: bool) -> None:
    """Check that results can be written, before they are worked out.

    Raises
    ------
    InputError
        If results exist there already, or it cannot be written.
    """
    check_writable(folder / _PAGE)
    for name in (*_TABLES, _PAGE, _DATA):
        if not overwrite and (folder / name).exists():
            raise InputError(
                str(folder / name), "exists already",
                ["give another folder, or ", Parameter("overwrite", True)],
            )  # fmt: skip


def write_placement(folder: Path, study: PlacementStudy) -> None:
    """Write summary.json, tables, and a page with charts that are also SVG files."""
    tables = (_tensors(study), _live(study), study.points)
    charts = _charts(study)
    title = f"Memory tiers of a step on {study.chosen.system.name}"
    names = (_DATA, _PAGE, *_TABLES, *(f"{name}.svg" for name in charts))
    with whole_files([folder / name for name in names]) as (data, page, *others):
        write_pieces(data, [to_json(describe_placement(study))])
        for path, table in zip(others, tables, strict=False):
            write_pieces(path, [csv_bytes(table)])
        write_charts(page, list(charts.values()), title)
        for path, chart in zip(others[len(tables) :], charts.values(), strict=True):
            write_charts(path, [chart])


def _tensors(study: PlacementStudy) -> pl.DataFrame:
    """Return all tensors with their tier, named as a file of a placement names them."""
    placed = study.chosen.placed
    names = [use.name for use in study.chosen.accounts.tiers]
    tier = np.concatenate(placed.tier)
    table = study.plain.tensors.table
    name = table.select(pl.concat_str("trace", "storage", separator=":")).to_series()
    return table.with_columns(
        tensor=name, tier=pl.Series(names).gather(tier)
    ).select("tensor", "tier", pl.exclude("tensor", "tier"))  # fmt: skip


def _live(study: PlacementStudy) -> pl.DataFrame:
    """Return the live bytes of each tier over time, of a rank of each different trace."""
    frames = []
    uses, tensors = study.chosen.accounts.tiers, study.plain.tensors.traces
    for of_trace, one in zip(study.chosen.accounts.live, tensors, strict=True):
        for use, live in zip(uses, of_trace, strict=True):
            columns = {name: live.bytes[:, place] for place, name in enumerate(_PARTS)}
            about = {"rank": int(one.ranks[0]), "tier": use.name}
            frames.append(pl.DataFrame({"ns": live.time} | columns).select(
                *(pl.lit(value).alias(name) for name, value in about.items()), pl.all()
            ))  # fmt: skip
    return pl.concat(frames)


def _room_names(rooms: pl.DataFrame) -> tuple[list[str], str]:
    """Name capacities of both tiers, and what else of the second, as they differ; and what does."""
    differs = [rooms[name].n_unique() > 1 for name in _ROOM]
    differs[0] |= not any(differs)
    titles = zip(
        ("first tier", "second tier", "ranks that share it", "latency"), differs, strict=True
    )
    found = []
    for memory, capacity, ranks, latency in rooms.iter_rows():
        shared, idle = format_counted(ranks, "rank"), format_ns(int(latency))
        parts = (_size(memory), _size(capacity), shared, idle)
        found.append(", ".join(part for part, tells in zip(parts, differs, strict=True) if tells))
    return found, ", ".join(title for title, tells in titles if tells)


def _live_lines(study: PlacementStudy) -> list[dict[str, Any]]:
    """Give what lives in each tier over time, by role, on the rank with the highest peak.

    Of many times some are left out, but never that of the peak.
    """
    found = []
    for tier, use in enumerate(study.chosen.accounts.tiers):
        place = int(np.argmax([live[tier].peak[0] for live in study.chosen.accounts.live]))
        live = study.chosen.accounts.live[place][tier]
        if not live.time.size or not live.total.any():
            continue
        chosen = np.unique(np.linspace(0, live.time.size - 1, _POINTS).astype(np.int64))
        chosen = np.union1d(chosen, [int(np.argmax(live.total))])
        roles = {
            name: live.bytes[chosen, part].tolist()
            for part, name in enumerate(_PARTS)
            if live.bytes[:, part].any()
        }
        found.append({"tier": use.name, "rank": use.rank, "time_ns": live.time[chosen].tolist(),
                      "bytes_by_role": roles})  # fmt: skip
    return found


def _charts(study: PlacementStudy) -> dict[str, LineChart | HeatMap]:
    charts: dict[str, LineChart | HeatMap] = {}
    uses, points = study.chosen.accounts.tiers, study.points
    points = points.sort(*_ROOM, "bandwidth")
    rates = points["bandwidth"].unique(maintain_order=True).to_list()
    rooms = points.select(_ROOM).unique(maintain_order=True)
    names, what = _room_names(rooms)
    if len(rates) > 1:
        lines = [
            LineSeries(
                name, rows["bandwidth"].to_numpy(), rows["ratio"].cast(pl.Float64).to_numpy()
            )
            for name, (_, rows) in zip(
                names, points.group_by(_ROOM, maintain_order=True), strict=True
            )
        ]  # fmt: skip
        charts["step"] = LineChart(
            "Length of the step", _BANDWIDTH, ChartAxis("times as long as without tiers"),
            tuple(lines), _sentence(study),
        )  # fmt: skip
    if len(rates) > 1 and len(names) > 1:
        charts["points"] = HeatMap(
            "Length of the step", "bandwidth of the tier (GB/s)",
            what, tuple(map(short_number, rates)), tuple(names),
            points["ratio"].to_numpy().reshape(len(names), len(rates)),
            "times as long as without tiers",
        )  # fmt: skip
    for row in _live_lines(study):
        use = next(one for one in uses if one.name == row["tier"])
        series = [
            LineSeries(name, np.array(row["time_ns"]) / 1e6, np.array(sizes) / 2**30)
            for name, sizes in row["bytes_by_role"].items()
        ]
        charts[f"live-{use.name}"] = LineChart(
            f"What lives in {use.name}", ChartAxis("time (ms)"), ChartAxis("GiB"), tuple(series),
            f"rank {use.rank}, at most {format_bytes(use.peak)}, at {format_ns(use.at)}",
        )  # fmt: skip
    return charts
