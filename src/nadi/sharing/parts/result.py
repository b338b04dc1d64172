"""What ``nadi extract`` wrote: what the part is, and what crosses its border."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from nadi.results.declared import COUNT, WORDS, Column, Lines, Result, Rows, name_or
from nadi.results.text import issue_lines, rank_ranges
from nadi.sharing.parts.extract import Extraction
from nadi.units import format_bytes, format_count, format_ns, format_percent


def _described(part: Extraction) -> dict[str, Any]:
    """Compute the JSON output; times are int ns, sizes bytes."""
    kinds = part.waits.group_by("kind").len().sort("len", "kind", descending=[True, False])
    most = (
        part.waits.group_by("waits_for", "kind", maintain_order=True)
        .agg(pl.len().alias("waits"), pl.col("name").first().alias("first"))
        .sort("waits", descending=True, maintain_order=True)
    )
    return {
        "part_of": str(part.part_of),
        "ranks": list(part.ranks),
        "operations": part.num_operations,
        "operations_of_the_whole": part.num_all,
        "start_ns": part.start_ns,
        "end_ns": part.end_ns,
        "waits": part.waits.height,
        "waits_by_kind": dict(kinds.iter_rows()),
        "waited_for": most.to_dicts(),
        "cut_collectives": part.num_cut_collectives,
        "tensors_in": _sizes(part.tensors.filter(~pl.col("is_output"))),
        "tensors_out": _sizes(part.tensors.filter("is_output")),
        "files": [str(file) for file in part.files],
        "issues": part.issues.to_dicts(),
    }


def _sizes(tensors: pl.DataFrame) -> dict[str, int]:
    return {"count": tensors.height, "bytes": int(tensors["bytes"].clip(0).sum())}


def _headline(data: dict[str, Any]) -> str:
    count, whole = data["operations"], data["operations_of_the_whole"]
    ranks = f"rank{'s' if len(data['ranks']) > 1 else ''} {rank_ranges(data['ranks'])}"
    start, end = data["start_ns"], data["end_ns"]
    when = f", from {format_ns(start)} to {format_ns(end)}" if end >= 0 else ""
    return (
        f"{data['part_of']}: {format_count(count)} of {format_count(whole)} operations "
        f"({format_percent(count, whole)}), {ranks}{when}"
    )


def _border(data: dict[str, Any]) -> Iterator[str]:
    """Say what crosses the border."""
    kinds = ", ".join(
        f"{format_count(number)} {kind.replace('_', ' ')}"
        for kind, number in data["waits_by_kind"].items()
    )
    told = f": {kinds}" if kinds else ""
    yield f"waits for operations outside: {format_count(data['waits'])}{told}"
    if data["cut_collectives"]:
        yield (
            f"collectives and messages with members outside: "
            f"{format_count(data['cut_collectives'])}; when they end is recorded as a wait"
        )
    for key, what in (("tensors_in", "from outside"), ("tensors_out", "left for outside")):
        sizes = data[key]
        yield f"tensors {what}: {format_count(sizes['count'])}, {format_bytes(sizes['bytes'])}"


EXTRACTION = Result(
    kind="extraction", title="Extracted part", order=92, facts=_described, headline=_headline,
    parts=(
        Lines(_border),
        Rows("waited_for", "what the part waits for", None, (
            Column("waits_for", "outside", name_or("(a collective)")),
            Column("kind", "kind", WORDS), Column("waits", "waits", COUNT),
            Column("first", "first to wait"),
        )),
        Lines(lambda data: [f"wrote {file}" for file in data["files"]]),
        Lines(lambda data: issue_lines(data["issues"])),
    ),
)  # fmt: skip
