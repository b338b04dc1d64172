"""What a folder of recordings has and lacks, as text."""

from __future__ import annotations

from rich.console import Console

from nadi.pytorch.collecting.checked_recordings import CheckedRecordings
from nadi.results.text import rank_ranges
from nadi.units import format_count, format_counted

__all__ = ["print_recording_check"]


def print_recording_check(found: CheckedRecordings, folder: str, console: Console) -> None:
    """Print what there is, what is missing, and what some analyses would need."""
    several = len(found.ranks) != 1
    of_all = f" of {format_count(found.world_size)}"
    there = f"rank{'s' if several else ''} {rank_ranges(found.ranks)}{of_all}"
    if not found.ranks:
        there = "no rank"
    marked = format_counted(found.num_steps, "marked step") if found.num_steps else "no marked step"
    hosts = format_counted(found.num_hosts, "host trace")
    console.print(f"{folder}: {there}, {hosts}, {marked}", markup=False)
    for text in found.missing:
        console.print(f"missing: {text}", markup=False)
    for one in found.not_recorded:
        option = f" (nadi record {one.option})" if one.option else ""
        console.print(f"for {', '.join(one.analyses)}: {one.what}{option}", markup=False)
    if not found.missing:
        console.print("nothing is missing for nadi run", markup=False)
