"""The busiest links of a simulation and who used them, and jobs that share them, as text.

What a simulated job did with memory tiers: as data, and as tables of text.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.results.text import make_table, name_cell, print_table, with_units
from nadi.simulation.accounts.link_use import IN_GROUP
from nadi.simulation.accounts.simulation_results import SimulationResults
from nadi.trace.schema import TIER_TRAFFIC, TIER_USE, TIER_WAITS
from nadi.units import format_bytes, format_count, format_ns, format_percent

__all__ = ["changes_data", "print_changes", "print_jobs", "print_links", "print_tiers", "tier_data"]


_ROWS, _USERS = 6, 2  # shown
_RANGES = 4  # of ranks, shown
_LEAST = 0.01  # of the bytes


def print_links(links: pl.DataFrame, makespan: int, console: Console) -> None:
    """Print the busiest links, those with the same figures in one row.

    Parameters
    ----------
    links
        ``schema.LINK_USE``, the busiest first.
    makespan
        Time of the job, ns.
    """
    found: dict[tuple[str, ...], list[Any]] = {}
    for row in links.iter_rows(named=True):
        cells = (
            format_bytes(row["bytes"]),
            format_percent(row["utilization"], 1),
            format_percent(row["full"], makespan) if row["full"] >= 0 else "-",
        )
        kinds = [user.partition(IN_GROUP)[0] for user in row["users"][:_USERS]]
        found.setdefault((*cells, *kinds), [row, cells, 0])[2] += 1
    page = make_table(
        "busiest links", link="left", bytes="right", utilization="right", full="right",
        **{"used by": "left"},
    )  # fmt: skip
    for row, cells, count in list(found.values())[:_ROWS]:
        alike = f" and {format_count(count - 1)} alike" if count > 1 else ""
        page.add_row(row["link"] + alike, *cells, Text(_users(row)))
    print_table(page, console)
    rest = sum(count for _, _, count in list(found.values())[_ROWS:])
    if rest:
        console.print(f"and {format_count(rest)} more links; --json prints all")


def print_jobs(jobs: pl.DataFrame, console: Console) -> None:
    """Print when jobs on one machine finish, together and alone (``schema.JOB_TIMES``)."""
    page = make_table(
        "jobs", job="left", ranks="left", finish="right", alone="right", slowdown="right"
    )
    for row in jobs.iter_rows(named=True):
        page.add_row(
            name_cell(row["job"]), _ranges(row["ranks"]), format_ns(row["finish"]),
            format_ns(row["alone"]), f"{row['slowdown']:.3f}",
        )  # fmt: skip
    print_table(page, console)


def _users(row: dict[str, Any]) -> str:
    """Format who used a link, and their shares of its bytes; groups of one type together."""
    groups: dict[str, list[str]] = {}
    carried: Counter[str] = Counter()
    for user, num_bytes in zip(row["users"], row["user_bytes"], strict=True):
        kind = user.partition(IN_GROUP)[0]
        groups.setdefault(kind, []).append(user)
        carried[kind] += num_bytes
    parts = []
    for kind, num_bytes in carried.most_common(_USERS):
        users = groups[kind]
        who = users[0] if len(users) == 1 else f"{kind} in {len(users)} groups"
        parts.append(f"{who} {format_percent(num_bytes, row['bytes'])}")
    rest = row["bytes"] - sum(num_bytes for _, num_bytes in carried.most_common(_USERS))
    return ", ".join(parts) + (", ..." if rest > _LEAST * row["bytes"] else "")


def _ranges(ranks: list[int]) -> str:
    """Format ranks in their order, those that follow each other as a range."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    text = ",".join("-".join(map(str, part)) for part in parts[:_RANGES])
    return text + (",..." if len(parts) > _RANGES else "")


_SHOWN = 8  # operations that wait


def tier_data(results: SimulationResults) -> dict[str, Any]:
    """Compute the part of the JSON output about tiers; null if no node uses one."""
    traffic, use = results.tier_traffic, results.tier_use
    if traffic is None or use is None:
        return {"memory_tiers": None, "memory_tiers_over_time": None, "memory_waits": None}
    return {
        "memory_tiers": with_units(traffic, TIER_TRAFFIC),
        "memory_tiers_over_time": with_units(use, TIER_USE),
        "memory_waits": with_units(_waits(results), TIER_WAITS),
    }


def _waits(results: SimulationResults) -> pl.DataFrame:
    """Sum the waits of operations by name and tier, the longest first."""
    assert results.tier_waits is not None
    return (
        results.tier_waits.group_by("name", "tier", maintain_order=True)
        .agg(count=pl.len(), waiting=pl.col("waiting").sum())
        .sort("waiting", descending=True, maintain_order=True)
    )


def print_tiers(results: SimulationResults, console: Console) -> None:
    """Print what tiers served, their utilization over time, and what waited for them."""
    if results.tier_traffic is None:
        return
    _print_traffic(results, console)
    _print_use(results, console)
    _print_waits(results, console)


def _print_traffic(results: SimulationResults, console: Console) -> None:
    page = make_table(
        "memory tiers",
        tier="left", memories="right", read="right", written="right", busy="right",
        queueing="right", utilization="right",
    )  # fmt: skip
    assert results.tier_traffic is not None
    sums = results.tier_traffic.group_by("tier", maintain_order=True).agg(
        memories=pl.len(), read=pl.col("bytes_read").sum(), written=pl.col("bytes_written").sum(),
        busy=pl.col("busy").max(), waiting=pl.col("waiting").sum(),
        utilization=pl.col("utilization").max(),
    )  # fmt: skip
    for row in sums.iter_rows(named=True):
        page.add_row(
            row["tier"], format_count(row["memories"]), format_bytes(row["read"]),
            format_bytes(row["written"]), format_ns(row["busy"]), format_ns(row["waiting"]),
            _share(row["utilization"]),
        )  # fmt: skip
    print_table(page, console)
    if (sums["memories"] > 1).any():
        console.print("busy and utilization are those of the busiest memory of a tier")


def _print_use(results: SimulationResults, console: Console) -> None:
    assert results.tier_use is not None
    parts = results.tier_use.filter(pl.col("utilization") >= 0)
    tiers = parts.group_by("tier", "start", maintain_order=True).agg(pl.col("utilization").max())
    if not tiers.height:
        return
    count = tiers["start"].n_unique()
    columns = {str(k + 1): "right" for k in range(count)}
    page = make_table("utilization of memory tiers in each tenth of the time", tier="left",
                      **columns)  # fmt: skip
    for name in tiers["tier"].unique(maintain_order=True).to_list():
        shares = tiers.filter(pl.col("tier") == name)["utilization"].to_list()
        page.add_row(name, *map(_share, shares))
    print_table(page, console)


def _print_waits(results: SimulationResults, console: Console) -> None:
    table = _waits(results)
    if not table.height:
        return
    page = make_table(
        "operations that wait for memory",
        operation="left", tier="left", count="right", **{"wait time": "right"},
    )  # fmt: skip
    for row in table.head(_SHOWN).iter_rows(named=True):
        page.add_row(
            name_cell(row["name"]), row["tier"], format_count(row["count"]),
            format_ns(row["waiting"]),
        )  # fmt: skip
    print_table(page, console)
    if table.height > _SHOWN:
        console.print(f"and {format_count(table.height - _SHOWN)} more; --json prints all")


def changes_data(compared: pl.DataFrame) -> pl.DataFrame:
    """Add units to the columns that say what changes would do."""
    return compared.rename({"makespan": "makespan_ns", "gain": "gain_ns"})


def print_changes(compared: pl.DataFrame, console: Console) -> None:
    """Print what each change would do."""
    of_memory = compared["change"].str.starts_with("memory ").all()
    title = "with other memory" if of_memory else "after changes"
    page = make_table(title, change="left", time="right", gain="right",
                      share="right")  # fmt: skip
    for change, makespan, gain in compared.iter_rows():
        before = max(makespan + gain, 1)
        page.add_row(change, format_ns(makespan), format_ns(gain), format_percent(gain, before))
    print_table(page, console)


def _share(utilization: float) -> str:
    return format_percent(utilization, 1) if utilization >= 0 else "-"
