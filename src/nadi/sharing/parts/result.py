"""The result of ``nadi extract``: what the part is, and what crosses its border."""

from __future__ import annotations

from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from nadi.results.text import TOP, make_table, name_cell, print_issues, print_table, rank_ranges
from nadi.sharing.parts.extract import Extraction
from nadi.units import format_bytes, format_count, format_ns, format_percent, printable

__all__ = ["describe_extraction", "print_extraction"]


def describe_extraction(part: Extraction) -> dict[str, Any]:
    """Compute the JSON output; times are int ns, sizes bytes."""
    kinds = part.waits.group_by("kind").len().sort("len", "kind", descending=[True, False])
    return {
        "part_of": str(part.part_of),
        "ranks": list(part.ranks),
        "operations": part.num_operations,
        "operations_of_the_whole": part.num_all,
        "start_ns": part.start_ns,
        "end_ns": part.end_ns,
        "waits": part.waits.height,
        "waits_by_kind": dict(kinds.iter_rows()),
        "cut_collectives": part.num_cut_collectives,
        "tensors_in": _sizes(part.tensors.filter(~pl.col("is_output"))),
        "tensors_out": _sizes(part.tensors.filter("is_output")),
        "files": [str(file) for file in part.files],
        "issues": part.issues.to_dicts(),
    }


def _sizes(tensors: pl.DataFrame) -> dict[str, int]:
    return {"count": tensors.height, "bytes": int(tensors["bytes"].clip(0).sum())}


def print_extraction(part: Extraction, console: Console) -> None:
    """Print the page of text."""
    data = describe_extraction(part)
    count, whole = data["operations"], data["operations_of_the_whole"]
    ranks = f"rank{'s' if len(part.ranks) > 1 else ''} {rank_ranges(part.ranks)}"
    console.print(Text(printable(
        f"{data['part_of']}: {format_count(count)} of {format_count(whole)} operations "
        f"({format_percent(count, whole)}), {ranks}, from {format_ns(part.start_ns)} to "
        f"{format_ns(part.end_ns)}"
    )))  # fmt: skip
    kinds = ", ".join(
        f"{format_count(number)} {kind.replace('_', ' ')}"
        for kind, number in data["waits_by_kind"].items()
    )
    told = f": {kinds}" if kinds else ""
    console.print(Text(f"waits for operations outside: {format_count(data['waits'])}{told}"))
    if part.num_cut_collectives:
        console.print(Text(
            f"collectives and messages with members outside: "
            f"{format_count(part.num_cut_collectives)}; when they end is recorded as a wait"
        ))  # fmt: skip
    for key, what in (("tensors_in", "from outside"), ("tensors_out", "left for outside")):
        sizes = data[key]
        console.print(Text(
            f"tensors {what}: {format_count(sizes['count'])}, {format_bytes(sizes['bytes'])}"
        ))  # fmt: skip
    if part.waits.height:
        _print_waited_for(part.waits, console)
    for file in part.files:
        console.print(f"wrote {file}", markup=False)
    print_issues(part.issues.iter_rows(named=True), console)


def _print_waited_for(waits: pl.DataFrame, console: Console) -> None:
    """Print what the part waits for most often."""
    table = make_table(
        "what the part waits for",
        **{"outside": "left", "kind": "left", "waits": "right", "first to wait": "left"},
    )
    most = (
        waits.group_by("waits_for", "kind", maintain_order=True)
        .agg(pl.len(), pl.col("name").first())
        .sort("len", descending=True, maintain_order=True)
    )
    for outside, kind, number, name in most.head(TOP).iter_rows():
        table.add_row(
            name_cell(outside, "(a collective)"), kind.replace("_", " "), format_count(number),
            name_cell(name),
        )  # fmt: skip
    print_table(table, console)
