"""What attacks find, as a table."""

from __future__ import annotations

import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.results.text import make_table, print_table
from nadi.sharing.attacks.attacks import ATTACKS
from nadi.units import format_count


def print_attacks(found: pl.DataFrame, console: Console) -> None:
    """Print how often each attack succeeded at each level, a row per attack, and its chance."""
    levels = found["level"].unique(maintain_order=True).to_list()
    titles = dict.fromkeys(levels, "right")
    table = make_table("right answers", attack="left", **titles, chance="right")
    for (attack,), rows in found.group_by("attack", maintain_order=True):
        of = dict(zip(rows["level"].to_list(), rows["accuracy"].to_list(), strict=True))
        cells = [f"{100 * of[level]:.0f} %" if level in of else "-" for level in levels]
        table.add_row(str(attack), *cells, f"{100 * rows['chance'][0]:.0f} %")
    print_table(table, console)
    for level, jobs in found.select("level", "jobs").unique(maintain_order=True).iter_rows():
        console.print(Text(f"{level}: {format_count(jobs)} jobs"))
    for attack, meaning in ATTACKS.items():
        console.print(Text(f"{attack}: {meaning}"))
