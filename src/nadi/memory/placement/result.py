"""A job with memory tiers: what lives where, what it costs; and a folder with tables and charts."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nadi.estimates.tier_words import schedule_words, tier_words
from nadi.files.csv_tables import csv_bytes
from nadi.files.whole_folders import check_new_files
from nadi.memory.placement.placed_steps import PlacedStep
from nadi.memory.placement.study import PlacementStudy
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
    BYTES,
    COUNT,
    LABEL,
    NS,
    Charts,
    Column,
    Lines,
    Result,
    Rows,
    Tiles,
    Unit,
    decimals,
    name_or,
    number,
    share_of,
    text_of,
)
from nadi.results.text import of_steps, to_json
from nadi.simulation.accounts.times import rank_times
from nadi.simulation.runs.result import slowest_rank, time_of_rank, told_issues
from nadi.simulation.simulation import Simulation
from nadi.trace.schema import TENSOR_ROLES
from nadi.units import format_bytes, format_change, format_count, format_counted, format_ns

_FILES = ("summary.json", "tensors.csv", "live.csv", "points.csv")
_TOP = 8
_POINTS = 400  # of a line of live bytes
_PARTS = (*TENSOR_ROLES, "buffers")
_ROOM = ("memory", "capacity", "shared_by", "latency")
_BANDWIDTH = ChartAxis("bandwidth of the tier (GB/s)", is_log=True)
_SUM = text_of(lambda sizes: format_bytes(sum(sizes.values())))
_AT_LEAST_0 = number(lambda size: format_bytes(max(int(size), 0)))
_RATIO = Unit(
    lambda ns, data: f"{ns / max(data['without_tiers_ns'], 1):.3f}",
    lambda figures, at, _: figures.share(at, ("without_tiers_ns",)),
)


# data


def _described(study: PlacementStudy) -> dict[str, Any]:
    """Compute the JSON output; what has no value is null."""
    step, plain, pays = study.chosen, study.plain, study.pays
    simulation = plain.tensors.simulation
    return {
        "ranks": step.simulation.like.size, "num_steps": study.num_steps,
        "system": step.system.name, "tier": _told(study),
        "without_tiers_ns": plain.ns, "with_tiers_ns": step.ns,
        "ratio": step.ns / max(plain.ns, 1), "placement": study.how, "moves": step.moved,
        "price_per_step": _price(study, step.ns, with_tier=step.is_placed) or None,
        "assumed": [tier_words(step.system.tiers[0]), *schedule_words(step.moved),
                    *_lookups(study)],
        "lacks": _no_room(study),
        "without_tiers": _without_tiers(simulation),
        "notes": [*_in_place(step), *_price_lines(study), *_copies(study), _sentence(study)],
        "issues": simulation.issues.to_dicts(),
        "in_place_interval_ns": [step.low, step.high] if step.high else None,
        "tiers": [_tier(use) for use in step.accounts.tiers],
        "live": _live_lines(study),
        "waited_ns": int(step.accounts.waits["ns"].sum()),
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


def _told(study: PlacementStudy) -> str:
    """Say which tier is meant."""
    tier = study.chosen.system.tiers[0]
    ranks = "" if tier.shared_by == 1 else f" for {tier.shared_by or 'all'} ranks"
    return f"{tier.name} of {_gbps(tier.read_bandwidth)}{ranks}"


def _in_place(step: PlacedStep) -> list[str]:
    """Say between what times a step is whose computations access tensors in place."""
    if not step.high:
        return []
    small = sum(int(work.is_small.sum()) for work in step.placed.slowed)
    told = f"the job takes {format_ns(step.low)} to {format_ns(step.high)}"
    also = f"latency alone bounds {format_count(small)} of them"
    return [f"computations access tensors in place: {told}; {also}"]


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
    there = f"at {_gbps(pays.below)} it takes {pays.ratio:.2f} times as long{bound}"
    if math.isinf(pays.pays_from):
        return f"no bandwidth makes it cost less than 1 %: {there}"
    if pays.pays_from <= 1:
        return "it costs less than 1 % from 1 GB/s a device on"
    return f"it costs less than 1 % from {_gbps(pays.pays_from)} a device; {there}"


def _price(study: PlacementStudy, ns: int, *, with_tier: bool) -> float:
    """Give the price of a step, or of the job if its steps are not known; 0 without a price."""
    system = study.chosen.system
    lower = system.tiers[0]
    ranks = system.network.num_ranks
    share = lower.price_per_hour / (lower.shared_by or ranks) if with_tier else 0.0
    hour = system.price_per_hour and system.price_per_hour + share
    return hour * ranks * ns / 3.6e12 / max(study.num_steps, 1)


def _price_lines(study: PlacementStudy) -> list[str]:
    step, currency = study.chosen, study.chosen.system.currency
    there = _price(study, step.ns, with_tier=step.is_placed)
    without = _price(study, study.plain.ns, with_tier=False)
    if not there:
        return []
    each = "a step" if study.num_steps else "for the job"
    return [f"{there:.4g} {currency} {each}, {without:.4g} if all tensors had room without tiers"]


def _gbps(rate: float) -> str:
    return f"{short_number(rate)} GB/s"


def _no_room(study: PlacementStudy) -> list[str]:
    """Say what does not fit, by how much, when, and what would do."""
    lines = []
    for place, use in enumerate(study.chosen.accounts.tiers):
        if not use.excess:
            continue
        remedies = [f"{format_bytes(use.peak)} of it would"]
        if place == 0:
            enough = [one for one in study.alone[1:] if one.freed >= use.excess
                      and one.role not in study.chosen.moved]  # fmt: skip
            if enough:
                best = min(enough, key=lambda one: one.ns)
                lower = study.chosen.accounts.tiers[1].name
                remedies.append(
                    f"so would {best.role}={lower}, which frees {format_bytes(best.freed)}"
                )
        lines.append(
            f"{use.name} lacks {format_bytes(use.excess)} on rank {use.rank} at "
            f"{format_ns(use.at)}; {', '.join(remedies)}"
        )
    return lines


def _without_tiers(simulation: Simulation) -> list[str]:
    """Say what the rank that finishes last does without tiers, and what that means for moves."""
    slowest = slowest_rank(rank_times(simulation))
    lines = [f"without tiers, {time_of_rank(slowest)}"]
    if 2 * (slowest["hosting_ns"] + slowest["idle_ns"]) > slowest["finish_ns"]:
        lines.append(
            "the host bounds the job: moves hide behind it, and would cost more if it were faster"
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


def _size(size: Any) -> str:
    return format_bytes(int(size)) if size else "any"


# what is shown


def _times(data: dict[str, Any]) -> str:
    return (
        f"{format_ns(data['without_tiers_ns'])} without tiers, {format_ns(data['with_tiers_ns'])} "
        f"with {data['tier']}: {data['ratio']:.3f} times as long"
    )


def _headline(data: dict[str, Any]) -> str:
    """Say first what does not fit, where something does not."""
    on = f"{format_counted(data['ranks'], 'rank')} on {data['system']}"
    if data.get("num_steps", 1) > 1:
        on += f", {of_steps(data['num_steps'], '')}"
    return f"{on}: {_impossible(data) or _times(data)}"


def _impossible(data: dict[str, Any]) -> str:
    return f"does not fit: {'; '.join(data['lacks'])}" if data.get("lacks") else ""


def _lines(data: dict[str, Any]) -> Iterator[str]:
    moved = ", ".join(data["moves"]) or "nothing"
    if data.get("lacks"):
        yield f"with room, {_times(data)}"
    yield f"placement: {data['placement']}; in lower tiers: {moved}"
    yield from data["assumed"]
    yield from data.get("without_tiers", ())
    yield from data["notes"]


def _estimates(data: dict[str, Any]) -> Iterator[str]:
    """Say why there is no estimate."""
    if data["estimates"] and data["estimates"]["missing"]:
        yield f"no estimate beside: {data['estimates']['missing']}"


def _rooms(data: dict[str, Any]) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """Return a row for each pair of capacities, with the ratio at each bandwidth."""
    rooms: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in data["points"]:
        row = rooms.setdefault(tuple(point[name] for name in _ROOM), dict(point))
        ratio = point["ratio"]
        row[str(point["bandwidth"])] = "no room" if ratio is None else f"{ratio:.3f}"
    return [(("points",), row) for row in rooms.values()] if len(data["points"]) > 1 else []


def _room_columns(data: dict[str, Any]) -> Iterator[Column]:
    """Yield the capacities, what else differs, and the bandwidths."""
    for key, title, write in _ROOM_COLUMNS:
        if key in _ROOM[:2] or len({point[key] for point in data["points"]}) > 1:
            yield Column(key, title, text_of(write))
    for rate in dict.fromkeys(point["bandwidth"] for point in data["points"]):
        yield Column(str(rate), _gbps(rate), LABEL)


_ROOM_COLUMNS = (
    ("memory", "first tier", _size), ("capacity", "capacity", _size),
    ("shared_by", "shared by", format_count), ("latency", "latency", lambda ns: format_ns(int(ns))),
)  # fmt: skip

PLACEMENT = Result(
    kind="placement", title="Placement in memory tiers", order=88,
    facts=_described,
    headline=_headline,
    parts=(
        Tiles((
            Column("without_tiers_ns", "without tiers", NS, "all tensors in the first"),
            Column("with_tiers_ns", "with tiers", NS, "as placed"),
            Column("ratio", "with by without", decimals(3), "times as long"),
        )),
        Lines(_lines),
        Rows("tiers", "tiers: what a rank has there at the peak, what all ranks move", None, (
            Column("name", "tier"),
            Column("capacity", "capacity", number(lambda size: format_bytes(int(size)), "any")),
            Column("peak", "peak", BYTES), Column("at_ns", "at", NS),
            *(Column(f"peak_by_role/{role}", role, BYTES, is_rare=True) for role in _PARTS),
            Column("read", "loaded", _SUM), Column("written", "stored", _SUM),
            Column("busy_ns", "busy", NS),
            Column("queued_ns", "queued, all moves", NS, "sum of the waits of moves for others"),
        ), top=ALL),
        Rows("waits", lambda data: (
            f"operations that wait for memory: {format_ns(data['waited_ns'])} of all ranks"
        ), None, (
            Column("name", "operation"), Column("role", "waits for"),
            Column("count", "count", COUNT), Column("ns", "time", NS),
            Column("ns", "share", share_of("waited_ns")),
        )),
        Rows("each_role_alone", "each role moved alone", None, (
            Column("role", "moves", name_or("nothing")),
            Column("moved_bytes", "bytes", BYTES, "that lower tiers load and store"),
            Column("freed_bytes", "frees", _AT_LEAST_0, "of the first tier"),
            Column("step_ns", "time", NS), Column("step_ns", "ratio", _RATIO),
        ), top=ALL),
        Rows("estimates/roles", "beside an estimate: times as long as without tiers", None, (
            Column("role", "moves"), Column("simulated", "simulated", decimals(3)),
            Column("estimated", "estimated", decimals(3)),
            Column("", "difference", LABEL,
                   shown=lambda row: format_change(row["estimated"], row["simulated"])),
        )),
        Lines(_estimates),
        Rows("", "times as long as without tiers, by bandwidth", None, _room_columns,
             made=_rooms, top=ALL),
        Charts(lambda data: _charts(data).values()),
        Lines(lambda data: told_issues(data.get("issues", ()))),
    ),
)  # fmt: skip


# files


def check_placement_folder(folder: Path, *, overwrite: bool) -> None:
    """Check that results can be written, before they are worked out.

    - Raises InputError if results exist there already, or it cannot be written.
    """
    check_new_files(folder, (*_FILES, CHART_PAGE), overwrite=overwrite)


def write_placement(folder: Path, study: PlacementStudy) -> None:
    """Write summary.json, tables, and a page with charts that are also SVG files."""
    data = PLACEMENT.data(study)
    tables = map(csv_bytes, (_tensors(study), _live(study), study.points))
    contents = dict(zip(_FILES, (to_json(data), *tables), strict=True))
    title = f"Memory tiers of {of_steps(study.num_steps, 'a job')} on {study.chosen.system.name}"
    write_chart_folder(folder, contents, _charts(data), title)


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


def _charts(data: dict[str, Any]) -> dict[str, Chart]:
    """Draw the step over bandwidths and rooms, and what lives in each tier, by file name."""
    charts: dict[str, Chart] = {}
    points = pl.DataFrame(data["points"]).sort(*_ROOM, "bandwidth")
    rates = points["bandwidth"].unique(maintain_order=True).to_list()
    names, what = _room_names(points.select(_ROOM).unique(maintain_order=True))
    ratios = points["ratio"].cast(pl.Float64).to_numpy().reshape(len(names), len(rates))
    if len(rates) > 1:
        lines = tuple(map(LineSeries, names, [np.array(rates)] * len(names), ratios))
        charts["step"] = LineChart(
            "Time of the job", _BANDWIDTH, ChartAxis("times as long as without tiers"), lines,
            data["notes"][-1],
        )  # fmt: skip
    if len(rates) > 1 and len(names) > 1:
        charts["points"] = HeatMap(
            "Time of the job", "bandwidth of the tier (GB/s)", what,
            tuple(map(short_number, rates)), tuple(names), ratios, "times as long as without tiers",
        )  # fmt: skip
    uses = {use["name"]: use for use in data["tiers"]}
    for row in data["live"]:
        series = [
            LineSeries(name, np.array(row["time_ns"]) / 1e6, np.array(sizes) / 2**30, is_steps=True)
            for name, sizes in row["bytes_by_role"].items()
        ]
        use = uses[row["tier"]]
        charts[f"live-{row['tier']}"] = LineChart(
            f"What lives in {row['tier']}", ChartAxis("time (ms)"), ChartAxis("GiB"), tuple(series),
            f"rank {use['rank']}, at most {format_bytes(use['peak'])}, at "
            f"{format_ns(use['at_ns'])}",
        )  # fmt: skip
    return charts
