"""The busiest links of a simulation and who used them, and jobs that share them, as text."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.results.text import make_table, name_cell, print_table
from nadi.simulation.accounts.link_use import IN_GROUP
from nadi.units import format_bytes, format_count, format_ns, format_percent

__all__ = ["print_jobs", "print_links"]

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
