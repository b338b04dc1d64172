"""The results of ``nadi simulate``: what bounds the job, ranks, collectives, memory; and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.errors import UsageError, checked
from nadi.files.csv_tables import csv_bytes
from nadi.files.files import check_target, check_writable, is_local, locate, write_pieces
from nadi.results.text import make_table, name_cell, print_issues, print_table, with_units
from nadi.simulation.accounts.memory_accounts import are_of_device
from nadi.simulation.accounts.simulation_results import SimulationResults, results_of
from nadi.simulation.accounts.times import PARTITION, WAITING
from nadi.simulation.runs.result import print_jobs, print_links, print_tiers, tier_data
from nadi.simulation.runs.saved import write_tables
from nadi.simulation.simulation import Simulation, TimeBound
from nadi.systems.prices.priced_traces import PricedWork
from nadi.trace.schema import (
    COLLECTIVE_TIMES,
    ISSUES,
    JOB_TIMES,
    LINK_USE,
    LIVE_MEMORY,
    RANK_TIMES,
)
from nadi.units import (
    format_bytes,
    format_count,
    format_counted,
    format_ns,
    format_percent,
    format_range,
)

__all__ = [
    "check_output", "describe_simulation", "named_schedule", "print_simulation", "simulation_json",
    "write_simulation",
]  # fmt: skip

_ROWS_AT_ONCE = 1 << 18
_FIRST, _SLOWEST, _GROUPS = 8, 4, 8  # rows shown

_WORDS = {
    "finish": "finish", "computing": "compute", "transferring": "transfer",
    "accessing": "memory access", "hosting": "host", "other": "other nodes",
    "awaiting_members": "waiting for stragglers", "awaiting_sender": "waiting for senders",
    "awaiting_receiver": "waiting for receivers", "awaiting_memory": "waiting for memory",
    "waiting": "wait time", "idle": "idle",
    "exposed": "exposed comm", "overlapped": "overlapped comm",
}  # fmt: skip


# results as data


def describe_simulation(results: SimulationResults) -> dict[str, Any]:
    """Compute the JSON output; tables are polars frames."""
    live = results.live_memory
    system = results.system
    return {
        "system": system.name,
        "ranks": results.cycles.size,
        "nodes": results.num_nodes,
        "makespan_ns": results.makespan,
        "finish_ns": results.cycles.tolist(),
        "compute_ns": results.compute.tolist(),
        "not_compute_ns": results.exposed.tolist(),
        "ignored_settings": list(system.ignored),
        "priced": results.priced and msgspec.to_builtins(results.priced),
        "bound": results.bound and msgspec.to_builtins(results.bound),
        "slowest_rank": with_units(_slowest(results), RANK_TIMES).row(0, named=True),
        "per_rank": with_units(results.rank_times, RANK_TIMES),
        "collectives_by_type": with_units(results.collective_types, COLLECTIVE_TIMES),
        "collectives_by_group": with_units(results.process_groups, COLLECTIVE_TIMES),
        "jobs": None if results.job_times is None else with_units(results.job_times, JOB_TIMES),
        "links": None if results.link_use is None else with_units(results.link_use, LINK_USE),
        "live_memory": None if live is None else with_units(live, LIVE_MEMORY),
        "memory_capacity_bytes": system.memory_capacity or None,
        "beyond_capacity": with_units(results.beyond_capacity, LIVE_MEMORY),
        **tier_data(results),
    }


def _slowest(results: SimulationResults) -> pl.DataFrame:
    """Return the row of the rank that finishes last, of several the lowest."""
    return results.rank_times[int(np.argmax(results.cycles))]


def simulation_json(data: dict[str, Any]) -> bytes:
    """Write the result as JSON, with frames as lists of objects."""

    def rows_of(frame: pl.DataFrame) -> msgspec.Raw:
        return msgspec.Raw(frame.write_json().encode())

    content = msgspec.json.encode(data, enc_hook=rows_of)
    return msgspec.json.format(content, indent=2) + b"\n"


def named_schedule(simulation: Simulation) -> pl.DataFrame:
    """Return the schedule with the names of its operations.

    Returns
    -------
    polars.DataFrame
        ``rank``, ``node`` (row in the rank's trace), ``id``, ``name``, ``kind``, ``start``,
        ``end`` (ns), ``resource``, and as ``cause`` the id of the node of the rank whose end let
        it be issued; null for those at the start. O(nodes).
    """
    place: dict[int, int] = {}  # of each trace that differs
    which = np.array([place.setdefault(id(trace), len(place)) for trace in simulation.traces])
    different = {id(trace): trace for trace in simulation.traces}.values()
    heights = np.array([trace.nodes.height for trace in different])
    first = (np.cumsum(heights) - heights)[which]
    known = pl.concat([trace.nodes.select("id", "name", "kind") for trace in different])
    table = simulation.schedule.table
    start = first[table["rank"].to_numpy()]
    cause = table["bound_node"].to_numpy()
    ids = known["id"].to_numpy()[start + np.maximum(cause, 0)]
    return (
        table.select("rank", "node", "start", "end", "resource")
        .with_columns(known[start + table["node"].to_numpy()])
        .with_columns(cause=pl.when(pl.Series(cause >= 0)).then(pl.Series(ids)))
        .select("rank", "node", "id", "name", "kind", "start", "end", "resource", "cause")
    )


# files


def _whole(results: SimulationResults) -> dict[str, Any]:
    return {
        **describe_simulation(results),
        "per_collective": with_units(results.collectives, COLLECTIVE_TIMES),
        "settings": msgspec.to_builtins(results.system),
    }


def _write_json(simulation: Simulation, path: Path) -> pl.DataFrame:
    write_pieces(path, [simulation_json(_whole(results_of(simulation)))])
    return ISSUES.empty()


def _write_csv(simulation: Simulation, path: Path) -> pl.DataFrame:
    table = named_schedule(simulation)

    def pieces() -> Iterator[bytes]:
        for at in range(0, max(table.height, 1), _ROWS_AT_ONCE):
            rows = table.slice(at, _ROWS_AT_ONCE)
            yield csv_bytes(rows, header=at == 0)

    write_pieces(path, pieces())
    return ISSUES.empty()


def _write_native(simulation: Simulation, path: Path) -> pl.DataFrame:
    """Write a file that :func:`nadi.simulation.read_simulation` reads."""
    results = results_of(simulation)
    known = (
        "live_memory", "link_use", "job_times", "tier_traffic", "tier_use", "tier_waits",
    )  # fmt: skip
    if_known = {name: getattr(results, name) for name in known}
    tables = {
        "rank_times": results.rank_times,
        "collective_times": results.collectives,
        "issues": results.issues,
        **{name: table for name, table in if_known.items() if table is not None},
    }
    sums = {
        name: value
        for name, value in _whole(results).items()
        if not isinstance(value, (pl.DataFrame, list, dict))
        or name in ("settings", "priced", "bound")
    }
    write_tables(path, sums, named_schedule(simulation), tables)
    return ISSUES.empty()


def _write_timeline(simulation: Simulation, path: Path) -> pl.DataFrame:
    # which takes the graph of events
    from nadi.simulation.runs.timeline import write_simulated_timeline

    return write_simulated_timeline(simulation, path)


def _write_lines(simulation: Simulation, path: Path) -> pl.DataFrame:
    from nadi.simulation.runs.timeline import write_issue_lines  # as above

    return write_issue_lines(simulation, path)


_Writer = Callable[[Simulation, Path], pl.DataFrame]

# by the end of the name but for .gz; the first that fits, so .trace.json would stand before .json
_WRITERS: dict[str, _Writer] = {
    ".trace.json": _write_timeline,
    ".pftrace": _write_timeline,
    ".perfetto-trace": _write_timeline,
    ".log": _write_lines,
    ".json": _write_json,
    ".csv": _write_csv,
    ".nadi": _write_native,
}
_NOT_COMPRESSED = (".nadi",)  # once more


def _writer(path: Path) -> _Writer:
    name = path.name.removesuffix(".gz")
    for suffix, writer in _WRITERS.items():
        if name.endswith(suffix) and (name == path.name or suffix not in _NOT_COMPRESSED):
            return writer
    raise UsageError(
        str(path), "no output format has this suffix",
        f"use one of {' '.join(_WRITERS)}",
    )  # fmt: skip


def check_output(path: Path | str, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Check that a result can be written before it is computed; writes nothing.

    Raises
    ------
    UsageError
        If no format has its suffix, or it is one of ``sources``.
    InputError
        If it cannot be written, or exists already and ``overwrite`` is not given.
    """
    place = locate(path)
    _writer(place)
    check_target(place, sources, overwrite=overwrite)
    if is_local(place):
        check_writable(place)


@checked
def write_simulation(simulation: Simulation, path: Path | str) -> pl.DataFrame:
    """Write the result of a simulation.

    Parameters
    ----------
    path
        ``.json``: everything but the schedule, with all settings; ``.csv``: the schedule with
        names; either with ``.gz`` at its end is compressed. ``.nadi``: the schedule and all
        tables, exactly, as a zip of Arrow files. It is replaced only once all is written.

    Returns
    -------
    polars.DataFrame
        ``schema.ISSUES``: what could not be written.

    Raises
    ------
    UsageError
        If the suffix is none of these.
    InputError
        If the file cannot be written.
    """
    place = locate(path)
    return _writer(place)(simulation, place)


# the page of text


def print_simulation(results: SimulationResults, console: Console) -> None:
    """Print the page of text."""
    system, num_ranks = results.system, results.cycles.size
    on = f" on {system.name}" if system.name else ""
    ranks, nodes = format_counted(num_ranks, "rank"), format_counted(results.num_nodes, "node")
    makespan = f"{format_ns(results.makespan)} ({format_count(results.makespan)} ns)"
    console.print(Text(f"{ranks}, {nodes}{on}: {makespan}"))
    if results.bound:
        console.print(Text(_bound(results.bound, results.makespan)))
    slowest = _slowest(results).row(0, named=True)
    console.print(f"rank {slowest['rank']} finishes last: {_shares(slowest)}")
    if results.priced and results.priced.num_priced:
        console.print(Text(_priced(results.priced)))
    if system.ignored:
        console.print(Text(f"ignored settings: {', '.join(system.ignored)}"))
    if results.job_times is not None:
        print_jobs(results.job_times, console)
    _print_ranks(results, console)
    if results.collectives.height:
        _print_types(results, console)
        _print_groups(results, console)
    if results.link_use is not None and results.link_use.height:
        print_links(results.link_use, results.makespan, console)
    print_tiers(results, console)
    _print_memory(results, console)
    issues = results.issues.iter_rows(named=True)
    print_issues((issue for issue in issues if issue["severity"] != "info"), console)


def _bound(bound: TimeBound, makespan: int) -> str:
    """Format between what times the answer of a folded job is."""
    if bound.is_exact:
        return "folded: alike ranks took the same times, so this is the time of the whole job"
    low, high = (100 * (end / max(makespan, 1) - 1) for end in (bound.low_ns, bound.high_ns))
    interval = f"{format_ns(bound.low_ns)} to {format_ns(bound.high_ns)}"
    return f"folded: the whole job takes {interval} ({low:+.2f} to {high:+.2f} %)"


def _priced(priced: PricedWork) -> str:
    """Format what was priced, by what, and the interval of the sum."""
    of_device = f"curves of {priced.device}"
    parts = {
        "recorded operations of the same shape": priced.exact,
        "recorded operations of other shapes": priced.interpolated,
        of_device: priced.curve,
        "a plain roofline": priced.roofline,
    }
    used = {what: count for what, count in parts.items() if count}
    by = ", ".join(
        what if len(used) == 1 else f"{format_count(count)} by {what}"
        for what, count in used.items()
    )
    by = f"by {by}" if len(used) == 1 else by
    time = f"{format_ns(priced.duration_ns)} ({format_range(priced.low_ns, priced.high_ns)})"
    number = format_counted(priced.num_priced, "operation")
    return f"priced {number} without a time {by}: {time} in all"


def _shares(row: dict[str, int]) -> str:
    """Format the shares of a rank's time, largest first."""
    parts = sorted(((row[name], name) for name in PARTITION if row[name]), reverse=True)
    if not parts:
        return "no node takes any time"
    return ", ".join(
        f"{_WORDS[name]} {format_percent(time, row['finish'])}" for time, name in parts
    )


def _print_ranks(results: SimulationResults, console: Console) -> None:
    """Print one row per range of ranks with equal times."""
    table = results.rank_times.with_columns(waiting=pl.sum_horizontal(WAITING))
    figures = table.drop("rank")
    differs = figures != figures.shift(1)
    begins = table.select(
        pl.any_horizontal(differs[name].fill_null(value=True) for name in figures.columns)
    ).to_series()
    first = np.flatnonzero(begins.to_numpy())
    last = np.append(first[1:], table.height) - 1
    shown = list(range(min(_FIRST, first.size)))
    finish = table["finish"].to_numpy()[first]
    slowest = np.lexsort((first, -finish))[:_SLOWEST]
    shown += sorted(int(k) for k in slowest if k >= len(shown))
    spent = [name for name in (*PARTITION[:5], "waiting", "idle") if (table[name] > 0).any()]
    columns = ["finish", *spent]
    if (table["communicating"] > 0).any():
        columns += ["exposed", "overlapped"]
    title = f"ranks (the first {_FIRST} rows and the slowest)" if first.size > _FIRST else "ranks"
    titles = {_WORDS.get(name, name): "right" for name in columns}
    page = make_table(title, rank="left", **titles)
    for k in shown:
        row = table.row(int(first[k]), named=True)
        label = f"{first[k]}" if first[k] == last[k] else f"{first[k]}-{last[k]}"
        page.add_row(label, *(format_ns(row[name]) for name in columns))
    print_table(page, console)
    if len(shown) < first.size:
        rest = sum(int(last[k] - first[k]) + 1 for k in range(first.size) if k not in set(shown))
        console.print(f"and {format_count(rest)} more ranks; --json prints all")


def _print_types(results: SimulationResults, console: Console) -> None:
    page = make_table(
        "collectives by type",
        **{"type": "left", "ranks": "right", "count": "right", "bytes": "right",
           "time": "right", "wait time": "right", "busbw GB/s": "right",
           "efficiency": "right"},
    )  # fmt: skip
    table = results.collective_types
    several = set(table.filter(pl.col("type").is_duplicated())["type"])
    for row in table.iter_rows(named=True):
        by = f", {row['algorithm']}" if row["type"] in several else ""
        page.add_row(
            row["type"] + by, _from_to(row["members"]), format_count(row["count"]),
            format_bytes(row["bytes"]), format_ns(row["time"]), format_ns(row["waiting"]),
            f"{row['bus_bandwidth']:.1f}" if row["bus_bandwidth"] >= 0 else "-",
            format_percent(row["fraction"], 1) if row["fraction"] >= 0 else "-",
        )  # fmt: skip
    print_table(page, console)


def _from_to(members: list[int]) -> str:
    return str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"


def _print_groups(results: SimulationResults, console: Console) -> None:
    """Print one row per set of identical groups, sorted by time."""
    sums = ["members", "count", "bytes", "time", "waiting"]
    groups = results.process_groups.group_by(sums, maintain_order=True)
    table = groups.agg(pl.col("group").first(), pl.len().alias("alike"))
    if table.height == 1 and table["group"][0] == "":
        return
    page = make_table(
        "collectives by process group",
        group="left", ranks="right", count="right", bytes="right", time="right",
        **{"wait time": "right"},
    )  # fmt: skip
    for row in table.head(_GROUPS).iter_rows(named=True):
        alike = f" and {row['alike'] - 1} identical" if row["alike"] > 1 else ""
        page.add_row(
            name_cell(row["group"] + alike, "all ranks"), _from_to(row["members"]),
            format_count(row["count"]), format_bytes(row["bytes"]), format_ns(row["time"]),
            format_ns(row["waiting"]),
        )  # fmt: skip
    print_table(page, console)
    if table.height > _GROUPS:
        console.print(f"and {format_count(table.height - _GROUPS)} more; --json prints all")


def _print_memory(results: SimulationResults, console: Console) -> None:
    """Print the largest peak of each kind of device, and which ranks' tensors do not fit."""
    live, capacity = results.live_memory, results.system.memory_capacity
    if live is None:
        several = results.job_times is not None
        why = "of several jobs they are not counted" if several else "the traces record no tensors"
        console.print(f"live tensors: unknown ({why})")
        return
    kind = live["device"].cast(pl.String).str.extract(r"^([^:]*)")
    largest = live.with_columns(kind=kind, counts=are_of_device(live)).sort(
        "peak", descending=True, maintain_order=True
    )
    for row in largest.unique("kind", keep="first", maintain_order=True).iter_rows(named=True):
        on = f" on {row['device']}" if row["device"] else ""
        of = f" of {format_bytes(capacity)}" if capacity and row["counts"] else ""
        console.print(Text(
            f"live tensors{on}: peak {format_bytes(row['peak'])}{of}, on rank {row['rank']} at "
            f"{format_ns(row['at'])}"
        ))  # fmt: skip
    beyond = results.beyond_capacity["rank"].n_unique()
    if beyond:
        console.print(Text(
            f"warning: live tensors of {format_counted(beyond, 'rank')} exceed the "
            f"{format_bytes(capacity)} memory of a rank's device"
        ))  # fmt: skip
